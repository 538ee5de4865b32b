"""Kinds of error, each with an example."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.commands.printing import case_lines
from kbq.errors import EvaluationError
from kbq.kilt.error_kinds import KINDS, ErrorKind, sample_errors, survey_errors

Write: TypeAlias = Callable[..., Path]


def item(page: int, title: str) -> dict[str, object]:
    return {"wikipedia_id": page, "title": title, "start_paragraph_id": 4}


RIGHT, WRONG = item(1, "Mercury (planet)"), item(2, "Venus")
GOLD = {"id": 1, "input": "i", "output": [{"answer": "Émile Zola", "provenance": [RIGHT]}, {"answer": "3 May 1999"}]}


@pytest.mark.parametrize(
    ("answer", "pages", "kind", "rank"),
    [
        ("Émile Zola", [RIGHT], "right", 1),
        ("Émile Zola", [WRONG, RIGHT], "answer-right-page-wrong", 2),
        ("emile zola.", [RIGHT], "answer-form", 1),
        ("May 03, 1999", [WRONG], "answer-number-format", None),
        ("June 3, 1999", [WRONG], "answer-partial", None),
        ("Émi", [WRONG], "page-not-found", None),
        ("may be", [WRONG], "page-not-found", None),  # a word of three letters says nothing
        ("Zola", [WRONG], "answer-partial", None),
        ("Balzac", [RIGHT], "page-right-answer-wrong", 1),
        ("Balzac", [WRONG, RIGHT], "page-too-low", 2),
        ("Balzac", [item(3, "Mercury (element)")], "page-namesake", None),
        ("Balzac", [WRONG], "page-not-found", None),
        ("", [], "page-not-found", None),
    ],
)
def test_kinds(write: Write, answer: str, pages: list[object], kind: ErrorKind, rank: int | None) -> None:
    guess = write("guess", {"id": 1, "output": [{"answer": answer, "provenance": pages}]})
    survey = survey_errors(write("gold", GOLD), guess)
    (case,) = survey.cases
    assert (case.kind, case.rank) == (kind, rank)
    assert survey.counts == {kind: 1}


def test_pages_that_belong_together_are_missed_though_one_is_found(write: Write) -> None:
    gold = write("gold", {"id": 1, "output": [{"answer": "x", "provenance": [RIGHT, WRONG]}]})
    survey = survey_errors(gold, write("guess", {"id": 1, "output": [{"answer": "y", "provenance": [RIGHT]}]}))
    (case,) = survey.cases
    assert (case.kind, case.rank, case.found) == ("page-too-low", None, 1)
    assert any("".join(line).endswith("Venus (2), not all found") for line in case_lines(case))


def test_a_record_without_pages_has_none_to_show(write: Write) -> None:
    guess = write("guess", {"id": 1, "output": [{"answer": "y", "provenance": []}]})
    survey = survey_errors(write("gold", {"id": 1, "output": [{"answer": "x"}]}), guess)
    assert any("".join(line).endswith("gold pages   none") for line in case_lines(survey.cases[0]))


def test_a_page_outside_the_knowledge_base_explains_more_than_a_low_rank(write: Write) -> None:
    guess = write("guess", {"id": 1, "output": [{"answer": "Balzac", "provenance": [WRONG]}]})
    survey = survey_errors(write("gold", GOLD), guess, is_known_page=lambda page: page != "1")
    assert survey.cases[0].kind == "page-not-in-knowledge-base"


def test_samples_are_seeded_and_bring_their_evidence(write: Write) -> None:
    golds = [{**GOLD, "id": number} for number in range(20)]
    guesses = [{"id": n, "output": [{"answer": "Balzac", "provenance": [WRONG]}]} for n in range(19)]
    survey = survey_errors(write("gold", *golds), write("guess", *guesses))

    def evidence_of(page: str, paragraph: int | None) -> str | None:
        return f"{page}:{paragraph}"

    cases = sample_errors(survey, "page-not-found", 3, evidence_of=evidence_of)
    assert cases == sample_errors(survey, "page-not-found", 3, evidence_of=evidence_of)
    assert [(case.evidence, case.gold_evidence) for case in cases] == [("2:4", "1:4")] * 3
    assert len(sample_errors(survey, "page-not-found", 99)) == 19
    assert [case.id for case in sample_errors(survey, "no-prediction", 99)] == ["19"]
    assert sample_errors(survey, "right", 3) == ()


def test_an_unknown_kind_is_refused(write: Write) -> None:
    guess = {"id": 1, "output": [{"answer": "Balzac", "provenance": [WRONG]}]}
    survey = survey_errors(write("gold", GOLD), write("guess", guess))
    with pytest.raises(EvaluationError, match="choose from right, answer-right-page-wrong"):
        sample_errors(survey, "luck", 1)
    assert KINDS[0] == "right"


def test_predictions_that_cannot_be_scored_are_refused(write: Write) -> None:
    with pytest.raises(EvaluationError, match="error analysis"):
        survey_errors(write("gold", GOLD), write("guess", {"id": 1, "output": []}))
