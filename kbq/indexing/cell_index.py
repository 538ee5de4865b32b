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


class Favourites(NamedTuple):
    """Paragraphs with the largest bonuses, and the largest bonus of the others. Shapes: (paragraphs,)."""

    shards: Rows
    paragraphs: Rows
    others: float


NO_FAVOURITES = Favourites(np.empty(0, np.int64), np.empty(0, np.int64), 0.0)


class CellIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shards: Sequence[Shard], cells: Mapping[int, Cells], overfetch: int) -> None:
        """`cells`: by the number of their shard, of those with rows; `overfetch`: times the hits wanted are scored."""
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Sequence[Floats] | None = None
    ) -> list[list[Candidates]]:
        """All rows of the paragraphs with the k best starts and ends of the cells probed, or bonuses; see `Index`.

        More than the spans at the hits: where cells were left out, a paragraph is found by any of its good rows.
        """
        k = max(k, LEAST_HITS)
        sizes = [len(shard) for shard in self._shards]
        paragraphs = sum(len(shard.paragraph_rows) for shard in self._shards)
        if k >= sum(sizes) or (bonus is not None and k >= paragraphs) or not len(starts):
            return everything(sizes, len(starts))
        hits = self._best_rows(np.concatenate([starts, ends]), k)
        of_queries = zip(*bonus, strict=True) if bonus else ()
        favourites = [_favourites(own, k) for own in of_queries] or [NO_FAVOURITES] * len(starts)
        by_query = map(self._around, hits[: len(starts)], hits[len(starts) :], favourites)
        return [list(of_shard) for of_shard in zip(*by_query, strict=True)]

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """The k best rows for each vector, or as many as the cells hold. Shape: (vectors, dim)."""
        wanted = self._overfetch * k
        scores: Floats = np.empty((len(queries), 0), np.float32)
        shards: Rows = np.empty((len(queries), 0), np.int64)
        rows = shards
        for number, cells in self._cells.items():  # never more than the hits wanted and those of one shard
            own_scores, own_rows = cells.search(queries, wanted)
            scores = np.hstack([scores, np.where(own_rows < 0, -np.inf, own_scores)])
            shards, rows = np.hstack([shards, np.full_like(own_rows, number)]), np.hstack([rows, own_rows])
            if scores.shape[1] > wanted:
                best = np.argpartition(-scores, wanted, axis=1)[:, :wanted]
                scores = np.take_along_axis(scores, best, axis=1)
                shards, rows = np.take_along_axis(shards, best, axis=1), np.take_along_axis(rows, best, axis=1)
        found = rows >= 0
        return [
            self._rescored(query, of_query[here], own[here], k)
            for query, of_query, own, here in zip(queries, shards, rows, found, strict=True)
        ]

    def _rescored(self, query: Floats, shards: Rows, rows: Rows, k: int) -> Hits:
        """The k best of these rows. Shapes: (dim,), twice (rows,)."""
        scores = np.empty(len(rows), np.float32)
        for number in np.unique(shards):
            here = shards == number
            scores[here] = float_products(self._shards[number].vectors, rows[here], query[None])[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        return Hits(scores[best], shards[best], rows[best])

    def _around(self, starts: Hits, ends: Hits, favourites: Favourites) -> list[Candidates]:
        """For each shard, the rows of the paragraphs that hold a hit or are a favourite."""
        # A side that came out short is bounded by its last hit, too: a deeper search, in more cells, may find more.
        bound = sum(float(side.scores[-1]) if len(side.scores) else np.inf for side in (starts, ends))
        shards, rows = (np.concatenate(sides) for sides in ((starts.shards, ends.shards), (starts.rows, ends.rows)))
        candidates = []
        for number, shard in enumerate(self._shards):
            own = favourites.paragraphs[favourites.shards == number]
            paragraphs = np.union1d(shard.paragraphs_of(rows[shards == number]), own)
            candidates.append(Candidates(ranges(*shard.row_range(paragraphs)), bound + favourites.others))
        return candidates


def _favourites(bonus: Sequence[Floats], k: int) -> Favourites:
    """The k best paragraphs of one query, of more than k in all shards. Shape of each shard's: (paragraphs,)."""
    best = [np.argpartition(-own, k)[: k + 1] if len(own) > k else np.arange(len(own)) for own in bonus]
    shards = np.repeat(np.arange(len(bonus)), [len(paragraphs) for paragraphs in best])
    paragraphs = np.concatenate(best)
    values = np.concatenate([own[some] for own, some in zip(bonus, best, strict=True)])
    order = np.argpartition(-values, k)  # the k best, then the best of the others
    return Favourites(shards[order[:k]], paragraphs[order[:k]], float(values[order[k]]))
