"""Products: queries with the rows of a dump; of all rows in whole numbers where the device multiplies these fast.

A query becomes 15-bit integers in two int8 limbs, the rows are int8 as they lie in the dump: products are exact, and
only the rounding of the query must be allowed for. Other devices multiply in float32; so do all for the final scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from kbq.array_types import Floats, Rows
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.system.machine import cpu_has

WORKING = 2**31  # bytes that a block's products take at the most
BATCH_NUMBERS = 640  # that are computed from a row, besides its float32 vector, for the 64 queries of a batch
WAY_OUT = "use --device cpu, or an index that fits: kbq index KB --index compact"


def places(shards: Sequence[Shard], device: torch.device) -> list[torch.device]:
    """Where each shard's rows shall lie: on the device, or on it and the GPUs behind it.

    Raises:
        KnowledgeBaseError: all GPUs together have too little memory.
    """
    if device.type != "cuda":
        return [device] * len(shards)
    sizes, working = [bytes_of(shard) for shard in shards], _working(shards)
    count, first = torch.cuda.device_count(), device.index or 0
    room: dict[torch.device, int] = {}
    for number in range(count):  # a GPU that is asked gives memory to this process for good: only as many as are needed
        gpu = torch.device("cuda", (first + number) % count)
        room[gpu] = _free(gpu) - working
        chosen = fitted(sizes, room)
        if chosen is not None:
            return chosen
    need = (sum(sizes) + working * count) / 1e9
    here = ", ".join(f"{(left + working) / 1e9:.1f} GB of {gpu}" for gpu, left in room.items())
    raise KnowledgeBaseError(f"exact search needs {need:.1f} GB of GPU memory, free are {here}: {WAY_OUT}")


def bytes_of(shard: Shard) -> int:
    """Vectors and edges of all rows, and two numbers of 8 bytes for every paragraph."""
    return shard.vectors.nbytes + shard.edges.nbytes + 2 * 8 * len(shard.paragraph_rows)


def fitted(sizes: Sequence[int], room: Mapping[torch.device, int]) -> list[torch.device] | None:
    """The first device with room for each size, in bytes; None where one has no place."""
    left, chosen = dict(room), []
    for size in sizes:
        device = next((device for device, bytes_left in left.items() if bytes_left >= size), None)
        if device is None:
            return None
        left[device] -= size
        chosen.append(device)
    return chosen


def _working(shards: Sequence[Shard]) -> int:
    """Bytes kept free on each GPU for the products of a block of rows, or of the largest shard if that is smaller."""
    return max((min(WORKING, 4 * len(s) * (s.vectors.shape[1] + BATCH_NUMBERS)) for s in shards), default=0)


def _free(gpu: torch.device) -> int:
    """Free bytes: those nobody has, and those torch keeps for this process; 0 of a GPU that cannot be used."""
    try:
        kept = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
        return int(torch.cuda.mem_get_info(gpu)[0] + kept)
    except RuntimeError:  # another process has it for itself, say
        return 0


@contextmanager
def full_memory_is_said(device: torch.device) -> Iterator[None]:
    """A GPU out of memory becomes an error of kbq: what other programs take of it is not known beforehand."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise KnowledgeBaseError(f"{device} ran out of memory, which others may use too: {WAY_OUT}") from None


CPU = torch.device("cpu")
LIMB = 128
TILE = 32  # CUDA multiplies int8 matrices of such sizes
BLOCK = 2560  # rows that a CPU multiplies at a time: they stay in its cache, and their shape is prepared for once
FLOAT_BLOCK = 1280  # the same, of rows that become float32 first
FEW = 16  # vectors, or fewer: without matrix tiles (AMX), a CPU searches 1.4 times as fast with `vectors × rowsᵀ`
CACHED = 2**24  # bytes of rows; with more of them, a product with few vectors waits for memory
FETCHED = 5120  # rows that are fetched at a time then: a search is 1.2 times as fast
CHUNK = 256  # rows that become float32 at a time: more fall out of the CPU's cache


@dataclass(frozen=True, slots=True)
class Factors:
    """A batch of start and end vectors, ready to be multiplied.

    The score of a span is `units` times what `products` says of its first and its last row together, give or take
    `errors`. Shapes: matrix (start vectors over end vectors, dim), units and errors (queries,).
    """

    matrix: Tensor
    units: Tensor
    errors: Tensor
    in_integers: bool

    @classmethod
    def of(cls, starts: Floats, ends: Floats, device: torch.device) -> Self:
        """Shapes: (queries, dim)."""
        queries = np.concatenate([starts, ends])
        dim = starts.shape[1]
        largest = np.abs(queries).max(axis=1).reshape(2, -1).max(axis=0).clip(min=np.float32(1e-30))
        most = largest * np.float32(127.2 * dim)  # that one row may score, and a little for the rounding of later sums
        in_integers = has_fast_int8(device)
        columns: list[NDArray[Any]]
        if in_integers:  # two limbs are off by at most half a unit, in each dimension of two rows
            whole = np.float32(largest_whole(dim))
            units = largest / whole
            columns = [_limbs(queries, np.tile(units, 2)), units, most / whole]
        else:  # each of dim sums, in each of two rows, is rounded by 2^-24 of what it may be; values may cancel out
            columns = [queries, np.ones_like(largest), most * np.float32(2 * dim * 2.0**-24)]
        matrix, factors, errors = (torch.from_numpy(column).to(device) for column in columns)
        return cls(matrix, factors, errors, in_integers)

    def products(self, rows: Tensor) -> Tensor:
        """Rows with start vectors, then with end vectors. Shapes: (rows, dim), (rows, 2 × queries)."""
        if not self.in_integers:
            return float32_products(rows, self.matrix) if rows.is_cpu else rows.float() @ self.matrix.T
        return integer_products(rows, self.matrix)


def float32_products(rows: Tensor, queries: Tensor) -> Tensor:
    """int8 rows with float32 queries on a CPU; one buffer serves all blocks, as a new one costs as much as the product.

    Shapes: rows (rows, dim), queries (queries, dim), result (rows, queries).
    """
    products = torch.empty(len(rows), len(queries))
    wide = torch.empty(min(FLOAT_BLOCK, len(rows)), rows.shape[1])
    for first in range(0, len(rows), FLOAT_BLOCK):
        part = rows[first : first + FLOAT_BLOCK]
        torch.mm(wide[: len(part)].copy_(part), queries.T, out=products[first : first + len(part)])
    return products


def integer_products(rows: Tensor, limbs: Tensor) -> Tensor:
    """Exact products of int8 rows with 15-bit integers, several times as fast as float32.

    Shapes: rows (rows, dim), limbs (2 × vectors, dim), result (rows, vectors), int32.
    """
    vectors = len(limbs) // 2
    if rows.is_cpu and vectors <= FEW and not cpu_has("amx_int8"):
        if rows.numel() <= CACHED:
            both = torch._int_mm(limbs, rows.T)
        else:
            both = torch.cat([torch._int_mm(limbs, _fetched(piece).T) for piece in torch.split(rows, FETCHED)], dim=1)
        return both[vectors:].add(both[:vectors], alpha=LIMB).T
    parts = []
    for piece in torch.split(rows, BLOCK) if rows.is_cpu else (rows,):
        both = int8_products(piece, limbs)
        parts.append(both[:, vectors:].add(both[:, :vectors], alpha=LIMB))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def int8_products(rows: Tensor, others: Tensor) -> Tensor:
    """Exact products of int8 rows with others, on any device that has them.

    Shapes: (rows, dim), (others, dim), result (rows, others), int32.
    """
    return torch._int_mm(rows, others.T) if rows.is_cpu else tiled_products(rows, others)


def tiled_products(rows: Tensor, others: Tensor) -> Tensor:
    """`int8_products` in whole tiles, as CUDA wants them."""
    columns = in_tiles(others).T
    parts = [torch._int_mm(part, columns) for part in tiled(rows)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(rows), : len(others)]


def _fetched(rows: Tensor) -> Tensor:
    """The same rows, now in the CPU's cache: this reads them in order, which a product does not do."""
    rows.amax()
    return rows


def tiled(rows: Tensor) -> list[Tensor]:
    """The rows as one or two matrices of whole tiles; only the last few are copied, if their size allows it."""
    whole = len(rows) - len(rows) % TILE if rows.shape[1] % TILE == 0 else 0
    return [part for part in (rows[:whole], in_tiles(rows[whole:])) if len(part)]


def in_tiles(matrix: Tensor) -> Tensor:
    """The matrix with zeros below and on the right to fill its tiles; itself where it fills them (`pad` copies)."""
    right, below = (-size % TILE for size in reversed(matrix.shape))
    return pad(matrix, (0, right, 0, below)) if right or below else matrix


def largest_whole(dim: int) -> int:
    """The largest integer of a query: its high limb fits int8, and a span's score fits int32."""
    return min(127 * LIMB + LIMB // 2 - 1, (2**31 - 1) // (2 * 127 * dim))


def _limbs(queries: Floats, unit: Floats) -> NDArray[np.int8]:
    """Queries as 15-bit integers, high limbs over low ones. Shape: (2 × queries, dim)."""
    with np.errstate(invalid="ignore"):  # a query of NaN finds anything: tuning notices it by its loss
        whole = np.rint(queries / unit[:, None]).astype(np.int32)
    high = (whole + LIMB // 2) // LIMB
    return np.concatenate([high, whole - high * LIMB]).astype(np.int8)


@cache
def has_fast_int8(device: torch.device) -> bool:
    """Whether this device multiplies int8 in hardware: VNNI, AMX, tensor cores."""
    if device.type == "cpu":
        return cpu_has("avx512_vnni", "avx_vnni", "amx_int8")
    ones = torch.ones(2, TILE, dtype=torch.int8, device=device)
    try:
        return integer_products(ones, ones).tolist() == [[(LIMB + 1) * TILE]] * 2
    except torch.OutOfMemoryError:  # says nothing about what the device can do
        raise
    except RuntimeError:  # this device cannot, or not with this version of torch
        return False


def float_products(shard: Shard, rows: Rows, queries: Floats) -> Floats:
    """Products of some of the shard's vectors with each query, in float32: scores are made of these.

    Shapes: rows (rows,), queries (queries, dim), result (rows, queries).
    """
    products = np.empty((len(rows), len(queries)), np.float32)
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        products[part] = shard.vectors_of(rows[part]).astype(np.float32) @ queries.T
    return products
