"""Candidates: what an index finds for a query, and how sure it is that nothing better was missed."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbq.indexing.dump import Shard

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
    """Finds candidates by inner product: exact, or approximate."""

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """Candidates of each query; `k` is the depth, and a larger one finds at least as much.

        `starts`, `ends`: query vectors in the units of the rows, that is multiplied by the dump's scale. Shapes:
        (queries, dim). `bonus`: what each paragraph adds to the score of its spans. Shape: (queries, paragraphs).
        """


def from_hits(
    shard: Shard, starts: tuple[Floats, Rows], ends: tuple[Floats, Rows], k: int, bonus: Floats | None = None
) -> Candidates:
    """All rows of the paragraphs that hold a hit of one query's start or end vector, or have one of the k best bonuses.

    More than the spans at the hits: where cells were left out, a paragraph is found by any of its good rows.
    A side: scores and rows, best first; behind what was found, rows are -1. Shapes: (k,); bonus: (paragraphs,).
    """
    if k >= len(shard) or (bonus is not None and k >= len(bonus)):
        return Candidates(np.arange(len(shard)), -np.inf)
    paragraphs = np.unique(shard.paragraphs_of(np.concatenate([rows[rows >= 0] for _, rows in (starts, ends)])))
    # A side that came out short is bounded by its last hit, too: a deeper search, in more cells, may find more.
    bound = sum(float(scores[found >= 0][-1]) if (found >= 0).any() else np.inf for scores, found in (starts, ends))
    if bonus is not None:
        order = np.argpartition(-bonus, k)  # the k best, then the best of the others
        paragraphs, bound = np.union1d(paragraphs, order[:k]), bound + float(bonus[order[k]])
    return Candidates(ranges(*shard.row_range(paragraphs)), bound)


def ranges(begins: Rows, behinds: Rows) -> Rows:
    """Side by side, the rows of each range [begin, behind).

    >>> ranges(np.array([5, 0]), np.array([7, 1])).tolist()
    [5, 6, 0]
    """
    sizes = np.maximum(behinds - begins, 0)
    inside: Rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return inside + np.repeat(begins, sizes)
