"""Slot filling: the top phrase and the top page of KILT queries, and how deep the answer stands.

    python benchmarks/slot_filling.py KB QUERIES.jsonl [--name slot_filling] [--model MODEL]

accuracy: the top phrase is a gold answer, letter by letter; EM: after KILT's normalisation; R-precision: the top page
is a gold page; both: EM and the page, which is what KILT scores ask for.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import reporting

from kbq.answers import Answer
from kbq.kb import KnowledgeBase
from kbq.storage.lines import read_json_lines
from kbq.text.answer_scores import normalise

DEPTH = 100
KEYS = ("accuracy", "EM", "R-precision", "EM and R-precision", "answer in top 10", "answer in top 100")


def judge(line: dict[str, object], hits: list[Answer]) -> tuple[bool, ...]:
    """One query's values for KEYS."""
    outputs: list[dict[str, object]] = line["output"]  # type: ignore[assignment]
    exact = {str(output["answer"]).strip() for output in outputs if output.get("answer")}
    answers = {normalise(answer) for answer in exact}
    pages = {item["wikipedia_id"] for output in outputs for item in output.get("provenance", [])}  # type: ignore[attr-defined]
    found = [normalise(hit.text) in answers for hit in hits] or [False]
    page = bool(hits) and hits[0].page_id in pages
    accurate = bool(hits) and hits[0].text in exact
    return accurate, found[0], page, found[0] and page, any(found[:10]), any(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--name", default="slot_filling")
    options = parser.parse_args()
    kb = KnowledgeBase.open(options.kb, options.model)
    lines = [line for _, line in read_json_lines(str(options.queries))]
    hits = kb.query([str(line["input"]) for line in lines], k=DEPTH, backend="dense", rerank=0)
    rows = defaultdict(list)
    for line, found in zip(lines, hits, strict=True):
        for name in ("all", str(line["input"]).split(" [SEP] ")[-1]):
            rows[name].append(judge(line, found))
    figures = {
        name: {"queries": len(row)}
        | {key: round(100 * sum(r[i] for r in row) / len(row), 2) for i, key in enumerate(KEYS)}
        for name, row in sorted(rows.items(), key=lambda item: -len(item[1]))
    }
    reporting.write(options.name, figures, [options.kb, options.queries])


if __name__ == "__main__":
    main()
