"""Shards: the memory-mapped parts of the phrase dump.

Source: arXiv 2012.12624, section 5.

There is a row for each token that the filter kept; its number identifies it in every index. A shard
holds whole pages, in files that docs/reference/formats.md lists. They never change once they are
sealed; deleted pages are named in a list beside them.
"""

import contextlib
import math
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import DTypeLike, NDArray

from kbq.answers import Answer
from kbq.array_types import Bools, Doubles, Floats, Rows
from kbq.corpus.pages import Page, Paragraph, stored_metadata
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.storage.machine import expect_random_access, map_file, prefetch
from kbq.storage.reading import reading_from
from kbq.storage.records import Summed, digest_of_bytes
from kbq.storage.seals import read_seal
from kbq.storage.writing import open_to_grow, replacing, sync_open

# Lists up to this size are checked in full; of longer ones, this many values at each end.
LOOKED_AT = 2**26
SOME = 2**16
HEADER = 128  # bytes; the length of NumPy's header for every array used here
# What it says of an array whose rows are stored one after the other. NumPy itself parses it as
# Python, which takes several times as long, and fails where other threads parse Python meanwhile.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00v\x00\{'descr': '([<>|](?:b1|[iu][1248]|f[248]))', 'fortran_order': False, "
    rb"'shape': \((\d*(?:, \d+)*),?\), \} *\n"
)

Types = dict[str, type[np.generic]]
PER_ROW: Types = {
    "positions": np.uint32,
    "starts": np.uint32,
    "ends": np.uint32,
    "logits": np.int8,
    "edges": np.uint8,
}
PER_PARAGRAPH: Types = {
    "rows": np.int64,
    "numbers": np.uint32,
    "pages": np.uint32,
    "tokens": np.uint32,
}
TEXTS = "texts", "ids", "titles", "metadata"
DIGEST_BYTES = 16
REPAIR = "restore it from a copy, or build the knowledge base again"
LOGIT_STEPS = 8  # steps to a logit of 1; logits beyond ±15.9 are clipped
OPENS = 1
CLOSES = 2
CHUNK = 128  # rows converted to float64 at a time for final scores: they fit in a CPU's cache

HexDigits = Annotated[str, Meta(pattern="^[0-9a-f]*$")]


class GrowingArray:
    """A `.npy` file that is appended to; its header is valid only after `close`."""

    def __init__(self, path: Path, dtype: DTypeLike, columns: int | None = None) -> None:
        """Open or create `path` for rows of `columns` values, or of single values."""
        self.path = path
        self.dtype = np.dtype(dtype)
        self.row_shape = () if columns is None else (columns,)
        self.row_bytes = self.dtype.itemsize * (columns or 1)
        self._file = open_to_grow(path)
        self._file.seek(0, os.SEEK_END)
        if self._file.tell() < HEADER:
            self.truncate(0)

    def __len__(self) -> int:
        return (self._file.tell() - HEADER) // self.row_bytes

    def append(self, rows: NDArray[np.generic]) -> None:
        """Shape: (rows,) or (rows, columns)."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)

    def truncate(self, rows: int) -> None:
        """Keep the first `rows` rows; a run that was killed wrote the others."""
        self._file.truncate(HEADER + rows * self.row_bytes)
        self._file.seek(0)
        if rows == 0:
            self._file.write(b"\0" * HEADER)
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        sync_open(self._file)

    def abandon(self) -> None:
        """Close the file without a header, so that nothing is written to it when another run
        resumes.
        """
        with contextlib.suppress(OSError):
            self._file.close()

    def close(self) -> None:
        """Write the header and close the file, which `numpy.load` can then read."""
        rows = len(self)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, *self.row_shape)}
        try:
            self._file.seek(0)
            np.lib.format.write_array_header_1_0(self._file, header)
            if self._file.tell() != HEADER:
                raise ValueError(
                    f"{self.path}: NumPy wrote a header of {self._file.tell()} bytes, not {HEADER}"
                )
            self.sync()
        finally:
            self.abandon()


def new_array(path: Path, dtype: DTypeLike, rows: int) -> NDArray[Any]:
    """Create an array that is mapped and written in place. Shape: (rows,), at least one."""
    with open_to_grow(path) as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        return np.memmap(file, dtype, "r+", file.tell(), (rows,))


def save_array(path: Path, array: NDArray[np.generic]) -> None:
    """Replace a file with an array that `numpy.load` and `open_array` can read."""
    with replacing(path) as partial, partial.open("wb") as file:
        np.lib.format.write_array(file, np.asanyarray(array), version=(1, 0), allow_pickle=False)


class GrowingTexts:
    """A list of texts: `NAME.bin` holds the bytes of all texts in UTF-8, `NAME.npy` the position
    where each ends.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = GrowingArray(folder / f"{name}.bin", np.uint8)
        self.ends = GrowingArray(folder / f"{name}.npy", np.int64)

    def append(self, texts: list[str]) -> None:
        encoded = [text.encode() for text in texts]
        self.ends.append(
            np.cumsum([len(text) for text in encoded], dtype=np.int64) + len(self.bytes)
        )
        self.bytes.append(np.frombuffer(b"".join(encoded), np.uint8))

    def abandon(self) -> None:
        """Close the files; see `GrowingArray.abandon`."""
        self.bytes.abandon()
        self.ends.abandon()


class Texts:
    """A read-only, memory-mapped list of texts that `GrowingTexts` wrote.

    >>> texts = Texts(np.array([1, 3]), np.frombuffer(b"abc", np.uint8))
    >>> texts[1], list(texts)
    ('bc', ['a', 'bc'])
    """

    def __init__(self, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        """`ends`: where each text ends in `data`. Shape: (texts,)."""
        # Memory views give a single number sooner than arrays do.
        self._ends = ends.data
        self._data = data.data

    @classmethod
    def open(cls, folder: Path, name: str) -> "Texts":
        """Map the files. Raises OSError or ValueError if one is missing or damaged."""
        ends = open_array(folder / f"{name}.npy", np.int64)
        data = open_array(folder / f"{name}.bin", np.uint8)
        bytes_said = 0
        if len(ends):
            bytes_said = int(ends[-1])
        if len(data) != bytes_said:
            raise ValueError("its files differ in length")
        refuse_descending(name, ends, len(data))
        return cls(ends, data)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        begin = 0
        if index:
            begin = self._ends[index - 1]
        return self._read(index, begin, self._ends[index])

    def bytes_between(self, first: int, stop: int) -> int:
        """Return how many bytes the texts from `first` to before `stop` have.

        >>> Texts(np.array([1, 3, 6]), np.frombuffer(b"abcdef", np.uint8)).bytes_between(1, 3)
        5
        """
        before = [self._ends[index - 1] if index else 0 for index in (first, stop)]
        return int(before[1] - before[0])

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for index, end in enumerate(self._ends):
            yield self._read(index, begin, end)
            begin = end

    def _read(self, index: int, begin: int, end: int) -> str:
        if not 0 <= begin <= end <= len(self._data):
            problem = f"text {index} lies at bytes {begin:,} to {end:,} of {len(self._data):,}"
            raise KnowledgeBaseError(f"{problem}: {REPAIR}")
        try:
            return str(self._data[begin:end], "utf-8")
        except UnicodeDecodeError as error:
            raise KnowledgeBaseError(f"text {index} is damaged ({error}): {REPAIR}") from None


def refuse_descending(name: str, values: NDArray[Any], most: int) -> None:
    """Raise ValueError for places that do not ascend from 0 or more to `most`; of a long list,
    check both ends only.
    """
    for part in (values,) if values.nbytes <= LOOKED_AT else (values[:SOME], values[-SOME:]):
        is_in_order = (
            part.dtype.kind in "iu" and part.ndim == 1 and bool((part[1:] >= part[:-1]).all())
        )
        if len(part) and not (is_in_order and part[0] >= 0 and part[-1] <= most):
            raise ValueError(f"{name} is not a list of places from 0 to {most:,}")


def open_array(
    path: Path, dtype: type[np.generic] | None = None, dimensions: int = 1
) -> NDArray[Any]:
    """Map a finished array read-only. Raises OSError, or ValueError if it is damaged, or not of
    this type and shape.
    """
    size = path.stat().st_size
    if size < HEADER:
        raise ValueError(f"{path.name} has {size} bytes, its header alone {HEADER}")
    with path.open("rb") as file:
        header = _HEADER.fullmatch(file.read(HEADER))
    if not header:
        raise ValueError(f"the header of {path.name} is not that of an array of kbq")

    stored = np.dtype(header[1].decode())
    shape = tuple(int(length) for length in header[2].split(b", ") if length)
    expected = HEADER + math.prod(shape) * stored.itemsize
    if expected != size:
        raise ValueError(
            f"{path.name} has {size:,} bytes, {expected:,} are expected for {stored} {shape}"
        )

    if dtype is not None and (stored != dtype or len(shape) != dimensions):
        raise ValueError(
            f"{path.name} holds {stored} {shape}, not {np.dtype(dtype)} in {dimensions} dimensions"
        )

    if not math.prod(shape):  # an empty array cannot be mapped
        return np.empty(shape, stored)
    return map_file(path)[HEADER:].view(stored).reshape(shape)


def shard_name(number: int) -> str:
    return f"shard-{number:05d}"


@dataclass(frozen=True, slots=True)
class Counts(Summed):
    """The size of a shard or a knowledge base. `tokens` are counted before the filter, `rows` after
    it.
    """

    pages: int = 0
    paragraphs: int = 0
    tokens: int = 0
    rows: int = 0

    @property
    def facts(self) -> dict[str, int]:
        return dict(
            zip(("pages", "paragraphs", "tokens", "kept_vectors"), astuple(self), strict=True)
        )


@dataclass(frozen=True, slots=True)
class PhraseLimit:
    """The longest phrases of a knowledge base. `tokens` and `rows` include the first and the last.

    `repeats`: rows of a paragraph may repeat earlier ones, where the windows of another encoder
    overlapped.
    """

    tokens: Annotated[int, Meta(ge=1, le=20)] = 20  # L in arXiv 2012.12624
    rows: Annotated[int, Meta(ge=1, le=20)] = 20
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard that a knowledge base names."""

    # Its folder's name; a later shard's is higher.
    name: Annotated[str, Meta(pattern=r"^shard-[0-9]{5,}$")]
    seal: HexDigits  # digest of its seal
    size: Counts  # everything that its files hold
    live: Counts  # the same, less the deleted pages
    deleted: HexDigits = ""  # digest of the list of deleted pages; empty: none


class Shard:
    """A finished shard, memory-mapped. Rows and paragraphs are numbered within the shard, from 0."""

    def __init__(
        self, folder: Path, stay: bool = True, deleted: str = "", limit: PhraseLimit = PhraseLimit()
    ) -> None:
        """Map all files. Raises KnowledgeBaseError if one is missing or damaged.

        Vectors that `stay` in memory once read are not prefetched. `deleted` is the digest of a
        list of deleted pages.
        """
        self.folder = folder
        self.limit = limit
        self.deleted_list = deleted
        self._stay = stay

        with reading_from(folder, KnowledgeBaseError, REPAIR, "shard "):
            self.shape = self._open_vectors()  # rows and dimensions
            per_row = [open_array(folder / f"{name}.npy", dtype) for name, dtype in PER_ROW.items()]
            per_paragraph = [
                open_array(folder / f"paragraph_{name}.npy", dtype)
                for name, dtype in PER_PARAGRAPH.items()
            ]
            self.page_digests = open_array(folder / "page_digests.npy", np.uint8, 2)
            self.texts, self.ids, self.titles, self.metadata = (
                Texts.open(folder, name) for name in TEXTS
            )
            self.positions, self.starts, self.ends, self.logits, self.edges = per_row
            (
                self.paragraph_rows,
                self.paragraph_numbers,
                self.paragraph_pages,
                self.paragraph_tokens,
            ) = per_paragraph
            self._refuse_misfits()
            self.deleted = read_deleted(folder, deleted)

        # Paragraphs of pages that are not deleted, or None if no page is.
        self.live: Bools | None = None
        self.shown: Bools | None = None  # paragraphs that a search may answer with, or None for all
        if len(self.deleted):
            self.show_only(self.live_pages())
            self.live = self.shown

    def _open_vectors(self) -> tuple[int, int]:
        """Map the vectors, and return their shape. Raises OSError or ValueError."""
        self.vectors: NDArray[np.int8] = open_array(self.folder / "vectors.npy", np.int8, 2)
        # A second mapping, for random access, as advice applies to a whole mapping.
        self._scattered = open_array(self.folder / "vectors.npy")
        expect_random_access(self._scattered.ctypes.data, self._scattered.nbytes)
        return len(self.vectors), self.vectors.shape[1]

    def _refuse_misfits(self) -> None:
        """Raise ValueError if files do not belong together."""
        refuse_descending("paragraph_rows", self.paragraph_rows, len(self))
        refuse_descending("paragraph_pages", self.paragraph_pages, len(self.ids) - 1)
        per_row = self.positions, self.starts, self.ends, self.logits, self.edges
        per_paragraph = (
            self.paragraph_rows,
            self.paragraph_numbers,
            self.paragraph_pages,
            self.paragraph_tokens,
        )
        if len(self.paragraph_rows):
            last = int(self.paragraph_rows[-1])
        else:
            last = len(self)
        rows = {last, len(self), *map(len, per_row)}
        paragraphs = {len(self.texts), *map(len, per_paragraph)}
        pages = {len(self.ids), len(self.titles), len(self.metadata), len(self.page_digests)}
        if max(map(len, (rows, paragraphs, pages))) > 1:
            raise ValueError("its files differ in length")

    @cached_property
    def seal(self) -> str:
        """The digest of the seal, which identifies all files. Raises KnowledgeBaseError if it is
        missing or damaged.
        """
        with reading_from(self.folder, KnowledgeBaseError, REPAIR, "shard "):
            return read_seal(self.folder).digest

    def __len__(self) -> int:
        return self.shape[0]

    def live_pages(self) -> Bools:
        """Whether each page is not deleted. Shape: (pages,)."""
        left = np.ones(len(self.ids), bool)
        left[self.deleted] = False
        return left

    def live_ids(self) -> Iterator[tuple[int, str]]:
        left = self.live_pages().tolist()
        return ((number, page_id) for number, page_id in enumerate(self.ids) if left[number])

    def counts_of(self, pages: Bools) -> Counts:
        """Return the counts of some pages. Shape: (pages,)."""
        paragraphs = pages[self.paragraph_pages]
        tokens = int(self.paragraph_tokens[paragraphs].sum(dtype=np.int64))
        rows = int(self.paragraph_sizes()[paragraphs].sum())
        return Counts(int(pages.sum()), int(paragraphs.sum()), tokens, rows)

    def metadata_of(self, page: int) -> Mapping[str, Any]:
        """Return the other fields that a page had in the corpus, without addresses that could run
        something.
        """
        try:
            written = self.metadata[page]
            return stored_metadata(written) if written else {}
        except CorpusError as error:
            problem = (
                f"the metadata of page {self.ids[page]!r:.60} in {self.folder} cannot be used "
                f"({error})"
            )
            raise KnowledgeBaseError(f"{problem}: {REPAIR}") from None

    def page(self, number: int) -> Page:
        """Return a page as it was indexed, without blank paragraphs."""
        first, stop = np.searchsorted(self.paragraph_pages, [number, number + 1])
        paragraphs = tuple(
            Paragraph(int(self.paragraph_numbers[i]), self.texts[i]) for i in range(first, stop)
        )
        return Page(
            self.ids[number], self.titles[number], paragraphs, metadata=self.metadata_of(number)
        )

    def paragraph_sizes(self) -> Rows:
        """Return how many rows each paragraph has. Shape: (paragraphs,)."""
        return np.diff(self.paragraph_rows, prepend=0)

    def filled(self) -> Bools:
        """Whether a search may find something in each paragraph. Shape: (paragraphs,)."""
        has_rows: Bools = self.paragraph_sizes() > 0
        if self.shown is None:
            return has_rows
        return has_rows & self.shown

    def title_of(self, paragraph: int) -> str:
        return self.titles[int(self.paragraph_pages[paragraph])]

    def answer(
        self,
        paragraph: int,
        score: float,
        characters: tuple[int, int] | None = None,
        unit: tuple[int, int] | None = None,
        text: str | None = None,
    ) -> Answer:
        """Return the phrase at these characters of a paragraph, by default all of it, found as this
        unit.

        `text`: that of the paragraph, if it has been read: many answers may share it. Raises
        KnowledgeBaseError if the characters are not within it.
        """
        page = int(self.paragraph_pages[paragraph])
        number = int(self.paragraph_numbers[paragraph])
        if text is None:
            text = self.texts[paragraph]
        start, end = characters or (0, len(text))
        if not 0 <= start <= end <= len(text):
            problem = (
                f"characters {start:,} to {end:,} of page {self.ids[page]!r:.60} are not in its "
                "paragraph"
            )
            raise KnowledgeBaseError(f"{problem}, in {self.folder}: {REPAIR}")

        unit = unit or (0, len(text))
        facts = self.metadata_of(page)
        return Answer(
            text[start:end],
            score,
            self.ids[page],
            self.titles[page],
            number,
            start,
            end,
            text,
            unit,
            facts,
        )

    def show_only(self, pages: Bools) -> None:
        """Let no phrase open or close outside of these pages. Shape: (pages,)."""
        shown = pages[self.paragraph_pages]
        if self.live is None:
            self.shown = shown
        else:
            self.shown = shown & self.live
        self.edges = self.edges * self.shown_rows()

    def shown_rows(self) -> Bools:
        """Whether a search may answer with each row. Shape: (rows,)."""
        return self._rows_in(self.shown)

    def _rows_in(self, paragraphs: Bools | None) -> Bools:
        return (
            np.ones(len(self), bool)
            if paragraphs is None
            else np.repeat(paragraphs, self.paragraph_sizes())
        )

    def count_shown(self) -> int:
        if self.shown is None:
            return len(self)
        return int(self.shown_rows().sum())

    def rows_above(self, threshold: float | None) -> Rows:
        """Return the rows above a filter logit and the best of each paragraph, or all if None; no
        deleted ones.
        """
        rows_left = self._rows_in(self.live)
        if threshold is None or not len(self):
            return np.flatnonzero(rows_left)
        sizes = self.paragraph_sizes()
        first, _ = self.row_range(np.flatnonzero(sizes))
        best = np.repeat(np.maximum.reduceat(self.logits, first), sizes[sizes > 0])
        return np.flatnonzero(
            rows_left & ((self.logits > threshold * LOGIT_STEPS) | (self.logits == best))
        )

    def paragraphs_of(self, rows: Rows) -> Rows:
        """Return the paragraph of each row. Shape: that of `rows`."""
        return np.searchsorted(self.paragraph_rows, rows, side="right")

    def row_range(self, paragraphs: Rows) -> tuple[Rows, Rows]:
        """Return the first row of each paragraph and the row after its last. Shapes: that of
        `paragraphs`.
        """
        return np.where(
            paragraphs > 0, self.paragraph_rows[paragraphs - 1], 0
        ), self.paragraph_rows[paragraphs]

    def rows_of(self, paragraph: int) -> Rows:
        """Return the rows of one paragraph, in order. Shape: (rows,)."""
        return np.arange(
            self.paragraph_rows[paragraph - 1] if paragraph else 0, self.paragraph_rows[paragraph]
        )

    def opens(self, rows: Rows) -> Bools:
        """Whether a phrase may open at each row. Shape: that of `rows`."""
        return np.asarray(self.edges[rows] & OPENS != 0)

    def closes(self, rows: Rows) -> Bools:
        """Whether a phrase may close at each row. Shape: that of `rows`."""
        return np.asarray(self.edges[rows] & CLOSES != 0)

    def vectors_of(self, rows: Rows) -> NDArray[np.int8]:
        """Return the vectors of some rows, prefetched together if they do not stay in memory.
        Shape: (rows, dim).
        """
        if self._stay:
            return self.vectors.take(rows, axis=0)
        begin = self._scattered.ctypes.data
        size = self._scattered.shape[1]
        ascending = np.unique(rows)
        runs = np.split(ascending, np.flatnonzero(np.diff(ascending) * size > mmap.PAGESIZE) + 1)
        if not len(ascending):
            runs = []
        for run in runs:
            prefetch(begin + int(run[0]) * size, int(run[-1] + 1 - run[0]) * size)
        return self._scattered.take(rows, axis=0)

    def products(self, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        """Return the `inner_products` of each row with both vectors of its query.

        Shapes: rows and query_of (rows,), the latter ascending; queries (queries, 2, dim), result
        (rows, 2).
        """
        bounds = query_of.searchsorted(np.arange(len(queries) + 1))
        parts = zip(np.split(rows, bounds[1:-1]), queries, strict=True)
        return np.concatenate([self.inner_products(own, query) for own, query in parts])

    def inner_products(self, rows: Rows, queries: Floats | Doubles) -> Floats:
        """Return the inner products of rows with each query, for final scores.

        For queries in whole steps (`in_steps`), they are exact sums that are rounded once, so
        always the same.
        Shapes: rows (rows,), queries (queries, dim), result (rows, queries).
        """
        products = np.empty((len(rows), len(queries)), np.float32)
        for first in range(0, len(rows), CHUNK):
            part = slice(first, first + CHUNK)
            vectors = self.vectors_of(rows[part]).astype(np.float64)
            # Twice as fast as a product with a matrix of two columns.
            for column, query in enumerate(queries):
                products[part, column] = vectors @ query
        return products


def read_deleted(folder: Path, digest: str) -> Rows:
    """Return the numbers of a shard's deleted pages, ascending. Raises OSError, or ValueError if
    they are damaged.
    """
    if not digest:
        return np.empty(0, np.int64)
    path = deleted_file(folder, digest)
    if digest_of_bytes(path.read_bytes()) != digest:
        raise ValueError(f"{path.name} has changed")
    numbers: Rows = open_array(path, np.uint32).astype(np.int64)
    return numbers


def deleted_file(folder: Path, digest: str) -> Path:
    return folder / f"deleted-{digest}.npy"
