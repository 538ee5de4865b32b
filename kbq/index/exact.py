"""Exact: find the rows that may open one of the best spans by multiplying every row.

Rows are divided into pieces as long as the longest span, so that a span ends in the piece where it
starts or in the next. The best span of a piece scores at least as much as its best row that is a
phrase by itself, and at most its best start plus the best end within reach. Rows are left out only
if these bounds allow it. Approximate indexes are measured against this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.index.base import (
    MAX_TOKENS,
    Bonus,
    Candidates,
    ShardGroup,
    everything,
    out_of_memory_refused,
    slices,
)
from kbq.index.gpu_rows import MANY, GpuRows, Openings, kernels_work
from kbq.index.inner_products import TILE, Factors, as_tensor

# Pieces × queries that a CPU multiplies at a time: their scores fit in its cache.
BLOCK_SCORES = 8192
LEAST_PIECES = 128
# Numbers that a GPU computes at a time: half a GB, and few large blocks are faster than many.
NUMBERS_CUDA = 2**27
BOTH = OPENS | CLOSES  # the edges of a row that is a phrase by itself
WORST = torch.iinfo(torch.int32).min


class ExactIndex:
    """Exact search over all shards, without files of its own. The bound found in one shard is used
    in the next.
    """

    def __init__(self, shards: Sequence[Shard], devices: Sequence[torch.device]) -> None:
        """`devices` are those of the rows of each shard."""
        self._shards = shards
        self._parts: list[GpuRows | _BlockedRows] = []
        self._part_of: dict[int, GpuRows | _BlockedRows] = {}  # key: number of a shard
        for device in dict.fromkeys(devices):
            numbers = [number for number, own in enumerate(devices) if own == device]
            with out_of_memory_refused(device):
                kind = kind_for(device, shards[0].vectors.shape[1])
                self._parts.append(kind([shards[number] for number in numbers], numbers, device))
            self._part_of |= dict.fromkeys(numbers, self._parts[-1])
        self.groups = [ShardGroup(0, shards, self)]  # however they are grouped, it finds the same

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None
    ) -> list[list[Candidates]]:
        """Find all rows that may open a span as good as the best span of the k-th best piece; see
        `Index`.
        """
        if k * MAX_TOKENS >= sum(len(shard) for shard in self._shards) or not len(starts):
            return everything(self._shards, len(starts), bonus)

        def search_on(part: GpuRows | _BlockedRows) -> tuple[Openings, Floats]:
            with out_of_memory_refused(part.device):
                return part.openings(starts, ends, k, bonus)

        if len(self._parts) == 1:
            results = [search_on(self._parts[0])]
        else:
            with ThreadPoolExecutor(len(self._parts)) as pool:  # GPUs work in parallel
                results = list(pool.map(search_on, self._parts))

        columns = zip(*(openings for openings, _ in results), strict=True)
        enough: Floats = np.max([best for _, best in results], axis=0)
        return _candidates(
            Openings(*map(np.concatenate, columns)), enough, len(self._shards), bonus is not None
        )

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        part = self._part_of[shard]
        if isinstance(part, GpuRows) and len(rows) >= MANY:
            with out_of_memory_refused(part.device):
                return part.products(shard, rows, query_of, queries)
        return self._shards[shard].products(rows, query_of, queries)


def _candidates(
    openings: Openings, enough: Floats, shards: int, with_bonus: bool
) -> list[list[Candidates]]:
    """Return the candidates of each query in each shard, given the scores to reach. Shape of
    `enough`: (queries,).
    """
    kept = np.flatnonzero(openings.uppers >= enough[openings.queries])
    parts = openings.shards[kept] * len(enough) + openings.queries[kept]
    order = parts.argsort(kind="stable")  # the rows of a query in a shard stay in order
    kept = kept[order]
    parts = parts[order]
    rows = openings.rows[kept]
    added = openings.added[kept]
    below = np.nextafter(enough, np.float32(-np.inf)).tolist()
    queries = len(enough)
    candidates: list[Candidates] = []
    for part, bound in zip(slices(parts, shards * queries), below * shards, strict=True):
        bonus = added[part] if with_bonus else None
        candidates.append(Candidates(rows[part], bound, bonus))

    return [candidates[first : first + queries] for first in range(0, len(candidates), queries)]


def pieces_at_a_time(device_type: str, queries: int, dim: int, in_integers: bool) -> int:
    """Return how many pieces to multiply at a time, so that the products stay small."""
    if device_type == "cpu":
        return max(LEAST_PIECES, BLOCK_SCORES // queries)
    # Columns of products, or of float32 rows.
    if in_integers:
        columns = max(TILE, 4 * queries)
    else:
        columns = max(dim, 2 * queries)
    return max(LEAST_PIECES, NUMBERS_CUDA // MAX_TOKENS // columns // TILE * TILE)


class _Openings(NamedTuple):
    """`Openings` of one shard on its device. Shapes: (openings,)."""

    queries: Tensor
    rows: Tensor
    uppers: Tensor
    added: Tensor


class _BlockedRows:
    """The rows of some shards on one device without Triton, such as a CPU, multiplied in blocks;
    see `GpuRows`.
    """

    def __init__(
        self, shards: Sequence[Shard], numbers: Sequence[int], device: torch.device
    ) -> None:
        self.device = device
        self._shards = {
            number: _ShardRows(shard, device) for number, shard in zip(numbers, shards, strict=True)
        }

    def openings(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None
    ) -> tuple[Openings, Floats]:
        """Return the most promising starts of all shards, and the least score of each query."""
        factors = Factors.of(starts, ends, self.device)
        best = _Best(k, len(starts), self.device)
        columns: list[tuple[np.ndarray, ...]] = []
        for number, rows in self._shards.items():
            # No name holds the bonuses of a shard while those of the next are computed.
            promising = rows.promising(factors, best, None if bonus is None else bonus[number])
            shard = np.full(len(promising.rows), number)
            columns.append((shard, *(column.cpu().numpy() for column in promising)))

        openings = Openings(*map(np.concatenate, zip(*columns, strict=True)))
        return openings, best.settled().cpu().numpy()


def kind_for(device: torch.device, dim: int) -> type[GpuRows] | type[_BlockedRows]:
    """Choose kernels on a GPU where they work, and blocks elsewhere."""
    if device.type == "cuda" and kernels_work(device, dim):
        return GpuRows
    return _BlockedRows


class _ShardRows:
    """The rows of one shard. On a CPU they are memory-mapped, and one block at a time is copied."""

    def __init__(self, shard: Shard, device: torch.device) -> None:
        self.device = device
        sizes = np.diff(shard.paragraph_rows, prepend=0)
        filled = np.flatnonzero(sizes)
        stop = shard.paragraph_rows[sizes > 0]
        self._vectors = as_tensor(shard.vectors).to(device)
        self._edges = as_tensor(shard.edges).to(device)
        self._filled = as_tensor(filled).to(device)  # paragraphs with rows
        self._stops = as_tensor(stop).to(device)  # the row after the last of each

    def promising(self, factors: Factors, best: _Best, bonus: Floats | None) -> _Openings:
        """Find openings that may be good enough, given the best so far. Shape of `bonus`: (queries,
        paragraphs).
        """
        nothing = torch.empty(0, dtype=torch.int64, device=self.device)
        openings = [_Openings(nothing, nothing, nothing.float(), nothing.float())]
        if not len(self._vectors):
            return openings[0]
        if bonus is None:
            added = None
        else:
            added = torch.from_numpy(bonus.T).to(self.device).contiguous()
        if added is not None:  # sums of float32 are rounded
            factors = replace(factors, errors=factors.errors + added.abs().amax(dim=0) * 2.0**-21)
        queries = len(factors.units)
        dim = self._vectors.shape[1]
        size = pieces_at_a_time(self.device.type, queries, dim, factors.in_integers)
        pieces = -(-len(self._vectors) // MAX_TOKENS)

        for first in range(0, pieces, size - 1):
            block = self._in_block(first, min(size - 1, pieces - first), factors, added, best)
            if len(block.rows):  # an empty tensor would keep 0.5 MB around it from being reused
                openings.append(block)

        return _Openings(*(torch.cat(parts) for parts in zip(*openings, strict=True)))

    def _in_block(
        self, first: int, count: int, factors: Factors, bonus: Tensor | None, best: _Best
    ) -> _Openings:
        """Find openings in `count` pieces from the `first` on. Shape of `bonus`: (paragraphs,
        queries).
        """
        begin = first * MAX_TOKENS
        edges = self._edges[begin : begin + count * MAX_TOKENS]
        # 0 after the last row.
        edges = pad(edges, (0, count * MAX_TOKENS - len(edges))).view(count, MAX_TOKENS)
        products = factors.inner_products(self._vectors[begin : begin + (count + 1) * MAX_TOKENS])
        missing = (count + 1) * MAX_TOKENS - len(products)
        if missing:  # rows are missing at the end of the shard
            products = torch.cat([products, products[-1:].expand(missing, -1)])
        by_piece = products.view(count + 1, MAX_TOKENS, 2, -1)  # start and end vector of each query
        best_start, best_end = by_piece.amax(dim=1).unbind(dim=1)
        end_uppers = torch.maximum(best_end[:-1], best_end[1:]) * factors.units + factors.errors
        # Bounds of all spans that open in a piece: (pieces, queries).
        uppers = best_start[:-1] * factors.units + end_uppers
        if bonus is not None:
            uppers += self._largest(bonus, begin, count)
        # No pieces are chosen yet, as all of the first block would be open.
        sees_all = bonus is None and first == 0
        if sees_all:
            best.see(_lowers_of_all(by_piece[:-1], edges, factors))
        pieces, queries = (uppers >= best.enough).nonzero(as_tuple=True)  # the open ones
        units = factors.units[queries, None]
        starts = by_piece[pieces, :, 0, queries] * units  # (open pieces, tokens)
        rows = pieces[:, None] * MAX_TOKENS + torch.arange(
            begin, begin + MAX_TOKENS, device=self.device
        )
        added = (
            torch.zeros_like(starts)
            if bonus is None
            else bonus[self._paragraphs(rows), queries[:, None]]
        )
        starts += added
        if not sees_all:
            alone = starts + by_piece[pieces, :, 1, queries] * units
            lowers = uppers.new_full((len(factors.units), count), -torch.inf)
            alone.masked_fill_(edges[pieces] != BOTH, -torch.inf)
            lowers[queries, pieces] = alone.amax(dim=1)
            best.see(lowers - factors.errors[:, None])

        row_uppers = starts + end_uppers[pieces, queries, None]
        is_good = row_uppers >= best.enough[queries, None]
        may_open = edges[pieces] & OPENS != 0
        kept = (is_good & may_open).nonzero(as_tuple=True)

        return _Openings(queries[kept[0]], rows[kept], row_uppers[kept], added[kept])

    def _largest(self, bonus: Tensor, begin: int, count: int) -> Tensor:
        """Return the largest bonus of the paragraphs in each piece. Shape: (count, queries)."""
        begins = torch.arange(begin, begin + count * MAX_TOKENS, MAX_TOKENS, device=self.device)
        stops = (begins + MAX_TOKENS).clamp(max=len(self._vectors))
        first = torch.searchsorted(self._stops, begins, right=True)
        last = torch.searchsorted(self._stops, stops - 1, right=True)
        most = int((last - first).max()) + 1
        further = torch.arange(most, device=self.device)
        within = (first[:, None] + further).minimum(last[:, None])
        return bonus[self._filled[within]].amax(dim=1)

    def _paragraphs(self, rows: Tensor) -> Tensor:
        """Return the paragraph of each row; rows after the last belong to the last paragraph."""
        numbers = torch.searchsorted(self._stops, rows, right=True)
        return self._filled[numbers.clamp(max=len(self._filled) - 1)]


def _lowers_of_all(by_piece: Tensor, edges: Tensor, factors: Factors) -> Tensor:
    """Bound the score of the best row of each piece that is a phrase by itself from below, or by
    -inf if there is none.

    Shapes: (pieces, tokens, 2, queries), (pieces, tokens), result (queries, pieces).
    """
    alone = by_piece[:, :, 0] + by_piece[:, :, 1]
    worst = -torch.inf if alone.is_floating_point() else WORST  # less than any score
    largest = alone.masked_fill_((edges != BOTH)[:, :, None], worst).amax(dim=1)
    return (largest * factors.units - factors.errors).masked_fill_(largest == worst, -torch.inf).T


class _Best:
    """Lower bounds on the scores of the k best pieces so far, for each query."""

    def __init__(self, k: int, queries: int, device: torch.device) -> None:
        self._k = k
        self._scores = torch.full((queries, k), -torch.inf, device=device)
        self._waiting: list[Tensor] = []
        self.enough = self._scores[:, 0].clone()  # the smallest of the k bounds. Shape: (queries,)

    def see(self, lowers: Tensor) -> None:
        """Add pieces by the lower bounds on their scores. Shape: (queries, pieces)."""
        self._waiting.append(lowers)
        # Seldom, as a deep search has a large k.
        if sum(part.shape[1] for part in self._waiting) >= self._k:
            self.settled()

    def settled(self) -> Tensor:
        """`enough`, for all pieces added so far."""
        if not self._waiting:
            return self.enough
        lowers = torch.cat(self._waiting, dim=1)
        self._waiting = []
        better = (lowers.amax(dim=1) > self.enough).nonzero()[:, 0]
        if len(better):
            both = torch.cat([self._scores[better], lowers[better]], dim=1)
            self._scores[better] = both.topk(self._k).values
            self.enough[better] = self._scores[better].amin(dim=1)
        return self.enough
