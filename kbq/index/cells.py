"""Cells: an inverted file (faiss) for each shard, in which a query is compared with the rows of its
nearest cells.

Cells are L2 clusters. A query probes those whose means have the largest inner products with it.
faiss's default for inner products, unit centroids, loses half of the recall if the norms of vectors
vary, so `Clusters` does the k-means, and faiss stores and searches the cells.

Hits to rescore are chosen among all shards of a search and would depend on what is searched
together. So searches take `groups` of shards, which depend on nothing but the size of the knowledge
base.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Bools, Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError, first_line, is_out_of_memory
from kbq.index.base import CPU, Bonus, Candidates, KnowledgeBaseSize, ShardGroup, everything, ranges
from kbq.index.inner_products import has_fast_int8, int8_products, rounded_for_exact_sums
from kbq.storage.machine import expect_random_access, prefetch
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.writing import RESUMES, replacing

Values = Floats | NDArray[np.int8]
ROUNDS = 10  # rounds of k-means
COMPARED = 4096  # rows converted to float32 at a time
SCORES = 2**18  # scores of rows with means, computed at a time on a CPU: they fit in a core's cache
SCORES_CUDA = 2**27  # the same on a GPU: half a GB
SAMPLES_PER_CLUSTER = 40  # rows that k-means is trained on
CODEC_SAMPLES = 50_000  # rows that the codec is trained on
# Bits of a query and its rotation: their products, and sums of 2^13 dimensions, are exact.
ROTATED_BITS = 20
LEAST_SAMPLES = 16  # values of a four-bit code: faiss requires at least as many rows to train it on
CHUNK = 65536  # rows added at a time
NUMBER_BYTES = 8  # bytes of a row's number, which stands with its code
# Bytes of cells, about, prefetched at a time: more might evict each other from memory.
PREFETCHED = 2**27

MOST_HITS = 2**22  # hits of the queries that are searched together, before rescoring: about 130 MB
# starts, and ends, to find in all groups: the ten best phrases score above the bound of these.
LEAST_HITS = 50


def clusters_for(rows: int) -> int:
    """Return the number of cells: about 4 √rows, or as many as k-means has rows for."""
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

    Clusters are of unrotated vectors even if rotated ones are stored, as several times as many
    clusters of rotated vectors must be probed for the same recall.

    Args:
        vectors: of the dump. Shape: (all, dim).
        rows: numbers of the vectors to index. Shape: (rows,).
        rotation: by default, the int8 vectors are stored. With a rotation, the rotated vectors,
            less their cells' means, are stored in product codes of four bits (fast scan, arXiv
            1704.07355). Shape: (dim, kept).
        together: how many rotated values share a code.
        device: where rows are compared with means.
    """
    faiss = load_faiss()
    count = clusters_for(len(rows))
    random = np.random.default_rng(0)
    sample = random.choice(rows, min(len(rows), count * SAMPLES_PER_CLUSTER), replace=False)
    stage = Stage(report, "rows compared with cells", ROUNDS * len(sample) + len(rows))
    clusters = Clusters.of(vectors[np.sort(sample)], count, device=device, report=stage.add)
    means = _rotated(clusters.means, rotation)
    # Finds the cells to probe; must not be freed before the index.
    quantizer = faiss.IndexFlatIP(means.shape[1])
    quantizer.add(means)
    if rotation is None:
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        index = faiss.IndexIVFScalarQuantizer(
            quantizer, quantizer.d, count, kind, faiss.METRIC_INNER_PRODUCT, False
        )
    else:
        index = faiss.IndexIVFPQ(
            quantizer, quantizer.d, count, quantizer.d // together, 4, faiss.METRIC_INNER_PRODUCT
        )
        index.by_residual = True
        codec_sample = vectors[
            random.choice(sample, min(len(sample), CODEC_SAMPLES), replace=False)
        ]
        residuals = _rotated(codec_sample, rotation) - means[clusters.nearest(codec_sample)]
        index.pq.cp.min_points_per_centroid = 1
        index.pq.train(np.resize(residuals, (max(len(residuals), LEAST_SAMPLES), quantizer.d)))

    index.is_trained = True
    for first in range(0, len(rows), CHUNK):
        numbers = rows[first : first + CHUNK]
        part = vectors[numbers]
        nearest = clusters.nearest(part)
        values = _rotated(part, rotation)
        index.add_core(
            len(numbers), *(faiss.swig_ptr(array) for array in (values, numbers, nearest))
        )
        stage.add(len(numbers))

    if rotation is not None:
        index = faiss.IndexIVFPQFastScan(index)
    _write(index, path)


def _rotated(rows: Values, rotation: Floats | None) -> Floats:
    """Rows or means as they are stored, before rounding. Shapes: (rows, dim), (rows, kept or dim)."""
    as_floats = rows.astype(np.float32)
    if rotation is None:
        return as_floats
    return as_floats @ rotation


def _write(index: Any, path: Path) -> None:
    """Write an index of FAISS whole or not at all."""
    with replacing(path) as partial:
        try:
            load_faiss().write_index(index, str(partial))
        except RuntimeError as error:  # the reason comes last, in brackets or after a colon
            reason = re.split(r": |\(", str(error))[-1].strip(" )")
            raise KnowledgeBaseError(
                f"{path} cannot be written ({reason}): free disk space; {RESUMES}"
            ) from None


def read_cells(path: Path) -> Any:
    """Map the int8 vectors, or read the four-bit codes, of the index that `build_cells` wrote.

    Raises KnowledgeBaseError if faiss is not installed, or the file is missing or damaged.
    """
    faiss = load_faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise KnowledgeBaseError(
            f"index {path} is missing or damaged ({str(error)[:80]}…): build it again with `kbq "
            "index vectors`"
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
            stay: mapped cells stay in memory once read, so that they need no prefetching.
            shown: whether each number may be found; by default all may. Shape: (all,).
        """
        self._faiss = load_faiss()
        self._index = index
        self._probes = probes
        self._rotation = (
            None
            if rotation is None
            else rounded_for_exact_sums(rotation.reshape(1, -1), ROTATED_BITS).reshape(
                rotation.shape
            )
        )
        self._findable = self._index.ntotal
        self._selector: Any = None
        if shown is not None:
            self._findable = min(self._findable, int(shown.sum()))
            self._bits = np.packbits(shown, bitorder="little")  # faiss reads them where they are
            # Faiss compares a number's byte with this size: a count of bits would be read beyond.
            self._selector = self._faiss.IDSelectorBitmap(
                len(self._bits), self._faiss.swig_ptr(self._bits)
            )

        self._prefetched: Any = None  # the inverted lists
        lists = self._faiss.downcast_InvertedLists(self._index.invlists)
        if hasattr(lists, "prefetch_nthread"):  # mapped
            # Faiss would start 32 threads for each search, which takes as long as it.
            lists.prefetch_nthread = 0
            if not stay:
                self._prefetched = lists
                expect_random_access(int(lists.ptr), lists.totsize)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """Return the scores, by codes, and numbers of the k best rows in the probed cells, or -1
        where there are fewer.

        To find a share of the rows, at least the same share of the cells is probed.
        Shapes: queries (queries, dim), results (queries, k or the number of rows).
        """
        if self._rotation is not None:
            queries = (rounded_for_exact_sums(queries, ROTATED_BITS) @ self._rotation).astype(
                np.float32
            )
        else:  # faiss multiplies int8 codes with integers only: a query of small values would become zero
            queries = np.rint(
                queries * (127 / np.abs(queries).max(axis=1, keepdims=True).clip(min=1e-30))
            )

        cells = self._index.nlist
        rows = max(1, self._findable)
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

    def reconstructed(self, numbers: Rows) -> Floats:
        """Return the vectors that codes stand for: their products with queries are the scores by
        codes, unrounded.

        Rows that the index leaves out are NaN. Shapes: numbers (rows,), result (rows, dim).
        """
        cells, places = self._places
        is_known = numbers < len(cells)
        is_known[is_known] = cells[numbers[is_known]] >= 0
        kept = np.full((len(numbers), self._index.d), np.nan, np.float32)
        known = numbers[is_known]
        means = self._index.quantizer.reconstruct_batch(cells[known])
        centroids = self._faiss.vector_to_array(self._index.pq.centroids).reshape(
            self._index.M, -1, self._index.pq.dsub
        )
        codes = self._codes_at(cells[known], places[known])
        kept[is_known] = means + centroids[np.arange(self._index.M), codes].reshape(means.shape)
        if self._rotation is None:
            return kept
        return (kept @ self._rotation.T).astype(np.float32)

    def _codes_at(self, cells: Rows, places: Rows) -> NDArray[np.uint8]:
        """Read four-bit codes. faiss packs 32 rows in a block, of which row r and r + 16 share a
        byte.

        Shapes: cells and places in them (rows,), result (rows, values).
        """
        values = self._index.M2
        lists = self._index.invlists
        packed: NDArray[np.uint8] = np.empty((len(cells), values), np.uint8)
        byte = places % 8 * 2 + places % 16 // 8

        for cell in np.unique(cells).tolist():
            blocks = -(-lists.list_size(cell) // 32)
            own = self._faiss.rev_swig_ptr(lists.get_codes(cell), blocks * values * 16).reshape(
                blocks, values, 16
            )
            here = np.flatnonzero(cells == cell)
            packed[here] = own[places[here] // 32, :, byte[here]]

        is_high = places % 32 >= 16
        codes: NDArray[np.uint8] = np.where(is_high[:, None], packed >> 4, packed & 15)
        return codes[:, : self._index.M]

    @cached_property
    def _places(self) -> tuple[Rows, Rows]:
        """The cell of each number, or -1, and its place there. Shapes: (numbers,)."""
        lists = self._index.invlists
        ids = [
            self._faiss.rev_swig_ptr(lists.get_ids(cell), lists.list_size(cell))
            if lists.list_size(cell)
            else ()
            for cell in range(self._index.nlist)
        ]
        sizes = np.array([len(of_cell) for of_cell in ids])
        numbers = np.concatenate([np.asarray(of_cell, np.int64) for of_cell in ids])
        cells = np.full(int(numbers.max(initial=-1)) + 1, -1)
        places = np.zeros_like(cells)
        cells[numbers] = np.repeat(np.arange(len(ids)), sizes)
        places[numbers] = ranges(np.zeros_like(sizes), sizes)
        return cells, places

    def _prefetch(self, queries: Floats, probes: int) -> None:
        """Have the system read all cells that these queries will probe."""
        _, cells = self._index.quantizer.search(queries, probes)
        begin = int(self._prefetched.ptr)
        row_bytes = self._prefetched.code_size + NUMBER_BYTES
        for cell in np.unique(cells[cells >= 0]).tolist():  # a query of NaN probes none
            codes = self._prefetched.lists.at(cell)
            prefetch(begin + codes.offset, codes.capacity * row_bytes)


def load_faiss() -> Any:
    """Import faiss, which exact search does without. Raises KnowledgeBaseError if it cannot be
    loaded.
    """
    try:
        import faiss  # only here
    except ImportError as error:  # it is not installed, or does not fit this NumPy
        raise KnowledgeBaseError(
            f"this index needs faiss ({first_line(error)}): install it with pip install "
            "faiss-cpu, or use exact search"
        ) from None
    # With more queries, or queries × dim, than this, faiss would compare all of them with means in
    # one product.
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
        """Cluster at least `count` rows by k-means. An empty cluster restarts at a random row.
        Shape: (rows, dim).

        `report` is called with the number of rows after each of the ROUNDS.
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
        """Return the nearest cluster of each row by L2 distance. Shapes: (rows, dim), (rows,)."""
        most_scores = SCORES_CUDA
        if self._device.type == "cpu":
            most_scores = SCORES
        step = max(1, most_scores // len(self.means))
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        try:
            compare = self._compared
            if has_fast_int8(self._device):
                compare = self._compared_in_integers
            return (
                np.concatenate([compare(part) for part in parts])
                if parts
                else np.empty(0, np.int64)
            )
        except RuntimeError as error:
            if self._device.type == "cpu" or not is_out_of_memory(error):
                raise
            # Others use the GPU, too.
            return type(self)(self.means).nearest(rows)

    def _compared(self, rows: Values) -> Rows:
        floats, means, halves = (
            torch.from_numpy(values).to(self._device)
            for values in (rows.astype(np.float32), self.means, self._halves)
        )
        return _largest((floats @ means.T).sub_(halves))

    def _compared_in_integers(self, rows: Values) -> Rows:
        """‖x − c‖² = ‖x‖² − 2 (x·c − ½ ‖c‖²), in units of an int8 step of the rows times one of the
        means.
        """
        if rows.dtype == np.int8:
            unit = 1.0
            integers = rows
        else:
            unit = max(float(np.abs(rows).max()), 1e-30) / 127
            integers = np.rint(rows / unit).astype(np.int8)
        scores = int8_products(
            torch.from_numpy(integers).to(self._device), self._integers.to(self._device)
        )
        halves = torch.from_numpy(np.rint(self._halves / (unit * self._step)).astype(np.int32))
        return _largest(scores.sub_(halves.to(self._device)))


def _largest(scores: Tensor) -> Rows:
    """Return the argmax of each row; on a CPU, NumPy is several times as fast as PyTorch. Shape:
    (rows,).
    """
    return np.asarray(
        scores.numpy().argmax(axis=1) if scores.is_cpu else scores.argmax(dim=1).cpu().numpy()
    )


def _random_rows(rows: Values, count: int, random: np.random.Generator) -> Floats:
    picked = random.choice(len(rows), count, replace=False)
    return rows[picked].astype(np.float32)


def _sums(rows: Values, groups: Rows, count: int) -> Floats:
    """Return the sum of the rows of each group. Shapes: rows (rows, dim), groups (rows,), result
    (count, dim).
    """
    sums = torch.zeros(count, rows.shape[1])
    for first in range(0, len(rows), COMPARED):
        part = slice(first, first + COMPARED)
        sums.index_add_(0, torch.from_numpy(groups[part]), torch.from_numpy(rows[part]).float())
    return sums.numpy()


class Hits(NamedTuple):
    """Rows with their exact scores, best first. Shapes: (hits,)."""

    scores: Floats
    shards: Rows
    rows: Rows

    @property
    def least(self) -> np.float32:
        if len(self.scores):
            return np.float32(self.scores[-1])
        return np.float32(np.inf)


class Paragraphs(NamedTuple):
    """Paragraphs of a shard, and the scores that they add. Shapes: (paragraphs,)."""

    numbers: Rows
    bonus: Floats


class CellIndex:
    """An approximate index: it may miss rows, but all scores are exact."""

    def __init__(
        self,
        shards: Sequence[Shard],
        cells: Sequence[Cells | None],
        overfetch: int,
        whole: KnowledgeBaseSize | None = None,
    ) -> None:
        """Make an index of all shards, or of some groups of the `whole`. Shards without rows have
        no cells.

        `overfetch` hits are scored again for each hit that is wanted.
        """
        self._shards = shards
        self._cells = cells
        self._overfetch = overfetch
        if whole is None:
            self._whole = KnowledgeBaseSize.of(shards)
        else:
            self._whole = whole
        self._shown = sum(shard.count_shown() for shard in shards)

    @cached_property
    def groups(self) -> list[ShardGroup]:
        step = self._whole.together
        groups = []
        for first in range(0, len(self._shards), step):
            shards = self._shards[first : first + step]
            groups.append(ShardGroup(first, shards, self._within(first, shards)))
        return groups

    def _within(self, first: int, shards: Sequence[Shard]) -> "CellIndex":
        """Return the index of some of the shards, of which `first` is the number of the first."""
        cells = self._cells[first : first + len(shards)]
        return CellIndex(shards, cells, self._overfetch, self._whole)

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None
    ) -> list[list[Candidates]]:
        """Find all rows of paragraphs with one of the k best starts, ends or bonuses; see `Index`.

        Other good rows of these paragraphs may be in cells that were not probed.
        """
        rows = self._shown
        k = max(k, self._whole.share(LEAST_HITS, rows))
        paragraphs = sum(len(shard.paragraph_rows) for shard in self._shards)
        if (
            k >= rows
            or self._whole.are_few
            or (bonus is not None and k >= paragraphs)
            or not len(starts)
        ):
            return everything(self._shards, len(starts), bonus)

        queries = np.concatenate([starts, ends])
        together = max(1, MOST_HITS // (self._overfetch * k))
        parts = (queries[first : first + together] for first in range(0, len(queries), together))
        hits = list(chain.from_iterable(self._best_rows(part, k) for part in parts))
        sides = list(zip(hits[: len(starts)], hits[len(starts) :], strict=True))
        # The bounds hold for fewer than k hits, too, as a deeper search probes more cells and may
        # find more.
        worst = [(start.least, end.least) for start, end in sides]
        numbers = range(len(self._shards))
        if bonus is None:
            bounds = [at_most(*least) for least in worst]
            return [
                [
                    Candidates(self._rows_near(number, pair), bound)
                    for pair, bound in zip(sides, bounds, strict=True)
                ]
                for number in numbers
            ]

        near = [[self._around(number, pair) for pair in sides] for number in numbers]
        selections, limits = _with_best_bonuses(near, bonus, k)
        candidates: list[list[Candidates]] = []
        for shard, of_shard in zip(self._shards, selections, strict=True):
            of_queries: list[Candidates] = []
            for selection, pair, limit in zip(of_shard, worst, limits, strict=True):
                of_queries.append(_all_rows(shard, selection, at_most(*pair, limit)))
            candidates.append(of_queries)

        return candidates

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        return self._shards[shard].products(rows, query_of, queries)

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """Find the k best rows, or all in the probed cells, for each query vector. Shape: (vectors,
        dim).
        """
        shards, rows = self._best_codes(queries, self._overfetch * k)
        return [
            self._rescored(query, query_shards[is_row], query_rows[is_row], k)
            for query, query_shards, query_rows, is_row in zip(
                rounded_for_exact_sums(queries), shards, rows, rows >= 0, strict=True
            )
        ]

    def _best_codes(self, queries: Floats, count: int) -> tuple[Rows, Rows]:
        """Return the shards and numbers of the rows to score again, or -1. Shapes: (vectors, wanted
        or less).
        """
        scores: Floats = np.empty((len(queries), 0), np.float32)
        shards: Rows = np.empty((len(queries), 0), np.int64)
        rows = shards
        # Keeps at most `wanted` hits, plus those of one shard.
        for number, cells in enumerate(self._cells):
            if cells is None:
                continue
            new_scores, new_rows = cells.search(queries, count)
            scores = np.hstack([scores, np.where(new_rows < 0, -np.inf, new_scores)])
            shards = np.hstack([shards, np.full_like(new_rows, number)])
            rows = np.hstack([rows, new_rows])
            if scores.shape[1] > count:
                best = np.argpartition(-scores, count, axis=1)[:, :count]
                scores = np.take_along_axis(scores, best, axis=1)
                shards = np.take_along_axis(shards, best, axis=1)
                rows = np.take_along_axis(rows, best, axis=1)

        return shards, rows

    def _rescored(self, query: Doubles, shards: Rows, rows: Rows, k: int) -> Hits:
        """Return the k best of these rows, by exact scores. Shapes: query (dim,), shards and rows
        (rows,).
        """
        scores = np.empty(len(rows), np.float32)
        for number in np.unique(shards):
            in_shard = shards == number
            scores[in_shard] = self._shards[number].inner_products(rows[in_shard], query[None])[
                :, 0
            ]
        best = np.argsort(-scores, kind="stable")[:k]
        return Hits(scores[best], shards[best], rows[best])

    def _rows_near(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the rows of a shard to begin spans at, ascending: those of whole paragraphs with a
        hit.
        """
        return ranges(*self._shards[number].row_range(self._around(number, sides)))

    def _around(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the paragraphs of a shard in which rows were found."""
        rows = np.concatenate([side.rows[side.shards == number] for side in sides])
        return np.unique(self._shards[number].paragraphs_of(rows))


def at_most(start: np.float32, end: np.float32, bonus: float = 0.0) -> float:
    """Bound the score of a span by those of its start, its end and its bonus, rounded as
    `find_spans` rounds.

    A bound that is rounded otherwise may lie between a score and its rounded value, and that span
    would be lost.

    >>> at_most(np.float32(1), np.float32(1e-7)) > 1 + 1e-7
    True
    """
    return float((start + np.float32(bonus)) + end)


def _with_best_bonuses(
    near: Sequence[Sequence[Rows]], bonus: Bonus, k: int
) -> tuple[list[list[Paragraphs]], list[float]]:
    """Add the paragraphs with the k largest bonuses of all shards to those `near` hits, for each
    shard and query.

    Also return, for each query, a bonus that no other paragraph exceeds. Of equal bonuses, all or
    none are taken. There must be more than k paragraphs.
    """
    close = list[list[Paragraphs]]()
    largest = list[list[Paragraphs]]()
    for number, of_shard in enumerate(near):
        table = bonus[number]
        close.append(
            [
                Paragraphs(numbers, own[numbers])
                for numbers, own in zip(of_shard, table, strict=True)
            ]
        )
        largest.append([_with_largest(own, k + 1) for own in table])
        del table  # freed before the next is computed

    limits: list[float] = []
    for of_query in zip(*largest, strict=True):
        bonuses = np.sort(np.concatenate([best.bonus for best in of_query]))
        limits.append(float(bonuses[-k - 1]))

    pairs = zip(close, largest, strict=True)
    return [
        [_with_better(*each) for each in zip(*of_shard, limits, strict=True)] for of_shard in pairs
    ], limits


def _with_largest(bonuses: Floats, count: int) -> Paragraphs:
    """Return the paragraphs of a shard with the largest bonuses. Shape: (paragraphs,)."""
    is_long = len(bonuses) > count
    if is_long:
        best = np.argpartition(-bonuses, count - 1)[:count]
    else:
        best = np.arange(len(bonuses))
    return Paragraphs(best, bonuses[best])


def _with_better(near: Paragraphs, largest: Paragraphs, limit: float) -> Paragraphs:
    """Return the union, ascending, of `near` and of the paragraphs of `largest` with a bonus above
    the limit.
    """
    better = largest.bonus > limit
    numbers, first = np.unique(
        np.concatenate([near.numbers, largest.numbers[better]]), return_index=True
    )
    return Paragraphs(numbers, np.concatenate([near.bonus, largest.bonus[better]])[first])


def _all_rows(shard: Shard, paragraphs: Paragraphs, bound: float) -> Candidates:
    """Return every row of paragraphs as a candidate, with its bonus."""
    begins, stops = shard.row_range(paragraphs.numbers)
    return Candidates(ranges(begins, stops), bound, np.repeat(paragraphs.bonus, stops - begins))
