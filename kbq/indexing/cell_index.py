"""Cell index: the cells of all shards, asked as if they were one's; what they find is scored with the dump's rows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kbq.indexing.candidates import Candidates, Floats, Rows, everything, ranges
from kbq.indexing.cells import Cells
from kbq.indexing.dump import Shard
from kbq.indexing.products import float_products

LEAST_HITS = 50  # starts and ends asked for, or more: the ten best phrases stand above the bound of so many


class Hits(NamedTuple):
    """Rows with their exact scores, best first. Shapes: (hits,)."""

    scores: Floats
    shards: Rows
    rows: Rows


class CellIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shards: Sequence[Shard], cells: Mapping[int, Cells], overfetch: int) -> None:
        """`cells`: by the number of their shard, of those with rows; `overfetch`: times the hits wanted are scored."""
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch
        self._first_paragraphs = np.cumsum([0, *(len(shard.paragraph_rows) for shard in shards)])

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Sequence[Floats] | None = None
    ) -> list[list[Candidates]]:
        """All rows of the paragraphs with the k best starts and ends of the cells probed, or bonuses; see `Index`.

        More than the spans at the hits: where cells were left out, a paragraph is found by any of its good rows.
        """
        k = max(k, LEAST_HITS)
        sizes = [len(shard) for shard in self._shards]
        if k >= sum(sizes) or (bonus is not None and k >= self._first_paragraphs[-1]):
            return everything(sizes, len(starts))
        hits = self._best_rows(np.concatenate([starts, ends]), k)
        bonuses = [None] * len(starts) if bonus is None else np.concatenate(bonus, axis=1)
        sides = zip(hits[: len(starts)], hits[len(starts) :], bonuses, strict=True)
        by_query = [self._around(of_start, of_end, k, own) for of_start, of_end, own in sides]
        return [list(of_shard) for of_shard in zip(*by_query, strict=True)]

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """The k best rows for each vector, or as many as the cells hold. Shape: (vectors, dim)."""
        wanted = self._overfetch * k
        found = [(number, *cells.search(queries, wanted)) for number, cells in self._cells.items()]
        shards = np.concatenate([np.full(rows.shape[1], number) for number, _, rows in found])
        scores = np.concatenate([scores for _, scores, _ in found], axis=1)
        rows = np.concatenate([rows for _, _, rows in found], axis=1)
        order = np.argsort(np.where(rows < 0, np.inf, -scores), axis=1, kind="stable")[:, :wanted]
        hits = []
        for query, best, own in zip(queries, order, rows, strict=True):
            best = best[own[best] >= 0]
            hits.append(self._rescored(query, shards[best], own[best], k))
        return hits

    def _rescored(self, query: Floats, shards: Rows, rows: Rows, k: int) -> Hits:
        """The k best of these rows. Shapes: (dim,), twice (rows,)."""
        scores = np.empty(len(rows), np.float32)
        for number in np.unique(shards):
            here = shards == number
            scores[here] = float_products(self._shards[number].vectors, rows[here], query[None])[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        return Hits(scores[best], shards[best], rows[best])

    def _around(self, starts: Hits, ends: Hits, k: int, bonus: Floats | None) -> list[Candidates]:
        """For each shard, the rows of paragraphs with a hit or one of the k best bonuses. Shape: (all paragraphs,)."""
        # A side that came out short is bounded by its last hit, too: a deeper search, in more cells, may find more.
        bound = sum(float(side.scores[-1]) if len(side.scores) else np.inf for side in (starts, ends))
        best = np.empty(0, np.int64)
        if bonus is not None:
            order = np.argpartition(-bonus, k)  # the k best, then the best of the others
            best, bound = order[:k], bound + float(bonus[order[k]])
        shards, rows = (np.concatenate(sides) for sides in ((starts.shards, ends.shards), (starts.rows, ends.rows)))
        candidates = []
        for number, shard in enumerate(self._shards):
            first, behind = self._first_paragraphs[number : number + 2]
            with_bonus = best[(first <= best) & (best < behind)] - first
            paragraphs = np.union1d(shard.paragraphs_of(rows[shards == number]), with_bonus)
            candidates.append(Candidates(ranges(*shard.row_range(paragraphs)), bound))
        return candidates
