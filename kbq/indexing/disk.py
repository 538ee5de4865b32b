"""Approximate: the dump's int8 values once more, in cells; one byte per dimension; what is found is scored again."""

from collections.abc import Sequence

import torch

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.indexing.cell_index import CellIndex
from kbq.indexing.cells import Cells, build_cells
from kbq.indexing.index_folder import CELLS, cells_bytes, open_folders, writing
from kbq.system.callbacks import Report, silent
from kbq.system.machine import stays_in_memory

OVERFETCH = 2  # hits fetched for each one wanted; four of them found nothing more among 1.4 million rows


def build_disk(shard: Shard, entry: IndexEntry, device: torch.device, report: Report = silent) -> None:
    """Build the index of one shard, of the rows above the entry's filter; `device` is for comparing rows with cells.

    Raises:
        KnowledgeBaseError: faiss is missing or the disk full.
    """
    with writing(shard, entry) as folder:
        build_cells(folder / CELLS, shard.vectors, shard.rows_above(entry.filter), device=device, report=report)


def open_disk(shards: Sequence[Shard], entry: IndexEntry) -> CellIndex:
    """The indexes of all shards, ready to search: where their cells do not stay in memory, they are prefetched."""
    folders = open_folders(shards, entry)
    stay = stays_in_memory(cells_bytes(folders) + sum(shard.vectors.nbytes for shard in shards))
    cells = {number: Cells(folder / CELLS, entry.probes, stay=stay) for number, folder in folders.items()}
    return CellIndex(shards, cells, OVERFETCH)
