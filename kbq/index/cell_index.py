"""Cell index: query vectors become candidates, found in the cells of all shards and rescored with the dump.

The hits that are rescored are chosen among all shards, so that they would depend on what is searched together. Searches
take `groups` of shards, which depend on the size of the knowledge base only.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.index.base import Bonus, Candidates, KnowledgeBaseSize, ShardGroup, everything, ranges
from kbq.index.cells import Cells
from kbq.index.inner_products import in_steps

MOST_HITS = 2**22  # of the queries that are searched together, before rescoring: about 130 MB
LEAST_HITS = 50  # starts, and ends, to find at least in all groups: the ten best phrases score above so many's bound


class Hits(NamedTuple):
    """Rows with their exact scores, best first. Shapes: (hits,)."""

    scores: Floats
    shards: Rows
    rows: Rows

    @property
    def least(self) -> np.float32:
        """The score of the last hit; infinity if there is none."""
        return np.float32(self.scores[-1] if len(self.scores) else np.inf)


class Paragraphs(NamedTuple):
    """Paragraphs of one shard, and what they add to the scores of their spans. Shapes: (paragraphs,)."""

    numbers: Rows
    bonus: Floats


class CellIndex:
    """An approximate index: it may miss rows, but the scores of those that it finds are exact."""

    def __init__(
        self,
        shards: Sequence[Shard],
        cells: Sequence[Cells | None],
        overfetch: int,
        whole: KnowledgeBaseSize | None = None,
    ) -> None:
        """Make an index of all shards, or of some groups of them.

        Args:
            cells: of each shard; None: it has no rows.
            overfetch: hits to rescore per hit wanted.
            whole: the knowledge base; None: these are all shards.
        """
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch
        self._whole = KnowledgeBaseSize.of(shards) if whole is None else whole
        self._shown = sum(shard.count_shown() for shard in shards)

    @cached_property
    def groups(self) -> list[ShardGroup]:
        """See `Index`."""
        step = self._whole.together
        groups = []
        for first in range(0, len(self._shards), step):
            shards = self._shards[first : first + step]
            index = CellIndex(shards, self._cells[first : first + step], self._overfetch, self._whole)
            groups.append(ShardGroup(first, shards, index))
        return groups

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        """Find all rows of paragraphs with one of the k best starts or ends in the probed cells, or k best bonuses.

        See `Index`. Whole paragraphs are taken, as their other good rows may be in cells that were not probed.
        """
        rows = self._shown
        k = max(k, self._whole.share(LEAST_HITS, rows))
        paragraphs = sum(len(shard.paragraph_rows) for shard in self._shards)
        if k >= rows or self._whole.are_few or (bonus is not None and k >= paragraphs) or not len(starts):
            return everything(self._shards, len(starts), bonus)
        queries = np.concatenate([starts, ends])
        together = max(1, MOST_HITS // (self._overfetch * k))
        parts = (queries[first : first + together] for first in range(0, len(queries), together))
        hits = list(chain.from_iterable(self._best_rows(part, k) for part in parts))
        sides = list(zip(hits[: len(starts)], hits[len(starts) :], strict=True))
        # These hold for fewer than k hits, too: a deeper search probes more cells, and may find more.
        worst = [(start.least, end.least) for start, end in sides]
        if bonus is None:
            return [
                [
                    Candidates(self._rows_near(number, pair), at_most(*least))
                    for pair, least in zip(sides, worst, strict=True)
                ]
                for number in range(len(self._shards))
            ]
        near = [[self._around(number, pair) for pair in sides] for number in range(len(self._shards))]
        selections, limits = _with_best_bonuses(near, bonus, k)
        return [
            [
                _all_rows(shard, selection.numbers, at_most(*pair, limit), selection.bonus)
                for selection, pair, limit in zip(of_shard, worst, limits, strict=True)
            ]
            for shard, of_shard in zip(self._shards, selections, strict=True)
        ]

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        """See `Index`."""
        return self._shards[shard].products(rows, query_of, queries)

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """Find the k best rows for each query vector; fewer if the probed cells hold fewer. Shape: (vectors, dim)."""
        wanted = self._overfetch * k
        scores: Floats = np.empty((len(queries), 0), np.float32)
        shards: Rows = np.empty((len(queries), 0), np.int64)
        rows = shards
        for number, cells in enumerate(self._cells):  # at most `wanted` hits are kept, beside those of one shard
            if cells is None:
                continue
            new_scores, new_rows = cells.search(queries, wanted)
            scores = np.hstack([scores, np.where(new_rows < 0, -np.inf, new_scores)])
            shards, rows = np.hstack([shards, np.full_like(new_rows, number)]), np.hstack([rows, new_rows])
            if scores.shape[1] > wanted:
                best = np.argpartition(-scores, wanted, axis=1)[:, :wanted]
                scores = np.take_along_axis(scores, best, axis=1)
                shards, rows = np.take_along_axis(shards, best, axis=1), np.take_along_axis(rows, best, axis=1)
        return [
            self._rescored(query, query_shards[is_row], query_rows[is_row], k)
            for query, query_shards, query_rows, is_row in zip(in_steps(queries), shards, rows, rows >= 0, strict=True)
        ]

    def _rescored(self, query: Doubles, shards: Rows, rows: Rows, k: int) -> Hits:
        """Return the k best of these rows, by exact scores. Shapes: query (dim,), shards and rows (rows,)."""
        scores = np.empty(len(rows), np.float32)
        for number in np.unique(shards):
            in_shard = shards == number
            scores[in_shard] = self._shards[number].inner_products(rows[in_shard], query[None])[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        return Hits(scores[best], shards[best], rows[best])

    def _rows_near(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the rows of a shard to begin spans at, ascending: those of whole paragraphs with a hit."""
        return ranges(*self._shards[number].row_range(self._around(number, sides)))

    def _around(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the paragraphs of a shard that contain a hit, ascending."""
        rows = np.concatenate([side.rows[side.shards == number] for side in sides])
        return np.unique(self._shards[number].paragraphs_of(rows))


def at_most(start: np.float32, end: np.float32, bonus: float = 0.0) -> float:
    """Bound the score of a span by those of its start, its end and its bonus, rounded as `find_spans` rounds.

    A bound that is rounded otherwise may lie between a score and what it is rounded to, which would then be lost.

    >>> at_most(np.float32(1), np.float32(1e-7)) > 1 + 1e-7
    True
    """
    return float((start + np.float32(bonus)) + end)


def _with_best_bonuses(
    near: Sequence[Sequence[Rows]], bonus: Bonus, k: int
) -> tuple[list[list[Paragraphs]], list[float]]:
    """Select, for each shard and query, the paragraphs `near` hits and those with one of the k largest bonuses of all.

    Also, for each query, a bonus that no other paragraph exceeds; of equal bonuses, all or none are taken. There must
    be more than k paragraphs.
    """
    pairs = [_near_and_largest(bonus[number], of_shard, k + 1) for number, of_shard in enumerate(near)]
    limits = [
        float(np.sort(np.concatenate([best.bonus for best in of_query]))[-k - 1])
        for of_query in zip(*(largest for _, largest in pairs), strict=True)
    ]
    selections = [[_with_better(*each) for each in zip(*of_shard, limits, strict=True)] for of_shard in pairs]
    return selections, limits


def _near_and_largest(table: Floats, near: Sequence[Rows], count: int) -> tuple[list[Paragraphs], list[Paragraphs]]:
    """Select, for each query, the paragraphs of one shard near hits, and those with the largest bonus."""
    close = [Paragraphs(numbers, bonus[numbers]) for numbers, bonus in zip(near, table, strict=True)]
    return close, [_largest(bonus, count) for bonus in table]


def _largest(bonus: Floats, count: int) -> Paragraphs:
    """Find the `count` paragraphs of a shard with the largest bonus, in any order. Shape: (paragraphs,)."""
    numbers = np.argpartition(-bonus, count - 1)[:count] if len(bonus) > count else np.arange(len(bonus))
    return Paragraphs(numbers, bonus[numbers])


def _with_better(near: Paragraphs, largest: Paragraphs, limit: float) -> Paragraphs:
    """Return the union, ascending, of `near` and those of `largest` whose bonus is above the limit."""
    better = largest.bonus > limit
    numbers, first = np.unique(np.concatenate([near.numbers, largest.numbers[better]]), return_index=True)
    return Paragraphs(numbers, np.concatenate([near.bonus, largest.bonus[better]])[first])


def _all_rows(shard: Shard, paragraphs: Rows, bound: float, bonus: Floats | None = None) -> Candidates:
    """Return all rows of ascending paragraphs as candidates. Shapes: (paragraphs,)."""
    begins, stops = shard.row_range(paragraphs)
    return Candidates(ranges(begins, stops), bound, None if bonus is None else np.repeat(bonus, stops - begins))
