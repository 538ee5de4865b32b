"""Choice: which index a knowledge base of this size gets."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from kbq.indexing.approximate import ApproximateIndex, build_approximate, probes_for
from kbq.indexing.candidates import Index
from kbq.indexing.dump import Shard
from kbq.indexing.exact import ExactIndex
from kbq.indexing.manifest import IndexEntry, Manifest

IndexKind = Literal["auto", "exact", "approximate"]
EXACT_ROWS = 2_000_000  # up to here every query can be multiplied with every row


def build_indexes(folder: Path, manifest: Manifest, kind: IndexKind) -> Manifest:
    """Build what `kind` asks for over all shards; exact search needs nothing.

    `auto` goes by the number of rows, but once there is an approximate index, it stays one.
    """
    if kind == "auto" and manifest.index.kind == "approximate":
        kind = "approximate"
    if kind == "auto":
        kind = "exact" if manifest.counts.rows <= EXACT_ROWS else "approximate"
    if kind == "exact":
        return replace(manifest, index=IndexEntry("exact"))
    probes = 0
    for shard in map(Shard, manifest.shard_folders(folder)):
        if len(shard):
            probes = max(probes, probes_for(len(shard)))
            if not index_path(shard).exists():  # shards of an earlier build keep theirs
                build_approximate(shard.vectors, index_path(shard))
    return replace(manifest, index=IndexEntry("approximate", probes))


def open_index(shard: Shard, entry: IndexEntry, device: torch.device) -> Index:
    """The index of one shard, ready to search."""
    if entry.kind == "exact" or not len(shard):
        return ExactIndex(shard, device)
    return ApproximateIndex(index_path(shard), entry.probes, shard.paragraph_rows)


def index_path(shard: Shard) -> Path:
    return shard.folder / "approximate.faiss"
