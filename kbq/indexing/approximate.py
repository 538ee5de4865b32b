"""Approximate: the dump's int8 values once more, in cells; one byte per dimension, and scores that are exact."""

import numpy as np

from kbq.indexing.candidates import Candidates, Floats
from kbq.indexing.cells import LEAST_HITS, Cells, build_cells, candidates_at
from kbq.indexing.dump import Shard
from kbq.indexing.index_folder import CELLS, open_folder, writing

OVERFETCH = 2  # times the hits that are wanted; four times found nothing more among 1.4 million rows


def build_approximate(shard: Shard, threshold: float | None = None) -> None:
    """Build the index of one shard, of the rows above a filter's threshold.

    Raises:
        KnowledgeBaseError: faiss is missing or the disk full.
    """
    with writing(shard, "approximate", threshold) as folder:
        kept = shard.rows_above(threshold)
        build_cells(folder / CELLS, kept, lambda rows: shard.vectors[rows], "int8")


class ApproximateIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shard: Shard, probes: int, threshold: float | None = None) -> None:
        self._shard = shard
        self._cells = Cells(open_folder(shard, "approximate", threshold) / CELLS, probes)

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """The paragraphs with the k best starts and ends of the cells that are probed, or bonuses; see `Index`."""
        k = max(k, LEAST_HITS)
        queries = np.concatenate([starts, ends])
        return candidates_at(self._shard, queries, self._cells.search(queries, OVERFETCH * k), k, bonus)
