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
from kbq.indexing.candidates import MAX_TOKENS, Candidates, Floats, Rows, ranges

SAMPLES_PER_CLUSTER = 64  # rows seen by k-means
CHUNK = 65536  # rows added at a time


def clusters_for(rows: int) -> int:
    """About 4 √rows cells, but never so many that a cell lacks training rows."""
    return int(max(1, min(4 * rows**0.5, rows / 39)))


def probes_for(rows: int) -> int:
    """Cells to look at for one query: an eighth of them."""
    return max(1, clusters_for(rows) // 8)


def build_approximate(vectors: NDArray[np.int8], path: Path, seed: int = 0) -> None:
    """Cluster the rows, add them all, write the index, in one step.

    Shape of vectors: (rows, dim).

    Raises:
        KnowledgeBaseError: faiss is not installed, or cannot write the file.
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
    partial = path.with_name(path.name + ".tmp")
    try:
        faiss.write_index(index, str(partial))
    except RuntimeError as error:  # faiss has no error of its own for a full disk
        reason = str(error).rpartition(": ")[2].strip()
        raise KnowledgeBaseError(
            f"{partial} cannot be written ({reason}): make room; the same command goes on where it stopped"
        ) from None
    partial.replace(path)


class ApproximateIndex:
    """A memory-mapped inverted file; scores are exact for the rows that it finds."""

    def __init__(self, path: Path, probes: int, paragraph_rows: Rows) -> None:
        """`paragraph_rows`: the first row behind each paragraph. Shape: (paragraphs,)."""
        faiss = _faiss()
        try:
            self._index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise KnowledgeBaseError(
                f"index {path} is missing or damaged ({str(error)[:80]}…): build it again"
            ) from None
        self._paragraph_rows = paragraph_rows
        self._index.nprobe = min(probes, self._index.nlist)

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Floats | None = None) -> list[Candidates]:
        """The k best starts, and the rows before the k best ends, of the cells that are probed; see `Index`.

        All rows of the k paragraphs with the largest bonus, too.
        """
        total = self._index.ntotal
        scores, rows = self._index.search(np.concatenate([starts, ends]), min(k, total))
        found = []
        for query in range(len(starts)):
            start, end = query, len(starts) + query
            likely_starts, likely_ends = rows[start][rows[start] >= 0], rows[end][rows[end] >= 0]
            before_ends = (likely_ends[:, None] - np.arange(MAX_TOKENS)).ravel()
            both = np.unique(np.concatenate([likely_starts, before_ends[before_ends >= 0]]))
            bound = sum(float(scores[side, -1]) if rows[side, -1] >= 0 else -np.inf for side in (start, end))
            if bonus is not None:
                of_best, largest_other = self._rows_of_best(bonus[query], k)
                both, bound = np.union1d(both, of_best), bound + largest_other
            found.append(Candidates(both, -np.inf if k >= total else bound))
        return found

    def _rows_of_best(self, bonus: Floats, k: int) -> tuple[Rows, float]:
        """All rows of the k paragraphs with the largest bonus, and the largest of the other paragraphs' bonuses."""
        if k >= len(bonus):
            return np.arange(self._index.ntotal), -np.inf
        order = np.argpartition(-bonus, k)
        best = np.sort(order[:k])
        begins = np.where(best > 0, self._paragraph_rows[best - 1], 0)
        return ranges(begins, self._paragraph_rows[best]), float(bonus[order[k]])


def _faiss() -> Any:
    with contextlib.suppress(ImportError):
        import faiss  # only here: kbq works without it

        return faiss
    raise KnowledgeBaseError(
        'an approximate index needs faiss: install it with pip install "kbq[cpu]", or use --index exact'
    )
