"""Lessons: what decisions on some values of a relation say of the others."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbq.answers import Answer
from kbq.commands.fill import _lines
from kbq.kb import KnowledgeBase
from kbq.tables.claims import Claim
from kbq.tables.deciding import Decision, decided, judged_values
from kbq.tables.lessons import BELIEF, LEAST, Judged, RelationLesson, learned, log_odds


def drawn(count: int, seed: int, right: Any = lambda chance: chance) -> list[Judged]:
    """Values with any probability, each right as often as `right` says of it."""
    source = random.Random(seed)
    chances = [source.uniform(0.02, 0.98) for _ in range(count)]
    return [Judged(chance, source.random() < right(chance)) for chance in chances]


def loss(slope: float, intercept: float, judged: list[Judged]) -> float:
    """The cross entropy of the decisions, and of BELIEF that the calibration would have made, in
    float64.
    """
    odds = np.array([math.log(one.probability / (1 - one.probability)) for one in judged])
    chances = 1 / (1 + np.exp(-(slope * odds + intercept)))
    said = np.array([one.is_right for one in judged], float)
    before = np.array([one.probability for one in judged])
    entropy = [
        -(target * np.log(chances) + (1 - target) * np.log(1 - chances))
        for target in (said, before)
    ]
    return float(entropy[0].sum() + BELIEF * entropy[1].mean())


@pytest.mark.parametrize("seed", range(12))
def test_no_other_lesson_fits_better(seed: int) -> None:
    judged = drawn(10 + 5 * seed, seed, lambda chance: chance**2)
    lesson = learned(judged)
    assert lesson is not None
    least = loss(lesson.slope, lesson.intercept, judged)
    for slope in np.linspace(-1, 4, 26):
        for intercept in np.linspace(-4, 4, 33):
            assert loss(slope, intercept, judged) >= least - 1e-9


@pytest.mark.parametrize(
    ("judged", "before", "after"),
    [
        ([Judged(0.5, True)] * 30, 0.5, 0.75),  # as many decisions as the calibration counts like
        ([Judged(0.5, False)] * 90, 0.5, 0.125),
        (
            [Judged(0.5, True), Judged(0.5, False)] * 20,
            0.5,
            0.5,
        ),  # decisions that contradict each other
        (
            [Judged(0.9, False)] * 20 + [Judged(0.1, True)] * 20,
            0.9,
            0.9,
        ),  # and the order: only the level is learned
        ([Judged(1.0, True)] * 20, 1.0, 1.0),
    ],
)
def test_decisions_move_a_probability(judged: list[Judged], before: float, after: float) -> None:
    lesson = learned(judged)
    assert lesson is not None
    assert lesson.decisions == len(judged)
    assert lesson.probability(before) == pytest.approx(after, abs=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_values_keep_their_order(seed: int) -> None:
    judged = drawn(40, seed, lambda _: random.Random(seed).random())
    lesson = learned(judged)
    assert lesson is not None
    after = [lesson.probability(chance) for chance in np.linspace(0, 1, 101)]
    assert after == sorted(after)
    assert 0 < after[0] < after[-1] < 1


def test_few_decisions_teach_nothing() -> None:
    assert learned([]) is None
    assert learned([Judged(0.5, False)] * (LEAST - 1)) is None


def test_a_calibration_that_is_right_stays_nearly_as_it_is() -> None:
    lesson = learned(drawn(20_000, 1))
    assert lesson is not None
    assert (lesson.slope, lesson.intercept) == pytest.approx((1, 0), abs=0.05)


def test_an_answer_without_a_probability_has_none_afterwards() -> None:
    answer = Answer("a", 1.0, "1", "T", 0, 0, 1, "a", (0, 1))
    assert RelationLesson(1.0, 3.0, 20).applied(answer) == answer
    # 1 - 1e-13 is rounded.
    assert log_odds([0.0, 1.0]).tolist() == pytest.approx([-30, 30], abs=0.01)


def claim(value: str, probability: float | None = 0.6) -> Claim:
    return Claim(
        subject="s", relation="r", value=value, probability=probability, accepted=True, page_id="P", title="T",
        paragraph=0, start=0, end=len(value), sentence=value, sentence_start=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("choices", "takes_many", "said"),
    [
        ([("PARIS", "accept")], False, [True, False]),
        ([("PARIS", "accept")], True, [True]),  # Rome may be right, too
        ([("Paris", "reject")], False, [False]),
        ([("Bonn", "accept")], False, [False, False]),
        ([("", "accept")], True, [False, False]),
        ([("Bonn", "reject")], False, []),
        ([("Paris", "accept"), ("Paris", "reject")], False, [False]),  # the last one counts
        ([("Paris", "accept"), ("Paris", "undo")], False, []),
        ([], False, []),
    ],
)
def test_what_people_say_of_the_values_of_a_cell(
    choices: list[Any], takes_many: bool, said: list[bool]
) -> None:
    decisions = decided(Decision("s", "r", value, choice) for value, choice in choices).get(
        ("s", "r"), {}
    )
    judged = list(
        judged_values(
            [claim("Paris"), claim("Rome", 0.2), claim("Oslo", None)], decisions, takes_many
        )
    )
    assert [one.is_right for one in judged] == said


def test_a_table_learns_from_decisions_and_forgets_without_them(tmp_path: Path) -> None:
    kb = KnowledgeBase.sample(device="cpu")
    page_names = [page.title for page in kb.pages()][: LEAST + 6]
    rows = [{"subject": title} for title in page_names]
    before = kb.fill(rows, ["country", "occupation"], tmp_path / "out.csv", min_probability=0)
    of_relation = {one.subject: one for one in before.claims if one.relation == "occupation"}
    rejected, others = [*of_relation][:LEAST], [*of_relation][LEAST:]
    path = tmp_path / "decisions.jsonl"
    lines = [
        {
            "subject": name,
            "relation": "occupation",
            "value": of_relation[name].value,
            "decision": "reject",
        }
        for name in rejected
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    after = kb.fill(
        rows, ["country", "occupation"], tmp_path / "out.csv", min_probability=0, decisions=path
    )
    lesson = learned([Judged(of_relation[name].probability or 0, False) for name in rejected])
    assert lesson is not None
    assert (after.counts.taught, after.counts.asked) == ({"occupation": LEAST}, 0)
    assert (
        "decisions taught how sure to be of occupation from 10"
        in _lines(after, None, check=False)[0]
    )
    now = {(one.subject, one.relation): one.probability for one in after.claims}
    assert others
    for name in others:
        expected = lesson.probability(of_relation[name].probability or 0)
        assert now[name, "occupation"] == pytest.approx(expected, abs=2e-3)
    countries = {one.subject: one.probability for one in before.claims if one.relation == "country"}
    assert {name: now[name, "country"] for name in countries} == countries
    again = kb.fill(rows, ["country", "occupation"], tmp_path / "out.csv", min_probability=0)
    assert (again.claims, again.counts.taught) == (before.claims, {})
