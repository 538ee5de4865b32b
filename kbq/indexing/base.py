"""Candidates: what an index finds for a query, and how sure it is that nothing better was missed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kbq.array_types import Floats, Rows
from kbq.dump.shards import Shard

MAX_TOKENS = 20  # L of the paper: the longest phrase


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows at which good spans may start, ascending, each once.

    No span that starts elsewhere scores above `complete_above` (as far as the index saw: an approximate one has not
    looked everywhere).
    """

    starts: Rows
    complete_above: float
    bonus: Floats | None = None  # what is added to the spans that start there. Shape: that of `starts`


class Bonus(Protocol):
    """What paragraphs add to the scores of their spans, one shard at a time: it need not be held for all shards."""

    def __getitem__(self, shard: int, /) -> Floats:
        """Shape: (queries, paragraphs)."""


class Index(Protocol):
    """Finds candidates by inner product in all shards of a knowledge base: exact, or approximate."""

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        """For each shard, the candidates of each query; `k` is the depth, and a larger one finds at least as much.

        `starts`, `ends`: query vectors in the units of the rows, that is multiplied by the dump's scale. Shapes:
        (queries, dim). Each shard's `bonus` is asked for once.
        """


def everything(shards: Sequence[Shard], queries: int, bonus: Bonus | None) -> list[list[Candidates]]:
    """All rows of each shard, as the candidates of each of so many queries."""
    candidates = []
    for number, shard in enumerate(shards):
        rows = np.arange(len(shard))
        bonuses = [None] * queries if bonus is None else bonus[number][:, shard.paragraphs_of(rows)]
        candidates.append([Candidates(rows, -np.inf, added) for added in bonuses])
    return candidates


def ranges(begins: Rows, stops: Rows) -> Rows:
    """Side by side, the rows of each range [begin, stop).

    >>> ranges(np.array([5, 0]), np.array([7, 1])).tolist()
    [5, 6, 0]
    """
    sizes = np.maximum(stops - begins, 0)
    inside: Rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return inside + np.repeat(begins, sizes)
