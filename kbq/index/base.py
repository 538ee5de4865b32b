"""Base: the interface of an index.

On devices that multiply int8 fast, a query is rounded to 15-bit integers in two int8 limbs and
multiplied exactly with the int8 rows: only the rounding of the query causes an error. Other devices
multiply in float32. Final scores are float64 sums that need no rounding, so they depend neither on
the rows and queries multiplied together nor on the CPU. The last part of this file assigns the rows
of shards to GPUs.
"""

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError, is_out_of_memory
from kbq.storage.machine import cpu_has

MAX_TOKENS = 20  # longest phrase; L in arXiv 2012.12624
FEW_SHOWN = 2**16  # rows
MOST_GROUPS = 12  # each selects and scores rows of its own: more would cost more than finding them

CPU = torch.device("cpu")
WORKING = 2**31  # bytes that the products of a block take at most
# Computed from a row, besides its float32 vector, for the 64 queries of a batch.
BATCH_NUMBERS = 640
ADVICE = "use --device=cpu, or build an index that fits with `kbq index vectors KB --kind compact`"
LIMB = 128
TILE = 32  # CUDA multiplies int8 matrices whose sizes are multiples of this
# Rows that a CPU multiplies at a time: they fit in its cache, and oneDNN prepares for their shape
# once.
BLOCK = 2560
FLOAT_BLOCK = 1280  # the same, for rows that are converted to float32
# Up to this many vectors, `vectors × rowsᵀ` is 1.4 times as fast on a CPU without matrix tiles
# (AMX).
FEW = 16
CACHED = 2**24  # bytes of rows; with more, a product with few vectors waits for memory
# Rows that are then read into the cache at a time, which makes a search 1.2 times as fast.
FETCHED = 5120
# Bits of a query for final scores: 7 bits of a row and the sum of 2^16 dimensions fit in float64's
# 53.
STEPS = 30


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
        bonuses = [None] * queries if bonus is None else bonus[number][:, shard.paragraphs_of(rows)]
        candidates.append([Candidates(rows, -np.inf, added) for added in bonuses])
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


@dataclass(frozen=True, slots=True)
class Factors:
    """A batch of start and end vectors, prepared for multiplication.

    The score of a span is `units` times the sum of the `inner_products` of its first and last row,
    within `errors`. Shapes: matrix (start vectors over end vectors, dim), units and errors
    (queries,).
    """

    matrix: Tensor
    units: Tensor
    errors: Tensor
    in_integers: bool

    @classmethod
    def of(cls, starts: Floats, ends: Floats, device: torch.device) -> Self:
        """Shapes: (queries, dim)."""
        in_integers = has_fast_int8(device)
        columns: tuple[NDArray[Any], Floats, Floats]
        if in_integers:
            columns = whole_numbers(starts, ends)
        else:  # each of dim sums, in each of two rows, is rounded by 2^-24 of its largest value; terms may cancel out
            largest, most = _most(starts, ends)
            columns = (
                np.concatenate([starts, ends]),
                np.ones_like(largest),
                most * np.float32(starts.shape[1] * 2.0**-23),
            )
        matrix, factors, errors = (torch.from_numpy(column).to(device) for column in columns)
        return cls(matrix, factors, errors, in_integers)

    def inner_products(self, rows: Tensor) -> Tensor:
        """Multiply rows with the start vectors, then with the end vectors. Shapes: (rows, dim),
        (rows, 2 × queries).
        """
        if not self.in_integers:
            return (
                float32_products(rows, self.matrix) if rows.is_cpu else rows.float() @ self.matrix.T
            )
        return integer_products(rows, self.matrix)


def whole_numbers(starts: Floats, ends: Floats) -> tuple[NDArray[np.int8], Floats, Floats]:
    """Start over end vectors as 15-bit integers, high limbs over low ones, and the units and errors
    of `Factors`.

    Shapes: starts and ends (queries, dim), limbs (4 × queries, dim), units and errors (queries,).
    """
    largest, most = _most(starts, ends)
    whole = np.float32(largest_whole(starts.shape[1]))
    units = largest / whole
    # Rounding a query causes an error of half a unit in each dimension of two rows; scores are
    # float32.
    errors = most * (1 / whole + np.float32(2.0**-21))
    # A query of NaN may find anything; fine-tuning notices NaN by its loss.
    with np.errstate(invalid="ignore"):
        integers = np.rint(np.concatenate([starts, ends]) / np.tile(units, 2)[:, None]).astype(
            np.int32
        )
    high = (integers + LIMB // 2) // LIMB
    return np.concatenate([high, integers - high * LIMB]).astype(np.int8), units, errors


def _most(starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """The largest number in both vectors of each query, and the highest score of a row. Shapes:
    (queries,).
    """
    largest = np.abs(np.stack([starts, ends])).max(axis=(0, 2)).clip(min=np.float32(1e-30))
    # Leaves a margin for the rounding of sums.
    return largest, largest * np.float32(127.2 * starts.shape[1])


def rounded_for_exact_sums(vectors: Floats, bits: int = STEPS) -> Doubles:
    """Round vectors to multiples of a power of two, of which 2^bits exceed the largest value of a
    vector.

    While sums of their products fit in the 53 bits of float64, no order of additions, and so no
    shape, changes them. Shapes: (…, dim).

    >>> rounded_for_exact_sums(np.float32([[3, -0.3]]), bits=3).tolist()
    [[3.0, -0.5]]
    """
    _, exponents = np.frexp(np.abs(vectors).max(axis=-1, keepdims=True))
    steps: Doubles = np.rint(np.ldexp(vectors.astype(np.float64), bits - exponents))
    return np.asarray(np.ldexp(steps, exponents - bits))


def float32_products(rows: Tensor, queries: Tensor) -> Tensor:
    """Return the inner products of int8 rows and float32 queries on a CPU.

    Shapes: rows (rows, dim), queries (queries, dim), result (rows, queries).
    """
    products = torch.empty(len(rows), len(queries))
    # shared: a new one costs as much as the product.
    wide = torch.empty(min(FLOAT_BLOCK, len(rows)), rows.shape[1])
    for first in range(0, len(rows), FLOAT_BLOCK):
        part = rows[first : first + FLOAT_BLOCK]
        torch.mm(wide[: len(part)].copy_(part), queries.T, out=products[first : first + len(part)])
    return products


def integer_products(rows: Tensor, limbs: Tensor) -> Tensor:
    """Exact inner products of int8 rows and 15-bit integers, several times as fast as in float32.

    Shapes: rows (rows, dim), limbs (2 × vectors, dim), result (rows, vectors), int32.
    """
    vectors = len(limbs) // 2
    if rows.is_cpu and vectors <= FEW and not cpu_has("amx_int8"):
        if rows.numel() <= CACHED:
            both = torch._int_mm(limbs, rows.T)
        else:
            parts = []
            for piece in torch.split(rows, FETCHED):
                piece.amax()  # reads it into the CPU's cache in order, which a product does not do
                parts.append(torch._int_mm(limbs, piece.T))
            both = torch.cat(parts, dim=1)
        return both[vectors:].add(both[:vectors], alpha=LIMB).T
    parts = []
    for piece in torch.split(rows, BLOCK) if rows.is_cpu else (rows,):
        both = int8_products(piece, limbs)
        parts.append(both[:, vectors:].add(both[:, :vectors], alpha=LIMB))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def int8_products(rows: Tensor, others: Tensor) -> Tensor:
    """Exact inner products of int8 rows and `others`, on any device that multiplies int8.

    Shapes: (rows, dim), (others, dim), result (rows, others), int32.
    """
    return torch._int_mm(rows, others.T) if rows.is_cpu else tiled_products(rows, others)


def tiled_products(rows: Tensor, others: Tensor) -> Tensor:
    """`int8_products` with matrices padded to whole tiles, as CUDA requires; if `dim` fits, few
    rows are copied.
    """
    columns = in_tiles(others).T
    whole = len(rows) - len(rows) % TILE if rows.shape[1] % TILE == 0 else 0
    parts = [
        torch._int_mm(part, columns) for part in (rows[:whole], in_tiles(rows[whole:])) if len(part)
    ]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(rows), : len(others)]


def in_tiles(matrix: Tensor) -> Tensor:
    """Pad a matrix with zeros to whole tiles, without a copy if it fills them."""
    right, below = (-size % TILE for size in reversed(matrix.shape))
    return pad(matrix, (0, right, 0, below)) if right or below else matrix


def as_tensor(array: NDArray[Any]) -> Tensor:
    """View an array as a tensor that must not be written to, as PyTorch has no read-only tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def largest_whole(dim: int) -> int:
    """Return the largest integer of a query whose high limb fits int8 and whose scores of spans fit
    int32.
    """
    return min(127 * LIMB + LIMB // 2 - 1, (2**31 - 1) // (2 * 127 * dim))


@cache
def has_fast_int8(device: torch.device) -> bool:
    """Return whether a device multiplies int8 in hardware, by VNNI, AMX or tensor cores."""
    if device.type == "cpu":
        return cpu_has("avx512_vnni", "avx_vnni", "amx_int8")
    ones = torch.ones(2, TILE, dtype=torch.int8, device=device)
    try:
        return integer_products(ones, ones).tolist() == [[(LIMB + 1) * TILE]] * 2
    except RuntimeError as error:  # this device or this version of PyTorch has none
        if is_out_of_memory(error):
            raise  # the device may still be able to
        return False


def devices_for(
    shards: Sequence[Shard], device: torch.device, copies: int = 1, advice: str = ADVICE
) -> list[torch.device]:
    """Choose a device for the rows of each shard: the given one and, if it is a GPU without room,
    other GPUs.

    Raises KnowledgeBaseError if all GPUs together lack memory for this number of copies.
    """
    if device.type != "cuda":
        return [device] * len(shards)
    # Each GPU keeps room for the products of a block of rows, or of the largest shard if that is
    # smaller.
    numbers = max(
        (len(shard) * (shard.vectors.shape[1] + BATCH_NUMBERS) for shard in shards), default=0
    )
    sizes = [bytes_of(shard) for shard in shards]
    working = min(WORKING, 4 * numbers)
    return gpus_for(sizes, device, "exact search", working, advice, copies)


def gpus_for(
    sizes: Sequence[int],
    device: torch.device,
    what: str,
    working: int,
    advice: str,
    copies: int = 1,
) -> list[torch.device]:
    """Choose a GPU with room for each size in bytes, first the given one; each process keeps
    `working` bytes free.

    Raises KnowledgeBaseError if all GPUs together lack memory for this number of processes with a
    copy each.
    """
    count = torch.cuda.device_count()
    first = device.index or 0
    kept = working * -(-copies // count)
    room: dict[torch.device, int] = {}
    # One by one: a GPU that is queried reserves memory for this process for good.
    for number in range(count):
        gpu = torch.device("cuda", (first + number) % count)
        room[gpu] = _free(gpu) - kept
        chosen = spread([*sizes] * copies, room)
        if chosen is not None:
            return chosen[: len(sizes)]
    need = (sum(sizes) * copies + working * max(copies, count)) / 1e9
    free = ", ".join(f"{(left + kept) / 1e9:.1f} GB on {gpu}" for gpu, left in room.items())
    several = f" for {copies} processes" if copies > 1 else ""
    fewer = "use fewer workers, or " if copies > 1 else ""
    raise KnowledgeBaseError(
        f"{what} needs {need:.1f} GB of GPU memory{several}, but only {free} are free: "
        f"{fewer}{advice}"
    )


def bytes_of(shard: Shard) -> int:
    """Bytes of a shard on a GPU: vector, edges and paragraph of each row, and two 8-byte numbers
    for each paragraph.
    """
    return shard.vectors.nbytes + 5 * len(shard) + 2 * 8 * len(shard.paragraph_rows)


def spread(sizes: Sequence[int], room: Mapping[torch.device, int]) -> list[torch.device] | None:
    """Choose a device with room for each size in bytes, so that all are equally busy if that works.

    Otherwise each gets the first device with room. Returns None if neither way works.
    """
    for pick_first in (False, True):
        given = dict.fromkeys(room, 0)
        chosen = []
        for size in sizes:
            fitting = [device for device in room if room[device] - given[device] >= size]
            if not fitting:
                break
            chosen.append(fitting[0] if pick_first else min(fitting, key=given.__getitem__))
            given[chosen[-1]] += size
        else:
            return chosen
    return None


def _free(gpu: torch.device) -> int:
    """Free bytes of a GPU and those that PyTorch has reserved for this process, or 0 if it cannot
    be used.
    """
    try:
        reserved = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
        return int(torch.cuda.mem_get_info(gpu)[0] + reserved)
    except RuntimeError:  # another process may use it exclusively
        return 0


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
