"""Compact: rotated to half the dimensions, four bits for each, in cells; a quarter of a byte per dimension of the dump.

Codes only say which rows are worth a look: eight times as many hits as are wanted are scored again with the dump's
own rows, so that the scores are exact for the rows that it finds.
"""

from collections.abc import Sequence

from kbq.array_types import Floats
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.indexing.cell_index import CellIndex
from kbq.indexing.cells import Cells, build_cells
from kbq.indexing.index_folder import CELLS, ROTATION, cells_bytes, open_folders, writing
from kbq.indexing.rotation import Rotation
from kbq.system.machine import available_memory
from kbq.system.stages import Report, silent

OVERFETCH = 8  # times the hits that are wanted: four bits, and sums in whole numbers, put rows in a rough order


def build_compact(shard: Shard, queries: Floats, entry: IndexEntry, report: Report = silent) -> None:
    """Build the index of one shard, of the rows above the entry's filter, for queries like these.

    `queries` are in the units of the rows. Shape: (queries, dim).

    Raises:
        KnowledgeBaseError: faiss is missing or the disk full.
    """
    with writing(shard, entry) as folder:
        rotation = Rotation.fit(shard.vectors, queries, kept=queries.shape[1] // 2)
        rotation.save(folder / ROTATION)
        build_cells(folder / CELLS, shard.vectors, shard.rows_above(entry.filter), rotation.rows, report=report)


def open_compact(shards: Sequence[Shard], entry: IndexEntry) -> CellIndex:
    """The indexes of all shards, ready to search.

    Raises:
        KnowledgeBaseError: one is missing, damaged or of other rows, or they do not fit in memory.
    """
    folders = open_folders(shards, entry)
    need, free = cells_bytes(folders), available_memory()
    if need > free:
        raise KnowledgeBaseError(
            f"the compact index takes {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: use --index "
            "approximate, which stays on the disk, or exact"
        )
    cells = {
        number: Cells(folder / CELLS, entry.probes, Rotation.open(folder / ROTATION).queries)
        for number, folder in folders.items()
    }
    return CellIndex(shards, cells, OVERFETCH)
