"""Factory: an index kind becomes the index of a knowledge base: choosing, building and opening it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kbq.answers import BuiltKind, WantedKind
from kbq.array_types import Floats
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index.base import Index, Whole
from kbq.index.compact import build_compact, open_compact
from kbq.index.disk import build_disk, open_disk
from kbq.index.exact import ExactIndex
from kbq.index.index_folder import has_index
from kbq.index.inner_products import CPU, devices_for
from kbq.index.official_codes import open_official
from kbq.storage.folders import discard_folder
from kbq.storage.progress import Report, silent

Build = Callable[[Sequence[Shard], IndexEntry, Floats, torch.device, Report], None]  # `build_missing`
EXACT_ROWS = 2_000_000  # above, exact search becomes slow


def chosen_kind(manifest: Manifest, wanted: WantedKind) -> BuiltKind:
    """The kind that `auto` stands for: that of the default index or, if that is exact, by the number of rows."""
    if wanted != "auto":
        return wanted
    kind = manifest.index.kind
    if kind != "exact" and kind != "official":
        return kind
    return "exact" if manifest.counts.rows <= EXACT_ROWS else "compact"


def build_missing(
    shards: Sequence[Shard],
    entry: IndexEntry,
    queries: Floats,
    device: torch.device = CPU,
    report: Report = silent,
) -> None:
    """Build an index for every shard that lacks it; for exact search, nothing is built.

    Args:
        queries: examples of the queries to expect, in the units of the rows. Shape: (queries, dim).
        device: where rows are compared with cells.
    """
    for number, shard in enumerate(shards, start=1):
        if is_built([shard], entry):
            continue

        def report_shard(stage: str, done: int, total: int, number: int = number) -> None:
            report(f"{entry.kind} index, shard {number} of {len(shards)}, {stage}", done, total)

        if entry.kind == "disk":
            build_disk(shard, entry, device, report_shard)
        else:
            build_compact(shard, queries, entry, device, report_shard)


def is_built(shards: Sequence[Shard], entry: IndexEntry) -> bool:
    """Whether all shards have this index; shards without rows need none."""
    return entry.kind == "exact" or all(has_index(shard, entry) for shard in shards if len(shard))


def remove_others(shards: Sequence[Path], entry: IndexEntry) -> None:
    """Remove indexes of the same kind with another filter, or made for other queries, from the folders of shards."""
    for shard in shards:
        for other in set(shard.glob(f"{entry.kind}*")) - {shard / entry.part}:
            discard_folder(other)


def open_index(
    shards: Sequence[Shard],
    entry: IndexEntry,
    device: torch.device,
    may_leave_gpu: bool = False,
    whole: Whole | None = None,
) -> Index:
    """Open the index of all shards, or of some neighbouring groups of them.

    Args:
        may_leave_gpu: use the CPU for exact search if the GPUs lack memory for all rows.
        whole: the knowledge base, of which these are some groups; None: these are all shards.

    Raises:
        KnowledgeBaseError: an index is missing, damaged or of other rows; or the GPUs lack memory for exact search.
    """
    if entry.kind == "exact":
        try:
            return ExactIndex(shards, devices_for(shards, device))
        except KnowledgeBaseError:
            if not may_leave_gpu:
                raise
            return ExactIndex(shards, [CPU] * len(shards))
    if entry.kind == "official":
        return open_official(shards, entry)
    if entry.kind == "disk":
        return open_disk(shards, entry, whole)
    return open_compact(shards, entry, whole)
