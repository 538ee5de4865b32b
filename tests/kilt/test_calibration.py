"""`kbq evaluate --calibration`: probabilities of predictions against what the official evaluation
finds right.
"""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from kbq.errors import EvaluationError
from kbq.kilt.confidence import confidence_in
from kbq.kilt.evaluation import EvaluationFiles, evaluate
from kbq.kilt.submission import submit, validate
from kbq.kilt.task import Task

Write: TypeAlias = Callable[..., Path]
Record: TypeAlias = dict[str, Any]
PAGES = [{"wikipedia_id": str(page)} for page in range(5)]


def gold(count: int, **more: object) -> list[Record]:
    """Queries of two relations in turn, whose answer is x on page 0."""
    output = [{"answer": "x", "provenance": PAGES[:1]}]
    return [
        {"id": str(n), "input": f"a [SEP] r{n % 2}", "output": output, **more} for n in range(count)
    ]


def guess(number: int, answer: str, probability: object, first_page: int = 0) -> Record:
    output = {
        "answer": answer,
        "meta": {"probability": probability},
        "provenance": PAGES[first_page:],
    }
    return {"id": str(number), "output": [output]}


FOUR = [guess(0, "x", 0.9), guess(1, "x", 0.6, first_page=1), guess(2, "y", 0.3), guess(3, "", 0.1)]


def test_answers_are_right_by_accuracy_then_with_their_pages() -> None:
    page: Any = evaluate(FOUR, gold(4), calibration=True).to_dict()
    by_answer, by_both = page["calibration"]["scores"]
    assert (by_answer["right_by"], by_both["right_by"]) == ("accuracy", "KILT-accuracy")
    assert (by_answer["queries"], by_answer["answers"], by_answer["answered"]) == (4, 3, 0.75)
    assert (by_answer["right"], by_both["right"]) == (2 / 3, 1 / 3)
    assert (by_answer["auroc"], by_both["auroc"]) == (1.0, 1.0)
    assert [(one["precision"], one["share"]) for one in by_answer["coverages"]] == [
        (0.9, 0.5),
        (0.95, 0.5),
    ]
    assert by_both["coverages"][0]["share"] == 0.25
    assert by_answer["brier"] == pytest.approx((0.01 + 0.16 + 0.09) / 3)
    assert [one["right"] for one in by_answer["reliability"]["bins"]] == [0, 1, 1]
    assert by_answer["reliability"]["ece"] == pytest.approx((0.3 + 0.4 + 0.1) / 3)
    assert by_answer["curve"] == {
        "threshold": [0.9, 0.6, 0.3],
        "coverage": [0.25, 0.5, 0.75],
        "risk": [0.0, 0.0, pytest.approx(1 / 3)],
    }


def test_a_task_that_ranks_by_em_is_right_by_em_and_gold_without_pages_has_one_kind() -> None:
    page: Any = evaluate(FOUR, gold(4), task="nq", calibration=True).to_dict()
    assert [one["right_by"] for one in page["calibration"]["scores"]] == ["em", "KILT-em"]
    without_pages = [record | {"output": [{"answer": "x"}]} for record in gold(4)]
    page = evaluate(FOUR, without_pages, calibration=True).to_dict()
    assert [one["right_by"] for one in page["calibration"]["scores"]] == ["accuracy"]


def test_the_table_has_every_score_and_groups_their_own(write: Write) -> None:
    evaluation = evaluate(FOUR, gold(4), by="relation", calibration=True)
    *_, table, groups = evaluation.tables
    assert "| accuracy | AUROC | 3 | 1.0000 |  |  |" in table.markdown()
    assert "| accuracy | coverage at 90 % precision | 4 | 0.5000 | 0.0000 |" in table.markdown()
    rows = list(csv.reader(table.csv().splitlines()))
    assert rows[0] == ["right by", "score", "n", "value", "95 % from", "to"]
    assert [row[1] for row in rows[1:9]] == [
        "answered", "right", "AUROC", "coverage at 90 % precision", "coverage at 95 % precision", "Brier", "ECE",
        "ECE noise floor",
    ]  # fmt: skip
    assert groups.rows == [("r0", 2, 0.5, 1.0, 0.5), ("r1", 1, 1.0, None, 0.5)]
    document: Any = evaluation.to_dict()["calibration"]
    assert document["groups"][1] == {
        "group": "r1",
        "answers": 1,
        "right": 1.0,
        "auroc": None,
        "coverage": 0.5,
    }


def test_a_curve_has_at_most_200_points_with_both_ends() -> None:
    confidences = np.linspace(1, 0.001, 1000)
    curve: Any = confidence_in(confidences, confidences > 0.5, "accuracy").to_dict()["curve"]
    assert [len(row) for row in curve.values()] == [200, 200, 200]
    assert (curve["threshold"][0], curve["threshold"][-1]) == (1.0, 0.001)
    assert json.dumps(curve)


@pytest.mark.parametrize(
    ("answers", "notes"),
    [
        ([("x", 0.5)] * 30, ["by accuracy, all answers are right: AUROC does not exist"]),
        ([("y", 0.5)] * 30, ["by accuracy, no answer is right: AUROC does not exist"]),
        (
            [("x", 0.5), ("y", 0.5), ("", 0.5)],
            ["only 2 answers: of fewer than 30 hardly anything can be promised"],
        ),
        ([("", 0.5)], ["only 0 answers: of fewer than 30 hardly anything can be promised"]),
    ],
    ids=["all right", "all wrong", "few", "none"],
)
def test_what_a_reader_should_know_is_noted(
    answers: list[tuple[str, float]], notes: list[str]
) -> None:
    without_pages = [record | {"output": [{"answer": "x"}]} for record in gold(len(answers))]
    guesses = [guess(number, *pair) for number, pair in enumerate(answers)]
    evaluation = evaluate(guesses, without_pages, calibration=True)
    assert [note for note in evaluation.notes if "answer" in note] == notes
    assert json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert str(evaluation)


def test_a_query_without_prediction_is_one_without_answer() -> None:
    page: Any = evaluate(FOUR[:2], gold(4), missing="zero", calibration=True).to_dict()
    assert (
        page["calibration"]["scores"][0]["answered"],
        page["calibration"]["scores"][0]["right"],
    ) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("probability", "problem"),
    [
        ("high", 'has the probability "high", must be a number from 0 to 1'),
        (True, "has the probability true, must be a number from 0 to 1"),
        (None, "has the probability null, must be a number from 0 to 1"),
        (float("nan"), "has the probability NaN, must be a number from 0 to 1"),
        (1.5, "has the probability 1.5, must be a number from 0 to 1"),
        (-0.01, "has the probability -0.01, must be a number from 0 to 1"),
        (
            10**400,
            "has the probability 1000000000000000000000000000000000000..., must be a number from "
            "0 to 1",
        ),
    ],
)
@pytest.mark.parametrize("answer", ["x", ""])
def test_what_is_no_probability_is_refused(
    write: Write, answer: str, probability: object, problem: str
) -> None:
    guesses = write("guess", FOUR[0], guess(1, answer, probability))
    with pytest.raises(EvaluationError) as caught:
        evaluate(guesses, write("gold", *gold(2)), calibration=True)
    assert (
        str(caught.value)
        == f"the calibration of {guesses} is not possible: {guesses}:2:1: {problem}"
    )


@pytest.mark.parametrize(
    "meta", [{}, {"meta": {}}, {"meta": None}, {"meta": {"probabilities": 0.5}}]
)
def test_answers_without_probability_are_refused(write: Write, meta: Record) -> None:
    bare = [
        {"id": str(n), "output": [{"answer": "x", "provenance": PAGES} | meta]} for n in range(2)
    ]
    none, one = write("none", *bare), write("one", FOUR[0], bare[1])
    golds = write("gold", *gold(2))
    with pytest.raises(
        EvaluationError,
        match=f"^no answer in {none} has a probability .*: kbq predict with a calib",
    ):
        evaluate(none, golds, calibration=True)
    with pytest.raises(EvaluationError, match=f"{one}:2:1: has an answer without a probability"):
        evaluate(one, golds, calibration=True)
    assert evaluate(none, golds)["accuracy"] == 1.0
    withheld = {"id": "1", "output": [{"answer": "", "provenance": PAGES} | meta]}
    page: Any = evaluate([FOUR[0], withheld], gold(2), calibration=True).to_dict()
    assert page["calibration"]["scores"][0]["answered"] == 0.5


def test_predictions_for_other_queries_are_not_looked_at() -> None:
    assert evaluate([FOUR[0], guess(9, "x", "high")], gold(1), calibration=True)["accuracy"] == 1.0


def test_without_answers_to_compare_there_is_no_calibration() -> None:
    pages = [{"id": "0", "output": [{"provenance": PAGES}]}]
    evaluation = evaluate(pages, gold(1), calibration=True)
    assert evaluation.to_dict()["calibration"] is None
    assert "there is no calibration: it needs the downstream evaluation" in evaluation.notes


# Plots


def test_plots_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is optional")
    guesses = [guess(n, "x" if n % 3 else "y", n / 40) for n in range(40)]
    evaluate(guesses, gold(40), files=EvaluationFiles(plots=tmp_path / "new" / "plots"))
    pictures = sorted((tmp_path / "new" / "plots").iterdir())
    assert [picture.name for picture in pictures] == ["reliability.png", "risk-coverage.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    evaluate([guess(0, "", 0.5)], gold(1), files=EvaluationFiles(plots=tmp_path / "empty"))
    (tmp_path / "file").touch()
    with pytest.raises(
        EvaluationError, match=r"file/reliability\.png cannot be written .*: choose another folder"
    ):
        evaluate(guesses, gold(40), files=EvaluationFiles(plots=tmp_path / "file"))


def test_without_matplotlib_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(EvaluationError, match="which plots=… needs: pip install matplotlib"):
        evaluate(FOUR, gold(4), files=EvaluationFiles(plots=tmp_path))


# What other commands do with a probability


def lines(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_validate_takes_a_probability(write: Write) -> None:
    assert validate(write("guess", *FOUR[:1])).findings == []


def test_submit_leaves_probabilities_out(write: Write, tmp_path: Path) -> None:
    submit([write("guess", *FOUR[:1])], [Task.load("trex")], [], tmp_path / "out")
    assert lines(tmp_path / "out" / "trex.jsonl") == [
        {"id": "0", "output": [{"answer": "x", "provenance": PAGES}]}
    ]
