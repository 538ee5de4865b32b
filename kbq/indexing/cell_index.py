"""Cell index: the cells of all shards, asked as if they were one's; what they find is scored with the dump's rows."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from kbq.array_types import Floats, Rows
from kbq.dump.shards import Shard
from kbq.indexing.candidates import Bonus, Candidates, everything, ranges
from kbq.indexing.cells import Cells
from kbq.indexing.products import float_products

MOST_HITS = 2**22  # of all queries that are asked together, before they are scored again: some 130 MB
LEAST_HITS = 50  # starts and ends asked for, or more: the ten best phrases stand above the bound of so many


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
        """`cells`: by the number of their shard, of those with rows; `overfetch`: times the hits wanted are scored."""
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        """All rows of the paragraphs with the k best starts and ends of the cells probed, or bonuses; see `Index`.

        More than the spans at the hits: where cells were left out, a paragraph is found by any of its good rows.
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
        # A side that came out short is bounded by its last hit, too: a deeper search, in more cells, may find more.
        bounds = [sum(float(side.scores[-1]) if len(side.scores) else np.inf for side in both) for both in sides]
        near = [[self._around(number, both) for both in sides] for number in range(len(self._shards))]
        if bonus is None:
            return [
                [_all_rows(shard, numbers, bound) for numbers, bound in zip(of_shard, bounds, strict=True)]
                for shard, of_shard in zip(self._shards, near, strict=True)
            ]
        found, others = _with_favourites(near, bonus, k)
        return [
            [
                _all_rows(shard, some.numbers, bound + other, some.bonus)
                for some, bound, other in zip(of_shard, bounds, others, strict=True)
            ]
            for shard, of_shard in zip(self._shards, found, strict=True)
        ]

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
            scores[here] = float_products(self._shards[number], rows[here], query[None])[:, 0]
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

    Also the largest bonus of the others, for each query; of equal ones all or none are taken. More than k paragraphs
    are needed.
    """
    shards = [_near_and_largest(bonus[number], of_shard, k + 1) for number, of_shard in enumerate(near)]
    others = [
        float(np.sort(np.concatenate([largest.bonus for largest in of_query]))[-k - 1])
        for of_query in zip(*(largest for _, largest in shards), strict=True)
    ]
    found = [
        [_with_better(some, more, other) for some, more, other in zip(close, largest, others, strict=True)]
        for close, largest in shards
    ]
    return found, others


def _near_and_largest(table: Floats, near: Sequence[Rows], count: int) -> tuple[list[Paragraphs], list[Paragraphs]]:
    """The paragraphs of one shard that are near, and those with the largest bonus, for each query."""
    close = [Paragraphs(numbers, own[numbers]) for numbers, own in zip(near, table, strict=True)]
    return close, [_largest(own, count) for own in table]


def _largest(bonus: Floats, count: int) -> Paragraphs:
    """The paragraphs with the largest values, in any order, of all of a shard. Shape: (paragraphs,)."""
    numbers = np.argpartition(-bonus, count - 1)[:count] if len(bonus) > count else np.arange(len(bonus))
    return Paragraphs(numbers, bonus[numbers])


def _with_better(paragraphs: Paragraphs, more: Paragraphs, other: float) -> Paragraphs:
    """Both, ascending; of the second those above a value."""
    better = more.bonus > other
    numbers, place = np.unique(np.concatenate([paragraphs.numbers, more.numbers[better]]), return_index=True)
    return Paragraphs(numbers, np.concatenate([paragraphs.bonus, more.bonus[better]])[place])


def _all_rows(shard: Shard, paragraphs: Rows, bound: float, bonus: Floats | None = None) -> Candidates:
    """The rows of these paragraphs, which ascend. Shapes: (paragraphs,)."""
    begins, stops = shard.row_range(paragraphs)
    return Candidates(ranges(begins, stops), bound, None if bonus is None else np.repeat(bonus, stops - begins))
