"""Base: the interface of an index."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError, is_out_of_memory

MAX_TOKENS = 20  # longest phrase; L in arXiv 2012.12624
FEW_SHOWN = 2**16  # rows
MOST_GROUPS = 12  # each selects and scores rows of its own: more would cost more than finding them

ADVICE = "use --device=cpu, or build an index that fits with `kbq index vectors KB --kind compact`"
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a shard at which good spans may start, ascending and distinct.

    No span that starts elsewhere scores above `complete_above`, as far as the index has searched:
    an exact index has searched all rows, an approximate one some cells.
    """

    starts: Rows
    complete_above: float
    # Added to the scores of the spans that start there. Shape: that of `starts`.
    bonus: Floats | None = None


class Bonus(Protocol):
    """The scores that paragraphs add to their spans, computed for one shard at a time."""

    def __getitem__(self, shard: int, /) -> Floats:
        """Shape: (queries, paragraphs)."""


class Index(Protocol):
    """Finds candidates in all shards of a knowledge base, exactly or approximately."""

    @property
    def groups(self) -> Sequence["ShardGroup"]:
        """The shards in groups that are searched independently, each by an index of its own, in
        order.
        """

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None
    ) -> list[list[Candidates]]:
        """Return the candidates of each query in each shard: result[shard][query].

        Args:
            starts, ends: query vectors in the units of the rows, times the dump's scale. Shapes:
                (queries, dim).
            k: depth of the search; a greater depth finds at least as much.
            bonus: the scores that paragraphs add, read once for each shard.
        """

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        """`Shard.products` of a shard, computed where the index has its vectors."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """Neighbouring shards that are searched as one, independently of all others."""

    first: int  # number of its first shard
    shards: Sequence[Shard]
    index: Index


@dataclass(frozen=True, slots=True)
class KnowledgeBaseSize:
    """The size of a whole knowledge base, which decides its groups even where an index sees a part
    of it.
    """

    shards: int
    rows: int
    shown: int  # rows of pages that are neither deleted nor left out

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> Self:
        shown = sum(shard.count_shown() for shard in shards)
        return cls(len(shards), sum(len(shard) for shard in shards), shown)

    @property
    def are_few(self) -> bool:
        """Whether few of many rows may be found. All are compared then: most may lie in cells that
        are not probed.
        """
        return self.shown < self.rows and self.shown <= FEW_SHOWN

    @property
    def together(self) -> int:
        """The number of shards in a group of an approximate index."""
        return max(1, -(-self.shards // MOST_GROUPS))

    def parts(self, count: int) -> list[slice]:
        """Divide the shards into this number of parts of whole groups, to be searched in different
        places.

        >>> KnowledgeBaseSize(shards=25, rows=1000, shown=1000).parts(2)
        [slice(0, 12, None), slice(12, 25, None)]
        """
        groups = -(-self.shards // self.together)
        stops = [
            min(self.shards, groups * number // count * self.together)
            for number in range(count + 1)
        ]
        return [slice(first, stop) for first, stop in itertools.pairwise(stops) if first < stop]

    def share(self, hits: int, rows: int) -> int:
        """Return how many of these hits fall to a part of this number of rows, rounded up."""
        return -(-hits * rows // max(1, self.shown))


def everything(
    shards: Sequence[Shard], queries: int, bonus: Bonus | None
) -> list[list[Candidates]]:
    """Return all rows that may be found as candidates of this number of queries."""
    candidates = []
    for number, shard in enumerate(shards):
        rows = np.flatnonzero(shard.shown_rows())
        if bonus is None:
            of_shard = [Candidates(rows, -np.inf, None)] * queries
        else:
            bonuses = bonus[number][:, shard.paragraphs_of(rows)]
            of_shard = [Candidates(rows, -np.inf, added) for added in bonuses]
        candidates.append(of_shard)
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


@contextmanager
def out_of_memory_refused(device: torch.device) -> Iterator[None]:
    """Turn a GPU's lack of memory, which other programs may take at any time, into an error of kbq."""
    try:
        yield
    except RuntimeError as error:  # raised by PyTorch, a library of CUDA or Triton
        if device.type != "cuda" or not is_out_of_memory(error):
            raise
        raise KnowledgeBaseError(
            f"{device} ran out of memory, which other programs may use: {ADVICE}"
        ) from error
