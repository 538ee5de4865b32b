"""KILT: predict data sets with a knowledge base and score them as the leaderboard does, with
confidence intervals.

    python benchmarks/kilt.py KB TASK:GOLD.jsonl … [--backend dense] [--rerank 10] [--reader READER]
        [--model MODEL] [--sample 2000] [--bm25 0,4,8] [--sparta 0,2] [--name kilt]

`--bm25` asks with each of these weights of BM25 beside the vectors, and of `--sparta` if there are
learned impacts, and with words alone, which find pages. Choose weights on queries that are reported
nowhere else.
"""

from itertools import product
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, intervals, predicted, records_of

from kbq.kb import KnowledgeBase


def main() -> None:
    options = arguments(
        __doc__, kb=Path, gold=[str], model=None, backend="dense", reader=None, rerank=0, sample=0, name="kilt",
        bm25="", sparta="0",
    )  # fmt: skip
    kb = KnowledgeBase.open(options.kb, options.model)
    n_reranked = None if options.reader else options.rerank
    ways: dict[str, dict[str, Any]] = {
        "": {"backend": options.backend, "reader": options.reader, "rerank": n_reranked}
    }
    if options.bm25:
        ways = weighed(
            kb, *(list(map(float, text.split(","))) for text in (options.bm25, options.sparta))
        )
    figures: dict[str, Any] = {"model": kb.manifest.model_fingerprint}
    files = [Path(item.partition(":")[2]) for item in options.gold]
    for item, path in zip(options.gold, files, strict=True):
        records = records_of(path, options.sample)
        rows = {}
        for label, way in ways.items():
            rows[label] = intervals(predicted(kb, records, item.partition(":")[0], **way))
        figures[path.name.split(".")[0]] = rows.get("", rows)
    reporting.write(options.name, figures, [options.kb, *files], seed=0)


def weighed(kb: KnowledgeBase, bm25: list[float], sparta: list[float]) -> dict[str, dict[str, Any]]:
    """Return ways to search with these weights of words beside the vectors, and with words alone."""
    ways: dict[str, dict[str, Any]] = {}
    for one, other in product(bm25, sparta if kb.searcher.words.sparta else (0.0,)):
        way = ways[f"BM25 {one:g}, SPARTA {other:g}"] = {
            "backend": "hybrid",
            "bm25_weight": one,
            "rerank": 0,
        }
        if kb.searcher.words.sparta:
            way["sparta_weight"] = other
    alone = ("bm25", "sparta") if kb.searcher.words.sparta else ("bm25",)
    return ways | {f"{backend.upper()} alone": {"backend": backend} for backend in alone}


if __name__ == "__main__":
    main()
