"""Growth: what building an index, holding it and searching cost as a knowledge base grows.

    OMP_NUM_THREADS=1 python benchmarks/growth.py KB WORK [--millions 0.1 0.3 1 3 10]

The smaller sizes are the first rows of KB; a size above its own means all of them. WORK is a folder for the cut
knowledge bases, each deleted when it has been measured. plotting.py draws the curves.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch
from measuring import arguments, cpu_seconds, searched

from kbq.answers import BuiltKind
from kbq.dump.manifest import IndexEntry, publish
from kbq.dump.shards import Counts, Shard, ShardEntry, shard_name
from kbq.kb import KnowledgeBase
from kbq.search.building_indexes import own_queries
from kbq.storage.files import folder_bytes
from kbq.storage.records import seal_folder

TOGETHER, ALONE = 64, 8  # queries
INDEX: BuiltKind = "compact"
PER_ROW = ("vectors", "positions", "starts", "ends", "edges", "logits")
PER_PARAGRAPH = ("paragraph_tokens", "paragraph_rows", "paragraph_numbers", "paragraph_pages")


def cut(shards: Sequence[Shard], folder: Path, rows: int) -> tuple[ShardEntry, ...]:
    """Write as many shards as the first paragraphs of these take, about so many rows in all."""
    written: list[ShardEntry] = []
    for shard in shards:
        left = rows - sum(entry.size.rows for entry in written)
        paragraphs = int(np.searchsorted(shard.paragraph_rows, left, side="right"))
        if not paragraphs:
            break
        own, pages = int(shard.paragraph_rows[paragraphs - 1]), int(shard.paragraph_pages[paragraphs - 1]) + 1
        to = folder / shard_name(len(written))
        to.mkdir(parents=True)
        for names, count in ((PER_ROW, own), (PER_PARAGRAPH, paragraphs)):
            for name in names:
                np.save(to / f"{name}.npy", np.load(shard.folder / f"{name}.npy", mmap_mode="r")[:count])
        np.save(to / "page_digests.npy", shard.page_digests[:pages])
        for name, count in (("texts", paragraphs), ("ids", pages), ("titles", pages), ("metadata", pages)):
            ends, characters = (np.load(shard.folder / f"{name}.{kind}", mmap_mode="r") for kind in ("npy", "bin"))
            np.save(to / f"{name}.npy", ends[:count])
            with (to / f"{name}.bin").open("wb") as file:
                np.save(file, characters[: int(ends[count - 1])])
        counts = Counts(pages, paragraphs, own, own)
        written.append(ShardEntry(to.name, seal_folder(to).digest, counts, counts))
        if paragraphs < len(shard.paragraph_rows):
            break
    return tuple(written)


def speed(kb: KnowledgeBase, starts: np.ndarray, ends: np.ndarray) -> dict[str, float]:
    """Return CPU milliseconds for one query."""
    starts, ends = starts[:TOGETHER], ends[:TOGETHER]
    searched(kb, starts, ends, TOGETHER)  # reads the files
    together = cpu_seconds(lambda: searched(kb, starts, ends, TOGETHER), 2) / TOGETHER
    each = cpu_seconds(lambda: searched(kb, starts[:ALONE], ends[:ALONE], 1), 2) / ALONE
    return {"ms, 64 at a time": round(1000 * together, 2), "ms, one at a time": round(1000 * each, 2)}


def measured(source: KnowledgeBase, work: Path, millions: float) -> dict[str, Any]:
    """Return the costs of a knowledge base of this size."""
    folder = work / f"first-{millions}"
    shards = cut(source.searcher.shards, folder, int(millions * 1e6))
    publish(folder, replace(source.manifest, shards=shards, index=IndexEntry(), others=(), bm25=False, sparta=""))
    kb = KnowledgeBase.open(folder, device="cpu")
    starts, ends = kb.model.encode_queries(own_queries(kb.searcher.shards, kb.model, TOGETHER, seed=1))
    row = {"rows": kb.counts.rows, "shards": len(shards), "dump, MB": round(folder_bytes(folder) / 1e6)}
    row |= {"exact": speed(kb, starts, ends)}
    before, size = time.process_time(), folder_bytes(folder)
    kb = kb.index_vectors(INDEX)
    facts = {
        "build and calibration, CPU seconds": round(time.process_time() - before, 1),
        "MB": round((folder_bytes(folder) - size) / 1e6),
        "probes": kb.index.probes,
        "recall": round(kb.index.recall, 4),
    }
    row[INDEX] = facts | speed(kb, starts, ends)
    shutil.rmtree(folder)
    return row


def main() -> None:
    options = arguments(__doc__, kb=Path, work=Path, millions=(0.1, 0.3, 1.0, 3.0, 10.0))
    torch.set_num_threads(1)
    source = KnowledgeBase.open(options.kb, device="cpu", index="exact")
    rows: list[dict[str, Any]] = []
    for millions in options.millions:
        rows.append(measured(source, options.work, millions))
        rows.sort(key=lambda row: int(row["rows"]))
        reporting.write("growth", {"sizes": rows}, [options.kb], seed=0)


if __name__ == "__main__":
    main()
