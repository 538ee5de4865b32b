"""Shards: encoded pages become the files of a phrase dump, and these are read. Source: arXiv 2012.12624, section 3.3.

    shard-00000/  vectors.npy            int8 [rows, dim]  token vectors, in steps of `scale`
                  positions.npy          u32 [rows]        position of the token in its paragraph
                  starts.npy ends.npy    u32 [rows]        characters [start, end) of the token's word
                  logits.npy             int8 [rows]       the filter's higher logit, in steps of 1/8
                  edges.npy              u8 [rows]         whether phrases may open (1) or close (2) there, or both (3)
                  paragraph_rows.npy     i64 [paragraphs]  row after the last of each paragraph
                  paragraph_numbers.npy  u32 [paragraphs]  the corpus's own number
                  paragraph_pages.npy    u32 [paragraphs]  the page of each paragraph, from 0
                  texts.{bin,npy}        paragraphs
                  ids.{bin,npy}          pages
                  titles.{bin,npy}       pages

There is a row for each token that the filter kept; its number identifies it in every index. A shard holds whole pages
and is immutable once finished.
"""

import hashlib
import mmap
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.answers import Answer
from kbq.array_types import Rows
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.arrays import GrowingArray, GrowingTexts, Texts, open_array
from kbq.errors import KnowledgeBaseError
from kbq.system.counting import Summed
from kbq.system.machine import expect_random_access, prefetch

FINGERPRINT_ROWS = 64
LOGIT_STEPS = 8  # to a logit of 1; logits beyond ±15.9 are clipped
OPENS, CLOSES = 1, 2


def shard_name(number: int) -> str:
    """The folder of a shard."""
    return f"shard-{number:05d}"


@dataclass(frozen=True, slots=True)
class EncodedParagraph:
    """The kept tokens of a paragraph. Shapes: vectors (kept, dim), other arrays (kept,)."""

    number: int
    text: str
    tokens: int  # before the filter
    vectors: NDArray[np.int8]
    logits: NDArray[np.float32]  # the higher one of the filter's two
    edges: NDArray[np.uint8]  # OPENS, CLOSES, or both
    positions: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]


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
class Progress:
    """How much of a shard is on the disk, so that a build can resume."""

    counts: Counts = Counts()
    sizes: Mapping[str, int] = field(default_factory=dict)  # entries of each file


class ShardWriter:
    """Writes a shard, from the beginning or from the progress of a build that was killed."""

    def __init__(self, folder: Path, dim: int, progress: Progress) -> None:
        """Raises ValueError if a file is shorter than the progress says."""
        if not progress.sizes:  # the folder, if any, is left from an abandoned build
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self.counts = progress.counts
        self.vectors = GrowingArray(folder / "vectors.npy", np.int8, dim)
        self.per_row = {
            name: GrowingArray(folder / f"{name}.npy", np.uint32) for name in ("positions", "starts", "ends")
        }
        self.logits = GrowingArray(folder / "logits.npy", np.int8)
        self.edges = GrowingArray(folder / "edges.npy", np.uint8)
        self.paragraph_rows = GrowingArray(folder / "paragraph_rows.npy", np.int64)
        self.paragraph_numbers = GrowingArray(folder / "paragraph_numbers.npy", np.uint32)
        self.paragraph_pages = GrowingArray(folder / "paragraph_pages.npy", np.uint32)
        self.texts, self.ids, self.titles = (GrowingTexts(folder, name) for name in ("texts", "ids", "titles"))
        for array in self._arrays():
            left, size = len(array), progress.sizes.get(array.path.name, 0)
            if left < size:
                self.abandon()
                raise ValueError(f"{array.path} has {left:,} entries, {size:,} were written")
            array.truncate(size)

    def append(self, page: Page, paragraphs: Sequence[EncodedParagraph]) -> None:
        """Add a page with its encoded paragraphs."""
        number = self.counts.pages
        self.ids.append([page.id])
        self.titles.append([page.title])
        for paragraph in paragraphs:
            self.vectors.append(paragraph.vectors)
            for name, array in self.per_row.items():
                array.append(getattr(paragraph, name))
            self.logits.append(np.clip(np.rint(paragraph.logits * LOGIT_STEPS), -127, 127))
            self.edges.append(paragraph.edges)
            self.counts += Counts(0, 1, paragraph.tokens, len(paragraph.positions))
            self.paragraph_rows.append(np.array([self.counts.rows]))
            self.paragraph_numbers.append(np.array([paragraph.number]))
            self.paragraph_pages.append(np.array([number]))
            self.texts.append([paragraph.text])
        self.counts += Counts(pages=1)

    def sync(self) -> Progress:
        """Write everything appended so far to the disk."""
        for array in self._arrays():
            array.sync()
        return Progress(self.counts, {array.path.name: len(array) for array in self._arrays()})

    def close(self) -> Counts:
        """Finish the shard."""
        for array in self._arrays():
            array.close()
        return self.counts

    def abandon(self) -> None:
        """Close the files of a failed build, so that nothing is written to them once another run resumes."""
        for array in self._arrays():
            array.abandon()

    def _arrays(self) -> list[GrowingArray]:
        texts = [array for texts in (self.texts, self.ids, self.titles) for array in (texts.bytes, texts.ends)]
        numbers = [self.paragraph_rows, self.paragraph_numbers, self.paragraph_pages]
        return [self.vectors, *self.per_row.values(), self.logits, self.edges, *numbers, *texts]


class Shard:
    """A finished shard, memory-mapped. Rows and paragraphs are numbered within the shard, from 0."""

    def __init__(self, folder: Path, stay: bool = True) -> None:
        """Raises KnowledgeBaseError if a file is missing or damaged, or lengths differ.

        `stay`: whether vectors stay in memory once read; if not, they are prefetched.
        """
        if not folder.is_dir():
            raise KnowledgeBaseError(f"shard {folder} is missing: restore it, or build the knowledge base again")
        try:
            self.vectors: NDArray[np.int8] = _typed(folder, "vectors", np.int8)
            # Mapped a second time, for random access, as advice applies to a whole mapping.
            self._scattered = open_array(folder / "vectors.npy")
            expect_random_access(self._scattered.ctypes.data, self._scattered.nbytes)
            self.positions = _typed(folder, "positions", np.uint32)
            self.starts = _typed(folder, "starts", np.uint32)
            self.ends = _typed(folder, "ends", np.uint32)
            self.edges = _typed(folder, "edges", np.uint8)
            self.paragraph_rows = _typed(folder, "paragraph_rows", np.int64)
            self.paragraph_numbers = _typed(folder, "paragraph_numbers", np.uint32)
            self.paragraph_pages = _typed(folder, "paragraph_pages", np.uint32)
            self.texts, self.ids, self.titles = (Texts.open(folder, name) for name in ("texts", "ids", "titles"))
            if self.vectors.ndim != 2:
                raise ValueError("vectors.npy is not a matrix")
        except (OSError, ValueError) as error:
            raise KnowledgeBaseError(f"shard {folder} is damaged ({error}): build the knowledge base again") from None
        rows = {len(array) for array in (self.vectors, self.positions, self.starts, self.ends, self.edges)}
        per_paragraph = (self.paragraph_rows, self.paragraph_numbers, self.paragraph_pages, self.texts)
        fits = (
            rows == {int(self.paragraph_rows[-1]) if len(self.paragraph_rows) else len(self.vectors)}
            and len({len(entries) for entries in per_paragraph}) == 1
            and len(self.ids) == len(self.titles)
            and all(texts.is_complete for texts in (self.texts, self.ids, self.titles))
        )
        if not fits:
            raise KnowledgeBaseError(
                f"shard {folder} is damaged (its files differ in length): build the knowledge base again"
            )
        if len(self.paragraph_pages) and not self.paragraph_pages[-1] < len(self.ids):
            raise KnowledgeBaseError(
                f"shard {folder} is damaged (a paragraph belongs to page {self.paragraph_pages[-1]} of "
                f"{len(self.ids)}): build the knowledge base again"
            )
        self._stay = stay
        self.folder = folder

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
        """The rows with a filter logit above a threshold, and the best row of each paragraph; None: all rows.

        Raises:
            KnowledgeBaseError: the filter's logits are missing or damaged.
        """
        if threshold is None or not len(self):
            return np.arange(len(self))
        try:
            logits = _typed(self.folder, "logits", np.int8)
        except (OSError, ValueError) as error:
            raise KnowledgeBaseError(
                f"shard {self.folder} has no filter logits ({error}): "
                "build the knowledge base again, or index it without --filter"
            ) from None
        if len(logits) != len(self):
            raise KnowledgeBaseError(
                f"shard {self.folder} is damaged (logits.npy has {len(logits)} of {len(self)} rows): "
                "build the knowledge base again"
            )
        filled = np.flatnonzero(np.diff(self.paragraph_rows, prepend=0))
        first, _ = self.row_range(filled)
        best = np.maximum.reduceat(logits, first)
        sizes = np.diff(np.append(first, len(self)))
        kept: Rows = np.flatnonzero((logits > threshold * LOGIT_STEPS) | (logits == np.repeat(best, sizes)))
        return kept

    def fingerprint(self) -> str:
        """A digest that identifies the rows of this shard, by their number and a sample of them."""
        sample = np.linspace(0, len(self) - 1, min(len(self), FINGERPRINT_ROWS)).astype(np.int64)
        digest = hashlib.blake2b(repr(self.vectors.shape).encode(), digest_size=8)
        for part in (self._prefetched_vectors(sample), self.positions[sample], self.starts[sample]):
            digest.update(part.tobytes())
        return digest.hexdigest()

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
        """
        page, number = int(self.paragraph_pages[paragraph]), int(self.paragraph_numbers[paragraph])
        text = self.texts[paragraph] if text is None else text
        start, end = characters or (0, len(text))
        return Answer(
            text[start:end], score, self.ids[page], self.titles[page], number, start, end, text, unit or (0, len(text))
        )

    def page(self, number: int) -> Page:
        """A page as it was indexed, without blank paragraphs."""
        first, stop = np.searchsorted(self.paragraph_pages, [number, number + 1])
        paragraphs = tuple(Paragraph(int(self.paragraph_numbers[i]), self.texts[i]) for i in range(first, stop))
        return Page(self.ids[number], self.titles[number], paragraphs)


def _typed(folder: Path, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    array = open_array(folder / f"{name}.npy")
    if array.dtype != dtype:
        raise ValueError(f"{name}.npy holds {array.dtype}, not {np.dtype(dtype)}")
    return array
