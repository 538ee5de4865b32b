"""Cell index: the cells of all shards are searched as one; the rows found are scored with the dump's vectors."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from kbq.array_types import Floats, Rows
from kbq.dump.shards import Shard
from kbq.indexing.base import Bonus, Candidates, everything, ranges
from kbq.indexing.cells import Cells
from kbq.indexing.inner_products import float_products

MOST_HITS = 2**22  # of all queries that are searched together, before they are scored again: some 130 MB
LEAST_HITS = 50  # starts, and ends, to find at least: the ten best phrases stand above the bound of so many


class Hits(NamedTuple):
    """Rows with their exact scores, best first. Shapes: (hits,)."""

    scores: Floats
    shards: Rows
    rows: Rows


class Paragraphs(NamedTuple):
    """Paragraphs of one shard, and what they add to their spans. Shapes: (paragraphs,)."""

    numbers: Rows
    bonus: Floats


class CellIndex:
    """Scores are exact for the rows that it finds."""

    def __init__(self, shards: Sequence[Shard], cells: Mapping[int, Cells], overfetch: int) -> None:
        """`cells`: by shard number, of shards with rows; `overfetch`: how many hits are scored for each one wanted."""
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        """All rows of paragraphs with one of the k best starts, ends (in the cells probed) or bonuses; see `Index`.

        Not only the spans at these hits: where cells were left out, a paragraph is found by any of its good rows.
        """
        k = max(k, LEAST_HITS)
        paragraphs = sum(len(shard.paragraph_rows) for shard in self._shards)
        if k >= sum(len(shard) for shard in self._shards) or (bonus is not None and k >= paragraphs) or not len(starts):
            return everything(self._shards, len(starts), bonus)
        queries = np.concatenate([starts, ends])
        together = max(1, MOST_HITS // (self._overfetch * k))
        parts = (queries[first : first + together] for first in range(0, len(queries), together))
        hits = list(chain.from_iterable(self._best_rows(part, k) for part in parts))
        sides = list(zip(hits[: len(starts)], hits[len(starts) :], strict=True))
        # A side with fewer than k hits is bounded by its last hit, too: a deeper search, in more cells, may find more.
        bounds = [sum(float(side.scores[-1]) if len(side.scores) else np.inf for side in pair) for pair in sides]
        near = [[self._around(number, pair) for pair in sides] for number in range(len(self._shards))]
        if bonus is None:
            return [
                [_all_rows(shard, numbers, bound) for numbers, bound in zip(of_shard, bounds, strict=True)]
                for shard, of_shard in zip(self._shards, near, strict=True)
            ]
        selections, limits = _with_favourites(near, bonus, k)
        return [
            [
                _all_rows(shard, selection.numbers, bound + limit, selection.bonus)
                for selection, bound, limit in zip(of_shard, bounds, limits, strict=True)
            ]
            for shard, of_shard in zip(self._shards, selections, strict=True)
        ]

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """The k best rows for each vector, or as many as the cells hold. Shape: (vectors, dim)."""
        wanted = self._overfetch * k
        scores: Floats = np.empty((len(queries), 0), np.float32)
        shards: Rows = np.empty((len(queries), 0), np.int64)
        rows = shards
        for number, cells in self._cells.items():  # never more than the hits wanted and those of one shard
            new_scores, new_rows = cells.search(queries, wanted)
            scores = np.hstack([scores, np.where(new_rows < 0, -np.inf, new_scores)])
            shards, rows = np.hstack([shards, np.full_like(new_rows, number)]), np.hstack([rows, new_rows])
            if scores.shape[1] > wanted:
                best = np.argpartition(-scores, wanted, axis=1)[:, :wanted]
                scores = np.take_along_axis(scores, best, axis=1)
                shards, rows = np.take_along_axis(shards, best, axis=1), np.take_along_axis(rows, best, axis=1)
        return [
            self._rescored(query, query_shards[is_row], query_rows[is_row], k)
            for query, query_shards, query_rows, is_row in zip(queries, shards, rows, rows >= 0, strict=True)
        ]

    def _rescored(self, query: Floats, shards: Rows, rows: Rows, k: int) -> Hits:
        """The k best of these rows. Shapes: (dim,), twice (rows,)."""
        scores = np.empty(len(rows), np.float32)
        for number in np.unique(shards):
            in_shard = shards == number
            scores[in_shard] = float_products(self._shards[number], rows[in_shard], query[None])[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        return Hits(scores[best], shards[best], rows[best])

    def _around(self, number: int, sides: Sequence[Hits]) -> Rows:
        """The paragraphs of a shard that hold a hit, ascending."""
        rows = np.concatenate([side.rows[side.shards == number] for side in sides])
        return np.unique(self._shards[number].paragraphs_of(rows))


def _with_favourites(
    near: Sequence[Sequence[Rows]], bonus: Bonus, k: int
) -> tuple[list[list[Paragraphs]], list[float]]:
    """For each shard and query, these paragraphs and those whose bonus is among the k largest of all shards.

    Also, for each query, a bonus that no other paragraph exceeds; of equal bonuses all or none are taken. There must
    be more than k paragraphs.
    """
    pairs = [_near_and_largest(bonus[number], of_shard, k + 1) for number, of_shard in enumerate(near)]
    limits = [
        float(np.sort(np.concatenate([largest.bonus for largest in of_query]))[-k - 1])
        for of_query in zip(*(largest for _, largest in pairs), strict=True)
    ]
    selections = [
        [
            _with_better(nearby, favourites, limit)
            for nearby, favourites, limit in zip(close, largest, limits, strict=True)
        ]
        for close, largest in pairs
    ]
    return selections, limits


def _near_and_largest(table: Floats, near: Sequence[Rows], count: int) -> tuple[list[Paragraphs], list[Paragraphs]]:
    """For each query, its paragraphs near hits, and those with the largest bonus, all of one shard."""
    close = [Paragraphs(numbers, bonus[numbers]) for numbers, bonus in zip(near, table, strict=True)]
    return close, [_largest(bonus, count) for bonus in table]


def _largest(bonus: Floats, count: int) -> Paragraphs:
    """The paragraphs of a shard with the largest bonus, in any order. Shape: (paragraphs,)."""
    numbers = np.argpartition(-bonus, count - 1)[:count] if len(bonus) > count else np.arange(len(bonus))
    return Paragraphs(numbers, bonus[numbers])


def _with_better(near: Paragraphs, largest: Paragraphs, limit: float) -> Paragraphs:
    """Both together, ascending; of the second only those whose bonus is above the limit."""
    better = largest.bonus > limit
    numbers, place = np.unique(np.concatenate([near.numbers, largest.numbers[better]]), return_index=True)
    return Paragraphs(numbers, np.concatenate([near.bonus, largest.bonus[better]])[place])


def _all_rows(shard: Shard, paragraphs: Rows, bound: float, bonus: Floats | None = None) -> Candidates:
    """The rows of these paragraphs, which ascend. Shapes: (paragraphs,)."""
    begins, stops = shard.row_range(paragraphs)
    return Candidates(ranges(begins, stops), bound, None if bonus is None else np.repeat(bonus, stops - begins))
