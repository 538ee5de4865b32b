"""Validation and cleaning of prediction files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt.error_kinds import Expectations, expect
from kbq.kilt.submission import clean, validate
from kbq.kilt.task import Task

Write: TypeAlias = Callable[..., Path]
FIVE = [{"wikipedia_id": str(page)} for page in range(5)]


def guess(record_id: object = "1", answer: object = "x", pages: object = None) -> dict[str, Any]:
    return {
        "id": record_id,
        "output": [{"answer": answer, "provenance": FIVE if pages is None else pages}],
    }


def test_a_good_file_has_no_findings(write: Write) -> None:
    path = write("guess", guess("1", "x"), guess("2", "y"))
    validation = validate(path, inputs_path=path, expected=Expectations(lines=(2, 9)))
    assert (validation.records, validation.findings) == (2, [])


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ("", "is blank"),
        ("[1]", "is not an object"),
        ({"output": [{"answer": "x", "provenance": FIVE}]}, "no id"),
        ({"id": 1, "output": []}, "not exactly one output"),
        ({"id": 1}, "not exactly one output"),
        ({"id": 1, "output": [3]}, "output is not an object"),
        ({"id": 1, "output": [{"provenance": FIVE}]}, "no answer"),
        (guess(answer=None), "answer is not text"),
        (guess(answer=7), "answer is not text"),
        (guess(pages={}), "provenance is not a list of objects"),
        (guess(pages=[1]), "provenance is not a list of objects"),
        (guess(pages=[{"title": "T"}, *FIVE]), "no wikipedia_id"),
        (guess(pages=[{"wikipedia_id": None}, *FIVE]), "empty wikipedia_id"),
        (guess(pages=[{"wikipedia_id": "None"}, *FIVE]), "empty wikipedia_id"),
        (guess(pages=[{"wikipedia_id": " "}, *FIVE]), "empty wikipedia_id"),
        (guess(pages=[{"wikipedia_id": "Q42"}, *FIVE]), "wikipedia_id is not an integer"),
        (guess(pages=[{"wikipedia_id": "99"}, *FIVE]), "page is not in the knowledge source"),
    ],
)
def test_errors(write: Write, record: object, kind: str) -> None:
    expected = Expectations(is_known_page=lambda page: page != "99", has_integer_pages=True)
    errors = validate(write("guess", record), expected=expected).errors
    assert [finding.kind for finding in errors] == [kind]
    assert errors[0].place.split(":")[1] == "1"


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (guess(answer=" "), "empty answer"),
        (guess(answer="e\u0301"), "answer is not NFC"),
        (guess(answer="a\u0000b"), "answer has control characters"),
        (guess(answer="x."), "answer begins or ends with punctuation"),
        (guess(answer="a b c d"), "long answer"),
        (guess(pages=[]), "no provenance"),
        (guess(pages=FIVE[:4]), "fewer than 5 distinct pages"),
        (guess(pages=[*FIVE, FIVE[0]]), "repeated pages"),
        (
            guess(pages=[{**page, "score": float(n)} for n, page in enumerate(FIVE)]),
            "scores do not descend",
        ),
        (guess(pages=[{**page, "score": 10**400} for page in FIVE]), "scores are not all numbers"),
        (
            guess(pages=[{**page, "score": float("nan")} for page in FIVE]),
            "scores are not all numbers",
        ),
        (guess(pages=[{**page, "score": True} for page in FIVE]), "scores are not all numbers"),
        (guess(pages=[{**page, "text": "t"} for page in FIVE]), "provenance has texts"),
        (
            guess(pages=[{**page, "wikipedia_title": "t"} for page in FIVE]),
            "wikipedia_title instead of title",
        ),
        (guess(pages=[{"wikipedia_id": 7}, *FIVE]), "page ids of several types"),
        (
            guess(pages=[{**FIVE[0], "title": "Y"}, *FIVE[1:]]),
            "answer is not the title of the first page",
        ),
    ],
)
def test_warnings(write: Write, record: object, kind: str) -> None:
    expected = Expectations(max_answer_words=3, answers_are_titles=True)
    validation = validate(write("guess", record), expected=expected)
    assert validation.errors == ()
    assert [finding.kind for finding in validation.warnings] == [kind]


def test_findings_about_the_whole_file(write: Write) -> None:
    inputs = write("inputs", {"id": "1"}, {"id": "2"}, {"id": "3"})
    path = write("guess", guess("1"), guess(2), guess("1"), guess("4"))
    expected = Expectations(lines=(3, 5))
    validation = validate(path, inputs, expected)
    assert [str(error).removeprefix(f"{path}") for error in validation.errors] == [
        ":3:1: repeated id (also on line 1)",
        f": no prediction for an input (3, line 3 of {inputs})",
    ]
    assert [str(warning).removeprefix(f"{path}") for warning in validation.warnings] == [
        ": ids of several types (int, str)",
        ":4:4: id is not in the inputs (ignored)",
        ": number of lines (4 lines, the official files have 3 or 5)",
        ": one answer for many records ('x' for 4 of 4 records)",
    ]


def test_a_task_may_want_no_answers(write: Write) -> None:
    path = write("guess", {"id": 1, "output": [{"provenance": FIVE}]})
    (finding,) = validate(path, expected=Expectations(wants_answers=False)).findings
    assert (finding.severity, finding.kind) == ("warning", "no answer")


@pytest.mark.parametrize(
    ("gold", "is_strict", "severity"),
    [
        (None, False, "warning"),  # nobody knows
        (None, True, "error"),
        ([], False, "warning"),  # the test file without answers
        (["1", 2], False, "error"),  # KILT's own knowledge source
        (["Q16", "1"], False, None),  # another one
        (["Q16"], True, "error"),
    ],
)
def test_page_ids_must_be_integers_where_those_of_the_inputs_are(
    write: Write, gold: list[object] | None, is_strict: bool, severity: str | None
) -> None:
    inputs = None
    if gold is not None:
        provenance = [{"wikipedia_id": page} for page in gold]
        inputs = write(
            "inputs",
            {"id": "1", "output": [{"answer": "x", "provenance": provenance}] if gold else []},
        )
    pages = [{"wikipedia_id": f"Q{number}"} for number in range(5)]
    validation = validate(
        write("guess", guess(pages=pages)), inputs, expect(None, inputs, is_strict)
    )
    assert {finding.severity for finding in validation.findings} == (
        {severity} if severity else set()
    )


def test_a_task_says_what_is_expected() -> None:
    slots, linking, facts = (expect(Task.load(name), None) for name in ("trex", "wned", "fever"))
    assert (slots.max_answer_words, slots.wants_answers, slots.answers_are_titles) == (
        30,
        True,
        False,
    )
    assert (linking.answers_are_titles, linking.lines) == (True, (3_396, 3_376))
    assert (facts.wants_answers, facts.max_same_answers) == (False, None)


def test_each_kind_of_warning_is_shown_once_with_its_count(write: Write) -> None:
    validation = validate(write("guess", guess(1, ""), guess(2, ""), guess(3, "x.")))
    shown = [
        (finding.kind, finding.place.split(":")[1], count)
        for finding, count in validation.first_warnings()
    ]
    assert shown == [("empty answer", "1", 2), ("answer begins or ends with punctuation", "3", 1)]


def test_inputs_that_cannot_be_read_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="cannot be read"):
        validate(write("guess", guess()), tmp_path / "nowhere")


def test_a_prediction_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (finding,) = validate(tmp_path / "nowhere").errors
    assert "cannot be read" in finding.kind


def test_cleaning_repairs_the_form_and_keeps_the_content(write: Write, tmp_path: Path) -> None:
    pages = [
        {"wikipedia_id": 7, "score": 1.0, "title": "e\u0301", "extra": 1, "text": "t"},
        {"wikipedia_id": " 8", "score": 2.0},
    ]
    records = [json.dumps(guess(number, "e\u0301", pages)) for number in (2, 1, 9)]
    path = write("guess", "\ufeff" + records[0], "", *records[1:])
    inputs = write("inputs", {"id": "1"}, {"id": 2}, {"id": 3})
    assert clean(path, tmp_path / "fixed", inputs) == 2
    lines = [json.loads(line) for line in (tmp_path / "fixed").read_text("utf-8").splitlines()]
    fixed = [
        {"wikipedia_id": " 8", "score": 2.0},
        {"wikipedia_id": "7", "title": "é", "score": 1.0},
    ]
    assert lines == [{"id": n, "output": [{"answer": "é", "provenance": fixed}]} for n in (1, 2)]


def test_cleaning_keeps_the_order_of_pages_whose_scores_are_no_numbers(
    write: Write, tmp_path: Path
) -> None:
    pages = [
        {"wikipedia_id": str(n), "score": score} for n, score in enumerate((float("nan"), 0.2, 0.9))
    ]
    clean(write("guess", guess(pages=pages)), tmp_path / "fixed")
    (line,) = (tmp_path / "fixed").read_text("utf-8").splitlines()
    fixed = [{"wikipedia_id": "0"}, *pages[1:]]
    assert json.loads(line)["output"][0]["provenance"] == fixed


def test_cleaning_twice_changes_nothing_more(write: Write, tmp_path: Path) -> None:
    path = write("guess", guess("1", "e\u0301"), guess("2", "\ud800"))
    clean(path, path)
    once = path.read_bytes()
    clean(path, path)
    assert path.read_bytes() == once
    assert validate(path).to_dict()["counts"] == {}


def test_half_a_last_line_is_not_guessed(write: Write, tmp_path: Path) -> None:
    path = write("guess", guess(), '{"id": "2", "outp')
    with pytest.raises(EvaluationError, match=":2: is not JSON"):
        clean(path, tmp_path / "fixed")
    assert not (tmp_path / "fixed").exists()
