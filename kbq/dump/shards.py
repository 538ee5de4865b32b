"""Shards: encoded pages become the files of a phrase dump, and these are read. Source: arXiv 2012.12624, section 3.3.

    shard-00000/  vectors.npy            int8 [rows, dim]  token vectors, in steps of `scale`
                  positions.npy          u32 [rows]        position of the token in its paragraph
                  starts.npy ends.npy    u32 [rows]        characters [start, end) of the token's word
                  logits.npy             int8 [rows]       the filter's higher logit, in steps of 1/8
                  edges.npy              u8 [rows]         whether phrases may open (1) or close (2) there, or both (3)
                  paragraph_rows.npy     i64 [paragraphs]  row after the last of each paragraph
                  paragraph_numbers.npy  u32 [paragraphs]  the corpus's own number
                  paragraph_pages.npy    u32 [paragraphs]  the page of each paragraph, from 0
                  paragraph_tokens.npy   u32 [paragraphs]  tokens of each, before the filter
                  texts.{bin,npy}        paragraphs
                  ids.{bin,npy}          pages
                  titles.{bin,npy}       pages
                  metadata.{bin,npy}     pages             a JSON object, or nothing
                  page_digests.npy       u8 [pages, 16]    digest of each page, as it was read
                  seal.json                                the digests of these files
                  deleted-DIGEST.npy     u32 [deleted]     pages that do not count any more, if the manifest says so

There is a row for each token that the filter kept; its number identifies it in every index. A shard holds whole pages.
Once it is sealed, nothing in it changes: a page is deleted by naming it in a list beside the files.
"""

import io
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from kbq.answers import Answer
from kbq.array_types import Bools, Doubles, Floats, Rows
from kbq.corpus.metadata import check_metadata, without_unsafe_urls
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.arrays import Texts, open_array, refuse_descending
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.storage.files import reading_problem
from kbq.storage.json_text import parsed_json
from kbq.storage.machine import expect_random_access, prefetch
from kbq.storage.records import Summed, digest_of_bytes
from kbq.storage.seals import read_seal
from kbq.storage.writing import write_bytes

DIGEST_BYTES = 16
REPAIR = "build the knowledge base again"
LOGIT_STEPS = 8  # to a logit of 1; logits beyond ±15.9 are clipped
OPENS, CLOSES = 1, 2
CHUNK = 128  # rows converted to float64 at a time for final scores: they fit in a CPU's cache
TEXTS = "texts", "ids", "titles", "metadata"


def shard_name(number: int) -> str:
    """The folder of a shard."""
    return f"shard-{number:05d}"


@dataclass(frozen=True, slots=True)
class Counts(Summed):
    """The size of a shard or a knowledge base; `tokens` are counted before the filter, `rows` after it."""

    pages: int = 0
    paragraphs: int = 0
    tokens: int = 0
    rows: int = 0

    @property
    def facts(self) -> dict[str, int]:
        """The counts by the names used in output."""
        names = ("pages", "paragraphs", "tokens", "kept_vectors")
        return dict(zip(names, astuple(self), strict=True))


@dataclass(frozen=True, slots=True)
class PhraseLimit:
    """How long the phrases of a knowledge base may be; `tokens` and `rows` count the first and the last, too.

    `repeats`: rows of a paragraph may repeat earlier ones, where the windows of another encoder overlapped.
    """

    tokens: Annotated[int, Meta(ge=1, le=20)] = 20  # L in arXiv 2012.12624
    rows: Annotated[int, Meta(ge=1, le=20)] = 20
    repeats: bool = False


HexDigits = Annotated[str, Meta(pattern="^[0-9a-f]*$")]


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard that a knowledge base names."""

    name: Annotated[str, Meta(pattern=r"^shard-[0-9]{5,}$")]  # of its folder
    seal: HexDigits  # digest of its seal
    size: Counts  # of all that its files hold
    live: Counts  # without the deleted pages
    deleted: HexDigits = ""  # digest of the list of deleted pages; empty: none

    @property
    def number(self) -> int:
        """The number in its name; a later shard has a higher one."""
        return int(self.name.removeprefix("shard-"))


class Shard:
    """A finished shard, memory-mapped. Rows and paragraphs are numbered within the shard, from 0."""

    def __init__(self, folder: Path, stay: bool = True, deleted: str = "", limit: PhraseLimit = PhraseLimit()) -> None:
        """Raises KnowledgeBaseError if a file is missing or damaged, or lengths differ.

        Args:
            stay: whether vectors stay in memory once read; if not, they are prefetched.
            deleted: digest of the list of deleted pages, if there is one.
            limit: how long phrases may be.
        """
        if not folder.is_dir():
            raise KnowledgeBaseError(f"shard {folder} is missing: restore it, or {REPAIR}")
        try:
            self.shape = self._open_vectors(folder)  # rows and dimensions
            self.positions = _typed(folder, "positions", np.uint32)
            self.starts = _typed(folder, "starts", np.uint32)
            self.ends = _typed(folder, "ends", np.uint32)
            self.edges = _typed(folder, "edges", np.uint8)
            self.paragraph_rows = _typed(folder, "paragraph_rows", np.int64)
            self.paragraph_numbers = _typed(folder, "paragraph_numbers", np.uint32)
            self.paragraph_pages = _typed(folder, "paragraph_pages", np.uint32)
            self.paragraph_tokens = _typed(folder, "paragraph_tokens", np.uint32)
            self.page_digests = _typed(folder, "page_digests", np.uint8, 2)
            self.texts, self.ids, self.titles, self.metadata = (Texts.open(folder, name) for name in TEXTS)
            self._refuse_misfits()
        except (OSError, ValueError, MemoryError) as error:
            raise KnowledgeBaseError(f"shard {reading_problem(folder, error, REPAIR)}") from None
        self.folder = folder
        self.limit = limit
        self._stay = stay
        self.deleted_list, self.deleted = deleted, read_deleted(folder, deleted)
        self.live: Bools | None = None  # whether each paragraph is of a page that is left; None: all are
        self.shown: Bools | None = None  # whether a search may answer with it
        if len(self.deleted):
            self.show_only(self.live_pages())
            self.live = self.shown

    def _open_vectors(self, folder: Path) -> tuple[int, int]:
        """Map the vectors; returns their shape. Raises OSError or ValueError."""
        self.vectors: NDArray[np.int8] = _typed(folder, "vectors", np.int8, 2)
        # Mapped a second time, for random access, as advice applies to a whole mapping.
        self._scattered = open_array(folder / "vectors.npy")
        expect_random_access(self._scattered.ctypes.data, self._scattered.nbytes)
        return len(self.vectors), self.vectors.shape[1]

    def _refuse_misfits(self) -> None:
        """Raises ValueError if files do not belong together."""
        rows = {self.shape[0], *map(len, (self.positions, self.starts, self.ends, self.edges))}
        per_paragraph = (
            self.paragraph_rows,
            self.paragraph_numbers,
            self.paragraph_pages,
            self.paragraph_tokens,
            self.texts,
        )
        fits = (
            rows == {int(self.paragraph_rows[-1]) if len(self.paragraph_rows) else self.shape[0]}
            and len({len(entries) for entries in per_paragraph}) == 1
            and len(self.ids) == len(self.titles) == len(self.metadata) == len(self.page_digests)
            and all(texts.is_complete for texts in (self.texts, self.ids, self.titles, self.metadata))
        )
        if not fits:
            raise ValueError("its files differ in length")
        self._refuse_ranges()

    def _refuse_ranges(self) -> None:
        """Raises ValueError if a list says that something lies where nothing is; long lists are looked at in part."""
        refuse_descending("paragraph_rows", self.paragraph_rows, self.shape[0])
        refuse_descending("paragraph_pages", self.paragraph_pages, len(self.ids) - 1)
        for name, texts in zip(TEXTS, (self.texts, self.ids, self.titles, self.metadata), strict=True):
            refuse_descending(name, texts.ends, texts.bytes)

    @cached_property
    def seal(self) -> str:
        """The digest of the seal: it identifies the shard, and all that its files hold.

        Raises:
            KnowledgeBaseError: the seal is missing or damaged.
        """
        try:
            return read_seal(self.folder).digest
        except (OSError, ValueError) as error:
            raise KnowledgeBaseError(f"shard {reading_problem(self.folder, error, REPAIR)}") from None

    def live_pages(self) -> Bools:
        """Whether each page is left, and not deleted. Shape: (pages,)."""
        left = np.ones(len(self.ids), bool)
        left[self.deleted] = False
        return left

    def show_only(self, pages: Bools) -> None:
        """Let a search answer with these pages only: elsewhere, no phrase opens or closes. Shape: (pages,)."""
        shown = pages[self.paragraph_pages]
        self.shown = shown if self.live is None else shown & self.live
        self.edges = self.edges * self.shown_rows()

    def paragraph_sizes(self) -> Rows:
        """How many rows each paragraph has. Shape: (paragraphs,)."""
        sizes: Rows = np.diff(self.paragraph_rows, prepend=0)
        return sizes

    def filled(self) -> Bools:
        """Whether a search may find something in each paragraph. Shape: (paragraphs,)."""
        has_rows: Bools = self.paragraph_sizes() > 0
        return has_rows if self.shown is None else has_rows & self.shown

    def count_shown(self) -> int:
        """How many rows a search may answer with."""
        return len(self) if self.shown is None else int(self.shown_rows().sum())

    def shown_or_all(self) -> Bools | None:
        """`shown_rows`, or None where all rows are shown."""
        return None if self.shown is None else self.shown_rows()

    def shown_rows(self) -> Bools:
        """Whether a search may answer with each row. Shape: (rows,)."""
        return self._rows_in(self.shown)

    def live_rows(self) -> Bools:
        """Whether each row is of a page that is left. Shape: (rows,)."""
        return self._rows_in(self.live)

    def _rows_in(self, paragraphs: Bools | None) -> Bools:
        return np.ones(len(self), bool) if paragraphs is None else np.repeat(paragraphs, self.paragraph_sizes())

    def live_ids(self) -> Iterator[tuple[int, str]]:
        """The number and the id of each page that is left."""
        left = self.live_pages().tolist()
        return (
            (number, page_id) for number, (page_id, is_left) in enumerate(zip(self.ids, left, strict=True)) if is_left
        )

    def rows_of_pages(self) -> Rows:
        """How many rows each page has. Shape: (pages,)."""
        sizes = self.paragraph_sizes()
        return np.bincount(self.paragraph_pages, sizes, len(self.ids)).astype(np.int64)

    def counts_of(self, pages: Bools) -> Counts:
        """The counts of some pages. Shape: (pages,)."""
        paragraphs = pages[self.paragraph_pages]
        sizes = self.paragraph_sizes()
        tokens = int(self.paragraph_tokens[paragraphs].sum(dtype=np.int64))
        return Counts(int(pages.sum()), int(paragraphs.sum()), tokens, int(sizes[paragraphs].sum()))

    def __len__(self) -> int:
        return len(self.positions)

    def vectors_of(self, rows: Rows) -> NDArray[np.int8]:
        """The vectors of some rows, prefetched together if vectors do not stay in memory.

        Shapes: rows (rows,), result (rows, dim).
        """
        return self.vectors.take(rows, axis=0) if self._stay else self._prefetched_vectors(rows)

    def _prefetched_vectors(self, rows: Rows) -> NDArray[np.int8]:
        begin, size = self._scattered.ctypes.data, self._scattered.shape[1]
        ascending = np.unique(rows)
        runs = np.split(ascending, np.flatnonzero(np.diff(ascending) * size > mmap.PAGESIZE) + 1)
        for run in runs if len(ascending) else []:
            prefetch(begin + int(run[0]) * size, int(run[-1] + 1 - run[0]) * size)
        return self._scattered.take(rows, axis=0)

    def inner_products(self, rows: Rows, queries: Floats | Doubles) -> Floats:
        """The inner products of some rows with each query, for final scores.

        Those of queries in whole steps (`in_steps`) are exact before they are rounded once, so they are always the
        same. Shapes: rows (rows,), queries (queries, dim), result (rows, queries).
        """
        products = np.empty((len(rows), len(queries)), np.float32)
        for first in range(0, len(rows), CHUNK):
            part = slice(first, first + CHUNK)
            vectors = self.vectors_of(rows[part]).astype(np.float64)
            for column, query in enumerate(queries):  # twice as fast as a product with a matrix of two columns
                products[part, column] = vectors @ query
        return products

    def paragraphs_of(self, rows: Rows) -> Rows:
        """The paragraph of each row. Shape: that of `rows`."""
        return np.searchsorted(self.paragraph_rows, rows, side="right")

    def row_range(self, paragraphs: Rows) -> tuple[Rows, Rows]:
        """The first row of each paragraph, and the row after its last. Shapes: that of `paragraphs`."""
        return np.where(paragraphs > 0, self.paragraph_rows[paragraphs - 1], 0), self.paragraph_rows[paragraphs]

    def rows_of(self, paragraph: int) -> Rows:
        """The rows of one paragraph, in order. Shape: (rows,)."""
        return np.arange(self.paragraph_rows[paragraph - 1] if paragraph else 0, self.paragraph_rows[paragraph])

    def opens(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether a phrase may open at each row. Shape: that of `rows`."""
        opening: NDArray[np.bool_] = self.edges[rows] & OPENS != 0
        return opening

    def closes(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether a phrase may close at each row. Shape: that of `rows`."""
        closing: NDArray[np.bool_] = self.edges[rows] & CLOSES != 0
        return closing

    def rows_above(self, threshold: float | None) -> Rows:
        """The rows to index: those above a filter logit, and the best of each paragraph; None: all that are left.

        Raises:
            KnowledgeBaseError: the filter's logits are missing or damaged.
        """
        if threshold is None or not len(self):
            return np.flatnonzero(self.live_rows())
        logits = self.logits()
        filled = np.flatnonzero(self.paragraph_sizes())
        first, _ = self.row_range(filled)
        best = np.maximum.reduceat(logits, first)
        sizes = np.diff(np.append(first, len(self)))
        kept = (logits > threshold * LOGIT_STEPS) | (logits == np.repeat(best, sizes))
        return np.flatnonzero(kept & self.live_rows())

    def logits(self) -> NDArray[np.int8]:
        """The filter's higher logit of each row, in steps of 1/8; they are read when an index is built.

        Raises:
            KnowledgeBaseError: the file is missing or damaged.
        """
        try:
            logits = _typed(self.folder, "logits", np.int8)
            if len(logits) != len(self):
                raise ValueError(f"logits.npy has {len(logits)} of {len(self)} rows")
        except (OSError, ValueError) as error:
            raise KnowledgeBaseError(f"shard {reading_problem(self.folder, error, REPAIR)}") from None
        return logits

    def title_of(self, paragraph: int) -> str:
        """The title of a paragraph's page."""
        return self.titles[int(self.paragraph_pages[paragraph])]

    def answer(
        self,
        paragraph: int,
        score: float,
        characters: tuple[int, int] | None = None,
        unit: tuple[int, int] | None = None,
        text: str | None = None,
    ) -> Answer:
        """The phrase at these characters of a paragraph, found as this unit; None: the whole paragraph.

        `text`: that of the paragraph, where it has been read: many answers may share it.

        Raises:
            KnowledgeBaseError: they are not within the paragraph.
        """
        page, number = int(self.paragraph_pages[paragraph]), int(self.paragraph_numbers[paragraph])
        text = self.texts[paragraph] if text is None else text
        start, end = characters or (0, len(text))
        if not 0 <= start <= end <= len(text):
            problem = f"characters {start:,} to {end:,} of page {self.ids[page]!r:.60} are not in its paragraph"
            raise KnowledgeBaseError(f"{problem}, in {self.folder}: {REPAIR}")
        unit = unit or (0, len(text))
        facts = self.metadata_of(page)
        return Answer(text[start:end], score, self.ids[page], self.titles[page], number, start, end, text, unit, facts)

    def metadata_of(self, page: int) -> Mapping[str, Any]:
        """The other fields that a page had in the corpus, without addresses that could run something.

        Raises:
            KnowledgeBaseError: they are not the JSON that kbq writes.
        """
        written = self.metadata[page]
        try:
            fields = parsed_json(written) if written else {}
            if not isinstance(fields, dict):
                raise ValueError("it is no JSON object")
            check_metadata(fields)
        except (ValueError, CorpusError) as error:
            problem = f"the metadata of page {self.ids[page]!r:.60} in {self.folder} cannot be used ({error})"
            raise KnowledgeBaseError(f"{problem}: {REPAIR}") from None
        return without_unsafe_urls(fields)

    def page(self, number: int) -> Page:
        """A page as it was indexed, without blank paragraphs."""
        first, stop = np.searchsorted(self.paragraph_pages, [number, number + 1])
        paragraphs = tuple(Paragraph(int(self.paragraph_numbers[i]), self.texts[i]) for i in range(first, stop))
        return Page(self.ids[number], self.titles[number], paragraphs, metadata=self.metadata_of(number))


def _typed(folder: Path, name: str, dtype: type[np.generic], dimensions: int = 1) -> NDArray[Any]:
    array = open_array(folder / f"{name}.npy")
    if array.dtype != dtype or array.ndim != dimensions:
        raise ValueError(
            f"{name}.npy holds {array.dtype} {array.shape}, not {np.dtype(dtype)} in {dimensions} dimensions"
        )
    return array


# Deleted pages


def write_deleted(folder: Path, pages: Rows) -> str:
    """Write the list of a shard's deleted pages, beside an earlier one; returns its digest, by which it is found."""
    content = io.BytesIO()
    np.lib.format.write_array(content, np.unique(pages).astype(np.uint32), version=(1, 0))
    digest = digest_of_bytes(content.getvalue())
    write_bytes(deleted_file(folder, digest), content.getvalue())
    return digest


def read_deleted(folder: Path, digest: str) -> Rows:
    """The numbers of a shard's deleted pages, ascending; none without a digest.

    Raises:
        KnowledgeBaseError: the list is missing or damaged.
    """
    try:
        return deleted_pages(folder, digest)
    except (OSError, ValueError) as error:
        raise KnowledgeBaseError(
            reading_problem(deleted_file(folder, digest), error, f"restore it, or {REPAIR}")
        ) from None


def deleted_pages(folder: Path, digest: str) -> Rows:
    """`read_deleted`; raises OSError or ValueError for a missing or damaged list."""
    if not digest:
        return np.empty(0, np.int64)
    if digest_of_bytes(deleted_file(folder, digest).read_bytes()) != digest:
        raise ValueError("its content has changed")
    numbers: Rows = _typed(folder, f"deleted-{digest}", np.uint32).astype(np.int64)
    return numbers


def deleted_file(folder: Path, digest: str) -> Path:
    """The file that lists the deleted pages of a shard."""
    return folder / f"deleted-{digest}.npy"
