"""Accelerator: encoding, exact search and clustering there and on the CPU: speed, agreement, memory.

    python benchmarks/accelerator.py CORPUS WORK [--device cuda] [--times 1,7,35] [--workers 8] [--paragraphs 3000]

The corpus is encoded on the device by several processes, its first paragraphs by one, and fewer of them on the CPU.
Larger knowledge bases are the same one several times, each time with other dimensions negated: other vectors of the
same lengths. Seconds are wall time, with all that the CPU does for the device. T-REx's pages 35 times are 50 million
vectors: 20 GB on the disk, and on the device.
"""

import argparse
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch
from keep_all_tokens import everything_kept
from measuring import wall_seconds

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump.page_encoder import encode_pages
from kbq.dump.publishing import publish
from kbq.dump.shards import shard_name
from kbq.index.cells import Clusters, clusters_for
from kbq.kb import KnowledgeBase
from kbq.model.devices import choose_device
from kbq.model.model import Model
from kbq.search.recall import own_queries
from kbq.storage.seals import seal_folder

TOGETHER, ALONE = 64, 16  # queries
REPEAT = 3
CPU_SHARE = 20  # of the paragraphs, one in so many is also encoded on the CPU
Vectors = tuple[np.ndarray, np.ndarray]  # of the starts and ends of queries


def memory(device: torch.device) -> dict[str, float]:
    """GB that the device held at most since this was asked last."""
    if device.type != "cuda":
        return {}
    most = torch.cuda.max_memory_allocated(device) / 1e9
    torch.cuda.reset_peak_memory_stats(device)
    return {"memory of the device, this process, GB": round(most, 2)}


def encoding(corpus: Path, device: torch.device, folder: Path, paragraphs: int, workers: int) -> dict[str, Any]:
    """Build a knowledge base on the device, and see how its vectors differ from those of a CPU."""
    begun = time.perf_counter()
    kb = KnowledgeBase.build(
        read_corpus(str(corpus)), folder, Model.open("default", str(device)), index="exact", bm25=False, workers=workers
    )
    taken = time.perf_counter() - begun
    figures: dict[str, Any] = {
        "tokens": kb.counts.tokens,
        "kept vectors": kb.counts.rows,
        "build, processes": workers,
        "build, seconds": round(taken, 1),
        "build, tokens per second": round(kb.counts.tokens / taken),
    }
    pages, count = [], 0
    for page in read_corpus(str(corpus)):
        pages.append(page)
        count += len(page.paragraphs)
        if count >= paragraphs:
            break
    few = pages[: max(1, len(pages) // CPU_SHARE)]
    model = everything_kept(str(device))
    encode_pages(model, few)  # warm
    found, on_device = vectors_of(model, pages)
    expected, on_cpu = vectors_of(everything_kept(), few)
    one, other = (vectors[: len(expected)] for vectors in (found, expected))
    cosines = (one * other).sum(axis=1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))
    return figures | {
        "encoding alone, one process, tokens per second": round(len(found) / on_device),
        "encoding alone on the CPU, tokens per second": round(len(expected) / on_cpu),
        "int8 vectors, mean cosine to those of the CPU": round(float(cosines.mean()), 6),
        **memory(device),
    }


def vectors_of(model: Model, pages: list[Page]) -> tuple[np.ndarray, float]:
    """All vectors, and the seconds that they took. Shape: (tokens, dim)."""
    begun = time.perf_counter()
    encoded = encode_pages(model, pages)
    taken = time.perf_counter() - begun
    return np.concatenate([p.vectors for page in encoded for p in page]).astype(np.float32), taken


def enlarged(source: KnowledgeBase, folder: Path, times: int) -> None:
    """The same knowledge base several times, with other signs of the dimensions each time."""
    rng = np.random.default_rng(0)
    shards = []
    for copy in range(times):
        signs = rng.choice([-1, 1], source.model.dim).astype(np.int8) if copy else np.int8(1)
        for shard, entry in zip(source.shards, source.manifest.shards, strict=True):
            to = folder / shard_name(len(shards))
            shutil.copytree(shard.folder, to, copy_function=os.link)
            (to / "vectors.npy").unlink()
            np.save(to / "vectors.npy", shard.vectors * signs)
            (to / "seal.json").unlink()
            shards.append(replace(entry, name=to.name, seal=seal_folder(to).digest))
    publish(folder, replace(source.manifest, shards=tuple(shards)))


def searching(folder: Path, device: torch.device, vectors: Vectors) -> tuple[dict[str, Any], list[Any]]:
    """Queries per second of exact search on a device, and what is found."""
    begun = time.perf_counter()
    kb = KnowledgeBase.open(folder, device=str(device))
    opened = time.perf_counter() - begun
    starts, ends = vectors
    hits = kb.search_vectors(starts, ends)
    together = wall_seconds(lambda: kb.search_vectors(starts, ends), REPEAT) / TOGETHER
    alone = (
        wall_seconds(lambda: [kb.search_vectors(starts[i : i + 1], ends[i : i + 1]) for i in range(ALONE)], REPEAT)
        / ALONE
    )
    figures = {
        "vectors": kb.counts.rows,
        "opening, seconds": round(opened, 1),
        "queries per second, 64 at a time": round(1 / together, 1),
        "queries per second, one at a time": round(1 / alone, 1),
        **memory(device),
    }
    return figures, hits


def clustering(source: KnowledgeBase, device: torch.device) -> dict[str, Any]:
    """Assigning rows to the cells of an index, on the device and on the CPU: what a build of one takes longest for."""
    rows = np.array(source.shards[0].vectors)
    means = rows[:: max(1, len(rows) // clusters_for(len(rows)))].astype(np.float32)
    few = rows[: len(rows) // CPU_SHARE]
    there, here = Clusters(means, device), Clusters(means)
    found, expected = there.nearest(rows), here.nearest(few)
    return {
        "means": len(means),
        "rows per second": round(len(rows) / wall_seconds(lambda: there.nearest(rows), REPEAT)),
        "rows per second, on the CPU": round(len(few) / wall_seconds(lambda: here.nearest(few), REPEAT)),
        "rows with the same mean, percent": round(100 * float((found[: len(few)] == expected).mean()), 4),
        **memory(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--times", default="1,7,35")
    parser.add_argument("--paragraphs", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--name", default="accelerator")
    options = parser.parse_args()
    device = choose_device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU itself"
    figures: dict[str, Any] = {"device": name}
    figures["encoding"] = encoding(options.corpus, device, options.work / "kb", options.paragraphs, options.workers)
    reporting.write(options.name, figures, [options.corpus], seed=0)
    source = KnowledgeBase.open(options.work / "kb", device="cpu")
    figures["clustering"] = clustering(source, device)
    queries = source.model.encode_queries(own_queries(source.shards, source.model, TOGETHER, seed=1))
    for times in map(int, options.times.split(",")):
        folder = options.work / f"{times} times"
        enlarged(source, folder, times)
        found, hits = searching(folder, device, queries)
        if times == 1:
            on_cpu, expected = searching(folder, torch.device("cpu"), queries)
            found |= {"on the CPU": on_cpu, "queries with the same hits": sum(map(list.__eq__, hits, expected))}
        figures[f"exact search, {times} times"] = found
        shutil.rmtree(folder)
        reporting.write(options.name, figures, [options.corpus], seed=0)


if __name__ == "__main__":
    main()
