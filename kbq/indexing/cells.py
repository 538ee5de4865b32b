"""Cells: an inverted file (faiss) over the rows of a shard, for those too many to multiply with every query.

Cells are L2 clusters; a query probes those whose means have the largest inner products with it. faiss's own default for
inner products, unit centroids, loses half the recall where the vectors' norms vary; so clusters are our own
(`clusters.py`), and faiss keeps and searches the cells.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kbq.errors import KnowledgeBaseError
from kbq.indexing.candidates import Candidates, Floats, Rows, from_hits
from kbq.indexing.clusters import Clusters, Values
from kbq.indexing.dump import Shard
from kbq.indexing.products import float_products

Codec = Literal["int8", "4 bit"]
LEAST_HITS = 50  # starts and ends asked for, or more: the ten best phrases stand above the bound of so many
SAMPLES_PER_CLUSTER = 40  # rows seen by k-means
CODEC_SAMPLES = 50_000  # rows that show the codec where values lie
CHUNK = 65536  # rows added at a time
LEAST_SAMPLES = 16  # values that four bits tell apart: faiss wants to be shown as many rows


def clusters_for(rows: int) -> int:
    """About 4 √rows cells, but never so many that a cell lacks training rows."""
    return int(max(1, min(4 * rows**0.5, rows / 39)))


def build_cells(path: Path, rows: Rows, take: Callable[[Rows], Values], codec: Codec, seed: int = 0) -> None:
    """Cluster these rows, add them under their numbers, write the index, in one step.

    Args:
        take: the vectors of the rows asked for, as they are to be stored. Shapes: (rows,), (rows, dim).
        codec: the dump's int8 values as they are, or four bits for each value of what a vector has more than its cell's
            mean, in blocks that are searched within registers (fast scan, arXiv 1704.07355).

    Raises:
        KnowledgeBaseError: faiss is not installed, or cannot write the file.
    """
    faiss = _faiss()
    count = clusters_for(len(rows))
    random = np.random.default_rng(seed)
    sample = take(np.sort(random.choice(rows, min(len(rows), count * SAMPLES_PER_CLUSTER), replace=False)))
    clusters = Clusters.of(sample, count, seed)
    index = _empty(clusters, sample, codec, random)
    for first in range(0, len(rows), CHUNK):
        numbers = rows[first : first + CHUNK]
        vectors = take(numbers)
        nearest, added = clusters.nearest(vectors), vectors.astype(np.float32)
        index.add_core(len(numbers), *(faiss.swig_ptr(array) for array in (added, numbers, nearest)))
    steepest = faiss.IndexFlatIP(index.d)  # what is probed; it must live until the index is written
    steepest.add(clusters.means)
    index.quantizer = steepest
    _write(faiss.IndexIVFPQFastScan(index) if codec == "4 bit" else index, path)


def _empty(clusters: Clusters, sample: Values, codec: Codec, random: np.random.Generator) -> Any:
    """An index that has these cells and knows how to write down rows like these, but holds none. Shape: (rows, dim)."""
    faiss = _faiss()
    count, dim = clusters.means.shape
    closest = faiss.IndexFlatL2(dim)
    closest.add(clusters.means)
    if codec == "4 bit":
        index = faiss.IndexIVFPQ(closest, dim, count, dim, 4, faiss.METRIC_INNER_PRODUCT)
        index.by_residual = True
        index.pq.cp.min_points_per_centroid = 1
    else:
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        index = faiss.IndexIVFScalarQuantizer(closest, dim, count, kind, faiss.METRIC_INNER_PRODUCT, False)
    shown = random.choice(sample, min(len(sample), CODEC_SAMPLES), replace=False)
    index.train(np.resize(shown, (max(len(shown), LEAST_SAMPLES), dim)).astype(np.float32))
    return index


def _write(index: Any, path: Path) -> None:
    partial = path.with_name(path.name + ".tmp")
    try:
        _faiss().write_index(index, str(partial))
    except RuntimeError as error:  # faiss has no error of its own for a full disk
        reason = str(error).rpartition(": ")[2].strip()
        raise KnowledgeBaseError(
            f"{partial} cannot be written ({reason}): make room; the same command goes on where it stopped"
        ) from None
    partial.replace(path)


class Cells:
    """An inverted file: int8 values are memory-mapped, four bits are read into memory."""

    def __init__(self, path: Path, probes: int) -> None:
        """`probes`: cells looked at for one query."""
        self._faiss = _faiss()
        try:
            self._index: Any = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise KnowledgeBaseError(
                f"index {path} is missing or damaged ({str(error)[:80]}…): build it again with `kbq index`"
            ) from None
        self._probes = probes

    def search(self, queries: Floats, k: int) -> Rows:
        """The k best rows in the cells that are probed, best first; -1 where these hold fewer.

        A search for many of the rows looks at as large a share of the cells: at full depth, at all of them.
        Shapes: (queries, dim), (queries, k).
        """
        if isinstance(self._index, self._faiss.IndexIVFScalarQuantizer):
            # faiss multiplies these codes with whole numbers only: a query of small values would be all zeros.
            queries = np.rint(queries * (127 / np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30)))
        cells, rows = self._index.nlist, self._index.ntotal
        probes = min(cells, max(self._probes, -(-cells * k // rows)))
        _, found = self._index.search(queries, min(k, rows), params=self._faiss.SearchParametersIVF(nprobe=probes))
        return np.asarray(found)


def candidates_at(shard: Shard, queries: Floats, rows: Rows, k: int, bonus: Floats | None) -> list[Candidates]:
    """The paragraphs of the k best of the rows found, by their exact scores, or of the k best bonuses; see `Index`.

    Shapes: queries (start vectors over end vectors, dim), rows (the same, hits), bonus (queries, paragraphs).
    """
    hits = [_rescored(shard, query, found, k) for query, found in zip(queries, rows, strict=True)]
    half = len(hits) // 2
    extra = [None] * half if bonus is None else bonus
    sides = zip(hits[:half], hits[half:], extra, strict=True)
    return [from_hits(shard, of_start, of_end, k, own) for of_start, of_end, own in sides]


def _rescored(shard: Shard, query: Floats, rows: Rows, k: int) -> tuple[Floats, Rows]:
    """The k best of the rows found, with their exact scores. Shapes: (dim,), (rows,), twice (k,) or fewer."""
    rows = rows[rows >= 0]
    scores = float_products(shard.vectors, rows, query[None])[:, 0]
    best = np.argsort(-scores, kind="stable")[:k]
    return scores[best], rows[best]


def _faiss() -> Any:
    with contextlib.suppress(ImportError):
        import faiss  # only here: kbq works without it

        # Queries in older versions, queries × dim in newer ones, whose own value makes probing seven times slower.
        faiss.cvar.distance_compute_blas_threshold = 20
        return faiss
    raise KnowledgeBaseError('this index needs faiss: install it with pip install "kbq[cpu]", or use --index exact')
