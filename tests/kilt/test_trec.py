"""TREC files, as other tools read them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError, KbqError
from kbq.kb import KnowledgeBase
from kbq.kilt import evaluation

Write: TypeAlias = Callable[..., Path]


def pages(*ids: object) -> list[dict[str, object]]:
    return [{"wikipedia_id": page, "score": 1.0} for page in ids]


@pytest.fixture
def gold(write: Write) -> Path:
    outputs = [{"provenance": pages(9, 1)}, {"provenance": pages(1)}]
    return write(
        "gold",
        {"id": "New York 5%", "input": "", "output": outputs},
        {"id": 2, "output": [{"answer": "x"}]},
    )


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
        (
            [2.5, 2.5, 2.25],
            ["2.5", "2.49999976", "2.25"],
        ),  # an equal one is lowered: ties go by page id
        ([2.5, None, 2.25], ["1", "0.5", "0.333333333"]),
        ([1.0, 2.0, 3.0], ["1", "0.5", "0.333333333"]),  # the list is the ranking
    ],
)
def test_runs_have_the_scores_of_the_predictions(
    write: Write, tmp_path: Path, scores: list[float | None], written: list[str]
) -> None:
    items = [
        {"wikipedia_id": n} | ({} if score is None else {"score": score})
        for n, score in enumerate(scores)
    ]
    evaluation.write_run(
        write("guess", {"id": 1, "output": [{"provenance": items}]}), tmp_path / "run"
    )
    assert [
        line.split()[4] for line in (tmp_path / "run").read_text("utf-8").splitlines()
    ] == written


def test_ir_measures_reads_both_files(gold: Path, guess: Path, tmp_path: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures", reason="ir-measures is optional")
    evaluation.write_run(guess, tmp_path / "run")
    evaluation.write_qrels(gold, tmp_path / "qrels")
    qrels, run = (
        ir_measures.read_trec_qrels(str(tmp_path / "qrels")),
        ir_measures.read_trec_run(str(tmp_path / "run")),
    )
    measures = [ir_measures.RR, ir_measures.P @ 2]
    assert ir_measures.calc_aggregate(measures, list(qrels), list(run)) == dict(
        zip(measures, [0.5, 0.5], strict=True)
    )


def test_predictions_without_a_ranking_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="has 0 outputs with provenance"):
        evaluation.write_run(
            write("guess", {"id": 1, "output": [{"answer": "x"}]}), tmp_path / "run"
        )


def test_beir_and_ms_marco_are_built_predicted_and_evaluated(
    tmp_path: Path, model_folder: Path
) -> None:
    texts = {"d1": "Emma is a novel by Jane Austen.", "d2": "Warsaw is the capital of Poland."}
    beir, marco = tmp_path / "beir", tmp_path / "marco"
    for folder in (beir / "qrels", marco):
        folder.mkdir(parents=True)
    passages = [
        {"_id": page, "title": "", "text": text, "metadata": {}} for page, text in texts.items()
    ]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in passages))
    (beir / "queries.jsonl").write_text(
        json.dumps({"_id": "q1", "text": "who wrote Emma", "metadata": {}}) + "\n"
    )
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    (marco / "collection.tsv").write_text(
        "".join(f"{page[1:]}\t{text}\n" for page, text in texts.items())
    )
    (marco / "queries.dev.tsv").write_text("7\twho wrote Emma\n")
    (marco / "qrels.dev.tsv").write_text("7\t0\t1\t1\n")
    for corpus, queries, qrels, lines in (
        (beir / "corpus.jsonl", beir / "queries.jsonl", beir / "qrels" / "test.tsv", ["q1 0 d1 2"]),
        (marco / "collection.tsv", marco / "queries.dev.tsv", marco / "qrels.dev.tsv", ["7 0 1 1"]),
    ):
        kb = KnowledgeBase.build(corpus, corpus.with_suffix(".kb"), model_folder, device="cpu")
        kb.predict(queries, "passages", tmp_path / f"{corpus.stem}.jsonl", backend="bm25")
        files = evaluation.EvaluationFiles(trec_run=tmp_path / "run", trec_qrels=tmp_path / "qrels")
        scores = evaluation.evaluate(
            tmp_path / f"{corpus.stem}.jsonl", qrels, "passages", files=files
        )
        assert (scores["Rprec"], scores["recall@20"], scores["precision@20"]) == (1.0, 1.0, 0.05)
        assert (tmp_path / "qrels").read_text().splitlines() == lines
        query, _, page, _ = lines[0].split()
        assert (tmp_path / "run").read_text().startswith(f"{query} Q0 {page} 1 ")


def test_gold_qrels_are_not_overwritten(tmp_path: Path, guess: Path) -> None:
    gold = tmp_path / "test.tsv"
    gold.write_text("q1\t0\td1\t1\n")
    with pytest.raises(KbqError, match=r"test\.tsv"):
        evaluation.evaluate(guess, gold, files=evaluation.EvaluationFiles(trec_qrels=gold))
    assert gold.read_text() == "q1\t0\td1\t1\n"


def test_a_line_of_qrels_that_cannot_be_read_is_named(tmp_path: Path, guess: Path) -> None:
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\n")
    with pytest.raises(
        EvaluationError, match=r"test\.tsv:2: 'q1\\td1' does not name a query, a passage"
    ):
        evaluation.evaluate(guess, tmp_path / "test.tsv")
