"""Rows on a GPU: find the rows that may open one of the best spans by multiplying each once.

The shards of a GPU lie end to end, so that a batch of queries takes two kernels for any number of
shards. Pieces and bounds are those of `exact.py`.
"""

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.errors import is_out_of_memory
from kbq.index.base import MAX_TOKENS, Bonus
from kbq.index.inner_products import as_tensor, largest_whole, whole_numbers

PIECE = 32  # rows: a power of two, as many as the longest span or more
# Rows are filled up to a multiple of this, and one more follows: every piece has one behind it.
PADDING = 256
# Rows that are multiplied at a time: their results take 1.2 GB at most, half of `WORKING`.
CHUNK = 2**25
PAIRS = 2**16  # pieces × queries that are scored together
MANY = 512  # rows that a GPU multiplies in the time that a call takes
# Numbers of rows, multiplied in float64 at a time: with those of their queries they take 0.4 GB.
NUMBERS = 2**24


class Shape(NamedTuple):
    """How a kernel divides its work; see `benchmarks/accelerator.py`."""

    rows: int  # rows of a block; PADDING is a multiple of it
    step: int  # dimensions that are multiplied at a time
    warps: int
    stages: int  # steps whose numbers are loaded ahead


SHAPES = {  # key: queries, rounded up; those of 8 and 64 were the fastest of ten on an H100
    8: Shape(128, 128, 4, 3),
    16: Shape(128, 128, 4, 4),
    32: Shape(128, 128, 8, 3),
    64: Shape(64, 64, 4, 3),
}


class Openings(NamedTuple):
    """Rows where good spans of a query may open, ascending for each query in a shard. Shapes:
    (openings,).
    """

    shards: Rows  # their numbers
    queries: Rows
    rows: Rows  # rows of the shard
    uppers: Floats  # bounds on the scores, bonus included
    added: Floats  # the bonus


class GpuRows:
    """The rows of some shards on one GPU."""

    def __init__(
        self, shards: Sequence[Shard], numbers: Sequence[int], device: torch.device
    ) -> None:
        """`numbers` are those of the shards in the index."""
        self.device = device
        self._numbers = np.array(numbers)
        self._begins = np.cumsum([0, *(-(-len(shard) // PIECE) * PIECE for shard in shards)])
        self._count = -(-int(self._begins[-1]) // PADDING) * PADDING  # less what follows
        self._paragraph_begins = np.cumsum([0, *(len(shard.paragraph_rows) for shard in shards)])
        rows = self._count + PADDING
        dim = shards[0].vectors.shape[1]
        self._vectors = torch.zeros((rows, dim), dtype=torch.int8, device=device)
        self._edges = torch.zeros(rows, dtype=torch.uint8, device=device)
        self._paragraphs = torch.zeros(rows, dtype=torch.int32, device=device)

        for shard, begin, first in zip(shards, self._begins, self._paragraph_begins, strict=False):
            part = slice(begin, begin + len(shard))
            self._vectors[part] = as_tensor(shard.vectors)
            self._edges[part] = as_tensor(shard.edges)
            sizes = np.diff(shard.paragraph_rows, prepend=0)
            self._paragraphs[part] = as_tensor(
                np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
            )

    def openings(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None
    ) -> tuple[Openings, Floats]:
        """Find openings that may be good enough, and the score to reach of each query. Shape:
        (queries,).
        """
        if bonus is None:
            added = None
        else:
            added = self._bonus(bonus, len(starts))
        parts = []
        with current(self.device):
            for first in range(0, len(starts), max(SHAPES)):
                part = slice(first, first + max(SHAPES))
                if added is None:
                    own = None
                else:
                    own = added[:, part].contiguous()
                numbers, enough = self._search(
                    QueryBatch.of(starts[part], ends[part], own, self.device), k
                )
                numbers[0] += first
                parts.append((numbers.cpu().numpy(), enough.cpu().numpy()))

        queries, rows, uppers, bonuses = np.concatenate([numbers for numbers, _ in parts], axis=1)
        shards = self._begins.searchsorted(rows, side="right") - 1
        shard_rows = rows.astype(np.int64) - self._begins[shards]
        scores = uppers.astype(np.float32), bonuses.astype(np.float32)
        openings = Openings(self._numbers[shards], queries.astype(np.int64), shard_rows, *scores)

        return openings, np.concatenate([enough for _, enough in parts])

    def products(
        self, number: int, rows: Rows, query_of: Rows, queries: Floats | Doubles
    ) -> Floats:
        """`Shard.products` of a shard: sums of whole numbers, as on a CPU."""
        begin = int(self._begins[self._numbers.tolist().index(number)])
        wanted, asked, vectors = (
            torch.from_numpy(part).to(self.device) for part in (rows, query_of, queries)
        )
        sums = torch.empty((len(rows), 2), device=self.device)
        together = NUMBERS // self._vectors.shape[1]
        for first in range(0, len(rows), together):
            part = slice(first, first + together)
            wide = self._vectors[wanted[part] + begin].double()
            for side in range(2):
                sums[part, side] = torch.linalg.vecdot(wide, vectors[asked[part], side].double())

        products: Floats = sums.cpu().numpy()
        return products

    def _bonus(self, bonus: Bonus, queries: int) -> Tensor:
        """Return the scores that the paragraphs of all shards add. Shape: (paragraphs, queries)."""
        added = torch.zeros((max(1, int(self._paragraph_begins[-1])), queries), device=self.device)
        for number, (begin, stop) in zip(
            self._numbers, itertools.pairwise(self._paragraph_begins), strict=True
        ):
            added[begin:stop] = as_tensor(bonus[number]).to(self.device).T
        return added

    def _search(self, asked: "QueryBatch", k: int) -> tuple[Tensor, Tensor]:
        """Find the openings of a few queries, see `_scored`, and the scores to reach. Shape of
        these: (queries,).
        """
        lowers = torch.empty((len(asked.units), 0), device=self.device)
        enough = torch.full_like(asked.errors, -torch.inf)
        openings = [torch.empty((4, 0), dtype=torch.float64, device=self.device)]
        for first in range(0, self._count, CHUNK):
            count = min(CHUNK, self._count - first)
            part = slice(first, first + count + PADDING)
            best = best_of_pieces(
                self._vectors[part], self._edges[part], self._paragraphs[part], asked
            )
            lowers = torch.cat(
                [lowers, best.alone[:, : count // SHAPES[asked.columns].rows]], dim=1
            )
            if k <= lowers.shape[1]:
                lowers = lowers.topk(k).values
                enough = lowers[:, -1] - asked.errors

            pieces = count // PIECE
            uppers = torch.maximum(best.ends[:pieces], best.ends[1 : pieces + 1]).add_(
                best.starts[:pieces]
            )
            # What is -inf opens nowhere.
            opened, queries = (uppers >= (enough - asked.errors).clamp(torch.finfo().min)).nonzero(
                as_tuple=True
            )
            opened += first // PIECE
            for some in range(0, len(opened), PAIRS):
                pairs = slice(some, some + PAIRS)
                openings.append(self._scored(asked, opened[pairs], queries[pairs], enough))

        return torch.cat(openings, dim=1), enough

    def _scored(
        self, asked: "QueryBatch", pieces: Tensor, queries: Tensor, enough: Tensor
    ) -> Tensor:
        """Return query, row, upper bound and bonus of openings in these pieces that may be good
        enough.

        Shapes: pieces and queries (pairs,), result (4, openings) in float64, where row numbers are
        exact, for a single transfer.
        """
        from kbq.index import gpu_kernels

        starts, ends = torch.empty((2, len(pieces), 2 * PIECE), device=self.device)
        rows_and_limbs = (self._vectors, self._edges, asked.limbs, asked.units)
        operands = (*rows_and_limbs, self._paragraphs, asked.added, pieces, queries)
        gpu_kernels.score_pieces[(len(pieces),)](
            *operands,
            *(starts, ends, len(asked.units)),
            dim=self._vectors.shape[1],
            PIECE=PIECE,
            QUERIES=asked.columns,
            STEP=64,
            HAS_BONUS=asked.has_bonus,
        )
        reached = ends.unfold(1, MAX_TOKENS, 1)[:, :PIECE].amax(dim=2)
        uppers = starts[:, :PIECE] + reached + asked.errors[queries, None]
        pairs, places = (uppers >= enough[queries, None].clamp(torch.finfo().min)).nonzero(
            as_tuple=True
        )
        rows = pieces[pairs] * PIECE + places
        of_queries = queries[pairs]
        added = (
            asked.added[self._paragraphs[rows].long(), of_queries]
            if asked.has_bonus
            else torch.zeros_like(rows)
        )

        return torch.stack(
            [of_queries.double(), rows.double(), uppers[pairs, places].double(), added.double()]
        )


class QueryBatch(NamedTuple):
    """A batch of queries on a GPU, as the kernels read it. Shapes: those of `best_of_pieces`;
    errors (queries,).
    """

    limbs: Tensor
    units: Tensor
    errors: Tensor
    added: Tensor  # any tensor if there is no bonus
    has_bonus: bool
    columns: int

    @classmethod
    def of(
        cls, starts: Floats, ends: Floats, bonus: Tensor | None, device: torch.device
    ) -> "QueryBatch":
        """Shapes: starts and ends (queries, dim), bonus (paragraphs, queries)."""
        limbs, units, errors = whole_numbers(starts, ends)
        queries, dim = starts.shape
        columns = next(count for count in SHAPES if count >= queries)
        sides = np.zeros((2, columns, 2, dim), np.int8)
        sides[:, :queries] = limbs.reshape(2, 2, queries, dim).transpose(1, 2, 0, 3)
        numbers = torch.from_numpy(np.stack([units, errors])).to(device)
        on_device = torch.from_numpy(sides).to(device)
        if bonus is None:
            return cls(on_device, numbers[0], numbers[1], numbers, False, columns)
        # Sums of float32 are rounded.
        rounded = torch.linalg.vector_norm(bonus, torch.inf, dim=0) * 2.0**-21
        return cls(on_device, numbers[0], numbers[1] + rounded, bonus, True, columns)


class Best(NamedTuple):
    """The best start and end of each piece, and the best row of each block that is a phrase by
    itself, or -inf.

    Shapes: starts and ends (pieces, queries), alone (queries, blocks).
    """

    starts: Tensor
    ends: Tensor
    alone: Tensor


def best_of_pieces(rows: Tensor, edges: Tensor, paragraphs: Tensor, asked: QueryBatch) -> Best:
    """Multiply rows, a multiple of PADDING, with queries. Shapes: rows (rows, dim), edges and
    paragraphs (rows,).
    """
    from kbq.index import gpu_kernels

    shape = SHAPES[asked.columns]
    queries = len(asked.units)
    blocks = len(rows) // shape.rows
    starts, ends = torch.empty((2, len(rows) // PIECE, queries), device=rows.device)
    alone = torch.empty((queries, blocks), device=rows.device)
    operands = (rows, edges, asked.limbs, asked.units, paragraphs, asked.added, starts, ends, alone)
    launch = {
        "BLOCK": shape.rows,
        "STEP": shape.step,
        "num_warps": shape.warps,
        "num_stages": shape.stages,
    }
    gpu_kernels.best_of_pieces[(blocks,)](
        *operands,
        *(queries, blocks),
        dim=rows.shape[1],
        PIECE=PIECE,
        QUERIES=asked.columns,
        HAS_BONUS=asked.has_bonus,
        **launch,
    )

    return Best(starts, ends, alone)


@cache
def kernels_work(device: torch.device, dim: int) -> bool:
    """Return whether the kernels compute on this device what is known to be right."""
    rows = (
        (torch.arange(PADDING * dim, device=device) % 251 - 125).to(torch.int8).view(PADDING, dim)
    )
    edges = torch.full((PADDING,), OPENS | CLOSES, dtype=torch.uint8, device=device)
    unit = np.eye(1, dim, dtype=np.float32)
    asked = QueryBatch.of(unit, -unit, None, device)
    most = rows.view(-1, PIECE, dim)[:, :, 0].int() * largest_whole(dim) * asked.units

    try:
        with current(device):
            best = best_of_pieces(rows, edges, edges.int(), asked)
        sides = (best.starts[:, 0], most.amax(dim=1)), (best.ends[:, 0], (-most).amax(dim=1))
        return all(bool(torch.allclose(computed, expected)) for computed, expected in sides)
    except Exception as error:  # Triton is missing, or knows no such device, or finds no compiler
        if is_out_of_memory(error):
            raise  # the device may still be able to
        return False


def current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one, on which kernels start whatever their tensors are."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    return nullcontext()
