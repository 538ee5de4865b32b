"""Kinds of error, each with an example."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.commands.measure import case_lines
from kbq.errors import EvaluationError
from kbq.kilt.error_kinds import KINDS, ErrorKind, find_errors

Write: TypeAlias = Callable[..., Path]


def item(page: int, title: str) -> dict[str, object]:
    return {"wikipedia_id": page, "title": title, "start_paragraph_id": 4}


RIGHT, WRONG = item(1, "Mercury (planet)"), item(2, "Venus")
GOLD = {
    "id": 1,
    "input": "i",
    "output": [{"answer": "Émile Zola", "provenance": [RIGHT]}, {"answer": "3 May 1999"}],
}


@pytest.mark.parametrize(
    ("answer", "pages", "kind", "rank"),
    [
        ("Émile Zola", [RIGHT], "right", 1),
        ("Émile Zola", [WRONG, RIGHT], "answer-right-page-wrong", 2),
        ("emile zola.", [RIGHT], "answer-form", 1),
        ("Zola", [WRONG], "page-not-found", None),
        ("Balzac", [RIGHT], "page-right-answer-wrong", 1),
        ("Balzac", [WRONG, RIGHT], "page-not-found", 2),
        ("Balzac", [WRONG], "page-not-found", None),
        ("", [], "page-not-found", None),
    ],
)
def test_kinds(
    write: Write, answer: str, pages: list[object], kind: ErrorKind, rank: int | None
) -> None:
    guess = write("guess", {"id": 1, "output": [{"answer": answer, "provenance": pages}]})
    survey = find_errors(guess, write("gold", GOLD), kind=kind)
    (case,) = survey.cases
    assert (case.kind, case.rank) == (kind, rank)
    assert survey.counts == {kind: 1}


def test_pages_that_belong_together_are_missed_though_one_is_found(write: Write) -> None:
    gold = write("gold", {"id": 1, "output": [{"answer": "x", "provenance": [RIGHT, WRONG]}]})
    survey = find_errors(
        write("guess", {"id": 1, "output": [{"answer": "y", "provenance": [RIGHT]}]}), gold
    )
    (case,) = survey.cases
    assert (case.kind, case.rank, case.found) == ("page-not-found", None, 1)
    assert any("".join(line).endswith("Venus (2), not all found") for line in case_lines(case))


def test_a_record_without_pages_has_none_to_show(write: Write) -> None:
    guess = write("guess", {"id": 1, "output": [{"answer": "y", "provenance": []}]})
    survey = find_errors(guess, write("gold", {"id": 1, "output": [{"answer": "x"}]}))
    assert any("".join(line).endswith("gold pages   none") for line in case_lines(survey.cases[0]))


def test_samples_are_seeded_and_bring_their_evidence(write: Write) -> None:
    golds = [{**GOLD, "id": number} for number in range(20)]
    guesses = [
        {"id": n, "output": [{"answer": "Balzac", "provenance": [WRONG]}]} for n in range(19)
    ]
    files = write("guess", *guesses), write("gold", *golds)

    def evidence_of(page: str, paragraph: int | None) -> str | None:
        return f"{page}:{paragraph}"

    cases = find_errors(*files, kind="page-not-found", evidence_of=evidence_of).cases
    assert cases == find_errors(*files, kind="page-not-found", evidence_of=evidence_of).cases
    assert [(case.evidence, case.gold_evidence) for case in cases] == [("2:4", "1:4")] * 3
    assert len(find_errors(*files, kind="page-not-found", sample=99).cases) == 19
    assert [case.id for case in find_errors(*files, kind="no-prediction", sample=99).cases] == [
        "19"
    ]
    assert find_errors(*files, kind="right").cases == ()


def test_an_unknown_kind_is_refused(write: Write) -> None:
    guess = {"id": 1, "output": [{"answer": "Balzac", "provenance": [WRONG]}]}
    with pytest.raises(EvaluationError, match="choose from right, answer-right-page-wrong"):
        find_errors(write("guess", guess), write("gold", GOLD), kind="luck")
    assert KINDS[0] == "right"


def test_predictions_that_cannot_be_scored_are_refused(write: Write) -> None:
    with pytest.raises(EvaluationError, match="error analysis"):
        find_errors(write("guess", {"id": 1, "output": []}), write("gold", GOLD))
