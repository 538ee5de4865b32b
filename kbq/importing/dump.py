"""Dump: import a phrase dump of DensePhrases (HDF5), with its vectors unchanged. `kbq import dump`.

The paragraphs of a document are one text, joined by ` [PAR] `, in which every token has its
characters. Tokens that repeat or overlap, where windows overlapped, are taken as they are.

dump/phrase/NAME.hdf5   a group for each document, named by its number: context, title, offset and
                        scale; start (the int8 rows), f2o_start (the token of each row),
                        word2char_start and word2char_end (of each token)
dump/filter/NAME.hdf5   optional: filter_start and filter_end, the logits of each token
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Bools, Floats, Rows
from kbq.corpus.pages import Page, PageIds, Paragraph
from kbq.dump.manifest import Manifest
from kbq.dump.page_encoder import PageEncoder
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import CLOSES, OPENS, Counts, PhraseLimit, Shard
from kbq.errors import CorpusError, KbqError, ModelError
from kbq.importing.checkpoint import AGAIN, OFFSET, STEP
from kbq.maintain.build import publish_encoded
from kbq.model.model import Model
from kbq.storage.folders import leads_within, refuse_strange_files
from kbq.storage.paths import as_path
from kbq.storage.reading import reading_problem, refuse_large
from kbq.storage.reports import Note, Report, silent, unheard

SEPARATOR = " [PAR] "
# The official search pairs rows at most 9 apart, whose tokens are at most 10 apart.
LIMIT = PhraseLimit(tokens=11, rows=10, repeats=True)
NAMED = 20  # documents whose misfits are named

ROWS = "start"
KEPT = "f2o_start"
STARTS = "word2char_start"
ENDS = "word2char_end"

# Tokens and rows of a paragraph, and paragraphs that are tried.
LONGEST = 200
FEWEST = 4
TRIED = 100
# correlation, less the mean of all tokens: of the vectors 1.0, of their codes above 0.9, of others
# about 0.
ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class OfficialDocument:
    """A document of a phrase dump. `kept`: the tokens that have a row. Shapes: starts, ends
    (tokens,), kept (rows,).
    """

    number: str
    title: str
    text: str
    starts: Rows
    ends: Rows
    kept: Rows
    source: Path  # the file that it is in

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not belong together."""
        tokens = len(self.starts)
        if len(self.ends) != tokens:
            raise ValueError(f"it has {tokens:,} starts of tokens and {len(self.ends):,} ends")
        if len(self.kept) and not 0 <= self.kept[0] <= self.kept[-1] < tokens:
            raise ValueError(f"it keeps token {self.kept[-1]:,} of {tokens:,}")
        if (np.diff(self.kept) <= 0).any():
            raise ValueError("its kept tokens are not in order")
        try:
            (self.title + self.text).encode()
        except UnicodeEncodeError:
            raise ValueError("its text is not UTF-8") from None


class DocumentPage(Page):
    """A page with the document that it was made from."""

    __slots__ = ("document", "misfits", "paragraph_of")

    document: OfficialDocument
    paragraph_of: Rows  # the paragraph of each token. Shape: (tokens,)
    misfits: Bools  # tokens whose characters are not in one paragraph. Shape: (tokens,)

    def __init__(self, document: OfficialDocument) -> None:
        texts = document.text.split(SEPARATOR)
        starts = document.starts
        ends = document.ends
        begins = np.cumsum([0, *(len(text) + len(SEPARATOR) for text in texts[:-1])])
        paragraph_of = (np.searchsorted(begins, starts, side="right") - 1).clip(min=0)
        in_order = paragraph_of
        if len(paragraph_of):
            in_order = np.maximum.accumulate(paragraph_of)
        stops = (begins + [len(text) for text in texts])[in_order]
        misfits = (starts < 0) | (ends <= starts) | (ends > stops) | (paragraph_of != in_order)
        with_tokens = set(np.unique(in_order).tolist())
        filled = [
            number for number, text in enumerate(texts) if text.strip() or number in with_tokens
        ]
        super().__init__(
            document.number, document.title, [Paragraph(number, texts[number]) for number in filled]
        )

        for name, value in (
            ("document", document),
            ("paragraph_of", in_order),
            ("misfits", misfits),
        ):
            object.__setattr__(self, name, value)

    def encoded(self, vectors: NDArray[np.int8], logits: Floats) -> EncodedParagraphs:
        """Return the paragraphs with their rows; phrases neither open nor close at misfits.

        `logits`: the higher one of the filter's two. Shapes: (rows, dim), (rows,).
        """
        kept = self.document.kept
        lengths = np.array([len(text) for text in self.document.text.split(SEPARATOR)])
        begins = np.cumsum(lengths + len(SEPARATOR)) - lengths - len(SEPARATOR)
        owners = self.paragraph_of[kept]
        tokens, sizes = (
            np.bincount(numbers, minlength=len(lengths)) for numbers in (self.paragraph_of, owners)
        )
        filled = [paragraph.number for paragraph in self.paragraphs]
        edges = np.where(self.misfits[kept], 0, OPENS | CLOSES).astype(np.uint8)
        positions = (kept - np.searchsorted(self.paragraph_of, owners)).astype(np.uint32)
        first_characters = begins[owners]
        longest = lengths[owners]
        starts = (self.document.starts[kept] - first_characters).clip(0, longest).astype(np.uint32)
        ends = (self.document.ends[kept] - first_characters).clip(0, longest).astype(np.uint32)

        return EncodedParagraphs(
            tokens[filled], sizes[filled], vectors, logits, edges, positions, starts, ends
        )


@dataclass(slots=True)
class Misfits:
    """Tokens whose characters are not in one paragraph of their document: no phrase opens or closes
    there.
    """

    tokens: int = 0
    documents: int = 0
    named: list[str] = field(default_factory=list)

    def see(self, page: DocumentPage) -> None:
        """Count the tokens of a page that do not fit its text, and name some."""
        count = int(page.misfits.sum())
        if not count:
            return
        self.tokens += count
        self.documents += 1
        if len(self.named) < NAMED:
            document = page.document
            first = int(page.misfits.argmax())
            characters = (
                f"{document.starts[first]:,}-{document.ends[first]:,} of {len(document.text):,}"
            )
            self.named.append(
                f"document {page.page_id}: {count:,} of {len(document.starts):,} tokens are not "
                f"in a paragraph of its text, the first is token {first:,} at characters {characters}"
            )


def pages_of(documents: Iterator[OfficialDocument], misfits: Misfits) -> Iterator[DocumentPage]:
    """Yield the pages of documents. Raises CorpusError if a number occurs twice."""
    seen = PageIds()
    for document in documents:
        if not seen.add(document.number):
            raise CorpusError(
                f"document {document.number} occurs twice: give a dump in which each has its number"
            )
        page = DocumentPage(document)
        misfits.see(page)
        yield page


def load(library: str) -> Any:
    """Import a library of the extra `official` on demand. Raises KbqError if it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        name = library.partition(".")[0]
        raise KbqError(
            f"files of DensePhrases are read with {name}: install it with pip install {name}"
        ) from None


def dump_files(dump: Path) -> list[Path]:
    """Return the files of a phrase dump, in the order of their names. Raises CorpusError if there
    are none.
    """
    files = sorted((dump / "phrase").glob("*.hdf5"))
    if not files:
        also = " (kbq import index reads an index without one)" if (dump / "start").is_dir() else ""
        raise CorpusError(
            f"{dump} has no phrase dump{also}: give the folder in which phrase/ has .hdf5 files"
        )
    return files


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file, and turn whatever goes wrong while it is read into a CorpusError that
    names it.
    """
    h5py = load("h5py")
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a file")
        with h5py.File(path, "r") as file:
            yield file
    except (
        OSError,
        RuntimeError,
        KeyError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise CorpusError(reading_problem(path, error, AGAIN)) from None


def is_number(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isdecimal() and len(name) < 19


def group(file: Any, name: str) -> Any:
    """Return a group that lies in this file: a link may lead anywhere, to a pipe that never ends,
    say.

    Raises ValueError if it is elsewhere, or no group.
    """
    h5py = load("h5py")
    entry = None
    if isinstance(file.get(name, getlink=True), h5py.HardLink):
        entry = file[name]
    if not isinstance(entry, h5py.Group):
        raise ValueError(f"{name[:40]!r} is not a group in this file")
    return entry


def dataset(group: Any, name: str, kind: type[np.generic] | str, dimensions: int = 1) -> Any:
    """Return a dataset that lies in its file and holds this kind of numbers.

    Raises ValueError if it is missing, elsewhere, or of another type, and CorpusError if its pieces
    are too large.
    """
    h5py = load("h5py")
    what = f"{name} of document {group.name.strip('/')}"
    entry = None
    if isinstance(group.get(name, getlink=True), h5py.HardLink):
        entry = group[name]
    if not isinstance(entry, h5py.Dataset) or entry.is_virtual or entry.external:
        problem = "is missing"
        if name in group:
            problem = "is not in this file"
        raise ValueError(f"{what} {problem}")
    if not np.issubdtype(entry.dtype, kind) or entry.ndim != dimensions:
        raise ValueError(f"{what} holds {entry.dtype} {entry.shape}")
    piece = math.prod(entry.chunks or ()) * entry.dtype.itemsize  # bytes that are read at once
    refuse_large(f"{entry.file.filename}{entry.name}", piece, CorpusError)
    return entry


def values(group: Any, name: str, kind: type[np.generic] | str, dimensions: int = 1) -> Any:
    """Read a dataset as a whole. Raises ValueError as `dataset`, and CorpusError if it is too
    large.
    """
    entry = dataset(group, name, kind, dimensions)
    refuse_large(f"{entry.file.filename}{entry.name}", entry.nbytes, CorpusError)
    return entry[:]


def documents(dump: Path, dim: int) -> Iterator[OfficialDocument]:
    """Yield all documents of a dump, in the order of files and groups.

    Raises CorpusError if a file is missing or damaged, or the vectors are not those of a model of
    `dim` dimensions.
    """
    for path in dump_files(dump):
        with opened(path) as file:
            for name in file:
                if not is_number(name):
                    raise ValueError(
                        f"the group {name[:40]!r} is not named by the number of a document"
                    )
                yield _document(group(file, name), path, dim)


def _document(group: Any, path: Path, dim: int) -> OfficialDocument:
    """Read a document. Raises ValueError if the group does not hold one."""
    name = group.name.strip("/")
    title, text = (group.attrs.get(attribute) for attribute in ("title", "context"))
    if not (isinstance(title, str) and isinstance(text, str)):
        raise ValueError(f"document {name} has no title or no context")
    for attribute, expected in (("offset", OFFSET), ("scale", 1 / STEP)):
        value = float(group.attrs.get(attribute, expected))
        if value != expected:
            raise ValueError(
                f"document {name} has the {attribute} {value:g}, only {expected:g} is read"
            )

    kept, starts, ends = (
        values(group, part, np.integer).astype(np.int64) for part in (KEPT, STARTS, ENDS)
    )
    rows = dataset(group, ROWS, np.int8, 2)
    if rows.shape[1] != dim:
        raise CorpusError(
            f"{path} has vectors of {rows.shape[1]} dimensions, the model of {dim}: give the "
            "checkpoint that made it"
        )

    if len(rows) != len(kept):
        raise ValueError(f"document {name} has {len(rows):,} vectors for {len(kept):,} kept tokens")
    try:
        return OfficialDocument(name, title, text, starts, ends, kept, path)
    except ValueError as error:
        raise ValueError(f"document {name}: {error}") from None


def encoded(pages: Sequence[DocumentPage]) -> EncodedParagraphs:
    """Return the paragraphs of pages with their vectors and, where they are known, the logits of
    the filter.
    """
    parts: list[EncodedParagraphs] = []
    for path, of_file in groupby(pages, key=lambda page: page.document.source):
        filters = path.parents[1] / "filter" / path.name
        with (
            opened(path) as file,
            opened(filters) if filters.is_file() else nullcontext() as logits,
        ):
            for page in of_file:
                rows = values(group(file, page.page_id), ROWS, np.int8, 2)
                parts.append(page.encoded(rows, _logits(logits, page)))
    return EncodedParagraphs.joined(parts)


def _logits(file: Any, page: DocumentPage) -> Floats:
    """Return the filter's higher logit of each row; 0 where none was written. Raises ValueError."""
    kept = page.document.kept
    tokens = len(page.document.starts)
    if file is None or page.page_id not in file:
        return np.zeros(len(kept), np.float32)
    of_page = group(file, page.page_id)
    start, end = (values(of_page, f"filter_{side}", np.floating) for side in ("start", "end"))
    if len(start) != tokens or len(end) != tokens:
        raise ValueError(
            f"document {page.page_id} has {tokens:,} tokens, and logits for {len(start):,}"
        )

    logits: Floats = np.maximum(start, end)[kept].astype(np.float32)
    return logits


def opened_model(model: str | Path | Model, device: str) -> Model:
    """Open a model that reads queries and stores values as the official code does.

    Raises ModelError if it is missing or damaged, or was not made of an official checkpoint.
    """
    if isinstance(model, Model):
        opened = model
    else:
        opened = Model.open(as_path(model, "a model"), device)
    if opened.config.value_offset != OFFSET or not np.allclose(opened.scale, STEP):
        raise ModelError(
            f"the model {opened.source} was not made of a checkpoint of DensePhrases: give the "
            "checkpoint that made the vectors"
        )
    return opened


@dataclass(frozen=True, slots=True)
class Imported:
    """A knowledge base that was imported, and the tokens of the dump at which it finds no phrase."""

    folder: Path
    manifest: Manifest
    misfits: Misfits


def import_dump(
    dump: str | Path,
    folder: str | Path,
    model: str | Path | Model,
    *,
    bm25: bool = True,
    device: str = "auto",
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> Imported:
    """Make a knowledge base of a phrase dump, document by document; a run that was killed resumes.

    Args:
        dump: the folder that has `phrase/`, with its HDF5 files, and perhaps `filter/`.
        folder: of the new knowledge base.
        model: the checkpoint that the dump was made with, or the model that was made of it.
        bm25: index the words, too.
        note: called if vectors, texts and model do not seem to fit.

    Raises:
        CorpusError: a file is missing or damaged, or holds vectors of another model.
        ModelError: see `opened_model`.
        KnowledgeBaseError: the folder is in use, not writable, or holds something else.
    """
    source = as_path(dump, "a phrase dump")
    out = as_path(folder, "the folder of a knowledge base")
    refuse_strange_files(source, "a dump", CorpusError, leads_within(source))
    dump_files(source)
    load("h5py")
    opened = opened_model(model, device)
    misfits = Misfits()
    manifest = publish_encoded(
        pages_of(documents(source, opened.dim), misfits),
        encoded,
        out,
        opened,
        phrases=LIMIT,
        bm25=bm25,
        report=report,
        report_stage=report_stage,
    )
    warn_unlike(manifest.open_shards(out), opened, note)

    return Imported(out, manifest, misfits)


def warn_unlike(shards: Sequence[Shard], model: Model, note: Note) -> None:
    """Encode the first paragraph that can be compared again; note if vectors, texts and model do
    not seem to fit.
    """
    for shard, paragraph in islice(_short_paragraphs(shards), TRIED):
        place = (
            f"paragraph {shard.paragraph_numbers[paragraph]} of document "
            f"{shard.answer(paragraph, 0.0).page_id}"
        )
        page = Page("", shard.title_of(paragraph), shard.texts[paragraph])
        encoded = PageEncoder(model)([page])
        if encoded.tokens[0] != shard.paragraph_tokens[paragraph]:
            continue  # it was cut into several windows
        rows = shard.rows_of(paragraph)
        pair = shard.vectors_of(rows), encoded.vectors[shard.positions[rows]]
        likeness = float(np.corrcoef(*((side - side.mean(axis=0)).ravel() for side in pair))[0, 1])
        if likeness < ALIKE:
            problem = f"other vectors than the model gives it (their correlation is {likeness:.2f})"
            note(
                f"{place} has {problem}: is this the checkpoint that it was made with, and are all "
                "files of one dump?"
            )

        return


def _short_paragraphs(shards: Sequence[Shard]) -> Iterator[tuple[Shard, int]]:
    """Yield paragraphs with some rows that are probably in one window, whatever its length was."""
    for shard in shards:
        short = (shard.paragraph_sizes() >= FEWEST) & (shard.paragraph_tokens <= LONGEST)
        yield from ((shard, int(paragraph)) for paragraph in np.flatnonzero(short))
