"""Inner products: multiply rows with queries, on any device, with the same final scores.

On devices that multiply int8 fast, a query is rounded to 15-bit integers in two int8 limbs and
multiplied exactly with the int8 rows: only the rounding of the query causes an error. Other devices
multiply in float32. Final scores are float64 sums that need no rounding, so they depend neither on
the rows and queries multiplied together nor on the CPU.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from kbq.array_types import Doubles, Floats
from kbq.errors import is_out_of_memory
from kbq.storage.machine import cpu_has

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

    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts)


def int8_products(rows: Tensor, others: Tensor) -> Tensor:
    """Exact inner products of int8 rows and `others`, on any device that multiplies int8.

    Shapes: (rows, dim), (others, dim), result (rows, others), int32.
    """
    if rows.is_cpu:
        return torch._int_mm(rows, others.T)
    return tiled_products(rows, others)


def tiled_products(rows: Tensor, others: Tensor) -> Tensor:
    """`int8_products` with matrices padded to whole tiles, as CUDA requires; if `dim` fits, few
    rows are copied.
    """
    columns = in_tiles(others).T
    whole = 0
    if rows.shape[1] % TILE == 0:
        whole = len(rows) - len(rows) % TILE
    parts = [
        torch._int_mm(part, columns) for part in (rows[:whole], in_tiles(rows[whole:])) if len(part)
    ]
    products = parts[0]
    if len(parts) > 1:
        products = torch.cat(parts)
    return products[: len(rows), : len(others)]


def in_tiles(matrix: Tensor) -> Tensor:
    """Pad a matrix with zeros to whole tiles, without a copy if it fills them."""
    right, below = (-size % TILE for size in reversed(matrix.shape))
    if right or below:
        return pad(matrix, (0, right, 0, below))
    return matrix


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
