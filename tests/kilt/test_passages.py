"""RetrievedPassage scores of the EMNLP paper, answer containment, and the readers' JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt.passages import (
    PassageScores,
    Question,
    RetrievedPassage,
    contains_answer,
    export_for_readers,
    read_questions,
    score_passages,
)

Write: TypeAlias = Callable[..., Path]


def question(*texts: str) -> Question:
    passages = (RetrievedPassage("7", "T", text, 1.0, contains_answer(text, ["x"])) for text in texts)
    return Question("1", "?", ("x",), tuple(passages))


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("He came from New York.", "new york", True),
        ("Yorkshire", "York", False),
        ("Beyonce\u0301 sang", "Beyoncé", True),
        ("Beyoncé sang", "Beyonce", False),
        ("in 1,200 years", "1,200", True),
        ("U.S. troops", "U.S.", True),
        ("a b", "", False),
        ("", "x", False),
        ("गुड़िया", "गुड", False),  # combining marks belong to the word
        ("x\u00ady", "x y", True),  # a soft hyphen is not seen
    ],
)
def test_contains_answer(text: str, answer: str, expected: bool) -> None:
    assert contains_answer(text, [answer]) is expected


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        ([], PassageScores(0, ((1, 0.0), (5, 0.0), (20, 0.0), (100, 0.0)), 0.0, 0.0)),
        ([question()], PassageScores(1, ((1, 0.0), (5, 0.0), (20, 0.0), (100, 0.0)), 0.0, 0.0)),
        (
            [question("n", "x", "x"), question(*["n"] * 24, "x")],
            PassageScores(2, ((1, 0.0), (5, 0.5), (20, 0.5), (100, 1.0)), 0.25, 0.05),
        ),
    ],
)
def test_score_passages(questions: list[Question], expected: PassageScores) -> None:
    assert score_passages(questions) == expected


def test_predictions_with_texts_become_questions_and_readers_json(write: Write, tmp_path: Path) -> None:
    gold = write("gold", {"id": 1, "input": "Who?", "output": [{"answer": "x"}, {"answer": "X"}]})
    items = [{"wikipedia_id": 7, "title": "T", "text": "no", "score": 2.5}, {"wikipedia_id": "8", "text": "an x"}]
    guess = write("guess", {"id": "1", "output": [{"provenance": items}]})
    questions = read_questions(gold, guess)
    found = (RetrievedPassage("7", "T", "no", 2.5, False), RetrievedPassage("8", "", "an x", 0.5, True))
    assert questions == [Question("1", "Who?", ("X", "x"), found)]
    assert export_for_readers(questions, tmp_path / "out") == 1
    (entry,) = json.loads((tmp_path / "out").read_text("utf-8"))
    assert (entry["question"], entry["answers"]) == ("Who?", ["X", "x"])
    assert entry["ctxs"] == [
        {"id": "7", "title": "T", "text": "no", "score": 2.5, "has_answer": False},
        {"id": "8", "title": "", "text": "an x", "score": 0.5, "has_answer": True},
    ]


def test_no_questions_are_an_empty_array(tmp_path: Path) -> None:
    assert export_for_readers([], tmp_path / "out") == 0
    assert json.loads((tmp_path / "out").read_text("utf-8")) == []


def test_a_missing_prediction_is_refused(write: Write) -> None:
    gold = write("gold", {"id": 1, "input": "Who?", "output": [{"answer": "x"}]})
    with pytest.raises(EvaluationError, match=":1:1: has no prediction"):
        read_questions(gold, write("guess"))
