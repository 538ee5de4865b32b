"""Cells: an inverted file (faiss) over the rows of a shard, where these are too many to multiply with every query.

Cells are L2 clusters; a query probes those whose means have the largest inner products with it. faiss's own default for
inner products, unit centroids, loses half the recall where the vectors' norms vary; so clusters are our own
(`clusters.py`), and faiss keeps and searches the cells.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Floats, Rows
from kbq.errors import KnowledgeBaseError, first_line
from kbq.indexing.inner_products import CPU, has_fast_int8, int8_products
from kbq.system.callbacks import Report, Stage, silent
from kbq.system.files import GO_ON, replacing
from kbq.system.machine import expect_random_access, prefetch

Values = Floats | NDArray[np.int8]
ROUNDS = 10  # of k-means
COMPARED = 4096  # rows that become float32 at a time
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
    for first in range(0, len(rows), COMPARED):
        part = slice(first, first + COMPARED)
        sums.index_add_(0, torch.from_numpy(groups[part]), torch.from_numpy(rows[part]).float())
    return sums.numpy()


SAMPLES_PER_CLUSTER = 40  # rows seen by k-means
CODEC_SAMPLES = 50_000  # rows that the codec is trained with
CHUNK = 65536  # rows added at a time
NUMBER_BYTES = 8  # of a row's number, beside its code
PREFETCHED = 2**27  # bytes, about, of the cells of some queries, or of one: more would push each other out of memory
LEAST_SAMPLES = 16  # codes of four bits: faiss wants at least as many rows to train with


def clusters_for(rows: int) -> int:
    """About 4 √rows cells, but never so many that a cell lacks training rows."""
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
    """Cluster these rows of the vectors, add them under their numbers, write the index, in one step.

    Vectors are clustered as they are, even where rotated ones are stored: of clusters of rotated vectors, several times
    as many must be probed for the same recall.

    Args:
        vectors: of the dump. Shape: (all, dim).
        rotation: the rotated vectors, less their cells' means, are stored in product codes of four bits, in blocks that
            are searched within registers (fast scan, arXiv 1704.07355). Shape: (dim, kept). None: the dump's int8
            values are stored as they are.
        together: how many of the rotated values share a code; only with a rotation.
        device: where rows are compared with cells.

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
    quantizer = faiss.IndexFlatIP(means.shape[1])  # finds the cells to probe; it must live until the index is written
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
    """Rows, or means, as they are stored, but not yet rounded. Shapes: (rows, dim), (rows, kept or dim)."""
    as_floats = rows.astype(np.float32)
    return as_floats if rotation is None else as_floats @ rotation


def _write(index: Any, path: Path) -> None:
    with replacing(path) as partial:
        try:
            load_faiss().write_index(index, str(partial))
        except RuntimeError as error:  # a full disk, say: the reason stands behind faiss's own file and line
            reason = str(error).rpartition(": ")[2].strip()
            raise KnowledgeBaseError(f"{path} cannot be written ({reason}): make room; {GO_ON}") from None


class Cells:
    """The inverted file of one shard: int8 values are memory-mapped, codes of four bits are read into memory."""

    def __init__(self, path: Path, probes: int, rotation: Floats | None = None, stay: bool = True) -> None:
        """Open what `build_cells` wrote.

        Args:
            probes: cells looked at for one query.
            rotation: for the queries, where the rows were rotated. Shape: (dim, kept).
            stay: whether mapped cells, once read, stay in memory; else those that are probed are prefetched.
        """
        self._faiss = load_faiss()
        try:
            self._index: Any = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise KnowledgeBaseError(
                f"index {path} is missing or damaged ({str(error)[:80]}…): build it again with `kbq index`"
            ) from None
        self._probes = probes
        self._rotation = rotation
        self._prefetched: Any = None  # the inverted lists
        lists = self._faiss.downcast_InvertedLists(self._index.invlists)
        if hasattr(lists, "prefetch_nthread"):  # mapped
            lists.prefetch_nthread = 0  # faiss would start 32 threads for each search, which take as long as it
            if not stay:
                self._prefetched = lists
                expect_random_access(int(lists.ptr), lists.totsize)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """The k best rows in the cells that are probed, by the scores of their codes; -1 where these hold fewer.

        A search for a share of the rows looks at as large a share of the cells: at full depth, at all of them.
        Shapes: (queries, dim), twice (queries, k) or less.
        """
        if self._rotation is not None:
            queries = queries @ self._rotation
        else:  # faiss multiplies int8 codes with whole numbers only: a query of small values would be all zeros
            queries = np.rint(queries * (127 / np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30)))
        cells, rows = self._index.nlist, self._index.ntotal
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
        scores, rows = self._index.search(queries, k, params=self._faiss.SearchParametersIVF(nprobe=probes))
        return np.asarray(scores), np.asarray(rows)

    def _prefetch(self, queries: Floats, probes: int) -> None:
        """Have the cells that these queries will probe read from the disk together."""
        _, cells = self._index.quantizer.search(queries, probes)
        begin, row_bytes = int(self._prefetched.ptr), self._prefetched.code_size + NUMBER_BYTES
        for cell in np.unique(cells[cells >= 0]).tolist():  # a query of NaN probes none
            place = self._prefetched.lists.at(cell)
            prefetch(begin + place.offset, place.capacity * row_bytes)


def load_faiss() -> Any:
    """Import faiss where it is needed: exact search works without it.

    Raises:
        KnowledgeBaseError: it is missing, or cannot be loaded here.
    """
    try:
        import faiss  # only here
    except ImportError as error:  # it is not installed, or does not fit this NumPy
        raise KnowledgeBaseError(
            f"this index needs faiss ({first_line(error)}): "
            'install it with pip install "kbq[cpu]"; exact search needs none'
        ) from None
    # Older versions compare it with queries, newer ones with queries × dim; their default probes seven times slower.
    faiss.cvar.distance_compute_blas_threshold = 20
    return faiss
