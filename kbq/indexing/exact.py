"""Exact: every row is multiplied with the query, and every paragraph gets bounds of its best span's score.

The paragraphs that may hold one of the best spans are the candidates, so that nothing better can be missed. This is the
truth that approximate indexes are measured against.
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

BLOCK_ROWS = 2048  # rows multiplied at a time: with 64 queries their scores stay in the CPU's cache
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

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """All rows of every paragraph that may be among the k with the best spans, for each query; see `Index`."""
        if k >= len(self._filled):
            return [Candidates(np.arange(len(self._vectors)), -np.inf)] * len(starts)
        lowers, uppers, errors = self._bounds(starts, ends)
        if bonus is not None:
            lowers, uppers = lowers + bonus[:, self._filled], uppers + bonus[:, self._filled]
        found = []
        for lower, upper, error in zip(lowers, uppers, errors, strict=True):
            enough = np.partition(lower, -k)[-k] - error  # k paragraphs are at least as good
            is_kept = upper + error >= enough
            rows = ranges(*self._shard.row_range(self._filled[is_kept]))
            found.append(Candidates(rows, float(np.max(upper[~is_kept], initial=-np.inf) + error)))
        return found

    def vectors(self, rows: Rows) -> Floats:
        """The dump's own rows; see `Index`."""
        return self._shard.vectors[rows].astype(np.float32)

    def _bounds(self, starts: Floats, ends: Floats) -> tuple[Floats, Floats, Floats]:
        """Bounds of the score of each filled paragraph's best span, and by how much they may be off.

        Lower: the best span of one row. Upper: the best start and the best end, wherever in the paragraph they stand.
        Shapes: (queries, paragraphs) twice, (queries,).
        """
        queries = torch.from_numpy(np.concatenate([starts, ends])).to(self._device)
        largest = np.abs(np.concatenate([starts, ends], axis=1)).max(axis=1).clip(min=1e-30)
        steps = largest / largest_whole(starts.shape[1])
        if self._in_integers:
            factors = _limbs(queries, torch.from_numpy(np.tile(steps, 2))).T.contiguous()
        lower, upper = [], []
        for first, behind, offsets in self._blocks:
            block = self._vectors[first:behind]
            products = integer_products(block, factors) if self._in_integers else block.float() @ queries.T
            of_starts, of_ends = products.T.contiguous().chunk(2)
            lower.append(segment_max(of_starts + of_ends, offsets))
            upper.append(segment_max(of_starts, offsets) + segment_max(of_ends, offsets))
        bounds = [np.concatenate(parts, axis=1).astype(np.float32) for parts in (lower, upper)]
        if not self._in_integers:
            # float32 rounds every product and every sum, of values that may cancel out.
            return bounds[0], bounds[1], np.asarray(4e-7 * largest * 127 * starts.shape[1], np.float32)
        # Two limbs are off by at most half a step, in each of dim dimensions of two rows of at most 127.
        return bounds[0] * steps[:, None], bounds[1] * steps[:, None], steps * 127 * starts.shape[1]


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


def segment_max(scores: Tensor, offsets: Rows) -> NDArray[np.int32 | np.float32]:
    """The maximum of each run of rows. Shapes: scores (queries, rows), offsets (runs,), result (queries, runs)."""
    if scores.device.type == "cpu":
        maxima: NDArray[np.int32 | np.float32] = np.maximum.reduceat(scores.numpy(), offsets, axis=1)
        return maxima
    lengths = np.diff(np.append(offsets, scores.shape[1]))
    run = torch.from_numpy(np.repeat(np.arange(len(offsets)), lengths)).to(scores.device)
    lowest = torch.full((len(scores), len(offsets)), -torch.inf, device=scores.device)
    found = lowest.scatter_reduce(1, run.expand_as(scores), scores, "amax")
    result: NDArray[np.int32 | np.float32] = found.cpu().numpy()
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
