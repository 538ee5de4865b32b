"""Index kinds: what each costs to build and to hold, what it finds of exact search, and how fast it is.

    OMP_NUM_THREADS=1 python benchmarks/index_kinds.py KB GOLD.jsonl [--recall 0.95] [--tuned MODEL] [--name NAME]

All indexes are built again in KB. Their probes are calibrated on slot queries that kbq makes up from the pages' titles;
the recall below is that of the ten best phrases for some queries of GOLD, which no calibration has seen. All of GOLD is
then predicted with each index, vectors alone, with the model of KB and with one tuned on queries.
"""

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch
from kilt import judged

from kbq.description import describe_indexes
from kbq.indexing.manifest import IndexKind
from kbq.kb import KnowledgeBase
from kbq.prediction import PredictionSettings, predict_file
from kbq.reading import read_json_lines
from kbq.records import Hit
from kbq.searching.indexes import IndexWish
from kbq.searching.probes import K, recall
from kbq.task import load_task

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


def end_task(folder: Path, kind: IndexKind, gold: Path, model: str | None) -> dict[str, object]:
    """Scores of slot filling with this index: mean and confidence interval."""
    kb = KnowledgeBase.open(folder, model, device="cpu", index=kind)
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "predictions.jsonl"
        predict_file(load_task("trex"), gold, kb, out, PredictionSettings(backend="dense"), lambda done, total: None)
        return {name: value for name, value in judged(gold, out).items() if name in ("accuracy", "KILT-accuracy")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--queries", dest="count", type=int, default=256)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--name", default="index_kinds")
    parser.add_argument("--tuned", help="a query encoder: scores with it are reported, too")
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
        figures[kind]["untuned"] = end_task(options.kb, kind, options.queries, None)
        if options.tuned:
            figures[kind]["tuned"] = end_task(options.kb, kind, options.queries, options.tuned)
        rows = {"vectors": kb.counts.rows, "queries": len(texts)}
        reporting.write(options.name, rows | figures, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
