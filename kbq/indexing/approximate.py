"""Approximate: an inverted file over the rows (faiss), for knowledge bases too large to multiply with every query.

Cells are L2 clusters; a query probes those whose means have the largest inner products with it. faiss's own default for
inner products, unit centroids, loses half the recall where the vectors' norms vary. Codes are the dump's int8 values.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.errors import KnowledgeBaseError

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
SAMPLES_PER_CLUSTER = 64  # rows seen by k-means
CHUNK = 65536  # rows added at a time


def clusters_for(rows: int) -> int:
    """About 4 √rows cells, but never so many that a cell lacks training rows."""
    return int(max(1, min(4 * rows**0.5, rows / 39)))


def build_approximate(vectors: NDArray[np.int8], path: Path, seed: int = 0) -> int:
    """Cluster the rows, add them all, write the index; returns the number of cells to probe.

    Shape of vectors: (rows, dim).
    """
    faiss = _faiss()
    rows, dim = vectors.shape
    clusters = clusters_for(rows)
    picked = np.sort(np.random.default_rng(seed).choice(rows, min(rows, clusters * SAMPLES_PER_CLUSTER), replace=False))
    kmeans = faiss.Kmeans(dim, clusters, niter=10, seed=seed, min_points_per_centroid=1)
    kmeans.train(vectors[picked].astype(np.float32))
    nearest = faiss.IndexFlatL2(dim)
    nearest.add(kmeans.centroids)
    index = faiss.IndexIVFScalarQuantizer(
        nearest, dim, clusters, faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT, False
    )
    index.train(kmeans.centroids)
    for first in range(0, rows, CHUNK):
        index.add(vectors[first : first + CHUNK].astype(np.float32))
    steepest = faiss.IndexFlatIP(dim)
    steepest.add(kmeans.centroids)
    index.quantizer = steepest
    faiss.write_index(index, str(path))
    return max(1, clusters // 8)


class ApproximateIndex:
    """A memory-mapped inverted file; scores are exact for the rows that it finds."""

    def __init__(self, path: Path, probes: int) -> None:
        faiss = _faiss()
        try:
            self._index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise KnowledgeBaseError(
                f"index {path} is missing or damaged ({str(error)[:80]}…): build it again"
            ) from None
        self._index.nprobe = min(probes, self._index.nlist)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows, Floats]:
        """See `ExactIndex.search`; rows that were not found are -1, with score -inf."""
        scores, rows = self._index.search(np.ascontiguousarray(queries), k)
        return (
            np.where(rows < 0, -np.inf, scores).astype(np.float32),
            rows,
            np.zeros(len(queries), np.float32),
        )


def _faiss() -> Any:
    with contextlib.suppress(ImportError):
        import faiss  # only here: kbq works without it

        return faiss
    raise KnowledgeBaseError(
        'an approximate index needs faiss: install it with pip install "kbq[cpu]", or use --index exact'
    )
