"""Index kinds: what each costs to build and to hold, what it finds of exact search, and how fast it is.

    OMP_NUM_THREADS=1 python benchmarks/index_kinds.py KB QUERIES.jsonl [--queries 256] [--recall 0.95]

All indexes are built again in KB. Their probes are calibrated on slot queries that kbq makes up from the pages' titles;
the recall below is that of the ten best phrases for the given queries, which no calibration has seen.
"""

import argparse
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch

from kbq.commands import describe_indexes
from kbq.indexing.manifest import IndexKind
from kbq.kb import KnowledgeBase
from kbq.reading import read_json_lines
from kbq.records import Hit
from kbq.searching.indexes import IndexWish
from kbq.searching.probes import K, recall

KINDS: tuple[IndexKind, ...] = ("exact", "compact", "approximate")
ALONE = 64  # queries asked one at a time


def built(folder: Path, kind: IndexKind, target: float) -> tuple[KnowledgeBase, float]:
    """The knowledge base with a new index of this kind, and the CPU seconds that it took."""
    kb = KnowledgeBase.open(folder, device="cpu", index="exact")
    for shard in kb.shards:
        shutil.rmtree(shard.folder / kind, ignore_errors=True)
    before = time.process_time()
    return kb.with_index(IndexWish(kind, target)), time.process_time() - before


def searched(kb: KnowledgeBase, starts: np.ndarray, ends: np.ndarray, together: int) -> tuple[list[list[Hit]], float]:
    """The hits of all queries, asked so many at a time, and queries per CPU second."""
    hits: list[list[Hit]] = []
    before = time.process_time()
    for first in range(0, len(starts), together):
        part = slice(first, first + together)
        hits += kb.search_vectors(starts[part], ends[part], K)
    return hits, len(starts) / (time.process_time() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--queries", dest="count", type=int, default=256)
    parser.add_argument("--recall", type=float, default=0.95)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = [str(line["input"]) for _, line in read_json_lines(str(options.queries))]
    texts = random.Random(0).sample(texts, options.count)
    truth: list[list[Hit]] = []
    figures: dict[str, Any] = {}
    for kind in KINDS:
        kb, seconds = built(options.kb, kind, options.recall)
        starts, ends = kb.model.encode_queries(texts)
        searched(kb, starts[:64], ends[:64], 64)  # reads the files
        hits, many = searched(kb, starts, ends, 64)
        _, alone = searched(kb, starts[:ALONE], ends[:ALONE], 1)
        truth = truth or hits
        facts = describe_indexes(options.kb)[0]
        figures[kind] = {
            "bytes per vector, beside the dump": facts.bytes_per_vector,
            "build and calibration, CPU seconds": round(seconds, 1),
            "probes": facts.probes,
            "recall@10 of phrases asked for": facts.target,
            "recall@10 of phrases, calibration queries": facts.recall,
            "recall@10 of phrases, these queries": round(recall(truth, hits), 4),
            "queries per CPU second, 64 at a time": round(many, 1),
            "queries per CPU second, one at a time": round(alone, 1),
        }
        rows = {"vectors": kb.counts.rows, "queries": len(texts)}
        reporting.write("index_kinds", rows | figures, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
