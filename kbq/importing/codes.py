"""Codes: search the product-quantised vectors of an index of DensePhrases as they are.

    official/              index.faiss       a link to the official file; nothing in it is changed
                           layout.json       where in that file rotation, means, centroids and lists
                           are
                           lists.npy         i64 [lists, 2]  first byte and number of codes of each
                           list
                           runs.npy          i64 [runs, 2]   first id and first row, counted over
                           all shards, of a run
    shard-00000/official/  places.npy        i64 [rows]      first byte of the code of each row

A vector is (mean of its list + centroids of its code) · rotation. A score needs no vector: the
rotated query is multiplied with all centroids once, and the products that a code names are added
up. faiss finds the best codes in the lists that are probed, for the start and for the end of a
phrase; each is paired with the best end, or the best start, within reach in its paragraph. Source:
arXiv 1401.4082 and the code of faiss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from kbq.array_types import Bools, Doubles, Floats, Rows
from kbq.dump.manifest import IMPORTED, LINK, IndexEntry, Manifest
from kbq.dump.shards import PhraseLimit, Shard, open_array
from kbq.errors import KnowledgeBaseError
from kbq.index import gpu_codes
from kbq.index.base import KnowledgeBaseSize, ShardGroup, ranges
from kbq.index.cells import CellIndex, Cells, Hits, load_faiss
from kbq.index.inner_products import rounded_for_exact_sums
from kbq.storage.machine import available_memory, expect_random_access, map_file, stays_in_memory
from kbq.storage.reading import reading_from
from kbq.storage.records import read_record

LAYOUT = "layout.json"
LISTS = "lists.npy"
RUNS = "runs.npy"
PLACES = "places.npy"
FORMAT = 1
CENTROIDS = 256  # centroids that a byte of a code tells apart
TABLES = 256  # query vectors whose tables are kept
AGAIN = "import the index again with `kbq import index`"
Size = Annotated[int, Meta(ge=1)]
Place = Annotated[int, Meta(ge=0)]

PROBES = 256  # lists that the official search probes, whatever it is asked for


@dataclass(frozen=True, slots=True)
class CodesLayout:
    """Where the parts of an `index.faiss` begin, in bytes, and their sizes; all numbers are
    float32, by row.
    """

    dim: Size
    code_bytes: Size  # size of a vector; each byte stands for dim / code_bytes dimensions
    lists: Size
    vectors: Place
    rotation: Place  # (dim, dim): x is rotated to rotation · x
    means: Place  # means of the lists: (lists, dim)
    centroids: Place  # (code_bytes, CENTROIDS, dim / code_bytes)
    codes: Place  # codes of all lists: those of a list, then their ids
    bytes: Size  # size of the file
    step: float = 1.0  # step of a row, as the model has it
    offset: float = 0.0  # what the value 0 of a row stands for


class Codes:
    """The codes of all shards of a knowledge base, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Open the folder `official` of a knowledge base. Raises KnowledgeBaseError if a file is
        missing or damaged.
        """
        with reading_from(folder, KnowledgeBaseError, AGAIN):
            self.layout = layout = read_record(folder / LAYOUT, CodesLayout, FORMAT)
            self.lists = open_array(folder / LISTS, np.int64, 2)
            self.runs = open_array(folder / RUNS, np.int64, 2)
            self.path = folder / LINK
            size = self.path.stat().st_size
            if size != layout.bytes:
                raise ValueError(f"index.faiss has {size:,} of {layout.bytes:,} bytes")
            self._refuse_misfits()
            self._bytes = map_file(self.path)
            expect_random_access(self._bytes.ctypes.data, self._bytes.nbytes)
            self.rotation = self._floats(layout.rotation, layout.dim, layout.dim).copy()
            self.means = self._floats(layout.means, layout.lists, layout.dim)
            self.centroids = self._floats(
                layout.centroids, layout.code_bytes, CENTROIDS, layout.dim // layout.code_bytes
            ).copy()

        # Offsets of the products with each byte's centroids.
        self._begins = CENTROIDS * np.arange(layout.code_bytes)
        self._tables = lru_cache(TABLES)(self._tables_of)

    def _refuse_misfits(self) -> None:
        """Raise ValueError unless every list lies within the file: faiss believes what it is told
        of them.
        """
        # A code and its id.
        layout = self.layout
        entry = self.layout.code_bytes + 8
        if (
            self.lists.shape != (layout.lists, 2)
            or self.runs.shape[1] != 2
            or layout.dim % layout.code_bytes
        ):
            raise ValueError("its files do not belong together")
        begins, counts = self.lists.T
        if not ((begins >= 0) & (counts >= 0) & (counts <= (layout.bytes - begins) // entry)).all():
            raise ValueError("a list is not within index.faiss")

    def _floats(self, begin: int, *shape: int) -> Floats:
        size = 4 * math.prod(shape)
        floats: Floats = self._bytes[begin : begin + size].view(np.float32).reshape(shape)
        return floats

    def _tables_of(self, query: bytes) -> tuple[Doubles, Doubles]:
        """Return a rotated query, and its products with all centroids. Shapes: (dim,), (code bytes
        × CENTROIDS,).
        """
        vector = np.frombuffer(query, np.float64) / self.layout.step
        rotated = self._rotation @ vector
        table: Doubles = (self.centroids * rotated.reshape(self.layout.code_bytes, 1, -1)).sum(
            axis=2
        )
        return rotated, table.ravel()

    @cached_property
    def _rotation(self) -> Doubles:
        return self.rotation.astype(np.float64)

    def inner_products(self, places: Rows, queries: Doubles) -> Floats:
        """Return the inner products of rows, whose codes are at these places, with queries in the
        units of rows.

        Each is a sum of the same terms in the same order, whatever rows are asked for beside it.
        Shapes: (rows,), (queries, dim), result (rows, queries).
        """
        named, numbers = np.unique(self._list_of(places), return_inverse=True)
        means = self.means[named]
        terms = self._codes_at(places) + self._begins
        products = np.empty((len(places), len(queries)), np.float32)
        for column, query in enumerate(queries):
            rotated, table = self._tables(query.tobytes())
            constant = self.layout.offset / self.layout.step * float(query.sum())
            coarse = (means * rotated).sum(axis=1)[numbers]
            products[:, column] = coarse + table.take(terms).sum(axis=1) - constant
        return products

    def vectors_at(self, places: Rows) -> Floats:
        """Return the vectors of rows, in the units of rows. Shapes: (rows,), (rows, dim)."""
        codes = self._codes_at(places)
        residuals = self.centroids[np.arange(codes.shape[1]), codes].reshape(len(places), -1)
        vectors = (self.means[self._list_of(places)] + residuals) @ self.rotation
        return ((vectors - self.layout.offset) / self.layout.step).astype(np.float32)

    def _codes_at(self, places: Rows) -> NDArray[np.uint8]:
        """Return the code of each row. Shape: (rows, code bytes)."""
        every = np.lib.stride_tricks.sliding_window_view(self._bytes, self.layout.code_bytes)
        try:
            codes: NDArray[np.uint8] = every[places]
        except IndexError:
            raise KnowledgeBaseError(
                f"the places of codes are not within {self.path}: {AGAIN}"
            ) from None
        return codes

    def _list_of(self, places: Rows) -> Rows:
        """Return the list in which each code is; of lists that begin at the same byte, all but the
        last are empty.
        """
        numbers: Rows = np.searchsorted(self.lists[:, 0], places, side="right") - 1
        return numbers

    def rows_of(self, ids: Rows) -> Rows:
        """Return the row of each id of the index, counted over all shards. Shape: (ids,)."""
        return in_runs(ids, self.runs)

    def shown_ids(self, shown: Bools) -> Bools:
        """Return whether the vector of each id may be found. Shapes: (rows of all shards,), (ids,)."""
        by_row = self.runs[np.argsort(self.runs[:, 1], kind="stable")][:, ::-1]
        ids = in_runs(np.flatnonzero(shown), by_row)
        bits = np.zeros(int(ids.max(initial=-1)) + 1, bool)
        bits[ids] = True
        return bits


def in_runs(numbers: Rows, runs: Rows) -> Rows:
    """Return the number that corresponds to each one, by runs: first numbers, in order, and what
    these become.
    """
    run = np.searchsorted(runs[:, 0], numbers, side="right") - 1
    found: Rows = runs[run, 1] + numbers - runs[run, 0]
    return found


class CodedShard(Shard):
    """A shard without vectors of its own."""

    def __init__(self, folder: Path, deleted: str, limit: PhraseLimit, codes: Codes) -> None:
        """Open a shard; `codes` are those of the knowledge base. Raises KnowledgeBaseError; see
        `Shard`.
        """
        self.codes = codes
        super().__init__(folder, deleted=deleted, limit=limit)

    def _open_vectors(self) -> tuple[int, int]:
        rows = len(open_array(self.folder / "positions.npy"))
        self._places: Rows = (
            open_array(self.folder / IMPORTED / PLACES, np.int64) if rows else np.empty(0, np.int64)
        )
        return len(self._places), self.codes.layout.dim

    @property
    def vectors(self) -> NDArray[np.int8]:  # type: ignore[override]
        """There are none: what needs them is refused."""
        raise KnowledgeBaseError(codes_instead_of_vectors(self.folder.parent))

    def vectors_of(self, rows: Rows) -> Any:
        """Return the vectors of some rows, as far as their codes tell. Shapes: (rows,), (rows,
        dim).
        """
        return self.codes.vectors_at(self._places[rows])

    def inner_products(self, rows: Rows, queries: Floats | Doubles) -> Floats:
        """See `Shard`."""
        return self.codes.inner_products(self._places[rows], queries.astype(np.float64))


def open_shards(folder: Path, manifest: Manifest) -> list[CodedShard]:
    """Open the shards of a knowledge base, in order. Raises KnowledgeBaseError if a file is missing
    or damaged.
    """
    codes = Codes(folder / IMPORTED)
    return [
        CodedShard(folder / entry.name, entry.deleted, manifest.phrases, codes)
        for entry in manifest.shards
    ]


def codes_instead_of_vectors(folder: Path) -> str:
    """Say why a knowledge base that was imported from an index alone can do less."""
    return (
        f"{folder} was imported from an index of DensePhrases and has its codes instead of "
        "vectors, so it is searched with that index only, on one machine, and nothing can be "
        "added to it: import the phrase dump for that, with `kbq import dump`"
    )


def codes_for_gpu(shards: Sequence[Shard], entry: IndexEntry) -> gpu_codes.Codes:
    """Describe the one inverted file of all shards, which lies on one GPU."""
    codes = _codes_of(shards)
    layout = codes.layout

    def opens() -> tuple[Any, Floats]:
        return _faiss_index(codes), codes.rotation.T

    file = gpu_codes.CodeFile(layout.vectors, layout.lists, opens, _shown_ids(shards, codes))
    packing = gpu_codes.Packing(1, layout.code_bytes, 8)
    return gpu_codes.Codes({0: file}, packing, layout.dim, layout.dim, entry.probes)


def _codes_of(shards: Sequence[Shard]) -> Codes:
    return next(shard.codes for shard in shards if isinstance(shard, CodedShard))


def _shown_ids(shards: Sequence[Shard], codes: Codes) -> Bools | None:
    """Whether the vector of each id may be found, or None if all may. Shape: (ids,)."""
    if all(shard.shown is None for shard in shards):
        return None
    return codes.shown_ids(np.concatenate([shard.shown_rows() for shard in shards]))


def open_official(
    shards: Sequence[Shard], entry: IndexEntry, on_gpu: gpu_codes.GpuCells | None = None
) -> CellIndex:
    """Open the codes of all shards of a knowledge base; on a CPU, unless they have been copied to a
    GPU.
    """
    codes = _codes_of(shards)
    if on_gpu is not None:
        return OfficialIndex(shards, codes, on_gpu)
    need = codes.means.nbytes
    free = available_memory()
    if need > free:
        raise KnowledgeBaseError(
            f"the official index needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are "
            "free: end other programs, or use a machine with more"
        )

    shown = _shown_ids(shards, codes)
    stay = stays_in_memory(codes.layout.bytes)
    return OfficialIndex(
        shards, codes, Cells(_faiss_index(codes), entry.probes, codes.rotation.T, stay, shown)
    )


class OfficialIndex(CellIndex):
    """One inverted file of the rows of all shards, which are therefore searched as one group."""

    def __init__(
        self, shards: Sequence[Shard], codes: Codes, cells: Cells | gpu_codes.GpuCells
    ) -> None:
        super().__init__(shards, (), overfetch=1, whole=KnowledgeBaseSize.of(shards))
        self._codes = codes
        self._all_cells = cells
        # The first row of each shard.
        self._begins = np.cumsum([0, *(len(shard) for shard in shards)])

    @cached_property
    def groups(self) -> list[ShardGroup]:
        """See `Index`."""
        return [ShardGroup(0, self._shards, self)]

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """Find the k best rows for each query vector; fewer if the probed lists hold fewer. Shape:
        (vectors, dim).
        """
        *_, ids = self._all_cells.search(queries, k)
        hits = []
        for query, found in zip(rounded_for_exact_sums(queries), ids, strict=True):
            rows = self._codes.rows_of(found[found >= 0])
            if len(rows) and not 0 <= rows.min() <= rows.max() < self._begins[-1]:
                raise KnowledgeBaseError(
                    f"{self._codes.path} names rows that the knowledge base lacks: {AGAIN}"
                )
            shards: Rows = np.searchsorted(self._begins, rows, side="right") - 1
            hits.append(self._rescored(query, shards, rows - self._begins[shards], k))
        return hits

    def _rows_near(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the rows that are hits for a start, and those from which a phrase may end at a hit
        for an end.

        Other rows of the paragraphs would each be a read from another place of a file that memory
        may not hold.
        """
        first, last = (side.rows[side.shards == number] for side in sides)
        ending = np.sort(last)
        before = ranges(np.maximum(ending - self._shards[number].limit.rows + 1, 0), ending + 1)
        return np.unique(np.concatenate([first, before]))


def _faiss_index(codes: Codes) -> Any:
    """Return an index of faiss over the lists in the official file, which stays on the disk."""
    faiss = load_faiss()
    layout = codes.layout
    means = faiss.IndexFlatIP(layout.dim)
    means.add(np.ascontiguousarray(codes.means))
    index = faiss.IndexIVFPQ(
        means, layout.dim, layout.lists, layout.code_bytes, 8, faiss.METRIC_INNER_PRODUCT
    )
    index.by_residual = True
    index.is_trained = True
    index.ntotal = layout.vectors
    faiss.copy_array_to_vector(codes.centroids.ravel(), index.pq.centroids)
    lists = faiss.OnDiskInvertedLists()
    lists.nlist = layout.lists
    lists.code_size = layout.code_bytes
    lists.read_only = True
    lists.filename = str(codes.path)
    lists.totsize = layout.bytes
    begins = codes.lists[:, 0]
    sizes = codes.lists[:, 1]
    places = np.stack([sizes, sizes, begins], axis=1).astype(np.uint64)
    lists.lists.resize(layout.lists)  # size, capacity and first byte of each list
    faiss.memcpy(lists.lists.data(), faiss.swig_ptr(places), places.nbytes)
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()  # the index owns them now
    index.own_fields = True
    means.this.disown()

    return index
