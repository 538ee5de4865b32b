"""Spans: likely starts and likely ends become phrases. Source: arXiv 2012.12624, section 3.3; constraint: section 4.

A span is a pair of rows (start, end) of one paragraph, start ≤ end, at most `max_tokens` tokens long, counted in the
paragraph's own tokens. Its score is the start's dot product plus the end's.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbq.indexing.dump import Shard

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
MAX_TOKENS = 20  # L of the paper


class Index(Protocol):
    """Finds rows by inner product: exact, or approximate."""

    def __len__(self) -> int: ...

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows, Floats]:
        """Scores and rows, shapes (queries, k), and how wrong a score may be, shape (queries,)."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of one query in one shard, best first. Shapes: (spans,).

    No span that is missing scores above `complete_above`: what stands higher is exactly what a search over all legal
    spans would find (given an exact index).
    """

    scores: Floats
    starts: Rows
    ends: Rows
    complete_above: float


def find_spans(
    shard: Shard, index: Index, starts: Floats, ends: Floats, k: int, max_tokens: int = MAX_TOKENS
) -> list[Spans]:
    """For each query, all spans from its k best starts and all spans to its k best ends.

    Args:
        starts: start vectors in the units of the rows. Shape: (queries, dim).
        ends: end vectors. Shape: (queries, dim).
        k: depth of the two searches.
        max_tokens: longest span, both ends included.
    """
    k = min(k, len(index))
    if k == 0:
        nothing = Spans(np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64), -np.inf)
        return [nothing] * len(starts)
    scores, rows, errors = index.search(np.concatenate([starts, ends]), k)
    found = []
    for query in range(len(starts)):
        both = (query, query + len(starts))
        everything = k == len(index)  # then nothing can be missing
        bound = -np.inf if everything else float(sum(scores[side, -1] + errors[side] for side in both))
        pairs = _pairs(shard, rows[both[0]], rows[both[1]], max_tokens)
        found.append(_scored(shard, *pairs, np.stack([starts[query], ends[query]]), bound))
    return found


def spans_within(shard: Shard, paragraph: int, query: Floats, max_tokens: int = MAX_TOKENS) -> Spans:
    """All legal spans of one paragraph, best first. `query`: start vector over end vector, shape (2, dim)."""
    first, behind = (int(row[0]) for row in shard.row_range(np.array([paragraph])))
    rows = np.arange(first, behind)
    return _scored(shard, *_pairs(shard, rows, rows, max_tokens), query, -np.inf)


def _pairs(shard: Shard, likely_starts: Rows, likely_ends: Rows, max_tokens: int) -> tuple[Rows, Rows]:
    """All legal spans (start row, end row) that begin at a likely start or stop at a likely end, each once."""
    anchors = np.concatenate([likely_starts, likely_ends])
    anchors = anchors[anchors >= 0]  # an approximate index may find less than asked for
    forward = np.arange(len(anchors)) < np.count_nonzero(likely_starts >= 0)
    first, behind = shard.row_range(shard.paragraphs_of(anchors))
    steps = np.arange(max_tokens)
    partners = anchors[:, None] + np.where(forward[:, None], steps, -steps)  # a kept token is at least a token away
    legal = (partners >= first[:, None]) & (partners < behind[:, None])
    partners = np.where(legal, partners, anchors[:, None])
    positions = shard.positions[anchors].astype(np.int64)
    legal &= np.abs(shard.positions[partners] - positions[:, None]) < max_tokens
    anchor, step = np.nonzero(legal)
    one, other = anchors[anchor], partners[anchor, step]
    keys = np.unique(np.minimum(one, other) * max_tokens + np.abs(other - one))
    starts = keys // max_tokens
    return starts, starts + keys % max_tokens


def _scored(shard: Shard, starts: Rows, ends: Rows, query: Floats, bound: float) -> Spans:
    """Spans with exact scores, best first; ties in the order of their rows. `query`: shape (2, dim)."""
    rows, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    products = shard.vectors[rows].astype(np.float32) @ query.T
    scores = products[places[: len(starts)], 0] + products[places[len(starts) :], 1]
    order = np.lexsort((ends, starts, -scores))
    return Spans(scores[order], starts[order], ends[order], bound)
