"""Options: each is declared once, and what is typed, given in Python or sent over HTTP comes from
there.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, get_type_hints

import pytest

from kbq.asking.searcher import SearchTarget
from kbq.augmentation.augment import augment
from kbq.commands import ask, maintain, measure, options, teach
from kbq.errors import KbqError, QueryError
from kbq.importing.dump import import_dump
from kbq.importing.index import import_index
from kbq.kb import KnowledgeBase
from kbq.kilt.error_kinds import find_errors
from kbq.kilt.evaluation import evaluate
from kbq.kilt.passages import evaluate_passages
from kbq.maintain.compact import compact
from kbq.maintain.options import BuildKwargs, BuildOptions, UpdateKwargs
from kbq.maintain.verify import verify
from kbq.options import Option, check, declared
from kbq.search.options import RankKwargs, SearchKwargs, SearchOptions
from kbq.tables.options import FillKwargs, FillOptions
from kbq.training.encoders import train_encoders
from kbq.training.reader import train_reader
from kbq.training.sparta import train_sparta
from kbq.tuning.finetune import finetune
from kbq.tuning.settings import FinetuningKwargs, FinetuningSettings


@dataclass(frozen=True)
class Asked:
    """Options of every type."""

    k: Annotated[int, Option("How many.", least=1)] = 5
    share: Annotated[float | None, Option("Of all.", 0, 1)] = None
    weight: Annotated[float, Option("Of each.", least=0)] = 1.0
    seed: Annotated[int, Option("Of random numbers.")] = 0
    kind: Annotated[Literal["a", "b"], Option("Which.")] = "a"
    other: int = 0  # is no option


def test_the_options_of_a_record_are_its_fields_with_a_help() -> None:
    assert [
        (one.name, one.annotation, one.default, one.option.help) for one in declared(Asked)
    ] == [
        ("k", int, 5, "How many."),
        ("share", float | None, None, "Of all."),
        ("weight", float, 1.0, "Of each."),
        ("seed", int, 0, "Of random numbers."),
        ("kind", Literal["a", "b"], "a", "Which."),
    ]
    assert [one.choices for one in declared(Asked)][-1] == ("a", "b")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": 0}, "k is 0, must be at least 1"),
        ({"k": True}, "k is True, must be at least 1"),
        ({"k": 1.0}, "k is 1.0, must be at least 1"),
        ({"k": None}, "k is None, must be at least 1"),
        ({"share": 1.5}, "share is 1.5, must be a number from 0 to 1"),
        ({"share": "all"}, "share is 'all', must be a number from 0 to 1"),
        ({"weight": -1}, "weight is -1, must be a number, 0 or more"),
        ({"weight": float("nan")}, "weight is nan, must be a number, 0 or more"),
        ({"weight": float("inf")}, "weight is inf, must be a number, 0 or more"),
        ({"seed": "x"}, "seed is 'x', must be a whole number"),
        ({"kind": "c"}, "kind 'c' is unknown: choose from a, b"),
        ({"kind": ["a"]}, "kind ['a'] is unknown: choose from a, b"),
    ],
)
def test_what_has_no_meaning_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError) as caught:
        check(replace(Asked(), **change), QueryError)
    assert (str(caught.value), caught.value.is_usage) == (said, True)


def test_what_has_a_meaning_is_not_refused() -> None:
    for change in (
        {},
        {"share": 1},
        {"share": 0.5, "weight": 0},
        {"seed": -1, "kind": "b", "k": 10**9},
    ):
        check(replace(Asked(), **change), KbqError)


def test_words_of_the_library_are_the_fields_of_the_records() -> None:
    names = {
        record: {field.name for field in fields(record)}
        for record in (SearchOptions, FillOptions, BuildOptions)
    }
    ranks, searches = {*get_type_hints(RankKwargs)}, {*get_type_hints(SearchKwargs)}
    assert searches == names[SearchOptions] - {"k", "unit", "backend", "purpose"}
    assert {*get_type_hints(FillKwargs)} == names[FillOptions] | ranks | {"backend", "calibration"}
    told = {"report", "report_stage", "note"}
    assert BuildKwargs.__optional_keys__ == names[BuildOptions] | told
    assert UpdateKwargs.__optional_keys__ == told | {
        "format",
        "columns",
        "documents",
        "workers",
        "skip_bad_lines",
        "dry_run",
    }
    assert {*get_type_hints(FinetuningKwargs)} == {one.name for one in declared(FinetuningSettings)}


@pytest.mark.parametrize("record", [SearchOptions, FillOptions, BuildOptions, FinetuningSettings])
def test_every_help_is_a_sentence(record: Any) -> None:
    for one in declared(record):
        assert one.option.help.endswith("."), one.name


# Commands, and what they call.
TWICE: dict[Callable[..., Any], Callable[..., Any]] = {
    ask.build: KnowledgeBase.build,
    ask.query: KnowledgeBase.query,
    ask.explain: KnowledgeBase.explain,
    maintain.compact: KnowledgeBase.compact,
    maintain.delete: KnowledgeBase.delete,
    maintain.dump: import_dump,
    maintain.index_of_densephrases: import_index,
    maintain.index_vectors: KnowledgeBase.index_vectors,
    maintain.sparta: KnowledgeBase.index_sparta,
    maintain.verify: verify,
    measure.errors: find_errors,
    measure.evaluate: evaluate,
    measure.passages: evaluate_passages,
    measure.predict: KnowledgeBase.predict,
    options.AskedKb: SearchTarget,
    teach.augment: augment,
    teach.calibrate: KnowledgeBase.calibrate,
    teach.encoders: train_encoders,
    teach.finetune: KnowledgeBase.finetune,
    teach.reader: train_reader,
    teach.sparta: train_sparta,
    KnowledgeBase.compact: compact,
    KnowledgeBase.finetune: finetune,
}


def defaults(called: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of parameters, lists as they are typed; None stands for many things."""
    told = {name: one.default for name, one in signature(called).parameters.items()}
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in told.items()
        if value not in (Parameter.empty, None, ())
    }


@pytest.mark.parametrize("outer", TWICE, ids=lambda outer: outer.__qualname__)
def test_a_default_that_stands_twice_is_the_same(outer: Callable[..., Any]) -> None:
    typed = defaults(outer)
    inner = defaults(TWICE[outer])
    both = typed.keys() & inner.keys() - {"note", "report", "report_stage"}
    assert both
    assert {name: typed[name] for name in both} == {name: inner[name] for name in both}
