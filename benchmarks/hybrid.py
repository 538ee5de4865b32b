"""Hybrid: what a point of BM25 and of learned impacts should weigh beside the vectors, and rank fusion as alternative.

    python benchmarks/hybrid.py KB TASK:TRAIN.jsonl [TASK:TRAIN.jsonl …] [--bm25 0 4 8] [--sparta 0 2 4] [--sample 300]

Weights are chosen on queries that are reported nowhere else. BM25 or SPARTA alone find pages, their answers are whole
paragraphs. The fusion gives every paragraph 1 / (60 + rank) from each ranking.
"""

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path

import reporting
from kilt import judged, sampled

from kbq.answers import Answer, SearchOptions
from kbq.kb import KnowledgeBase
from kbq.kilt.lines import write_lines
from kbq.kilt.prediction import AdaptedQuery, predict_file, provenance, read_inputs
from kbq.kilt.task import Task

BM25_WEIGHTS, SPARTA_WEIGHTS = (0.0, 4.0, 8.0, 16.0), (0.0, 2.0, 4.0, 8.0)
WORDS_ONLY = 1e4  # a weight that leaves the vectors no say but which phrase of a paragraph is best
DEPTH = 100  # paragraphs of each ranking
PAGES = 5


def fused(*rankings: list[Answer]) -> list[Answer]:
    """The paragraphs of several rankings, best first by the sum of 1 / (60 + rank)."""
    scores: dict[tuple[str, int], float] = {}
    hits: dict[tuple[str, int], Answer] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            key = (hit.page_id, hit.paragraph)
            scores[key] = scores.get(key, 0.0) + 1 / (60 + rank)
            hits.setdefault(key, hit)
    return [hits[key] for key in sorted(hits, key=lambda key: -scores[key])]


def prediction(query: AdaptedQuery, hits: list[Answer]) -> dict[str, object]:
    """The best phrase, and distinct pages, as a KILT record."""
    pages = {hit.page_id: hit for hit in reversed(hits)}
    order = dict.fromkeys(hit.page_id for hit in hits)
    best = [pages[page] for page in order][:PAGES]
    output = {"answer": best[0].text if best else "", "provenance": [provenance(page) for page in best]}
    return {"id": query.id, "input": query.input, "output": [output]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("gold", nargs="+", metavar="TASK:TRAIN")
    parser.add_argument("--model", help="a tuned query encoder")
    parser.add_argument("--sample", type=int, default=300, help="queries of each file, at random; 0: all")
    parser.add_argument("--bm25", type=float, nargs="+", default=BM25_WEIGHTS)
    parser.add_argument("--sparta", type=float, nargs="+", default=SPARTA_WEIGHTS)
    parser.add_argument("--name", default="hybrid")
    options = parser.parse_args()
    kb = KnowledgeBase.open(options.kb, options.model)
    figures: dict[str, object] = {"model": kb.manifest.model_fingerprint}
    files = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, _, path in (item.partition(":") for item in options.gold):
            files.append(Path(path))
            task, gold = Task.load(name), sampled(Path(path), options.sample, Path(temporary))
            rows: dict[str, object] = {}
            wanted = {
                f"BM25 {bm25:g}, SPARTA {sparta:g}": SearchOptions(PAGES, "page", "hybrid", bm25, sparta, rerank=0)
                for bm25, sparta in product(options.bm25, options.sparta if kb.words.sparta else (0.0,))
            }
            wanted["BM25 alone"] = SearchOptions(PAGES, "page", "bm25")
            if kb.words.sparta:
                wanted["SPARTA alone"] = SearchOptions(PAGES, "page", "sparta")
            for row, how in wanted.items():
                out = Path(temporary) / f"{gold.name}-{row}"
                predict_file(task, gold, kb, out, how, False, lambda done, total: None)
                rows[row] = judged(gold, out)
            if task.answer == "phrase":
                queries = read_inputs(task, gold, [kb.model.query_tokenizer])
                texts = [query.text for query in queries]
                alone = [(0.0, 0.0), (WORDS_ONLY, 0.0), *([(0.0, WORDS_ONLY)] if kb.words.sparta else [])]
                found = [kb.search(texts, SearchOptions(DEPTH, "paragraph", "hybrid", *weights)) for weights in alone]
                lines = (prediction(query, fused(*rankings)) for query, *rankings in zip(queries, *found, strict=True))
                out = Path(temporary) / f"{gold.name}-fused"
                write_lines(out, (json.dumps(line, ensure_ascii=False) for line in lines))
                rows["reciprocal rank fusion"] = judged(gold, out)
            figures[gold.name.split(".")[0]] = rows
    reporting.write(options.name, figures, [options.kb, *files], seed=0)


if __name__ == "__main__":
    main()
