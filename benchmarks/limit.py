"""Limit: time exact search beside the matrix product that it needs.

    OMP_NUM_THREADS=1 python benchmarks/limit.py QUERIES KB…

In turns, one thread searches the ten best phrases with their answers, and multiplies all rows with
the same queries in whole numbers, in blocks as large as the search's. A round asks all 64 queries,
some of them together; the fewest CPU seconds of a round count.
"""

from functools import partial
from pathlib import Path

import numpy as np
import reporting
import torch
from measuring import arguments, cpu_seconds, inputs

from kbq.array_types import Floats
from kbq.index.base import MAX_TOKENS
from kbq.index.exact import pieces_at_a_time
from kbq.index.inner_products import Factors
from kbq.kb import KnowledgeBase
from kbq.search.search import search

ROUNDS, QUERIES = 5, 64
CPU = torch.device("cpu")


def measured(kb: KnowledgeBase, texts: list[str], together: int) -> dict[str, float]:
    """Return milliseconds a query of search and product, asking so many together, and their ratio."""
    rows = MAX_TOKENS * pieces_at_a_time("cpu", together, kb.model.dim, in_integers=True)
    blocks = [
        part
        for shard in kb.searcher.shards
        for part in torch.split(torch.from_numpy(np.array(shard.vectors)), rows)
    ]
    starts, ends = (
        np.split(vectors, len(texts) // together) for vectors in kb.model.encode_queries(texts)
    )

    def product(starts: Floats, ends: Floats) -> None:
        factors = Factors.of(starts * kb.model.scale, ends * kb.model.scale, CPU)
        for part in blocks:
            factors.inner_products(part)

    def searched(starts: Floats, ends: Floats) -> None:
        search(kb.searcher.search_context, kb.model.in_row_units(starts, ends), 10, "phrase")

    works = {"search": searched, "product": product}
    rounds = [
        [
            [cpu_seconds(partial(work, *queries)) for work in works.values()]
            for queries in zip(starts, ends, strict=True)
        ]
        for _ in range(ROUNDS)
    ]
    taken = dict(zip(works, np.sum(rounds, axis=1).min(axis=0).tolist(), strict=True))
    return {
        f"{name}, ms a query": round(1000 * seconds / len(texts), 3)
        for name, seconds in taken.items()
    } | {"search, times the product": round(taken["search"] / taken["product"], 2)}


def main() -> None:
    options = arguments(__doc__, queries=Path, kbs=[Path])
    torch.set_num_threads(1)
    texts = inputs(options.queries)[:QUERIES]
    figures = {}
    for folder in options.kbs:
        kb = KnowledgeBase.open(folder, device="cpu", index="exact")
        figures[f"{kb.counts.rows} vectors"] = {
            f"{count} together": measured(kb, texts, count) for count in (1, 8, QUERIES)
        }
    reporting.write("limit", figures, [*options.kbs, options.queries])


if __name__ == "__main__":
    main()
