"""Words: measure what BM25 and learned impacts cost beside vectors: bytes, and CPU milliseconds of
a single query.

    python benchmarks/words.py KB QUERIES.jsonl [--sample 300]

QUERIES is a KILT file. Every query asks for the ten best pages.
"""

from functools import partial
from pathlib import Path

import numpy as np
import reporting
from measuring import arguments, cpu_seconds, inputs

from kbq.kb import KnowledgeBase
from kbq.search.options import Backend
from kbq.storage.folders import folder_bytes
from kbq.words.bm25 import bm25_folder
from kbq.words.impacts import sparta_folder


def milliseconds(kb: KnowledgeBase, texts: list[str], backend: Backend) -> dict[str, float]:
    """Return the median and the 95th percentile of a query's CPU time."""
    ask = partial(kb.query, k=10, unit="page", backend=backend, rerank=0)
    ask(texts[:20])  # warm
    taken = [1000 * cpu_seconds(partial(ask, [text])) for text in texts]
    return {
        "p50, ms": round(float(np.median(taken)), 2),
        "p95, ms": round(float(np.quantile(taken, 0.95)), 2),
    }


def main() -> None:
    options = arguments(__doc__, kb=Path, queries=Path, sample=300)
    kb = KnowledgeBase.open(options.kb)
    texts = inputs(options.queries, options.sample)
    figures: dict[str, object] = {"paragraphs": kb.counts.paragraphs}
    sentences = sum(len(index.paragraphs) for index in kb.searcher.words.sparta)
    for backend, count, folders in (
        ("bm25", kb.counts.paragraphs, [bm25_folder(shard.folder) for shard in kb.searcher.shards]),
        (
            "sparta",
            sentences,
            [sparta_folder(shard.folder, kb.manifest) for shard in kb.searcher.shards],
        ),
    ):
        if size := sum(map(folder_bytes, folders)):
            sizes = {"texts": count, "bytes per text": round(size / count)}
            figures[backend] = sizes | milliseconds(kb, texts, backend)
    figures |= {backend: milliseconds(kb, texts, backend) for backend in ("dense", "hybrid")}
    reporting.write("words", figures, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
