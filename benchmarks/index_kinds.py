"""Index kinds: measure what each costs to build and keep, how much of exact search it finds, and
how fast it is.

    OMP_NUM_THREADS=1 python benchmarks/index_kinds.py KB GOLD.jsonl [--recall 0.95 0.99]
        [--kinds compact tiny disk] [--count 256] [--tuned MODEL] [--name index_kinds]

All indexes of KB are built anew, once; another recall takes only another calibration. kbq
calibrates their probes on slot queries that it makes up from the pages' titles. Recall is measured
on the ten best phrases for some queries of GOLD, which no calibration has seen. All of GOLD is then
predicted with each index, by vectors alone, with the model of KB and with a tuned one.
"""

import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import reporting
import torch
from measuring import arguments, cpu_seconds, inputs, interval, predicted, records_of, searched

from kbq.answers import Answer, BuiltKind
from kbq.description import describe_indexes
from kbq.dump.manifest import IndexEntry, read_manifest, write_manifest
from kbq.kb import KnowledgeBase
from kbq.maintain.indexes import K, recall

KINDS: tuple[BuiltKind, ...] = ("exact", "compact", "tiny", "disk")
ALONE = 64  # queries asked one at a time


def remove_indexes(folder: Path) -> None:
    """Remove all indexes."""
    manifest = replace(read_manifest(folder), index=IndexEntry(), others=())
    write_manifest(folder, manifest)
    for shard in manifest.shard_folders(folder):
        for kind in KINDS:
            for part in shard.glob(f"{kind}*"):  # those with a filter, too
                shutil.rmtree(part)


def built(folder: Path, kind: BuiltKind, target: float) -> tuple[KnowledgeBase, float]:
    """Return the knowledge base with an index of this kind and recall, and the CPU seconds to build
    it.
    """
    before = time.process_time()
    kb = KnowledgeBase.open(folder, device="cpu", index="exact").index_vectors(kind, target)
    return kb, time.process_time() - before


def end_task(folder: Path, kind: BuiltKind, gold: Path, model: str | None) -> dict[str, object]:
    """Return the scores of slot filling with this index, with their confidence intervals."""
    kb = KnowledgeBase.open(folder, model, device="cpu", index=kind)
    scores = predicted(kb, records_of(gold), "trex", backend="dense", rerank=0)
    return {name: interval(scores.column(name)) for name in ("accuracy", "KILT-accuracy")}


def main() -> None:
    options = arguments(
        __doc__, kb=Path, queries=Path, count=256, recall=(0.95, 0.99), kinds=KINDS[1:], name="index_kinds", tuned=None,
    )  # fmt: skip
    torch.set_num_threads(1)
    texts = inputs(options.queries, options.count)
    remove_indexes(options.kb)
    figures: dict[str, Any] = {}
    truth: list[list[Answer]] = []
    truth_with_words: list[list[Answer]] = []
    for kind, target in (
        ("exact", 1.0),
        *((kind, target) for kind in options.kinds for target in options.recall),
    ):
        kb, seconds = built(options.kb, kind, target)
        starts, ends = kb.model.encode_queries(texts)
        hits = searched(kb, starts, ends, 64)  # reads the files
        many = len(texts) / cpu_seconds(partial(searched, kb, starts, ends, 64))
        alone = ALONE / cpu_seconds(partial(searched, kb, starts[:ALONE], ends[:ALONE], 1))
        with_words = kb.query(texts, K, backend="hybrid", rerank=0)
        truth, truth_with_words = truth or hits, truth_with_words or with_words
        facts = describe_indexes(options.kb)[0]
        found = {
            "bytes per vector, beside the dump": facts.bytes_per_vector,
            "build and calibration, CPU seconds": round(seconds, 1),
            "probes": facts.probes,
            "recall@10 of phrases asked for": facts.target,
            "recall@10 of phrases, calibration queries": facts.recall,
            "recall@10 of phrases, these queries": round(recall(truth, hits), 4),
            "recall@10 of phrases, these queries, with BM25": round(
                recall(truth_with_words, with_words), 4
            ),
            "queries per CPU second, 64 at a time": round(many, 1),
            "queries per CPU second, one at a time": round(alone, 1),
            "untuned": end_task(options.kb, kind, options.queries, None),
        }
        if options.tuned:
            found["tuned"] = end_task(options.kb, kind, options.queries, options.tuned)
        figures[kind if kind == "exact" else f"{kind}, recall {target:g}"] = found
        rows = {"vectors": kb.counts.rows, "queries": len(texts)}
        reporting.write(options.name, rows | figures, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
