"""Exact: every row is multiplied with the query, and every paragraph gets the score of its best span.

The paragraphs with the best spans are the candidates, so that nothing better can be missed. This is the truth that
approximate indexes are measured against.
"""

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.indexing.candidates import MAX_TOKENS, Candidates, Floats, Rows, ranges
from kbq.indexing.dump import Shard

BLOCK_ROWS = 4096  # rows multiplied at a time: with 64 queries their scores stay in the CPU's cache
BLOCK_ROWS_CUDA = 2**20
LIMB = 128


class ExactIndex:
    """All rows of a shard, read where they lie: nothing is built, and no more than one block is copied."""

    def __init__(self, shard: Shard, device: torch.device) -> None:
        self._shard = shard
        self._device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch knows no read-only memory; nothing here writes to it
            self._vectors = torch.from_numpy(shard.vectors).to(device)
        self._in_integers = device.type == "cpu" and has_fast_int8()
        self._filled = np.flatnonzero(np.diff(shard.paragraph_rows, prepend=0))  # paragraphs that have rows
        edges = np.concatenate([[0], shard.paragraph_rows[self._filled]])
        self._blocks = _blocks(edges, BLOCK_ROWS if device.type == "cpu" else BLOCK_ROWS_CUDA)
        # Of every row, once: a byte each, and a seventh of the time of a single query.
        self._reach = [reach(shard, np.arange(first, behind)).astype(np.uint8) for first, behind, _ in self._blocks]

    def candidates(self, starts: Floats, ends: Floats, k: int) -> list[Candidates]:
        """All rows of the k paragraphs with the best spans, for each query; see `Index`."""
        if k >= len(self._filled):
            return [Candidates(np.arange(len(self._vectors)), -np.inf)] * len(starts)
        best, wrong = self._best_spans(
            torch.from_numpy(starts).to(self._device), torch.from_numpy(ends).to(self._device)
        )
        found = []
        for scores, error in zip(best, wrong, strict=True):
            order = np.argpartition(-scores, k)  # the k best, then the best of the others
            rows = ranges(*self._shard.row_range(np.sort(self._filled[order[:k]])))
            found.append(Candidates(rows, float(scores[order[k]] + error)))
        return found

    def vectors(self, rows: Rows) -> Floats:
        """The dump's own rows; see `Index`."""
        return self._shard.vectors[rows].astype(np.float32)

    def _best_spans(self, starts: Tensor, ends: Tensor) -> tuple[Floats, Floats]:
        """The score of each filled paragraph's best span, and by how much it may be off.

        Shapes: (queries, paragraphs), (queries,).
        """
        queries = torch.cat([starts, ends])
        step = torch.cat([starts, ends], dim=1).abs().amax(dim=1).clamp(min=1e-30) / largest_whole(starts.shape[1])
        factors = _limbs(queries, step.repeat(2)).T.contiguous() if self._in_integers else queries.T
        parts = []
        for (first, behind, offsets), sizes in zip(self._blocks, self._reach, strict=True):
            block = self._vectors[first:behind]
            products = integer_products(block, factors) if self._in_integers else block.float() @ factors
            of_starts, of_ends = products.chunk(2, dim=1)
            parts.append(segment_max(of_starts + window_max(of_ends, sizes), offsets))
        best = np.concatenate(parts, axis=1).astype(np.float32)
        if not self._in_integers:
            # float32 rounds every product and every sum, of values that may cancel out.
            largest = torch.cat([starts, ends], dim=1).abs().amax(dim=1).cpu().numpy()
            return best, np.asarray(4e-7 * largest * 127 * starts.shape[1], np.float32)
        steps = step.cpu().numpy()
        # Two limbs are off by at most half a step, in each of dim dimensions of two rows of at most 127.
        return best * steps[:, None], steps * 127 * starts.shape[1]


def reach(shard: Shard, rows: Rows, max_tokens: int = MAX_TOKENS) -> Rows:
    """How many rows may end a span that starts at each row; all rows of a span's paragraph must be among `rows`."""
    tokens = shard.paragraphs_of(rows) * 2**32 + shard.positions[rows]  # ascending, with a gap between paragraphs
    counts: Rows = np.searchsorted(tokens, tokens + max_tokens) - np.arange(len(rows))
    return counts


def _blocks(edges: Rows, size: int) -> list[tuple[int, int, Rows]]:
    """(first row, row behind, where in it each paragraph begins) of blocks of whole paragraphs.

    `edges`: the first row of each paragraph, and behind the last one. A long paragraph is a block of its own.
    """
    blocks = []
    paragraph = 0
    while paragraph < len(edges) - 1:
        last = int(np.searchsorted(edges, edges[paragraph] + size, side="right")) - 1
        last = max(last, paragraph + 1)
        blocks.append((int(edges[paragraph]), int(edges[last]), edges[paragraph:last] - edges[paragraph]))
        paragraph = last
    return blocks


def window_max(scores: Tensor, sizes: NDArray[np.integer]) -> Tensor:
    """For each row the maximum of it and the rows after it, `sizes` rows in all, for every column.

    Looks at two overlapping windows whose length is a power of two. Shapes: (rows, queries), (rows,); sizes at least 1.
    """
    best = torch.empty_like(scores)
    windows = scores  # the maximum of `width` rows, from every row on
    width = 1
    while True:
        now = np.flatnonzero((sizes >= width) & (sizes < 2 * width))
        first, second = (torch.from_numpy(rows).to(scores.device) for rows in (now, now + sizes[now] - width))
        best[first] = torch.maximum(windows[first], windows[second])
        if not (sizes >= 2 * width).any():
            return best
        windows = torch.maximum(windows[:-width], windows[width:])
        width *= 2


def segment_max(scores: Tensor, offsets: Rows) -> NDArray[np.generic]:
    """The maximum of each run of rows. Shapes: scores (rows, queries), offsets (runs,), result (queries, runs)."""
    if scores.device.type == "cpu":
        maxima: NDArray[np.generic] = np.maximum.reduceat(scores.T.contiguous().numpy(), offsets, axis=1)
        return maxima
    lengths = np.diff(np.append(offsets, len(scores)))
    run = torch.from_numpy(np.repeat(np.arange(len(offsets)), lengths)).to(scores.device)
    lowest = torch.full((len(offsets), scores.shape[1]), -torch.inf, device=scores.device)
    found = lowest.scatter_reduce(0, run[:, None].expand_as(scores), scores, "amax")
    result: NDArray[np.generic] = found.T.cpu().numpy()
    return result


def largest_whole(dim: int) -> int:
    """The largest integer of a query: its high limb fits int8, and a span's score fits int32."""
    return min(127 * LIMB + LIMB // 2 - 1, (2**31 - 1) // (2 * 127 * dim))


def _limbs(queries: Tensor, step: Tensor) -> Tensor:
    """Queries as 15-bit integers, high limbs over low ones. Shape: (2 × queries, dim), int8."""
    whole = (queries / step[:, None]).round().to(torch.int32)
    high = torch.div(whole + LIMB // 2, LIMB, rounding_mode="floor")
    return torch.cat([high, whole - high * LIMB]).to(torch.int8)


def integer_products(block: Tensor, limbs: Tensor) -> Tensor:
    """Exact products of int8 rows with 15-bit queries, several times as fast as float32.

    Shapes: block (rows, dim), limbs (dim, 2 × queries), result (rows, queries), int32.
    """
    high, low = torch._int_mm(block, limbs).chunk(2, dim=1)
    return torch.add(low, high, alpha=LIMB)


@cache
def has_fast_int8() -> bool:
    """Whether this CPU multiplies int8 in hardware (VNNI or AMX) and torch lets us."""
    if not hasattr(torch, "_int_mm"):
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags or "amx_int8" in flags
