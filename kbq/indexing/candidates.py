"""Candidates: what an index finds for a query, and how sure it is that nothing better was missed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
MAX_TOKENS = 20  # L of the paper: the longest phrase


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows at which good spans may start, ascending, each once.

    No span that starts elsewhere scores above `complete_above` (as far as the index saw: an approximate one has not
    looked everywhere).
    """

    starts: Rows
    complete_above: float


class Index(Protocol):
    """Finds candidates by inner product in all shards of a knowledge base: exact, or approximate."""

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Sequence[Floats] | None = None
    ) -> list[list[Candidates]]:
        """For each shard, the candidates of each query; `k` is the depth, and a larger one finds at least as much.

        `starts`, `ends`: query vectors in the units of the rows, that is multiplied by the dump's scale. Shapes:
        (queries, dim). `bonus`: for each shard, what each paragraph adds to its spans. Shapes: (queries, paragraphs).
        """


def everything(sizes: Sequence[int], queries: int) -> list[list[Candidates]]:
    """All rows of shards of these sizes, for so many queries."""
    return [[Candidates(np.arange(size), -np.inf)] * queries for size in sizes]


def ranges(begins: Rows, behinds: Rows) -> Rows:
    """Side by side, the rows of each range [begin, behind).

    >>> ranges(np.array([5, 0]), np.array([7, 1])).tolist()
    [5, 6, 0]
    """
    sizes = np.maximum(behinds - begins, 0)
    inside: Rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return inside + np.repeat(begins, sizes)
