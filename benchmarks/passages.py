"""Passages: rank paragraphs or sentences by their best phrase, by words or by both, and score them
as the papers do.

    python benchmarks/passages.py KB NAME=GOLD.jsonl … [--unit paragraph] [--sample 1000]
        [--model MODEL] [--name passages]

Top-1, 5, 20 and 100, MRR@20 and P@20 tell whether a passage contains an answer. The share of
questions whose gold page is in KB comes with them; others are left out. GOLD is a KILT file or a
set of open questions.
"""

from pathlib import Path
from typing import Any

import numpy as np
import reporting
from measuring import arguments, interval

from kbq.kb import KnowledgeBase
from kbq.kilt.open_questions import read_questions
from kbq.kilt.passages import DEPTH, contains_answer
from kbq.search.options import SearchOptions

KS = (1, 5, 20, 100)
WAYS: dict[str, dict[str, Any]] = {
    "vectors": {"backend": "dense", "rerank": 0},
    "BM25": {"backend": "bm25"},
    "SPARTA": {"backend": "sparta"},
    "vectors and words": {"backend": "hybrid", "rerank": 0},
    "and reranking": {"backend": "hybrid", "rerank": 10},
}


def main() -> None:
    options = arguments(
        __doc__, kb=Path, gold=[str], unit="paragraph", sample=1000, name="passages", model=None
    )
    kb = KnowledgeBase.open(options.kb, options.model)
    known = {page for page, _ in kb.pages()}
    figures: dict[str, Any] = {"model": kb.manifest.model_fingerprint, "pages": len(known)}
    files = []
    for name, _, path in (item.partition("=") for item in options.gold):
        records = [record for _, record in read_questions(path)]
        asked = [record for record in records if pages_of(record) <= known][: options.sample]
        rows = {
            way: scores(kb, asked, options.unit, words)
            for way, words in ways(kb, options.unit).items()
        }
        figures[name] = {"questions": len(asked), "of": len(records)} | rows
        files.append(Path(path))
    reporting.write(options.name, figures, [options.kb, *files])


def ways(kb: KnowledgeBase, unit: str) -> dict[str, dict[str, Any]]:
    """Return the ways that this knowledge base has for the unit: words alone find no sentences."""
    words = kb.searcher.words
    lacking = {"SPARTA"} - ({"SPARTA"} if words.sparta and unit == "paragraph" else set())
    lacking |= set() if unit == "paragraph" else {"BM25", "and reranking"}
    return {name: way for name, way in WAYS.items() if name not in lacking}


def pages_of(record: dict[str, Any]) -> set[str]:
    outputs = record.get("output", [])
    return {place["wikipedia_id"] for output in outputs for place in output.get("provenance", [])}


def scores(
    kb: KnowledgeBase, records: list[dict[str, Any]], unit: str, way: dict[str, Any]
) -> dict[str, Any]:
    """Return the scores of the passages found for each question, in percent with their intervals."""
    options = SearchOptions(k=max(KS), unit=unit, **way)
    # Whether the passage of each rank holds an answer.
    found = np.zeros((len(records), max(KS)), bool)
    for row, (record, result) in enumerate(
        zip(records, kb.ask([record["input"] for record in records], options), strict=True)
    ):
        golds = [output["answer"] for output in record["output"] if "answer" in output]
        for rank, hit in enumerate(result.answers):
            text = hit.context if unit == "paragraph" else hit.context[slice(*hit.unit)]
            found[row, rank] = contains_answer(text, golds)
    first = np.where(found.any(axis=1), found.argmax(axis=1), max(KS))
    figures = {f"Top-{k}": interval((first < k).astype(float)) for k in KS}
    reciprocal = np.where(first < DEPTH, 1 / (first + 1), 0.0)
    precision = found[:, :DEPTH].sum(axis=1) / DEPTH
    return figures | {f"MRR@{DEPTH}": interval(reciprocal), f"P@{DEPTH}": interval(precision)}


if __name__ == "__main__":
    main()
