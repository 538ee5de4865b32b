"""Mapped: search of a knowledge base that is larger than the memory it may have, beside the same with all memory.

    OMP_NUM_THREADS=1 python benchmarks/mapped.py KB QUERIES --within "systemd-run --scope -q -p MemoryMax=1G"

`--within` is a command that limits the memory of the command behind it; `--here` only prints what is measured with
the present limit. KB holds a disk and a tiny index. The system forgets KB's files before it is opened; seconds are
the wall time of the search alone. Linux only.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reporting
import torch
from measuring import arguments, inputs, megabytes, searched

from kbq.answers import BuiltKind
from kbq.dump.manifest import read_manifest
from kbq.kb import KnowledgeBase
from kbq.storage.files import folder_bytes
from kbq.storage.machine import available_memory

KINDS: tuple[BuiltKind, ...] = ("exact", "disk", "tiny")  # tiny last: it holds memory of its own
TOGETHER, ALONE = 64, 16  # queries


def forget(folder: Path) -> None:
    """Make the system keep none of these files in memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # what is not on the disk cannot be forgotten
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of what these kinds read most."""
    for shard in read_manifest(folder).shard_folders(folder):
        yield (shard / "vectors.npy").stat().st_size
        yield from (folder_bytes(shard / kind) for kind in KINDS if kind != "exact")


def read_bytes() -> int:
    """Return the bytes that this process has read from the disk."""
    found = re.search(r"^read_bytes:\s+(\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def asked(folder: Path, kind: BuiltKind, texts: list[str], together: int) -> dict[str, Any]:
    """Return the cost of one query when so many are asked at a time, and the hits."""
    forget(folder)
    kb = KnowledgeBase.open(folder, device="cpu", index=kind)
    starts, ends = kb.model.encode_queries(texts)
    begun, read = time.perf_counter(), read_bytes()  # tiny has read its codes by now
    hits = searched(kb, starts, ends, together)
    return {
        "ms a query": round(1000 * (time.perf_counter() - begun) / len(texts), 1),
        "MB read a query": round((read_bytes() - read) / 1e6 / len(texts), 1),
        "found": [[(hit.page_id, hit.start, hit.score) for hit in of_query] for of_query in hits],
    }


def measured(folder: Path, texts: list[str]) -> dict[str, Any]:
    """Measure every kind in this process."""
    figures: dict[str, Any] = {"memory free, MB": round(available_memory() / 1e6)}
    for kind in KINDS:
        if kind == "tiny":
            figures["own memory, MB"] = round(megabytes())
        figures[kind] = {
            f"{count} at a time": asked(folder, kind, texts[:of], count)
            for count, of in ((TOGETHER, TOGETHER), (1, ALONE))
        }
    figures["with tiny, MB"] = round(megabytes())
    return figures


def separately(within: str) -> dict[str, Any]:
    """Measure every kind in another process."""
    command = [*shlex.split(within), sys.executable, *sys.argv, "--here"]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, Any] = json.loads(output)
    return found


def main() -> None:
    options = arguments(__doc__, kb=Path, queries=Path, within="", here=False)
    torch.set_num_threads(1)
    if options.here:
        print(json.dumps(measured(options.kb, inputs(options.queries, TOGETHER))))
        return
    ways = {"all memory": separately(""), "little memory": separately(options.within)}
    found = [[counted.pop("found") for kind in KINDS for counted in way[kind].values()] for way in ways.values()]
    facts = {
        "vectors": read_manifest(options.kb).counts.rows,
        "vectors and indexes, MB": round(sum(sizes(options.kb)) / 1e6),
        "same hits": found[0] == found[1],
    }
    reporting.write("mapped", facts | ways, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
