"""Sample: count how often the first phrase and the first page are right, and the answer is among
the first 100.

    python benchmarks/sample.py [--kb KB --queries QUERIES.jsonl] [--model MODEL] [--name sample]

Without options, the bundled sample is asked its gold queries. Vectors alone are searched.
"""

from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, records_of

from kbq.answers import Answer
from kbq.kb import KnowledgeBase
from kbq.sample_kb import ARTICLES
from kbq.text.answer_scores import normalise_answer

QUERIES = ARTICLES.with_name("queries.jsonl")
DEPTH = 100
KEYS = (
    "answer right",
    "page right",
    "answer and page right",
    "answer in top 10",
    "answer in top 100",
)


def judged(record: dict[str, Any], hits: list[Answer]) -> tuple[bool, ...]:
    """Return whether each of KEYS holds for a query."""
    answers = {
        normalise_answer(output["answer"]) for output in record["output"] if output.get("answer")
    }
    pages = {
        item["wikipedia_id"] for output in record["output"] for item in output.get("provenance", [])
    }
    right = [normalise_answer(hit.text) in answers for hit in hits] or [False]
    page = bool(hits) and hits[0].page_id in pages
    return right[0], page, right[0] and page, any(right[:10]), any(right)


def main() -> None:
    options = arguments(__doc__, kb=None, queries=str(QUERIES), model=None, name="sample")
    kb = KnowledgeBase.open(options.kb, options.model) if options.kb else KnowledgeBase.sample()
    records = records_of(options.queries)
    hits = kb.query([record["input"] for record in records], k=DEPTH, backend="dense", rerank=0)
    columns = zip(
        *(judged(record, found) for record, found in zip(records, hits, strict=True)), strict=True
    )
    figures: dict[str, float] = {"queries": len(records)}
    for key, column in zip(KEYS, columns, strict=True):
        figures[key] = round(100 * sum(column) / len(records), 1)
    reporting.write(
        options.name,
        {"all": figures},
        [Path(options.kb) if options.kb else ARTICLES, Path(options.queries)],
    )


if __name__ == "__main__":
    main()
