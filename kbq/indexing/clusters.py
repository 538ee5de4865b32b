"""Clusters: means of rows, and which of them a row is nearest to; in whole numbers where the device is fast with these.

k-means as faiss has it (Lloyd, from rows at random), but with products of int8: a quarter of its time. Means are
rounded for that, so that a row about half-way between two may go to the wrong one: 1 % of a knowledge base's rows.
"""

from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Floats, Rows
from kbq.indexing.products import CPU, has_fast_int8, int8_products

Values = Floats | NDArray[np.int8]
ROUNDS = 10  # of k-means
CHUNK = 4096  # rows that become float32 at a time
SCORES = 2**18  # of rows with means, computed at a time: they stay in a core's cache
SCORES_CUDA = 2**27  # half a GB


class Clusters:
    """Means, ready to be compared with rows."""

    def __init__(self, means: Floats, device: torch.device = CPU) -> None:
        """Shape: (clusters, dim)."""
        self.means = means
        self._device = device
        self._halves = (means**2).sum(axis=1) / 2
        self._step = max(float(np.abs(means).max()), 1e-30) / 127
        self._whole = torch.from_numpy(np.rint(means / self._step).astype(np.int8))

    @classmethod
    def of(
        cls,
        sample: Values,
        count: int,
        seed: int = 0,
        device: torch.device = CPU,
        report: Callable[[int], None] = lambda rows: None,
    ) -> Self:
        """k-means: `count` means of these rows. A cluster that lost all its rows begins again at a random one.

        Args:
            sample: not fewer rows than `count`. Shape: (rows, dim).
            device: where rows are compared with means.
            report: takes after each of the ROUNDS how many rows were compared with the means.
        """
        random = np.random.default_rng(seed)
        clusters = cls(_random_rows(sample, count, random), device)
        for _ in range(ROUNDS):
            nearest = clusters.nearest(sample)
            sizes = np.bincount(nearest, minlength=count)
            means = _sums(sample, nearest, count) / sizes.clip(min=1).astype(np.float32)[:, None]
            means[sizes == 0] = _random_rows(sample, int((sizes == 0).sum()), random)
            clusters = cls(means, device)
            report(len(sample))
        return clusters

    def nearest(self, rows: Values) -> Rows:
        """The number of the mean with the smallest L2 distance to each row. Shapes: (rows, dim), (rows,)."""
        step = max(1, (SCORES if self._device.type == "cpu" else SCORES_CUDA) // len(self.means))
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        try:
            compare = self._compared_in_integers if has_fast_int8(self._device) else self._compared
            return np.concatenate([compare(part) for part in parts]) if parts else np.empty(0, np.int64)
        except torch.OutOfMemoryError:  # on a GPU that others use, too: then on the CPU
            return type(self)(self.means).nearest(rows)

    def _compared(self, rows: Values) -> Rows:
        floats, means, halves = (
            torch.from_numpy(values).to(self._device) for values in (rows.astype(np.float32), self.means, self._halves)
        )
        return _largest((floats @ means.T).sub_(halves))

    def _compared_in_integers(self, rows: Values) -> Rows:
        """‖x − c‖² = ‖x‖² − 2 (x·c − ½ ‖c‖²), all in units of one step of the rows times one of the means."""
        unit = 1.0 if rows.dtype == np.int8 else max(float(np.abs(rows).max()), 1e-30) / 127
        whole = rows if rows.dtype == np.int8 else np.rint(rows / unit).astype(np.int8)
        scores = int8_products(torch.from_numpy(whole).to(self._device), self._whole.to(self._device))
        halves = torch.from_numpy(np.rint(self._halves / (unit * self._step)).astype(np.int32))
        return _largest(scores.sub_(halves.to(self._device)))


def _largest(scores: Tensor) -> Rows:
    """Where each row's largest value stands; NumPy is several times as fast as PyTorch on a CPU. Shape: (rows,)."""
    return np.asarray(scores.numpy().argmax(axis=1) if scores.is_cpu else scores.argmax(dim=1).cpu().numpy())


def _random_rows(rows: Values, count: int, random: np.random.Generator) -> Floats:
    return rows[random.choice(len(rows), count, replace=False)].astype(np.float32)


def _sums(rows: Values, groups: Rows, count: int) -> Floats:
    """The sum of each group's rows. Shapes: (rows, dim), (rows,), (count, dim)."""
    sums = torch.zeros(count, rows.shape[1])
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        sums.index_add_(0, torch.from_numpy(groups[part]), torch.from_numpy(rows[part]).float())
    return sums.numpy()
