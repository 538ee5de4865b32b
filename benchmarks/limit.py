"""Limit: exact search against the product that it cannot do without.

    OMP_NUM_THREADS=1 python benchmarks/limit.py KB… --queries QUERIES

By turns, in CPU seconds of one thread, the best of some: the search of the ten best phrases with its answers, and the
product of all rows with the same queries in whole numbers, in blocks as large as the search's.
"""

import argparse
from pathlib import Path

import numpy as np
import reporting
import torch
from measuring import cpu_seconds, inputs

from kbq.indexing.base import MAX_TOKENS
from kbq.indexing.exact import pieces_at_a_time
from kbq.indexing.inner_products import Factors
from kbq.kb import KnowledgeBase

ROUNDS = 5
CPU = torch.device("cpu")


def measured(kb: KnowledgeBase, texts: list[str]) -> dict[str, float]:
    """Milliseconds for one of these queries, asked together, and how many times the product that is."""
    starts, ends = kb.model.encode_queries(texts)
    scaled = starts * kb.model.scale, ends * kb.model.scale
    rows = MAX_TOKENS * pieces_at_a_time("cpu", len(texts), kb.model.dim, in_integers=True)
    blocks = [part for shard in kb.shards for part in torch.split(torch.from_numpy(np.array(shard.vectors)), rows)]
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, work in (
            ("search", lambda: kb.search_vectors(starts, ends, k=10)),
            (
                "product",
                lambda: [factors.inner_products(part) for factors in [Factors.of(*scaled, CPU)] for part in blocks],
            ),
        ):
            best[name] = min(best.get(name, np.inf), cpu_seconds(work))
    return {f"{name}, ms a query": round(1000 * taken / len(texts), 3) for name, taken in best.items()} | {
        "search, times the product": round(best["search"] / best["product"], 2)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kbs", type=Path, nargs="+")
    parser.add_argument("--queries", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = inputs(options.queries)[:64]
    figures = {}
    for folder in options.kbs:
        kb = KnowledgeBase.open(folder, device="cpu", index="exact")
        figures[f"{kb.counts.rows} vectors"] = {
            f"{count} together": measured(kb, texts[:count]) for count in (1, 8, 64)
        }
    reporting.write("limit", figures, [*options.kbs, options.queries])


if __name__ == "__main__":
    main()
