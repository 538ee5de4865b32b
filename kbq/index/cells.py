"""Cells: the rows of a shard become an inverted file of faiss; query vectors become the best rows of some of its cells.

Cells are L2 clusters; a query probes those whose means have the largest inner products with it. faiss's default for
inner products, unit centroids, loses half of the recall if the norms of vectors vary. So `Clusters` does the k-means,
and faiss stores and searches the cells.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Bools, Floats, Rows
from kbq.errors import KnowledgeBaseError, first_line
from kbq.index.inner_products import CPU, has_fast_int8, in_steps, int8_products
from kbq.storage.machine import expect_random_access, prefetch
from kbq.storage.progress import Report, Stage, silent
from kbq.storage.writing import RESUMES, replacing

Values = Floats | NDArray[np.int8]
ROUNDS = 10  # of k-means
COMPARED = 4096  # rows converted to float32 at a time
SCORES = 2**18  # of rows with means, computed at a time on a CPU: they fit in a core's cache
SCORES_CUDA = 2**27  # the same on a GPU: half a GB
SAMPLES_PER_CLUSTER = 40  # rows that k-means is trained on
CODEC_SAMPLES = 50_000  # rows that the codec is trained on
ROTATED_BITS = 20  # of a query, and of its rotation: their products, and the sums of 2^13 dimensions, are exact
LEAST_SAMPLES = 16  # values of a four-bit code: faiss requires at least as many rows to train it on
CHUNK = 65536  # rows added at a time
NUMBER_BYTES = 8  # of a row's number, beside its code
PREFETCHED = 2**27  # bytes of cells, about, prefetched at a time: more might evict each other from memory


def clusters_for(rows: int) -> int:
    """Return the number of cells: about 4 √rows, but not so many that k-means lacks rows."""
    return int(max(1, min(4 * rows**0.5, rows / 39)))


def build_cells(
    path: Path,
    vectors: NDArray[np.int8],
    rows: Rows,
    rotation: Floats | None = None,
    together: int = 1,
    device: torch.device = CPU,
    report: Report = silent,
) -> None:
    """Cluster rows, add them to an index under their numbers, and write it atomically.

    The clusters are of unrotated vectors even if rotated ones are stored: of clusters of rotated vectors, several times
    as many must be probed for the same recall.

    Args:
        vectors: of the dump. Shape: (all, dim).
        rows: numbers of the vectors to index. Shape: (rows,).
        rotation: store the rotated vectors, less their cells' means, in product codes of four bits, in blocks that
            are searched in registers (fast scan, arXiv 1704.07355). Shape: (dim, kept). None: store the int8 vectors.
        together: how many rotated values share a code; only with a rotation.
        device: where rows are compared with means.

    Raises:
        KnowledgeBaseError: faiss is not installed, or cannot write the file.
    """
    faiss = load_faiss()
    count = clusters_for(len(rows))
    random = np.random.default_rng(0)
    sample = random.choice(rows, min(len(rows), count * SAMPLES_PER_CLUSTER), replace=False)
    stage = Stage(report, "rows compared with cells", ROUNDS * len(sample) + len(rows))
    clusters = Clusters.of(vectors[np.sort(sample)], count, device=device, report=stage.add)
    means = _rotated(clusters.means, rotation)
    quantizer = faiss.IndexFlatIP(means.shape[1])  # finds the cells to probe; must not be freed before the index
    quantizer.add(means)
    if rotation is None:
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        index = faiss.IndexIVFScalarQuantizer(quantizer, quantizer.d, count, kind, faiss.METRIC_INNER_PRODUCT, False)
    else:
        index = faiss.IndexIVFPQ(quantizer, quantizer.d, count, quantizer.d // together, 4, faiss.METRIC_INNER_PRODUCT)
        index.by_residual = True
        codec_sample = vectors[random.choice(sample, min(len(sample), CODEC_SAMPLES), replace=False)]
        residuals = _rotated(codec_sample, rotation) - means[clusters.nearest(codec_sample)]
        index.pq.cp.min_points_per_centroid = 1
        index.pq.train(np.resize(residuals, (max(len(residuals), LEAST_SAMPLES), quantizer.d)))
    index.is_trained = True
    for first in range(0, len(rows), CHUNK):
        numbers = rows[first : first + CHUNK]
        part = vectors[numbers]
        nearest, values = clusters.nearest(part), _rotated(part, rotation)
        index.add_core(len(numbers), *(faiss.swig_ptr(array) for array in (values, numbers, nearest)))
        stage.add(len(numbers))
    _write(index if rotation is None else faiss.IndexIVFPQFastScan(index), path)


def _rotated(rows: Values, rotation: Floats | None) -> Floats:
    """Rows, or means, as they are stored, before rounding. Shapes: (rows, dim), (rows, kept or dim)."""
    as_floats = rows.astype(np.float32)
    return as_floats if rotation is None else as_floats @ rotation


def _write(index: Any, path: Path) -> None:
    with replacing(path) as partial:
        try:
            load_faiss().write_index(index, str(partial))
        except RuntimeError as error:  # a full disk, say; faiss says the reason last, in brackets or after a colon
            reason = re.split(r": |\(", str(error))[-1].strip(" )")
            raise KnowledgeBaseError(f"{path} cannot be written ({reason}): free disk space; {RESUMES}") from None


def read_cells(path: Path) -> Any:
    """Open the index that `build_cells` wrote; int8 vectors are memory-mapped, four-bit codes are read into memory.

    Raises:
        KnowledgeBaseError: faiss is not installed, or the file is missing or damaged.
    """
    faiss = load_faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise KnowledgeBaseError(
            f"index {path} is missing or damaged ({str(error)[:80]}…): build it again with `kbq index vectors`"
        ) from None


class Cells:
    """An inverted file of faiss."""

    def __init__(
        self,
        index: Any,
        probes: int,
        rotation: Floats | None = None,
        stay: bool = True,
        shown: Bools | None = None,
    ) -> None:
        """Prepare an index for searches.

        Args:
            probes: cells to search for a query.
            rotation: of queries, if the rows were rotated. Shape: (dim, kept).
            stay: whether mapped cells stay in memory once read; if not, the probed cells are prefetched.
            shown: whether each number in the index may be found; None: all may. Shape: (all,).
        """
        self._faiss = load_faiss()
        self._index = index
        self._probes = probes
        self._rotation = (
            None if rotation is None else in_steps(rotation.reshape(1, -1), ROTATED_BITS).reshape(rotation.shape)
        )
        self._findable = self._index.ntotal
        self._selector: Any = None
        if shown is not None:
            self._findable = min(self._findable, int(shown.sum()))
            self._bits = np.packbits(shown, bitorder="little")  # faiss reads them where they are
            self._selector = self._faiss.IDSelectorBitmap(len(shown), self._faiss.swig_ptr(self._bits))
        self._prefetched: Any = None  # the inverted lists
        lists = self._faiss.downcast_InvertedLists(self._index.invlists)
        if hasattr(lists, "prefetch_nthread"):  # mapped
            lists.prefetch_nthread = 0  # faiss would start 32 threads for each search, which takes as long as it
            if not stay:
                self._prefetched = lists
                expect_random_access(int(lists.ptr), lists.totsize)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """Find the k best rows in the probed cells: their scores, by codes, and numbers, -1 where there are fewer.

        To find a share of the rows, at least the same share of the cells is probed; to find all rows, all cells.
        Shapes: queries (queries, dim), results (queries, k or the number of rows).
        """
        if self._rotation is not None:
            queries = (in_steps(queries, ROTATED_BITS) @ self._rotation).astype(np.float32)
        else:  # faiss multiplies int8 codes with integers only: a query of small values would become zero
            queries = np.rint(queries * (127 / np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30)))
        cells, rows = self._index.nlist, max(1, self._findable)
        k, probes = min(k, rows), min(cells, max(self._probes, -(-cells * k // rows)))
        if self._prefetched is None:
            return self._probe(queries, k, probes)
        parts = []
        together = max(1, PREFETCHED * cells // (probes * self._prefetched.totsize))
        for first in range(0, len(queries), together):
            part = queries[first : first + together]
            self._prefetch(part, probes)
            parts.append(self._probe(part, k, probes))
        scores, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
        return scores, numbers

    def _probe(self, queries: Floats, k: int, probes: int) -> tuple[Floats, Rows]:
        parameters = self._faiss.SearchParametersIVF(nprobe=probes, sel=self._selector)
        scores, rows = self._index.search(queries, k, params=parameters)
        return np.asarray(scores), np.asarray(rows)

    def _prefetch(self, queries: Floats, probes: int) -> None:
        """Have the system read the cells that these queries will probe from the disk, all together."""
        _, cells = self._index.quantizer.search(queries, probes)
        begin, row_bytes = int(self._prefetched.ptr), self._prefetched.code_size + NUMBER_BYTES
        for cell in np.unique(cells[cells >= 0]).tolist():  # a query of NaN probes none
            place = self._prefetched.lists.at(cell)
            prefetch(begin + place.offset, place.capacity * row_bytes)


def load_faiss() -> Any:
    """Import faiss on demand: exact search works without it.

    Raises:
        KnowledgeBaseError: it is not installed, or cannot be loaded.
    """
    try:
        import faiss  # only here
    except ImportError as error:  # it is not installed, or does not fit this NumPy
        raise KnowledgeBaseError(
            f"this index needs faiss ({first_line(error)}): install it with pip install faiss-cpu, or use exact search"
        ) from None
    # With more queries, or queries × dim, than this, faiss would compare all of them with means in one product.
    faiss.cvar.distance_compute_blas_threshold = 2**31 - 1
    return faiss


class Clusters:
    """The means of clusters, prepared for comparison with rows."""

    def __init__(self, means: Floats, device: torch.device = CPU) -> None:
        """Shape: (clusters, dim)."""
        self.means = means
        self._device = device
        self._halves = (means**2).sum(axis=1) / 2
        self._step = max(float(np.abs(means).max()), 1e-30) / 127
        self._integers = torch.from_numpy(np.rint(means / self._step).astype(np.int8))

    @classmethod
    def of(
        cls,
        sample: Values,
        count: int,
        seed: int = 0,
        device: torch.device = CPU,
        report: Callable[[int], None] = lambda rows: None,
    ) -> Self:
        """k-means: cluster these rows into `count` clusters. An empty cluster restarts at a random row.

        Args:
            sample: at least `count` rows. Shape: (rows, dim).
            device: where rows are compared with means.
            report: called after each of the ROUNDS with the number of rows compared.
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
        """Return the cluster of each row: that of the nearest mean by L2 distance. Shapes: (rows, dim), (rows,)."""
        step = max(1, (SCORES if self._device.type == "cpu" else SCORES_CUDA) // len(self.means))
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        try:
            compare = self._compared_in_integers if has_fast_int8(self._device) else self._compared
            return np.concatenate([compare(part) for part in parts]) if parts else np.empty(0, np.int64)
        except torch.OutOfMemoryError:  # a GPU that others use, too: continue on the CPU
            return type(self)(self.means).nearest(rows)

    def _compared(self, rows: Values) -> Rows:
        floats, means, halves = (
            torch.from_numpy(values).to(self._device) for values in (rows.astype(np.float32), self.means, self._halves)
        )
        return _largest((floats @ means.T).sub_(halves))

    def _compared_in_integers(self, rows: Values) -> Rows:
        """‖x − c‖² = ‖x‖² − 2 (x·c − ½ ‖c‖²), in units of an int8 step of the rows times one of the means."""
        unit = 1.0 if rows.dtype == np.int8 else max(float(np.abs(rows).max()), 1e-30) / 127
        integers = rows if rows.dtype == np.int8 else np.rint(rows / unit).astype(np.int8)
        scores = int8_products(torch.from_numpy(integers).to(self._device), self._integers.to(self._device))
        halves = torch.from_numpy(np.rint(self._halves / (unit * self._step)).astype(np.int32))
        return _largest(scores.sub_(halves.to(self._device)))


def _largest(scores: Tensor) -> Rows:
    """Return the argmax of each row; on a CPU, NumPy is several times as fast as PyTorch. Shape: (rows,)."""
    return np.asarray(scores.numpy().argmax(axis=1) if scores.is_cpu else scores.argmax(dim=1).cpu().numpy())


def _random_rows(rows: Values, count: int, random: np.random.Generator) -> Floats:
    return rows[random.choice(len(rows), count, replace=False)].astype(np.float32)


def _sums(rows: Values, groups: Rows, count: int) -> Floats:
    """Return the sum of the rows of each group. Shapes: rows (rows, dim), groups (rows,), result (count, dim)."""
    sums = torch.zeros(count, rows.shape[1])
    for first in range(0, len(rows), COMPARED):
        part = slice(first, first + COMPARED)
        sums.index_add_(0, torch.from_numpy(groups[part]), torch.from_numpy(rows[part]).float())
    return sums.numpy()
