"""Exact: maximum inner product search over every row. The truth that approximate indexes are measured against."""

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
BLOCK_ROWS = 65536  # rows multiplied at a time
GROUP = 128  # rows whose best score is looked at before their own scores
LIMB = 128


class ExactIndex:
    """All rows of a shard, read where they lie: nothing is built, and no more than one block is copied."""

    def __init__(self, vectors: NDArray[np.int8], device: torch.device) -> None:
        """`vectors`: the dump's rows. Shape: (rows, dim)."""
        self._device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch knows no read-only memory; nothing here writes to it
            self._vectors = torch.from_numpy(np.asarray(vectors)).to(device)
        self._in_integers = device.type == "cpu" and has_fast_int8()

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows, Floats]:
        """The k best rows of each query, best first.

        Args:
            queries: in the units of the rows: already multiplied by the dump's scale. Shape: (queries, dim).
            k: at most the number of rows.

        Returns:
            Scores and rows, shapes (queries, k), and by how much a score may be wrong, shape (queries,).
        """
        asked = torch.from_numpy(queries).to(self._device)
        step = asked.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / (127 * LIMB + LIMB // 2)
        limbs = _limbs(asked, step) if self._in_integers else asked
        best = torch.empty((len(asked), 0), device=self._device)
        rows = torch.empty((len(asked), 0), dtype=torch.long, device=self._device)
        for first in range(0, len(self), BLOCK_ROWS):
            block = self._vectors[first : first + BLOCK_ROWS]
            products = _integer_products(limbs, block) if self._in_integers else asked @ block.float().T
            scores, places = top(products, min(k, len(block)))
            best = torch.cat([best, scores.float() * step if self._in_integers else scores], dim=1)
            best, order = best.topk(min(k, best.shape[1]), dim=1)
            rows = torch.cat([rows, places + first], dim=1).gather(1, order)
        error = step[:, 0] / 2 * 127 * asked.shape[1] if self._in_integers else 1e-5 * best[:, 0].abs()
        return best.cpu().numpy(), rows.cpu().numpy(), error.cpu().numpy()


def _limbs(queries: Tensor, step: Tensor) -> Tensor:
    """Queries as 15-bit integers, high limbs over low ones. Shape: (2 × queries, dim), int8."""
    whole = (queries / step).round().to(torch.int32)
    high = torch.div(whole + LIMB // 2, LIMB, rounding_mode="floor")
    return torch.cat([high, whole - high * LIMB]).to(torch.int8)


def _integer_products(limbs: Tensor, block: Tensor) -> Tensor:
    """Exact products of the 15-bit queries with int8 rows, twice as fast as float32. Shape: (queries, rows), int32."""
    products = torch._int_mm(limbs, block.T)
    high, low = products.chunk(2)
    return torch.add(low, high, alpha=LIMB)


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`scores.topk(k)`, ten times faster for many columns: the k best stand in the k groups with the best maxima.

    Shapes: scores (queries, rows); result (queries, k) twice.
    """
    grouped = scores.shape[1] // GROUP * GROUP
    groups = grouped // GROUP
    if groups <= 2 * k:
        return scores.topk(k, dim=1)
    maxima = scores[:, :grouped].reshape(-1, groups, GROUP).amax(dim=2)
    chosen = maxima.topk(k, dim=1).indices
    inside = torch.arange(GROUP, device=scores.device)
    columns = (chosen[:, :, None] * GROUP + inside).flatten(1)
    rest = torch.arange(grouped, scores.shape[1], device=scores.device).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, places)


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
