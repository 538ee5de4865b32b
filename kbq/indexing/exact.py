"""Exact: every row is multiplied with the query; the rows that may open one of the best spans are the candidates.

The best span of a piece scores at least as much as its best row alone, and at most its best start plus the best end in
reach. Rows are left out only where such bounds allow it, so that nothing better can be missed: this is the truth that
approximate indexes are measured against.
"""

import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from kbq.indexing.candidates import Candidates, Floats
from kbq.indexing.dump import Shard
from kbq.indexing.gpus import full_memory_is_said
from kbq.indexing.pieces import Block, blocks_of, piece_max
from kbq.indexing.products import Factors

BLOCK_ROWS = 2048  # multiplied at a time: with 64 queries, their scores stay in the CPU's cache
FEW = 8  # queries: for so many, blocks are that many times as long
BLOCK_ROWS_CUDA = 2**18


class ExactIndex:
    """All rows of a shard, read where they lie: nothing is built, and no more than one block is copied."""

    def __init__(self, shard: Shard, device: torch.device) -> None:
        self._shard = shard
        self._device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch knows no read-only memory; nothing here writes to it
            rows = torch.from_numpy(shard.vectors)
        with full_memory_is_said(device):
            self._vectors = rows.to(device)
        self._blocks = cache(lambda size: list(blocks_of(shard.paragraph_rows, size, device)))

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """All rows that may open a span as good as the best one of the k-th best piece; see `Index`."""
        size = BLOCK_ROWS * (FEW if len(starts) <= FEW else 1) if self._device.type == "cpu" else BLOCK_ROWS_CUDA
        blocks = self._blocks(size)
        if k >= sum(len(block.begins) for block in blocks):
            return [Candidates(np.arange(len(self._vectors)), -np.inf)] * len(starts)
        with full_memory_is_said(self._device):
            return self._best_rows(blocks, starts, ends, k, bonus)

    def _best_rows(
        self, blocks: Sequence[Block], starts: Floats, ends: Floats, k: int, bonus: Floats | None
    ) -> list[Candidates]:
        factors = Factors.of(starts, ends, self._device)
        added = None if bonus is None else torch.from_numpy(bonus).to(self._device)
        best = _Best(k, factors.errors)
        found = [self._promising(block, factors, added, best) for block in blocks]
        best.settle()
        queries, rows, uppers = (torch.cat(parts) for parts in zip(*found, strict=True))
        kept = uppers >= best.enough[queries]  # now that all blocks were seen
        queries, order = torch.sort(queries[kept], stable=True)  # the rows of a query stay in order
        behind = torch.searchsorted(queries, torch.arange(len(starts) - 1, device=self._device), right=True)
        of_each = np.split(rows[kept][order].cpu().numpy(), behind.cpu().numpy())
        below = np.nextafter(best.enough.cpu().numpy(), np.float32(-np.inf))
        return [Candidates(own, float(bound)) for own, bound in zip(of_each, below, strict=True)]

    def _promising(
        self, block: Block, factors: Factors, bonus: Tensor | None, best: "_Best"
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, row, and what no span from there scores above, of all that may be good enough. Shapes: (found,).

        `bonus` has the shape (queries, paragraphs).
        """
        of_starts, of_ends = factors.products(self._vectors[block.rows])
        units, added = factors.units[:, None], 0.0 if bonus is None else bonus[:, block.paragraphs]
        best.see(piece_max(of_starts + of_ends, block.begins) * units + added)
        ending = piece_max(of_ends, block.begins)
        ending[:, block.continued] = torch.maximum(ending[:, block.continued], ending[:, block.continued + 1])
        others = ending * units + (factors.errors[:, None] + added)  # all of an upper bound but the start's own part
        is_open = piece_max(of_starts, block.begins) * units + others >= best.enough[:, None]
        queries, pieces = is_open.nonzero(as_tuple=True)
        sizes = block.sizes[pieces]
        pairs = torch.repeat_interleave(sizes)  # for each row to look at, which query and piece it belongs to
        rows = torch.arange(len(pairs), device=self._device)
        rows += (block.begins[pieces] - sizes.cumsum(0) + sizes).index_select(0, pairs)
        queries, others = queries.index_select(0, pairs), others[queries, pieces].index_select(0, pairs)
        own = of_starts.flatten().index_select(0, queries * of_starts.shape[1] + rows)
        uppers = own * factors.units.index_select(0, queries) + others
        kept = (uppers >= best.enough.index_select(0, queries)).nonzero()[:, 0]
        return queries[kept], rows[kept] + block.rows.start, uppers[kept]


class _Best:
    """The scores that the k best pieces seen so far are known to reach, for each query."""

    def __init__(self, k: int, errors: Tensor) -> None:
        self._k, self._errors = k, errors
        self._scores = errors.new_full((len(errors), k), -torch.inf)
        self._waiting: list[Tensor] = []
        self.enough = self._scores[:, 0].clone()  # what scores less is none of the k best. Shape: (queries,)

    def see(self, lowers: Tensor) -> None:
        """More pieces, each with a span of this score, give or take the error. Shape: (queries, pieces)."""
        self._waiting.append(lowers)
        if sum(part.shape[1] for part in self._waiting) >= self._k:  # not more often: a deep search has a large k
            self.settle()

    def settle(self) -> None:
        """Let all that was seen count."""
        if not self._waiting:
            return
        lowers = torch.cat(self._waiting, dim=1)
        self._waiting = []
        better = (lowers.amax(dim=1) - self._errors > self.enough).nonzero()[:, 0]
        if len(better):
            both = torch.cat([self._scores[better], lowers[better]], dim=1)
            self._scores[better] = both.topk(self._k).values
            self.enough[better] = self._scores[better].amin(dim=1) - self._errors[better]
