"""Finetuning, whole: triples go in, a query-encoder folder comes out; whatever is wrong is one
sentence.
"""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from killed import Killed

from kbq.commands.teach import finetuning_lines
from kbq.description import describe
from kbq.dump.manifest import read_manifest, write_manifest
from kbq.errors import KbqError, ModelError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.kilt.task import Task
from kbq.model.model import Model
from kbq.search.options import SearchOptions
from kbq.training import engine
from kbq.training.engine import StepReport
from kbq.tuning.finetune import FinetuningOutcome
from kbq.tuning.labels import Labeller, with_page_ids
from kbq.tuning.query_side import DENSE, DevScorer, hybrid
from kbq.words.bm25 import index_bm25

Rows = list[dict[str, str]]
Asked = dict[str, Any]  # arguments of `finetune`
BROKEN = """
from kbq.kilt.task import slot_with
from kbq.kilt.task import Task
from kbq.words.bm25 import index_bm25

TASKS = (Task("broken", slot_with({"birth": "who {object}"}), "phrase", ("em",), "em"),)
"""
LONG = "word " * 200
RIGHT = [
    {"subject": subject, "relation": relation}
    for subject in ("Marie", "Curie", "Warsaw", "Paris", "river")
    for relation in ("birth", "city", "place")
]


@pytest.fixture
def asked(rows: Rows, write_json_lines: Callable[..., Path], tmp_path: Path) -> Asked:
    """All triples, scored on themselves."""
    triples = write_json_lines("triples.jsonl", *rows)
    settings = {"k": 10, "epochs": 2, "batch": 5, "learning_rate": 1e-3, "patience": 99}
    return settings | {
        "triples": triples,
        "out": tmp_path / "out",
        "dev": triples,
        "command": "kbq finetune",
    }


def test_every_phase_is_reported_with_an_estimate_before_the_steps(
    own_kb: KnowledgeBase, asked: Asked
) -> None:
    stages: list[str] = []
    own_kb.finetune(**asked, report_stage=lambda name, *_: stages.append(name))
    assert list(dict.fromkeys(stages)) == [
        "dev queries before tuning",
        "answers to keep",
        "8 steps at most, about 1 min",
    ]


def run(asked: Asked, kb: KnowledgeBase, notes: list[str] | None = None) -> FinetuningOutcome:
    return kb.finetune(**asked, note=(lambda note: None) if notes is None else notes.append)


def test_a_query_encoder_comes_out(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, model_folder: Path
) -> None:
    notes: list[str] = []
    before, config = (
        own_kb.model.encode_queries(["Marie [SEP] birth"])[0].tolist(),
        own_kb.model.config,
    )
    outcome = run(asked, own_kb, notes)
    assert notes == []
    assert (outcome.reach.queries, outcome.reach.unreadable, outcome.reach.on_page) == (
        len(rows),
        0,
        len(rows),
    )
    assert (outcome.dev_queries, outcome.measure) == (len(rows), "KILT-accuracy")
    assert len(outcome.scores) == 3
    assert all(0 <= score <= 100 for score in outcome.scores)
    assert outcome.steps == 2 * -(-len(rows) // 5)
    # This knowledge base has no words.
    assert (outcome.lexical_factor, outcome.hybrid_score) == (
        1.0,
        None,
    )
    assert not asked["out"].with_name("out.partial").exists()
    assert os.fspath(outcome) == str(asked["out"])
    tuned = KnowledgeBase.open(own_kb.folder, str(asked["out"]), device="cpu")
    assert tuned.model.config.base == str(model_folder)
    facts = tuned.model.config.training["finetuning"]
    assert isinstance(facts, dict)
    assert (facts["command"], facts["triples"]["name"], facts["task"]) == (
        "kbq finetune",
        "triples.jsonl",
        "slot_filling",
    )
    assert facts["relations"] == (["birth", "place of birth"] if outcome.is_better else [])
    assert facts["outcome"]["scores"] == list(outcome.scores)
    assert json.loads((asked["out"] / "kbq.json").read_text("utf-8"))["config"]["base"] == str(
        model_folder
    )
    # It keeps its own.
    assert own_kb.model.encode_queries(["Marie [SEP] birth"])[0].tolist() == before
    assert own_kb.model.config == config
    after = tuned.model.encode_queries(["Marie [SEP] birth"])[0].tolist()
    assert (after != before) == (outcome.scores[0] < max(outcome.scores))
    assert tuned.query(["Marie [SEP] birth"], 1)[0][0].text


@pytest.mark.parametrize(("better", "factor"), [(12, 2.0), (3, 1.0), (2, 1.0)])
def test_what_words_weigh_is_chosen_on_dev_queries_where_they_say_so_clearly(
    better: int,
    factor: float,
    asked: Asked,
    own_kb: KnowledgeBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shutil.copytree(own_kb.folder, tmp_path / "kb")
    index_bm25(folder)
    seen: list[SearchOptions] = []

    def values(self: DevScorer, options: SearchOptions) -> np.ndarray:
        if options.backend == "hybrid":
            seen.append(options)
        queries = np.arange(16)
        return np.where(options == hybrid(2), queries < better, queries == 15).astype(float)

    monkeypatch.setattr(DevScorer, "values", values)
    outcome = run(asked, KnowledgeBase.open(folder, device="cpu"))
    assert seen == [hybrid(tried) for tried in (1.0, 1.0, 0.5, 2.0, 4.0)]  # first before tuning
    assert outcome.hybrid_before == 6.25
    assert (outcome.lexical_factor, outcome.hybrid_score) == (factor, 75.0 if factor == 2 else 6.25)
    tuned = KnowledgeBase.open(folder, str(asked["out"]), device="cpu")
    assert tuned.searcher.plan(SearchOptions()).weights == tuple(
        factor * weight for weight in own_kb.searcher.plan(SearchOptions()).weights
    )


def test_a_dev_query_without_a_page_may_be_answered_anywhere(own_kb: KnowledgeBase) -> None:
    query = "Marie Curie [SEP] birth"
    (hit,) = own_kb.query([query], k=1, unit="page", backend="dense")[0]
    outputs = [
        GoldOutput(hit.text, pages, frozenset(pages) or None, ()) for pages in ((hit.page_id,), ())
    ]
    golds = [
        Gold(str(number), number, query, {}, (output,)) for number, output in enumerate(outputs)
    ]
    judge = DevScorer([(Task.load("slot_filling"), gold) for gold in golds], own_kb.searcher)
    assert judge.measure == "KILT-accuracy"
    assert judge.values(DENSE).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("options", "backend"), [(DENSE, "dense"), (hybrid(1.0), "hybrid")])
def test_dev_queries_are_scored_without_reranking(
    options: SearchOptions, backend: Any, judging_kb: KnowledgeBase
) -> None:
    """The score of vectors alone is that; so is the one with words."""
    queries = [f"{title} [SEP] birth" for title in ("Marie Curie", "Warsaw", "Paris")]

    def first(**reranking: Any) -> list[tuple[str, str]]:
        found = judging_kb.query(queries, k=5, unit="page", backend=backend, **reranking)
        return [(hits[0].text, hits[0].page_id) for hits in found]

    expected = first(rerank=0)
    assert first() != expected
    golds = [
        Gold(str(number), number, query, {}, (GoldOutput(text, (page,), frozenset([page]), ()),))
        for number, (query, (text, page)) in enumerate(zip(queries, expected, strict=True))
    ]
    scorer = DevScorer([(Task.load("trex"), gold) for gold in golds], judging_kb.searcher)
    assert scorer.values(options).tolist() == [1.0] * len(queries)


def test_tasks_count_the_same_however_many_queries_they_have(own_kb: KnowledgeBase) -> None:
    query = "Marie Curie [SEP] birth"
    (hit,) = own_kb.query([query], k=1, unit="page", backend="dense")[0]
    right = GoldOutput(hit.text, (hit.page_id,), frozenset([hit.page_id]), ())
    golds = [Gold(str(number), number, query, {}, (right,)) for number in range(3)]
    wrong = Gold("4", 4, query, {}, (GoldOutput("no such title", ("no",), frozenset(["no"]), ()),))
    slots = [(Task.load("trex"), gold) for gold in golds]
    scorer = DevScorer([*slots, (Task.load("aidayago2"), wrong)], own_kb.searcher)
    assert scorer.by_task() == {"trex": 1.0, "aidayago2": 0.0}
    assert scorer.score() == 0.5
    assert [asked.gold.id for asked in scorer.asked("title")] == ["4"]


def test_several_tasks_are_tuned_together(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    pages = {row["page"]: row["subject"] for row in rows}
    mentions = [
        {
            "id": page,
            "input": f"so [START_ENT] {subject} [END_ENT] did",
            "output": [{"answer": subject, "provenance": [{"wikipedia_id": page}]}],
        }
        for page, subject in pages.items()
    ]
    links = write_json_lines("links.jsonl", *mentions)
    both = [asked["triples"], f"{links}:aidayago2"]
    outcome = run(asked | {"triples": both, "dev": None, "epochs": 1}, own_kb)
    assert list(outcome.tasks) == ["slot_filling", "aidayago2"]
    assert all(0 <= value <= 100 for scores in outcome.tasks.values() for value in scores)
    assert any(line.startswith("vectors alone, aidayago2") for line in finetuning_lines(outcome))
    facts: Any = Model.open(str(asked["out"]), "cpu").config.training["finetuning"]
    assert [one["name"] for one in facts["triples"]] == ["triples.jsonl", "links.jsonl"]
    tuning: Any = describe(Path(str(asked["out"])))
    assert tuning["triples"] == "triples.jsonl, links.jsonl"


@pytest.mark.parametrize(
    ("files", "more", "message"),
    [
        (
            ["{triples}", "{triples}:aidayago2"],
            {"dev": None},
            "with the objective kilt, and in .* with page: leave one",
        ),
        (["{triples}", "{triples}:aidayago2"], {}, "a tenth of each of several files is set aside"),
        (["{triples}:nothing"], {}, "task 'nothing' is unknown"),
    ],
)
def test_tasks_that_cannot_be_tuned_together_are_refused(
    files: list[str], more: Asked, message: str, asked: Asked, own_kb: KnowledgeBase
) -> None:
    named = [file.format(triples=asked["triples"]) for file in files]
    with pytest.raises(KbqError, match=message):
        run(asked | more | {"triples": named}, own_kb)


def test_it_learns(asked: Asked, own_kb: KnowledgeBase) -> None:
    settings = {"epochs": 25, "learning_rate": 5e-3, "k": 50, "keep": 0.0}  # what it knew is noise
    outcome = run(asked | settings, own_kb)
    assert max(outcome.scores) >= outcome.scores[0] + 10


def test_pages_may_be_named_by_their_titles(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    titles = {
        s.ids[place]: s.titles[place] for s in own_kb.searcher.shards for place in range(len(s.ids))
    }
    named = write_json_lines("titles.jsonl", *(row | {"page": titles[row["page"]]} for row in rows))
    once = asked | {"epochs": 1}
    by_title = run(
        once | {"triples": named, "dev": named, "out": asked["out"].with_name("other")},
        KnowledgeBase.open(own_kb.folder, device="cpu"),
    )
    by_id = run(once, own_kb)
    assert replace(by_title, out=by_id.out) == by_id


@pytest.mark.parametrize("with_answers", [0, 2])
def test_pages_can_be_learned_without_answers(
    with_answers: int,
    asked: Asked,
    own_kb: KnowledgeBase,
    rows: Rows,
    write_json_lines: Callable[..., Path],
) -> None:
    lines = []
    for number, row in enumerate(rows):
        answer = {"answer": row["object"]} if number < with_answers else {}
        output = answer | {"provenance": [{"wikipedia_id": row["page"]}]}
        lines.append(
            {
                "id": str(number),
                "input": f"{row['subject']} [SEP] {row['relation']}",
                "output": [output],
            }
        )
    triples = write_json_lines("pages.jsonl", *lines)
    settings = {"objective": "page", "epochs": 1}
    outcome = run(asked | {"triples": triples, "dev": triples} | settings, own_kb)
    assert outcome.measure == ("KILT-accuracy" if with_answers else "Rprec")
    assert outcome.dev_queries == len(rows)
    assert (max(outcome.scores) > 0) >= (not with_answers)


def test_namesakes_are_alternatives() -> None:
    page_ids = {"Marie Curie": ["1", "2"], "Paris": ["3"]}.get
    labeller = cast(
        Labeller, SimpleNamespace(page_ids=page_ids, find=lambda gold: (None, "on_page"))
    )
    outputs = (
        GoldOutput("Warsaw", ("Marie Curie", "Paris"), frozenset(["Marie Curie", "Paris"]), ()),
        GoldOutput("Rome", ("9",), None, ()),
    )
    gold = with_page_ids(Gold("x", 1, "Marie Curie [SEP] birth", {}, outputs), labeller)
    assert [(output.answer, output.pages, output.evidence) for output in gold.outputs] == [
        ("Warsaw", ("1", "3"), frozenset("13")),
        ("Warsaw", ("2", "3"), frozenset("23")),
        ("Rome", ("9",), None),
    ]


def test_about_a_tenth_is_set_aside_to_the_end_of_a_page(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows
) -> None:
    outcome = run(asked | {"dev": None}, own_kb)
    assert outcome.reach.queries + outcome.dev_queries == len(rows)
    assert outcome.dev_queries == round(len(rows) / 10) + 1


def test_a_sample_may_be_asked_for_and_too_many_are_a_note(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows
) -> None:
    notes: list[str] = []
    assert run(asked | {"examples": 6}, own_kb, notes).reach.queries == 6
    more = asked | {"examples": 999, "out": asked["out"].with_name("more")}
    assert run(more, KnowledgeBase.open(own_kb.folder, device="cpu"), notes).reach.queries == len(
        rows
    )
    assert notes == [
        f"{asked['triples']} holds {len(rows)} queries to tune on, fewer than the 999 asked for"
    ]


def test_what_is_unusual_is_a_note_and_no_error(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    unseen = write_json_lines("dev.jsonl", rows[0] | {"relation": "river"})
    without_pages = write_json_lines(
        "plain.jsonl", *({k: v for k, v in row.items() if k != "page"} for row in rows)
    )
    settings = {"k": 10**6, "epochs": 1}
    notes: list[str] = []
    outcome = run(asked | {"triples": without_pages, "dev": unseen} | settings, own_kb, notes)
    assert outcome.reach.unnamed == outcome.reach.queries == len(rows)
    assert [note.partition(":")[0] for note in notes] == [
        "1 relations of the dev queries are not tuned on",
        f"k is 1000000, the knowledge base holds {own_kb.counts.rows} phrases",
        "no pages are named",
    ]
    assert "river" in notes[0]


def test_answers_that_can_never_be_found_are_counted(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    lost = (rows[0] | {"object": "nowhere at all"}, rows[1] | {"page": "NoSuchPage"})
    triples = write_json_lines("lost.jsonl", *lost, *rows[2:])
    notes: list[str] = []
    outcome = run(asked | {"triples": triples}, own_kb, notes)
    assert (outcome.reach.elsewhere, outcome.reach.no_page, outcome.reach.on_page) == (
        1,
        1,
        len(rows) - 2,
    )
    assert notes == [
        f"{triples} names pages that the knowledge base does not have: 'NoSuchPage' (line 2)"
    ]


def test_answers_without_a_page_that_stand_nowhere_are_counted(
    asked: Asked,
    own_kb: KnowledgeBase,
    rows: Rows,
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(own_kb.folder, tmp_path / "with words")
    index_bm25(folder)
    kb = KnowledgeBase.open(folder, device="cpu")
    plain = [{name: value for name, value in row.items() if name != "page"} for row in rows]
    nowhere = [row | {"object": "Zorgblat Frumious"} for row in plain]
    some = write_json_lines("some.jsonl", *nowhere[:2], *plain[2:])
    outcome = run(asked | {"triples": some, "dev": some}, kb)
    assert (outcome.reach.unnamed, outcome.reach.nowhere, outcome.reach.no_page) == (
        len(rows),
        2,
        0,
    )
    all_of_them = write_json_lines("all.jsonl", *nowhere)
    with pytest.raises(
        TrainingError, match=r"no answer of .*all\.jsonl occurs in the knowledge base"
    ):
        run(asked | {"triples": all_of_them, "dev": some, "out": tmp_path / "other"}, kb)


def test_queries_that_are_unreadable_are_left_out_on_either_side(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    triples = write_json_lines("long.jsonl", *rows, rows[0] | {"subject": LONG})
    outcome = run(asked | {"triples": triples, "dev": triples}, own_kb)
    assert (outcome.reach.queries, outcome.reach.unreadable, outcome.dev_queries) == (
        len(rows),
        1,
        len(rows),
    )


def test_nothing_but_queries_that_are_unreadable_is_refused(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    triples = write_json_lines("long.jsonl", rows[0] | {"subject": LONG})
    with pytest.raises(
        TrainingError,
        match=r"no query can be read; line 1: .* has 804 tokens, the encoder reads 32",
    ):
        run(asked | {"triples": triples}, own_kb)
    triples = write_json_lines("two.jsonl", rows[0] | {"subject": "Marie [SEP] Curie"})
    with pytest.raises(TrainingError, match=r'no query can be read; line 1: .* has 2 "\[SEP\]"'):
        run(asked | {"triples": triples}, own_kb)


def test_where_no_page_is_known_answers_are_scored_without(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    without = write_json_lines("plain.jsonl", *({**row, "page": ""} for row in rows))
    elsewhere = write_json_lines(
        "elsewhere.jsonl", *({**row, "page": "https://example.org/1"} for row in rows)
    )
    found = run(asked | {"triples": elsewhere, "dev": elsewhere}, own_kb)
    plain = KnowledgeBase.open(own_kb.folder, device="cpu")
    expected = run(
        asked | {"triples": without, "dev": without, "out": asked["out"].with_name("plain")}, plain
    )
    assert (found.measure, list(found.scores)) == ("accuracy", list(expected.scores))


@pytest.mark.parametrize("better", [True, False])
def test_a_tuned_encoder_that_is_tuned_on_keeps_what_it_was_tuned_on(
    better: bool,
    asked: Asked,
    own_kb: KnowledgeBase,
    rows: Rows,
    write_json_lines: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([0.1, 0.2, 0.3, 0.1, 0.3 if better else 0.1, 0.2 if better else 0.0])
    monkeypatch.setattr(DevScorer, "score", lambda self: next(scores))
    one, other = (
        [row for row in rows if (row["relation"] == "birth") == wanted] for wanted in (True, False)
    )
    first = asked | {"triples": write_json_lines("one.jsonl", *one)}
    run(first, own_kb)
    tuned = KnowledgeBase.open(own_kb.folder, str(first["out"]), device="cpu")
    assert tuned.model.config.untuned_relations(["x [SEP] place of birth"]) == ["place of birth"]
    second = asked | {
        "triples": write_json_lines("other.jsonl", *other),
        "out": first["out"].with_name("second"),
    }
    outcome = run(second, tuned)
    again = KnowledgeBase.open(own_kb.folder, str(second["out"]), device="cpu").model.config
    assert again.untuned_relations(["x [SEP] birth"]) == []
    assert again.untuned_relations(["x [SEP] place of birth"]) == (
        [] if better else ["place of birth"]
    )
    said = finetuning_lines(outcome)
    assert ("no epoch was better: the query encoder stays as it was" in said) != better


@pytest.mark.parametrize("stop", [2, 5])
def test_a_killed_run_gives_the_same_folder(
    stop: int, asked: Asked, own_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0)

    def kill(step: StepReport) -> None:
        if step.step == stop:
            raise Killed

    killed = asked | {"out": asked["out"].with_name("killed")}
    with pytest.raises(Killed):
        KnowledgeBase.open(own_kb.folder, device="cpu").finetune(**killed, report=kill)
    assert not killed["out"].exists()
    resumed = run(killed, KnowledgeBase.open(own_kb.folder, device="cpu"))
    assert replace(resumed, out=asked["out"]) == run(asked, own_kb)
    names = sorted(path.name for path in asked["out"].iterdir())
    assert names == ["kbq.json", "model.safetensors"]
    for name in names:
        assert (killed["out"] / name).read_bytes() == (asked["out"] / name).read_bytes()


def test_a_run_does_not_go_on_with_other_dev_data(
    asked: Asked,
    own_kb: KnowledgeBase,
    rows: Rows,
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    def kill(step: StepReport) -> None:
        if step.step == step.steps:
            raise Killed

    with pytest.raises(Killed):
        own_kb.finetune(**asked, report=kill)
    dev = write_json_lines("dev.jsonl", *rows[:2])
    for changed in (asked | {"dev": dev}, asked | {"task": "nq"}):
        with pytest.raises(TrainingError, match=r"checkpoint\.pt was written with other"):
            run(changed, KnowledgeBase.open(own_kb.folder, device="cpu"))
    copy = shutil.copytree(own_kb.folder, tmp_path / "indexed")
    indexed = KnowledgeBase.open(copy, device="cpu").index_vectors("compact", recall=0.5)
    with pytest.raises(TrainingError, match=r"checkpoint\.pt was written with other"):
        run(asked, indexed)


def test_entity_linking_learns_pages(
    asked: Asked,
    own_kb: KnowledgeBase,
    golds: list[Gold],
    write_json_lines: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What so small a network of random weights learns depends on how this CPU rounds 16 bits.
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)
    titles = {
        s.ids[place]: s.titles[place] for s in own_kb.searcher.shards for place in range(len(s.ids))
    }
    lines = [
        {
            "id": gold.id,
            "input": f"in [START_ENT] Marie {gold.id} [END_ENT] the",
            "output": [{"answer": titles[page], "provenance": [{"wikipedia_id": page}]}],
        }
        for gold in golds
        for page in gold.outputs[0].pages
    ]
    triples = write_json_lines("links.jsonl", *lines)
    settings = {"objective": "page", "epochs": 24, "learning_rate": 2e-3, "keep": 0.0}
    outcome = run(
        asked
        | {"triples": triples, "dev": triples, "task": Task.load("entity_linking")}
        | settings,
        own_kb,
    )
    assert outcome.measure == "KILT-accuracy"
    assert max(outcome.scores) > outcome.scores[0] + 10


def test_out_that_exists_is_refused_before_anything_is_read(
    asked: Asked, own_kb: KnowledgeBase
) -> None:
    asked["out"].mkdir()
    with pytest.raises(TrainingError, match="out already exists: choose another folder for out=…"):
        run(asked | {"triples": asked["out"] / "nothing"}, own_kb)


def test_pages_that_nobody_names_cannot_be_learned(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, write_json_lines: Callable[..., Path]
) -> None:
    triples = write_json_lines(
        "plain.jsonl", *({k: v for k, v in row.items() if k != "page"} for row in rows)
    )
    settings = {"objective": "page"}
    with pytest.raises(TrainingError, match="page"):
        run(asked | {"triples": triples, "dev": triples} | settings, own_kb)


def test_a_task_that_fails_is_named(asked: Asked, own_kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN, "utf-8")
    with pytest.raises(KbqError, match=r"task broken fails at .*: KeyError: 'object'"):
        run(asked | {"task": str(tmp_path / "broken.py")}, own_kb)


def test_another_knowledge_base_refuses_the_query_encoder(
    asked: Asked, own_kb: KnowledgeBase, other_folder: Path, tmp_path: Path
) -> None:
    run(asked, own_kb)
    other = Model.open(other_folder, "cpu")
    assert other.config.phrase_fingerprint != own_kb.model.config.phrase_fingerprint
    shutil.copytree(own_kb.folder, tmp_path / "kb")
    manifest = read_manifest(own_kb.folder)
    write_manifest(
        tmp_path / "kb", replace(manifest, model_fingerprint=other.config.phrase_fingerprint)
    )
    with pytest.raises(ModelError) as refusal:
        KnowledgeBase.open(tmp_path / "kb", str(asked["out"]), device="cpu")
    for named in (own_kb.model.config.phrase_fingerprint, other.config.phrase_fingerprint):
        assert named in str(refusal.value)


@pytest.mark.parametrize("keep", [-0.1, 1.1, math.nan, "much"])
def test_how_much_is_kept_is_a_share(keep: object, asked: Asked, own_kb: KnowledgeBase) -> None:
    with pytest.raises(TrainingError, match=r"keep is .*, must be a number from 0 to 1"):
        run(asked | {"keep": keep}, own_kb)


def test_keeping_all_changes_nothing(
    asked: Asked, own_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In 16 bits a query encoder that has not changed is not quite what it was: tuning would shake
    # it.
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)
    outcome = run(asked | {"keep": 1.0, "learning_rate": 1e-4}, own_kb)
    assert outcome.agreements == [100.0, 100.0, 100.0]
    assert outcome.scores[1:] == [outcome.scores[0]] * 2


def test_more_is_kept_by_more_keeping(asked: Asked, own_kb: KnowledgeBase) -> None:
    hard = {"learning_rate": 2e-3, "epochs": 5}
    lost = run(asked | hard | {"keep": 0.0}, own_kb)
    kept = run(asked | hard | {"keep": 0.99, "out": asked["out"].with_name("kept")}, own_kb)
    assert len(kept.agreements) == len(kept.scores)
    assert kept.agreements[-1] >= lost.agreements[-1] + 20
    said = finetuning_lines(kept)
    assert (
        f"{'other queries answered as before':40}   100.0  {kept.agreements[kept.best]:5.1f}"
        in said
    )


def test_a_tuned_encoder_has_probabilities_of_its_own(
    asked: Asked, judging_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.tuning.calibrate.LEAST", 5)
    found = judging_kb.query([row["subject"] + " [SEP] " + row["relation"] for row in RIGHT], 1)
    rows = [
        row | {"object": hits[0].text, "page": hits[0].page_id}
        for row, hits in zip(RIGHT, found, strict=True)
    ]
    for number, row in enumerate(rows):
        row["object"] = "nothing of the kind" if number % 3 == 0 else row["object"]
    asked["dev"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = run(asked, judging_kb)
    assert outcome.calibrated_on >= len(rows)
    assert (
        f"probabilities are learned from {outcome.calibrated_on} answers to dev queries"
        in finetuning_lines(outcome)
    )
    tuned = judging_kb.with_model(outcome)
    (answer,) = tuned.query("Marie [SEP] birth", 1)
    assert answer.probability is not None
    assert 0 < answer.probability < 1
    untuned = judging_kb.query("Marie [SEP] birth", 1)[0]
    assert untuned.probability is None  # the model itself has no calibration


def test_few_triples_are_passed_over_several_times(
    asked: Asked, own_kb: KnowledgeBase, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.tuning.finetune.ENOUGH", 4 * len(rows) + 1)
    outcome = run(asked, own_kb)
    assert (outcome.passes, outcome.reach.queries) == (4, len(rows))
    assert outcome.steps == 2 * -(-4 * len(rows) // 5)
    assert all(0 <= share <= 100 for share in outcome.found)
    assert f"steps on {len(rows)} queries, 4 times an epoch" in "".join(finetuning_lines(outcome))
