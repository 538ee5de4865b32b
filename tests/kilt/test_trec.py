"""TREC files, and the optional bridge to ir-measures."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt import trec

Write: TypeAlias = Callable[..., Path]


def pages(*ids: object) -> list[dict[str, object]]:
    return [{"wikipedia_id": page, "score": 1.0} for page in ids]


@pytest.fixture
def gold(write: Write) -> Path:
    outputs = [{"provenance": pages(9, 1)}, {"provenance": pages(1)}]
    return write("gold", {"id": "New York 5%", "input": "", "output": outputs}, {"id": 2, "output": [{"answer": "x"}]})


@pytest.fixture
def guess(write: Write) -> Path:
    return write("guess", {"id": "New York 5%", "output": [{"provenance": pages(2, 2, 9, "1")}]})


def test_run_scores_descend_strictly_and_pages_are_distinct(guess: Path, tmp_path: Path) -> None:
    assert trec.write_run(guess, tmp_path / "run") == 3
    assert (tmp_path / "run").read_text("utf-8").splitlines() == [
        "New%20York%205%25 Q0 2 1 1.0 kbq",
        "New%20York%205%25 Q0 9 2 0.5 kbq",
        "New%20York%205%25 Q0 1 3 0.3333333333333333 kbq",
    ]


def test_qrels_unite_the_evidence_sets(gold: Path, tmp_path: Path) -> None:
    assert trec.write_qrels(gold, tmp_path / "qrels") == 2
    assert (tmp_path / "qrels").read_text("utf-8").splitlines() == [
        "New%20York%205%25 0 9 1",
        "New%20York%205%25 0 1 1",
    ]


def test_measures_of_ir_measures(gold: Path, guess: Path) -> None:
    pytest.importorskip("ir_measures", reason="ir-measures is optional")
    query = "New York 5%"
    assert trec.measure(gold, guess, "RR P@2", [query]) == {"RR": 0.5, "P@2": 0.5}
    assert trec.measure(gold, guess, "RR", [query, "without gold pages"]) == {"RR": 0.25}
    assert trec.measure(gold, guess, "RR", ["without a prediction"]) == {"RR": 0}
    assert trec.measure(gold, guess, "RR", [query], ("title",)) == {"RR": 0}
    with pytest.raises(EvaluationError, match="names no measures"):
        trec.measure(gold, guess, "Luck@5", [query])


def test_without_ir_measures_the_way_out_is_named(gold: Path, guess: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ir_measures", None)
    with pytest.raises(EvaluationError, match="pip install ir-measures"):
        trec.measure(gold, guess, "RR", [])


def test_predictions_without_a_ranking_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="has 0 outputs with provenance"):
        trec.write_run(write("guess", {"id": 1, "output": [{"answer": "x"}]}), tmp_path / "run")
