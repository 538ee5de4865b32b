"""Compact: rotated to half the dimensions, four bits for each, in cells; a quarter of a byte per dimension of the dump.

Codes only say which rows are worth a look: eight times as many hits as are wanted are scored again with the dump's
own rows, so that the scores are exact for the rows that it finds.
"""

import numpy as np

from kbq.indexing.candidates import Candidates, Floats
from kbq.indexing.cells import LEAST_HITS, Cells, build_cells, candidates_at
from kbq.indexing.dump import Shard
from kbq.indexing.index_folder import CELLS, ROTATION, open_folder, writing
from kbq.indexing.rotation import Rotation

OVERFETCH = 8  # times the hits that are wanted: four bits, and sums in whole numbers, put rows in a rough order


def build_compact(shard: Shard, queries: Floats, threshold: float | None = None) -> None:
    """Build the index of one shard, of the rows above a filter's threshold, for queries like these.

    `queries` are in the units of the rows. Shape: (queries, dim).

    Raises:
        KnowledgeBaseError: faiss is missing or the disk full.
    """
    with writing(shard, "compact", threshold) as folder:
        rotation = Rotation.fit(shard.vectors, queries, kept=queries.shape[1] // 2)
        rotation.save(folder / ROTATION)
        kept = shard.rows_above(threshold)
        build_cells(folder / CELLS, kept, lambda rows: shard.vectors[rows].astype(np.float32) @ rotation.rows, "4 bit")


class CompactIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shard: Shard, probes: int, threshold: float | None = None) -> None:
        folder = open_folder(shard, "compact", threshold)
        self._shard = shard
        self._rotation = Rotation.open(folder / ROTATION)
        self._cells = Cells(folder / CELLS, probes)

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """The paragraphs with the k best starts and ends of the cells that are probed, or bonuses; see `Index`."""
        k = max(k, LEAST_HITS)
        queries = np.concatenate([starts, ends])
        rows = self._cells.search(queries @ self._rotation.queries, OVERFETCH * k)
        return candidates_at(self._shard, queries, rows, k, bonus)
