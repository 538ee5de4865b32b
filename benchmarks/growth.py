"""Growth: what building an index, holding it and searching cost as a knowledge base grows; with a log-log plot.

    OMP_NUM_THREADS=1 python benchmarks/growth.py KB WORK [--millions 0.1,0.3,1,3,10] [--indexed 3]

The first rows of KB are the smaller sizes; beyond its own size its rows are repeated with each value moved by up to two
steps, which says something about speed and size but nothing about answers. Above --indexed million rows only exact
search is measured. WORK is a folder for the grown knowledge bases, each deleted when it has been measured.
"""

import argparse
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch
from plotting import picture

from kbq.description import folder_bytes
from kbq.indexing.arrays import GrowingArray
from kbq.indexing.building import shard_name
from kbq.indexing.dump import Counts, Shard
from kbq.indexing.manifest import IndexEntry, publish
from kbq.kb import KnowledgeBase
from kbq.searching.indexes import IndexWish
from kbq.searching.probes import own_queries

TOGETHER, ALONE = 64, 8  # queries
JITTER = 2  # int8 steps
TARGET = 0.95  # recall


def grow(shard: Shard, folder: Path, rows: int, seed: int = 0) -> Counts:
    """Write a shard of about so many rows: whole paragraphs of `shard`, over and over, each copy a little different."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    names = ("positions", "starts", "ends", "paragraph_numbers")
    arrays = {name: GrowingArray(folder / f"{name}.npy", np.uint32) for name in (*names, "paragraph_documents")}
    vectors = GrowingArray(folder / "vectors.npy", np.int8, shard.vectors.shape[1])
    paragraph_rows = GrowingArray(folder / "paragraph_rows.npy", np.int64)
    texts = {name: Texts(folder, name) for name in ("texts", "ids", "titles")}
    counts = Counts()
    while counts.rows < rows:
        paragraphs = max(1, int(np.searchsorted(shard.paragraph_rows, rows - counts.rows, side="right")))
        documents = int(shard.paragraph_documents[paragraphs - 1]) + 1
        own = int(shard.paragraph_rows[paragraphs - 1])
        for first in range(0, own, 2**18):
            part = shard.vectors[first : min(first + 2**18, own)]
            if counts.rows:
                moved = part.astype(np.int16) + random.integers(-JITTER, JITTER + 1, part.shape, np.int16)
                part = np.clip(moved, -127, 127).astype(np.int8)
            vectors.append(part)
        for name in names:
            arrays[name].append(getattr(shard, name)[: own if name in names[:3] else paragraphs])
        arrays["paragraph_documents"].append(shard.paragraph_documents[:paragraphs] + np.uint32(counts.documents))
        paragraph_rows.append(shard.paragraph_rows[:paragraphs] + counts.rows)
        for name, written in texts.items():
            written.append(shard.folder, paragraphs if name == "texts" else documents)
        counts += Counts(documents, paragraphs, own, own)
        if paragraphs < len(shard.paragraph_rows):
            break
    for array in [vectors, paragraph_rows, *arrays.values(), *(part for t in texts.values() for part in t.parts)]:
        array.close()
    return counts


class Texts:
    """The first texts of a shard, once or several times."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self.parts = (GrowingArray(folder / f"{name}.npy", np.int64), GrowingArray(folder / f"{name}.bin", np.uint8))

    def append(self, source: Path, count: int) -> None:
        ends, characters = (np.load(source / f"{self._name}.{kind}", mmap_mode="r") for kind in ("npy", "bin"))
        self.parts[0].append(ends[:count] + len(self.parts[1]))
        self.parts[1].append(characters[: int(ends[count - 1])])


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, the better of two runs."""
    taken = []
    for _ in range(2):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return min(taken)


def speed(kb: KnowledgeBase, starts: np.ndarray, ends: np.ndarray) -> dict[str, float]:
    """CPU milliseconds for one query."""
    kb.search_vectors(starts[:TOGETHER], ends[:TOGETHER])  # reads the files
    together = seconds(lambda: kb.search_vectors(starts[:TOGETHER], ends[:TOGETHER])) / TOGETHER
    each = seconds(lambda: [kb.search_vectors(starts[i : i + 1], ends[i : i + 1]) for i in range(ALONE)]) / ALONE
    return {"ms, 64 at a time": round(1000 * together, 2), "ms, one at a time": round(1000 * each, 2)}


def measured(source: KnowledgeBase, work: Path, millions: float, is_indexed: bool) -> dict[str, Any]:
    """What a knowledge base of this size costs."""
    folder = work / f"grown-{millions}"
    counts = grow(source.shards[0], folder / shard_name(0), int(millions * 1e6))
    publish(folder, replace(source.manifest, shards=(counts,), index=IndexEntry(), others=(), bm25=False, sparta=False))
    kb = KnowledgeBase.open(folder, device="cpu")
    starts, ends = kb.model.encode_queries(own_queries(kb.shards, kb.model, TOGETHER, seed=1))
    row = {"rows": counts.rows, "copies": max(1, round(counts.rows / source.counts.rows, 1))}
    row |= {"dump, MB": round(folder_bytes(folder) / 1e6), "exact": speed(kb, starts, ends)}
    if is_indexed:
        before, size = time.process_time(), folder_bytes(folder)
        kb = kb.with_index(IndexWish("approximate", TARGET))
        facts = {"build and calibration, CPU seconds": round(time.process_time() - before, 1)}
        facts |= {
            "MB": round((folder_bytes(folder) - size) / 1e6),
            "probes": kb.index.probes,
            "recall": kb.index.recall,
        }
        row["approximate"] = facts | speed(kb, starts, ends)
    shutil.rmtree(folder)
    return row


def plot(rows: list[dict[str, Any]]) -> None:
    indexed = [row for row in rows if "approximate" in row]
    with picture("growth", columns=2) as (times, sizes):
        for kind, shown, mark in (("exact", rows, "o"), ("approximate", indexed, "s")):
            for name, line in (("ms, 64 at a time", "-"), ("ms, one at a time", "--")):
                values = [row[kind][name] for row in shown]
                times.plot([row["rows"] for row in shown], values, line, marker=mark, label=f"{kind}, {name[4:]}")
        times.set_ylabel("CPU milliseconds for a query")
        sizes.plot([row["rows"] for row in rows], [row["dump, MB"] for row in rows], marker="o", label="dump, MB")
        for name, label in (
            ("MB", "approximate index, MB"),
            ("build and calibration, CPU seconds", "its build, CPU seconds"),
        ):
            values = [row["approximate"][name] for row in indexed]
            sizes.plot([row["rows"] for row in indexed], values, marker="s", label=label)
        for axes in (times, sizes):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("vectors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--millions", default="0.1,0.3,1,3,10")
    parser.add_argument("--indexed", type=float, default=3.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = KnowledgeBase.open(options.kb, device="cpu", index="exact")
    rows: list[dict[str, Any]] = []
    for millions in map(float, options.millions.split(",")):
        rows.append(measured(source, options.work, millions, millions <= options.indexed))
        rows.sort(key=lambda row: int(row["rows"]))
        reporting.write("growth", {"sizes": rows}, [options.kb], seed=0)
        plot(rows)


if __name__ == "__main__":
    main()
