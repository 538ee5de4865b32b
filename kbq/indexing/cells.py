"""Cells: an inverted file (faiss) over the rows of a shard, where these are too many to multiply with every query.

Cells are L2 clusters; a query probes those whose means have the largest inner products with it. faiss's own default for
inner products, unit centroids, loses half the recall where the vectors' norms vary; so clusters are our own
(`clusters.py`), and faiss keeps and searches the cells.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kbq.array_types import Floats, Rows
from kbq.errors import KnowledgeBaseError, first_line
from kbq.indexing.clusters import ROUNDS, Clusters, Values
from kbq.indexing.products import CPU
from kbq.system.files import GO_ON, replacing
from kbq.system.mapping import expect_random_access, prefetch
from kbq.system.stages import Report, Stage, silent

SAMPLES_PER_CLUSTER = 40  # rows seen by k-means
CODEC_SAMPLES = 50_000  # rows that show the codec where values lie
CHUNK = 65536  # rows added at a time
NUMBER_BYTES = 8  # of a row's number, beside its code
PREFETCHED = 2**27  # bytes, about, for some queries together, or for one: more would push each other out of memory
LEAST_SAMPLES = 16  # values, or pairs of them, that four bits tell apart: faiss wants to be shown as many rows


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

    Clusters are of the vectors as they are, whatever is stored of them: of clusters of rotated ones, several times as
    many must be probed for the same recall.

    Args:
        vectors: of the dump. Shape: (all, dim).
        rotation: what a rotated vector has more than its cell's mean is stored in product codes of four bits, in blocks
            that are searched within registers (fast scan, arXiv 1704.07355). Shape: (dim, kept). None: the dump's int8
            values are stored as they are.
        together: how many of the rotated values share a code; only with a rotation.
        device: where rows are compared with cells.

    Raises:
        KnowledgeBaseError: faiss is not installed, or cannot write the file.
    """
    faiss = load_faiss()
    count = clusters_for(len(rows))
    random = np.random.default_rng(0)
    picked = random.choice(rows, min(len(rows), count * SAMPLES_PER_CLUSTER), replace=False)
    stage = Stage(report, "rows compared with cells", ROUNDS * len(picked) + len(rows))
    clusters = Clusters.of(vectors[np.sort(picked)], count, device=device, report=stage.add)
    means = _stored(clusters.means, rotation)
    steepest = faiss.IndexFlatIP(means.shape[1])  # what is probed; it must live until the index is written
    steepest.add(means)
    if rotation is None:
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        index = faiss.IndexIVFScalarQuantizer(steepest, steepest.d, count, kind, faiss.METRIC_INNER_PRODUCT, False)
    else:
        index = faiss.IndexIVFPQ(steepest, steepest.d, count, steepest.d // together, 4, faiss.METRIC_INNER_PRODUCT)
        index.by_residual = True
        shown = vectors[random.choice(picked, min(len(picked), CODEC_SAMPLES), replace=False)]
        more = _stored(shown, rotation) - means[clusters.nearest(shown)]
        index.pq.cp.min_points_per_centroid = 1
        index.pq.train(np.resize(more, (max(len(more), LEAST_SAMPLES), steepest.d)))
    index.is_trained = True
    for first in range(0, len(rows), CHUNK):
        numbers = rows[first : first + CHUNK]
        part = vectors[numbers]
        nearest, added = clusters.nearest(part), _stored(part, rotation)
        index.add_core(len(numbers), *(faiss.swig_ptr(array) for array in (added, numbers, nearest)))
        stage.add(len(numbers))
    _write(index if rotation is None else faiss.IndexIVFPQFastScan(index), path)


def _stored(rows: Values, rotation: Floats | None) -> Floats:
    """What of rows, or means, is written down, before it is rounded. Shapes: (rows, dim), (rows, kept or dim)."""
    as_floats = rows.astype(np.float32)
    return as_floats if rotation is None else as_floats @ rotation


def _write(index: Any, path: Path) -> None:
    with replacing(path) as partial:
        try:
            load_faiss().write_index(index, str(partial))
        except RuntimeError as error:  # a full disk, which it says after its own file and line
            reason = str(error).rpartition(": ")[2].strip()
            raise KnowledgeBaseError(f"{path} cannot be written ({reason}): make room; {GO_ON}") from None


class Cells:
    """The inverted file of one shard: int8 values are memory-mapped, four bits are read into memory."""

    def __init__(self, path: Path, probes: int, rotation: Floats | None = None, stay: bool = True) -> None:
        """Open what `build_cells` wrote.

        Args:
            probes: cells looked at for one query.
            rotation: of queries, as the rows were. Shape: (dim, kept).
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
            lists.prefetch_nthread = 0  # faiss starts 32 threads for each search, which take about as long as it
            if not stay:
                self._prefetched = lists
                expect_random_access(int(lists.ptr), lists.totsize)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """The k best rows in the cells that are probed, by what their codes score; -1 where these hold fewer.

        A search for many of the rows looks at as large a share of the cells: at full depth, at all of them.
        Shapes: (queries, dim), twice (queries, k) or less.
        """
        if self._rotation is not None:
            queries = queries @ self._rotation
        else:  # faiss multiplies int8 codes with whole numbers only: a query of small values would be all zeros
            queries = np.rint(queries * (127 / np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30)))
        cells, rows = self._index.nlist, self._index.ntotal
        k, probes = min(k, rows), min(cells, max(self._probes, -(-cells * k // rows)))
        if self._prefetched is None:
            return self._found(queries, k, probes)
        found = []
        together = max(1, PREFETCHED * cells // (probes * self._prefetched.totsize))
        for first in range(0, len(queries), together):
            part = queries[first : first + together]
            self._prefetch(part, probes)
            found.append(self._found(part, k, probes))
        scores, numbers = (np.concatenate(column) for column in zip(*found, strict=True))
        return scores, numbers

    def _found(self, queries: Floats, k: int, probes: int) -> tuple[Floats, Rows]:
        found = self._index.search(queries, k, params=self._faiss.SearchParametersIVF(nprobe=probes))
        return np.asarray(found[0]), np.asarray(found[1])

    def _prefetch(self, queries: Floats, probes: int) -> None:
        """The cells that these queries will probe are read from the disk together."""
        _, cells = self._index.quantizer.search(queries, probes)
        begin, row = int(self._prefetched.ptr), self._prefetched.code_size + NUMBER_BYTES
        for cell in np.unique(cells[cells >= 0]).tolist():  # a query that is no number probes none
            place = self._prefetched.lists.at(cell)
            prefetch(begin + place.offset, place.capacity * row)


def load_faiss() -> Any:
    """The library; whoever searches exactly needs none.

    Raises:
        KnowledgeBaseError: it is missing, or cannot be loaded here.
    """
    try:
        import faiss  # only here
    except ImportError as error:  # it is not there, or not for this NumPy
        raise KnowledgeBaseError(
            f"this index needs faiss ({first_line(error)}): "
            'install it with pip install "kbq[cpu]"; exact search needs none'
        ) from None
    # Queries in older versions, queries × dim in newer ones, whose own value makes probing seven times slower.
    faiss.cvar.distance_compute_blas_threshold = 20
    return faiss
