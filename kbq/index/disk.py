"""Disk: the rows of all shards become memory-mapped indexes, a copy of the int8 vectors in cells, one byte a dimension.

The hits are rescored with the dump's own vectors.
"""

from collections.abc import Sequence

import torch

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.index.base import Whole
from kbq.index.cell_index import CellIndex
from kbq.index.cells import Cells, build_cells, read_cells
from kbq.index.index_folder import CELLS, cells_bytes, open_folders, writing
from kbq.storage.machine import stays_in_memory
from kbq.storage.progress import Report, silent

OVERFETCH = 2  # hits to rescore per hit wanted; 4 found nothing more among 1.4 million rows


def build_disk(shard: Shard, entry: IndexEntry, device: torch.device, report: Report = silent) -> None:
    """Build the index of one shard, of the rows above the entry's filter.

    `device`: where rows are compared with cells.

    Raises:
        KnowledgeBaseError: faiss is not installed, or the disk is full.
    """
    with writing(shard, entry) as folder:
        build_cells(folder / CELLS, shard.vectors, shard.rows_above(entry.filter), device=device, report=report)


def open_disk(shards: Sequence[Shard], entry: IndexEntry, whole: Whole | None = None) -> CellIndex:
    """Open the indexes of these shards as one; cells are prefetched if they do not stay in memory.

    `whole`: see `CellIndex`.

    Raises:
        KnowledgeBaseError: one is missing, damaged or of other rows.
    """
    folders = open_folders(shards, entry)
    stay = stays_in_memory(cells_bytes(folders) + sum(shard.vectors.nbytes for shard in shards))
    cells = {
        number: Cells(read_cells(folder / CELLS), entry.probes, stay=stay, shown=shards[number].shown_or_all())
        for number, folder in folders.items()
    }
    return CellIndex(shards, cells, OVERFETCH, whole)
