"""TREC files, as other tools read them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt import evaluation

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
    assert evaluation.write_run(guess, tmp_path / "run") == 3
    assert (tmp_path / "run").read_text("utf-8").splitlines() == [
        "New%20York%205%25 Q0 2 1 1 kbq",
        "New%20York%205%25 Q0 9 2 0.99999994 kbq",
        "New%20York%205%25 Q0 1 3 0.999999881 kbq",
    ]


def test_qrels_unite_the_evidence_sets(gold: Path, tmp_path: Path) -> None:
    assert evaluation.write_qrels(gold, tmp_path / "qrels") == 2
    assert (tmp_path / "qrels").read_text("utf-8").splitlines() == [
        "New%20York%205%25 0 9 1",
        "New%20York%205%25 0 1 1",
    ]


@pytest.mark.parametrize(
    ("scores", "written"),
    [
        ([2.5, 2.5, 2.25], ["2.5", "2.49999976", "2.25"]),  # an equal one is lowered: ties go by page id
        ([2.5, None, 2.25], ["1", "0.5", "0.333333333"]),
        ([1.0, 2.0, 3.0], ["1", "0.5", "0.333333333"]),  # the list is the ranking
    ],
)
def test_runs_have_the_scores_of_the_predictions(
    write: Write, tmp_path: Path, scores: list[float | None], written: list[str]
) -> None:
    items = [{"wikipedia_id": n} | ({} if score is None else {"score": score}) for n, score in enumerate(scores)]
    evaluation.write_run(write("guess", {"id": 1, "output": [{"provenance": items}]}), tmp_path / "run")
    assert [line.split()[4] for line in (tmp_path / "run").read_text("utf-8").splitlines()] == written


def test_ir_measures_reads_both_files(gold: Path, guess: Path, tmp_path: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures", reason="ir-measures is optional")
    evaluation.write_run(guess, tmp_path / "run")
    evaluation.write_qrels(gold, tmp_path / "qrels")
    qrels, run = ir_measures.read_trec_qrels(str(tmp_path / "qrels")), ir_measures.read_trec_run(str(tmp_path / "run"))
    measures = [ir_measures.RR, ir_measures.P @ 2]
    assert ir_measures.calc_aggregate(measures, list(qrels), list(run)) == dict(zip(measures, [0.5, 0.5], strict=True))


def test_predictions_without_a_ranking_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="has 0 outputs with provenance"):
        evaluation.write_run(write("guess", {"id": 1, "output": [{"answer": "x"}]}), tmp_path / "run")
