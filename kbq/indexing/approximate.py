"""Approximate: the dump's int8 values once more, in cells; one byte per dimension, and scores that are exact."""

import numpy as np

from kbq.indexing.candidates import Candidates, Floats, Rows, from_hits
from kbq.indexing.cells import LEAST_HITS, OVERFETCH, Cells, build_cells, rescored
from kbq.indexing.dump import Shard
from kbq.indexing.index_folder import CELLS, open_folder, writing


def build_approximate(shard: Shard) -> None:
    """Build the index of one shard. Raises KnowledgeBaseError where faiss is missing or the disk full."""
    with writing(shard, "approximate") as folder:
        build_cells(folder / CELLS, len(shard), lambda rows: shard.vectors[rows].astype(np.float32), "int8")


class ApproximateIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shard: Shard, probes: int) -> None:
        self._shard = shard
        self._cells = Cells(open_folder(shard, "approximate") / CELLS, probes)

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """The paragraphs with the k best starts and ends of the cells that are probed, or bonuses; see `Index`."""
        k = max(k, LEAST_HITS)
        queries = np.concatenate([starts, ends])
        # faiss multiplies these codes with whole numbers only: a query of small values would be all zeros.
        largest = np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30)
        _, rows = self._cells.search(np.rint(queries * (127 / largest)), OVERFETCH * k)
        hits = [rescored(self._shard, query, found, k) for query, found in zip(queries, rows, strict=True)]
        extra = [None] * len(starts) if bonus is None else bonus
        sides = zip(hits[: len(starts)], hits[len(starts) :], extra, strict=True)
        return [from_hits(self._shard, of_start, of_end, k, own) for of_start, of_end, own in sides]

    def vectors(self, rows: Rows) -> Floats:
        """The dump's own rows; see `Index`."""
        return self._shard.vectors[rows].astype(np.float32)
