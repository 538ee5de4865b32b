"""Growth: measure what building an index, holding it and searching cost as a knowledge base grows.

    OMP_NUM_THREADS=1 python benchmarks/growth.py KB WORK [--millions 0.1 0.3 1 3 10]

The sizes are millions of rows: of the first pages of KB, or all of them if it has fewer. WORK is a
folder for copies of KB, each deleted when it has been measured. plotting.py draws the curves.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import torch
from measuring import arguments, cpu_seconds, searched

from kbq.answers import BuiltKind
from kbq.dump.manifest import IndexEntry, write_manifest
from kbq.kb import KnowledgeBase
from kbq.maintain.indexes import own_queries
from kbq.storage.folders import folder_bytes

TOGETHER, ALONE = 64, 8  # queries
INDEX: BuiltKind = "compact"
INDEXES = shutil.ignore_patterns("compact*", "tiny*", "disk*", "bm25*", "sparta*")


def cut(source: KnowledgeBase, folder: Path, rows: int) -> KnowledgeBase:
    """Copy the first pages of a knowledge base, about so many rows in all, without its indexes."""
    shutil.copytree(source.folder, folder, ignore=INDEXES)
    write_manifest(
        folder, replace(source.manifest, index=IndexEntry(), others=(), bm25=False, sparta="")
    )
    per_page = [
        np.bincount(
            shard.paragraph_pages, np.diff(shard.paragraph_rows, prepend=0), len(shard.titles)
        )
        for shard in source.searcher.shards
    ]
    kept = np.concatenate(per_page).cumsum() <= rows
    kb = KnowledgeBase.open(folder, device="cpu", index="exact")
    others = [page.page_id for page, is_kept in zip(kb.pages(), kept, strict=True) if not is_kept]
    return kb.delete(others).compact() if others else kb


def speed(kb: KnowledgeBase, starts: np.ndarray, ends: np.ndarray) -> dict[str, float]:
    """Return CPU milliseconds for one query."""
    starts, ends = starts[:TOGETHER], ends[:TOGETHER]
    searched(kb, starts, ends, TOGETHER)  # reads the files
    together = cpu_seconds(lambda: searched(kb, starts, ends, TOGETHER), 2) / TOGETHER
    each = cpu_seconds(lambda: searched(kb, starts[:ALONE], ends[:ALONE], 1), 2) / ALONE
    return {
        "ms, 64 at a time": round(1000 * together, 2),
        "ms, one at a time": round(1000 * each, 2),
    }


def measured(source: KnowledgeBase, work: Path, millions: float) -> dict[str, Any]:
    """Return the costs of a knowledge base of this size."""
    folder = work / f"first-{millions}"
    kb = cut(source, folder, int(millions * 1e6))
    starts, ends = kb.model.encode_queries(
        own_queries(kb.searcher.shards, kb.model, TOGETHER, seed=1)
    )
    row = {
        "rows": kb.counts.rows,
        "shards": len(kb.searcher.shards),
        "dump, MB": round(folder_bytes(folder) / 1e6),
    }
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
