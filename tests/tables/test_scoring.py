"""Scoring: sets of values against gold sets, with numbers that were computed by hand."""

import json
import os
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import EvaluationError, KbqError
from kbq.tables.scoring import (
    SetScores,
    SlotCounts,
    ValueSets,
    compared,
    evaluate_table,
    read_value_sets,
    scores_of,
)

COUNTS = [  # predicted, gold, and precision, recall, F1 as LM-KBC counts them
    ([], [], 0, (1, 1, 1)),
    ([], ["a"], 0, (1, 0, 0)),
    (["a"], [], 0, (0, 1, 0)),
    (["a"], ["a"], 1, (1, 1, 1)),
    (["a", "b"], ["b", "c", "d"], 1, (1 / 2, 1 / 3, 2 / 5)),
    (["A.", "a"], ["a"], 1, (1, 1, 1)),  # one value, once it is normalised
    (["Saint-Étienne"], ["saint etienne"], 1, (1, 1, 1)),
    (["1867-11-07"], ["7 November 1867"], 1, (1, 1, 1)),
    (["1867"], ["7 November 1867"], 1, (1, 1, 1)),  # a less exact date agrees
    (["1868"], ["7 November 1867"], 0, (0, 0, 0)),
    (["Jürgen Kurths", "Ann Lee"], ["Jürgen Kurths", "Jurgen Kurths", "Ann Lee"], 2, (1, 1, 1)),
    (["35,000"], ["35000"], 1, (1, 1, 1)),
    (["35,000"], ["36000"], 0, (0, 0, 0)),
    (["x", "y"], ["x|y", "z"], 1, (1 / 2, 1 / 2, 1 / 2)),  # two names of one value count once
    (["x", "y"], ["x|y", "x"], 2, (1, 1, 1)),  # y takes the first, so that x can take the second
]


@pytest.mark.parametrize(("predicted", "gold", "matched", "scores"), COUNTS)
def test_the_scores_of_a_slot(
    predicted: list[str], gold: list[str], matched: int, scores: tuple[float, float, float]
) -> None:
    found = compared([(text,) for text in predicted], [tuple(names.split("|")) for names in gold])
    assert found.matched == matched
    assert (found.precision, found.recall, found.f1) == pytest.approx(scores)


@given(st.lists(st.sets(st.integers(0, 5)), max_size=6))
def test_as_many_values_match_as_possible(edges: list[set[int]]) -> None:
    def most(left: list[set[int]], taken: frozenset[int]) -> int:
        if not left:
            return 0
        first, *others = left
        return max(
            [most(others, taken), *(1 + most(others, taken | {value}) for value in first - taken)]
        )

    names = {
        guess: tuple(f"g{guess}v{value}" for value in values) for guess, values in enumerate(edges)
    }
    gold = [tuple(f"g{guess}v{value}" for guess in names) for value in range(6)]
    assert compared([one for one in names.values() if one], gold).matched == most(
        [e for e in edges if e], frozenset()
    )


def test_a_long_chain_of_moves_is_no_problem() -> None:
    names = [(f"v{number}", f"v{number + 1}") for number in range(3000)]
    assert (
        compared([*names[::-1], ("v3000",)], [(f"v{number}",) for number in range(3001)]).matched
        == 3001
    )


GOLD: ValueSets = {
    ("a", "child"): [("x",), ("y",)],
    ("b", "child"): [],
    ("c", "child"): [("z",)],
    ("a", "born"): [("paris", "ville de paris")],
}


def test_macro_micro_and_coverage() -> None:
    predicted: ValueSets = {
        ("a", "child"): [("x",), ("q",)],
        ("c", "child"): [],
        ("a", "born"): [("Ville de Paris",)],
        ("d", "born"): [("is not scored",)],
    }
    scores = scores_of(predicted, GOLD)
    # Of child: a has P 1/2, R 1/2, F1 1/2; b is rightly empty; c has P 1, R 0, F1 0.
    child = SetScores(3, 1 / 3, 5 / 6, 1 / 2, 1 / 2, 1 / 2, 1 / 3, 2 / 5)
    born = SetScores(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert list(scores.by_relation) == ["born", "child"]
    assert scores.by_relation["born"] == born
    for name in SetScores.__slots__:
        assert getattr(scores.by_relation["child"], name) == pytest.approx(getattr(child, name))
    assert (scores.all.slots, scores.all.coverage) == (4, 0.5)
    assert (scores.all.precision, scores.all.recall, scores.all.f1) == pytest.approx(
        (3.5 / 4, 2.5 / 4, 2.5 / 4)
    )
    assert (scores.all.micro_precision, scores.all.micro_recall) == pytest.approx((2 / 3, 2 / 4))
    assert scores.all.micro_f1 == pytest.approx(4 / 7)
    assert scores.relations.f1 == pytest.approx((1 + 1 / 2) / 2)
    assert "| mean of relations | 4 | 66.67 | 91.67 | 75.00 | 75.00 |" in scores.table().markdown()


def test_nothing_predicted_has_precision_1() -> None:
    scores = scores_of({}, GOLD)
    assert (scores.all.precision, scores.all.recall, scores.all.f1, scores.all.micro_f1) == (
        1.0,
        0.25,
        0.25,
        0.0,
    )
    assert SlotCounts(0, 0, 0).f1 == 1.0


def letters(text: str) -> str:
    """A name of the tables below without its case, accents and signs."""
    return re.sub("[^a-z]", "", text.lower().replace("\u0301", ""))


def as_lm_kbc_scores(predicted: list[str], gold: list[list[str]]) -> tuple[int, int, int]:
    """Predicted values, gold ones, and the most that match one to one: all ways to pair them are
    tried.
    """
    guesses = sorted({letters(text) for text in predicted})
    values = [{letters(name) for name in names} for names in gold]
    places = [*values, *[set[str]()] * len(guesses)]  # as many that match nothing
    ways = permutations(places, len(guesses))
    return (
        len(guesses),
        len(values),
        max(sum(g in v for g, v in zip(guesses, way, strict=True)) for way in ways),
    )


def shares(predicted: int, gold: int, matched: int) -> tuple[float, float, float]:
    precision = 1.0 if predicted == 0 else matched / predicted
    recall = 1.0 if gold == 0 else matched / gold
    return (
        precision,
        recall,
        0.0 if matched == 0 and predicted + gold > 0 else 2 / (1 / precision + 1 / recall),
    )


def column_means(rows: list[tuple[float, float, float]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_random_files_have_the_scores_of_a_plain_reading_of_lm_kbcs_rules(
    seed: int, write_json_lines: Callable[..., Path]
) -> None:
    rng = random.Random(seed)

    def written(name: str) -> str:
        return rng.choice((name, name.upper(), f" {name}.", f"{name}\u0301", f"({name})"))

    gold: list[dict[str, Any]] = []
    filled: list[dict[str, Any]] = []
    by_relation = dict[str, list[tuple[int, int, int]]]()
    for number in range(rng.randint(1, 25)):
        slot: dict[str, Any] = {
            "subject": f"s{number}",
            "relation": rng.choice(("borders", "awards", "capital")),
        }
        aliases = {
            tuple(sorted(rng.sample("abcdef", rng.randint(1, 3)))) for _ in range(rng.randint(0, 4))
        }
        # Some names are those of several values.
        values = [[*map(written, names)] for names in sorted(aliases)]
        predicted = [written(name) for name in rng.choices("abcdefgh", k=rng.randint(0, 3))]
        gold += [
            dict[str, Any](slot) | {"object": names[0], "aliases": names[1:]} for names in values
        ] or [slot | {"object": None}]
        by_relation.setdefault(slot["relation"], []).append(as_lm_kbc_scores(predicted, values))
        if predicted or rng.random() < 0.5:  # what is not there has no value
            filled += [slot | {"object": name} for name in predicted] or [slot | {"object": None}]
    filled.append({"subject": "not asked for", "relation": "borders", "object": "a"})
    found = evaluate_table(
        write_json_lines("filled.jsonl", *filled), write_json_lines("gold.jsonl", *gold)
    )

    def macro_and_micro(scores: SetScores) -> tuple[Any, Any]:
        macro = scores.precision, scores.recall, scores.f1
        return pytest.approx(macro), pytest.approx(
            (scores.micro_precision, scores.micro_recall, scores.micro_f1)
        )

    def expected(rows: list[tuple[int, int, int]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        predicted, values, matched = map(sum, zip(*rows, strict=True))
        return column_means([shares(*row) for row in rows]), shares(predicted, values, matched)

    assert found.by_relation.keys() == by_relation.keys()
    for relation, rows in by_relation.items():
        assert expected(rows) == macro_and_micro(found.by_relation[relation])
    assert expected([row for rows in by_relation.values() for row in rows]) == macro_and_micro(
        found.all
    )
    of_relations = [expected(rows)[0] for rows in by_relation.values()]
    assert column_means(of_relations) == macro_and_micro(found.relations)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("subject,born,note\nA,Paris|Rome,x\nB,,\n", {("a", "born"): [("Paris",), ("Rome",)], ("a", "note"): [("x",)]}),
        ("subject,relation,object,aliases\nA,r,B,b1|b2\nA,r,C,\nD,r,,\n",
         {("a", "r"): [("B", "b1", "b2"), ("C",)], ("d", "r"): []}),
        ([{"id": "1", "input": "A [SEP] r",
           "output": [{"answer": "B"}, {"answer": "B", "provenance": []}, {"answer": "C"}]},
          {"id": "2", "input": "who?", "output": []}], {("a", "r"): [("B",), ("C",)]}),
    ],
)  # fmt: skip
def test_gold_files_of_all_kinds(content: object, values: ValueSets, tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text(
        content
        if isinstance(content, str)
        else "".join(f"{json.dumps(line)}\n" for line in content)  # type: ignore[attr-defined]
    )
    assert read_value_sets(path) == values


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name,born\nA,x\n", "gold has no column 'subject' (it has 'name', 'born')"),
        ('{"input": 1, "output": []}\n', "gold has a line that differs from the others"),
    ],
)
def test_a_bad_gold_file_is_one_sentence(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "gold").write_text(content)
    with pytest.raises(KbqError) as caught:
        read_value_sets(tmp_path / "gold")
    assert said in str(caught.value)


def test_columns_may_have_other_capitals(tmp_path: Path) -> None:
    (tmp_path / "filled.csv").write_text("Name,Spouse \nAda,Bo\n")
    (tmp_path / "gold.csv").write_text("name,spouse\nAda,Bo\n")
    scores = evaluate_table(tmp_path / "filled.csv", tmp_path / "gold.csv")
    assert (scores.all.slots, scores.all.micro_f1) == (1, 1.0)


def test_a_filled_table_and_its_claims_have_the_same_scores(
    write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    place = {
        "page_id": "1",
        "title": "t",
        "paragraph": 0,
        "start": 0,
        "end": 1,
        "sentence": "x",
        "sentence_start": 0,
    }
    claim = {
        "subject": "A",
        "relation": "r",
        "value": "x",
        "probability": 0.9,
        "accepted": True,
    } | place
    claims = write_json_lines("c.jsonl", claim, claim | {"subject": "B", "accepted": False})
    (tmp_path / "wide.csv").write_text("name,r,other\nA,x,\nB,,\n")
    (tmp_path / "gold.csv").write_text("name,r\nA,x\nB,x\n")
    by_claims = evaluate_table(claims, tmp_path / "gold.csv", "name")
    by_table = evaluate_table(tmp_path / "wide.csv", tmp_path / "gold.csv", "name", ["r"])
    assert by_table.all == replace(by_claims.all, coverage_90=None)
    assert (by_claims.all.precision, by_claims.all.recall, by_claims.all.f1) == (1.0, 0.5, 0.5)
    assert by_claims.all.coverage_90 == 1.0  # the guess for B is right, but not accepted
    wrong = write_json_lines(
        "w.jsonl",
        claim | {"subject": "B", "probability": 0.95},
        claim | {"value": "q", "sentence": "q"},
    )
    by_relation = evaluate_table(wrong, tmp_path / "gold.csv", "name").by_relation["r"]
    assert by_relation.coverage_90 == 0.5
    (tmp_path / "empty.csv").write_text("name,r\nA,\n")
    assert (
        evaluate_table(tmp_path / "empty.csv", tmp_path / "gold.csv", "name").all.precision == 1.0
    )
    with pytest.raises(
        EvaluationError,
        match=r"empty\.csv has no value to compare with: fill in some that are right",
    ):
        evaluate_table(claims, tmp_path / "empty.csv", "name")
    damaged = write_json_lines("d.jsonl", claim | {"value": "q"})
    with pytest.raises(EvaluationError, match=r"d\.jsonl has a line that differs"):
        read_value_sets(damaged)


def test_both_files_may_be_pipes(tmp_path: Path) -> None:
    for name in ("filled", "gold"):
        os.mkfifo(tmp_path / name)
    with ThreadPoolExecutor(2) as pool:
        for name in ("filled", "gold"):
            pool.submit((tmp_path / name).write_text, "subject,r\nA,x\n")
        assert evaluate_table(tmp_path / "filled", tmp_path / "gold").all.f1 == 1.0
