"""Sample: which share of the bundled gold queries does the default model answer?

python benchmarks/sample.py
"""

from collections import defaultdict

import reporting

from kbq.kb import KnowledgeBase
from kbq.sample_kb import ARTICLES
from kbq.storage.lines import read_json_lines
from kbq.text.answer_scores import normalise

QUERIES = ARTICLES.with_name("queries.jsonl")


def main() -> None:
    kb = KnowledgeBase.sample()
    gold = [line for _, line in read_json_lines(str(QUERIES))]
    hits = kb.query([str(line["input"]) for line in gold], k=10, backend="dense", rerank=0)
    rows = defaultdict(list)
    for line, found in zip(gold, hits, strict=True):
        answers = {normalise(output["answer"]) for output in line["output"]}  # type: ignore[attr-defined]
        pages = {item["wikipedia_id"] for output in line["output"] for item in output["provenance"]}  # type: ignore[attr-defined]
        right = [normalise(hit.text) in answers for hit in found]
        row = (right[0], found[0].page_id in pages, any(right))
        for name in ("all", line["meta"]["relation"]):  # type: ignore[index]
            rows[name].append(row)
    figures = {
        name: {
            "queries": len(row),
            **{key: round(100 * sum(r[i] for r in row) / len(row), 1) for i, key in enumerate(KEYS)},
        }
        for name, row in sorted(rows.items(), key=lambda item: -len(item[1]))
    }
    reporting.write("sample", figures, [ARTICLES, QUERIES])


KEYS = ("answer right", "page right", "answer in top 10")

if __name__ == "__main__":
    main()
