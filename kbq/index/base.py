"""Base: the interface of an index; query vectors become candidates, with a bound on what they may miss."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard

MAX_TOKENS = 20  # of a phrase; L in arXiv 2012.12624
FEW_SHOWN = 2**16  # rows
MOST_GROUPS = 12  # each selects and scores rows of its own: more would cost more than finding them


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a shard at which good spans may start, ascending and distinct.

    No span that starts elsewhere scores above `complete_above`, as far as the index has searched: all rows for an exact
    index, some of the cells for an approximate one.
    """

    starts: Rows
    complete_above: float
    bonus: Floats | None = None  # added to the scores of the spans that start there. Shape: that of `starts`


class Bonus(Protocol):
    """The scores that paragraphs add to their spans, computed for one shard at a time."""

    def __getitem__(self, shard: int, /) -> Floats:
        """Shape: (queries, paragraphs)."""


class Index(Protocol):
    """Finds candidates in all shards of a knowledge base, exactly or approximately."""

    @property
    def groups(self) -> Sequence["ShardGroup"]:
        """The shards in groups that are searched independently, each by an index of its own, in order."""

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        """Return the candidates of each query in each shard: result[shard][query].

        Args:
            starts, ends: query vectors in the units of the rows, that is, multiplied by the dump's scale. Shapes:
                (queries, dim).
            k: depth of the search; a larger one finds at least as much.
            bonus: what paragraphs add to the scores; read once for each shard.
        """

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        """`Shard.products` of one of the shards, computed where the index has its vectors."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """Neighbouring shards that are searched as one, whatever other shards are searched beside them."""

    first: int  # number of its first shard
    shards: Sequence[Shard]
    index: Index


@dataclass(frozen=True, slots=True)
class KnowledgeBaseSize:
    """The size of a whole knowledge base, which decides its groups; an index may see a part of it."""

    shards: int
    rows: int
    shown: int  # rows that may be found, as their pages are neither deleted nor left out

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> Self:
        """Measure a knowledge base that has these shards."""
        shown = sum(shard.count_shown() for shard in shards)
        return cls(len(shards), sum(len(shard) for shard in shards), shown)

    @property
    def are_few(self) -> bool:
        """Whether few rows of many may be found: all of these are compared, as most may lie in cells not probed."""
        return self.shown < self.rows and self.shown <= FEW_SHOWN

    @property
    def together(self) -> int:
        """How many shards make a group of an approximate index."""
        return max(1, -(-self.shards // MOST_GROUPS))

    def parts(self, count: int) -> list[slice]:
        """Return the shards in this number of parts, of whole groups, that may be searched in different places.

        >>> KnowledgeBaseSize(shards=25, rows=1000, shown=1000).parts(2)
        [slice(0, 12, None), slice(12, 25, None)]
        """
        groups = -(-self.shards // self.together)
        stops = [min(self.shards, groups * number // count * self.together) for number in range(count + 1)]
        return [slice(first, stop) for first, stop in itertools.pairwise(stops) if first < stop]

    def share(self, hits: int, rows: int) -> int:
        """Return how many of these hits fall to a part with this number of rows, rounded up."""
        return -(-hits * rows // max(1, self.shown))


def everything(shards: Sequence[Shard], queries: int, bonus: Bonus | None) -> list[list[Candidates]]:
    """Return all rows of each shard that may be found as candidates, for this number of queries."""
    candidates = []
    for number, shard in enumerate(shards):
        rows = np.flatnonzero(shard.shown_rows())
        bonuses = [None] * queries if bonus is None else bonus[number][:, shard.paragraphs_of(rows)]
        candidates.append([Candidates(rows, -np.inf, added) for added in bonuses])
    return candidates


def ranges(begins: Rows, stops: Rows) -> Rows:
    """Concatenate the ranges [begin, stop).

    >>> ranges(np.array([5, 0]), np.array([7, 1])).tolist()
    [5, 6, 0]
    """
    sizes = np.maximum(stops - begins, 0)
    inside: Rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return inside + np.repeat(begins, sizes)


def slices(numbers: Rows, count: int) -> list[slice]:
    """Find where each number below `count` is in ascending numbers.

    >>> slices(np.array([0, 0, 2]), 3)
    [slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)]
    """
    bounds = np.searchsorted(numbers, np.arange(count + 1)).tolist()
    return [slice(begin, stop) for begin, stop in itertools.pairwise(bounds)]
