"""Documents: a folder, an archive, or a file alone becomes pages: one of each document, or several of a PDF."""

import errno
import heapq
import io
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePath

from kbq.corpus.markdown import Parts, markdown_parts
from kbq.corpus.metadata import clean_metadata
from kbq.corpus.office import INSTALL, LARGEST, LIBRARIES, lacks_library, pdf_pages, word_parts
from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.web import web_parts
from kbq.errors import CorpusError, first_line
from kbq.storage.lines import COMPRESSED, LONGEST, MARK, BadLine, decoded, ended, is_member, read_bytes, source_name
from kbq.storage.progress import Note
from kbq.text.letters import clean_text, normal_form, without_surrogates

SHOWN = 8  # kinds of files that are left out
PDF = ".pdf"


@dataclass(frozen=True, slots=True)
class Document:
    """A file of a folder or an archive, or one alone."""

    id: str  # its path there, or its name
    content: bytes  # decompressed

    @property
    def lines(self) -> list[str]:
        """The lines without their ends, whatever these are. Raises CorpusError if they are not UTF-8."""
        numbered = enumerate(ended(io.BytesIO(self.content)), 1)
        try:
            text = "".join(line for _, line in decoded(numbered, "", CorpusError))
        except CorpusError as problem:
            raise CorpusError(f"line {str(problem).lstrip(':')}") from None
        return re.split(r"\r\n|\r|\n", text.removeprefix(MARK))

    @property
    def text(self) -> str:
        """The lines with LF between them."""
        return "\n".join(self.lines)

    @property
    def title(self) -> str:
        """The title that its name suggests, for a file that has none itself."""
        stem = without_compression(PurePath(self.id)).stem.replace("_", " ").strip()
        return stem if " " in stem else stem.replace("-", " ").strip() or stem


READERS: dict[str, Callable[[Document], Parts]] = {
    ".txt": lambda document: Parts("", blocks(document.text)),
    ".md": lambda document: markdown_parts(document.lines),
    ".html": lambda document: web_parts(document.text),
    ".docx": lambda document: word_parts(document.content),
}
READERS |= {".text": READERS[".txt"], ".markdown": READERS[".md"]} | dict.fromkeys((".htm", ".xhtml"), READERS[".html"])


def is_document(path: PurePath) -> bool:
    """Whether a file becomes a page, or several, as its name says; not one whose library is not installed."""
    plain = without_compression(path)
    return plain.suffix.lower() in (*READERS, PDF) and not lacks_library(plain)


def _sources_of(document: Document) -> Iterator[Callable[[], Page]]:
    """Yield a function for each page of a document, which reads it or raises CorpusError."""
    suffix = without_compression(PurePath(document.id)).suffix.lower()
    if suffix != PDF:
        yield lambda: _page(document, document.id, READERS[suffix](document))
        return
    try:
        for number, parts in pdf_pages(document.content):
            yield partial(_page, document, f"{document.id}#page={number}", parts)
    except CorpusError as problem:
        yield partial(_refused, problem)


def _refused(problem: CorpusError) -> Page:
    raise problem


def _page(document: Document, page_id: str, parts: Parts) -> Page:
    if page_id != without_surrogates(page_id):
        raise CorpusError("its name is not UTF-8: rename it")
    # Marks of lists became blanks: a paragraph begins behind them.
    paragraphs = [
        Paragraph(number, clean_text(text), len(text) - len(text.lstrip()))
        for number, text in enumerate(parts.paragraphs)
    ]
    filled = [one for one in paragraphs if one.text.strip()]
    title = clean_text(parts.title or document.title).strip()
    return Page(page_id, title, filled, metadata=clean_metadata(parts.metadata))


def without_compression(path: PurePath) -> PurePath:
    """Return a path without the suffix that says that its file is compressed."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def blocks(text: str) -> list[str]:
    """Split a text at its blank lines."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]


def document_pages(source: str, on_bad_line: BadLine, note: Note) -> Iterator[tuple[str, Callable[[], Page]]]:
    """Yield the place of each page, for messages, and a function that reads it or raises CorpusError.

    Documents are in the order of their paths; other files are named in a note. Raises CorpusError if there is none.
    """
    for place, document in _documents(source, on_bad_line, note):
        yield from ((place, read) for read in _sources_of(document))


def _documents(source: str, on_bad_line: BadLine, note: Note) -> Iterator[tuple[str, Document]]:
    """Yield the documents, each with its place for messages, and name other files in a note.

    Raises CorpusError if there is none.
    """
    root = Path(source)
    if is_archive(source):
        yield from _members(root, on_bad_line, note)
        return
    left_out = Counter[str]()
    paths = sorted(_files(root, on_bad_line, left_out)) if is_folder(source) else [root]
    _say(left_out, note)
    if not paths:
        raise CorpusError(
            f"{source_name(source)} contains no .txt, .md, .html, .docx or .pdf file: choose another folder"
        )
    for path in paths:
        page_id = path.name if path == root else path.relative_to(root).as_posix()
        try:
            yield source_name(str(path)), Document(normal_form("NFC", page_id), _content(path))
        except CorpusError as problem:
            on_bad_line(problem)


def _content(path: Path) -> bytes:
    """Read a file, decompressed, but DOCX, which is a zip itself, and PDF as they are.

    Raises CorpusError if it cannot be read, or is too large.
    """
    if path.suffix.lower() not in LIBRARIES:
        return read_bytes(str(path), CorpusError)
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise CorpusError(
                f"{source_name(str(path))}: it has {size:,} bytes, {LARGEST:,} at most are read: divide it"
            )
        return path.read_bytes()
    except OSError as reason:
        raise _unreadable(path, reason) from None


def is_folder(source: str) -> bool:
    """Whether a source is a folder."""
    return os.path.isdir(source)  # noqa: PTH112 - where one may not look it is False, and reading the file says why


def is_archive(source: str) -> bool:
    """Whether a source is a zip of documents, and not one file of another kind that is only compressed."""
    try:
        if source == "-" or PurePath(source).suffix.lower() != ".zip":
            return False
        with zipfile.ZipFile(source) as archive:
            members = [PurePath(one.filename) for one in archive.infolist() if is_member(one)]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False  # where it is read, it is said what is wrong
    return len(members) > 1 or any(map(is_document, members))


def _members(path: Path, on_bad_line: BadLine, note: Note) -> Iterator[tuple[str, Document]]:
    name = source_name(str(path))
    with zipfile.ZipFile(path) as archive:
        members = sorted((one for one in archive.infolist() if is_member(one)), key=lambda one: one.filename)
        wanted = [one for one in members if is_document(PurePath(one.filename))]
        _say(Counter(PurePath(one.filename).suffix.lower() for one in members if one not in wanted), note)
        if not wanted:
            raise CorpusError(f"{name} contains no .txt, .md, .html, .docx or .pdf file: choose another archive")
        for one in wanted:
            place = f"{name}/{one.filename}"
            try:
                most = LARGEST if PurePath(one.filename).suffix.lower() in LIBRARIES else LONGEST
                if one.file_size > most:
                    raise CorpusError(f"{place}: it has {one.file_size:,} bytes, {most:,} at most are read: divide it")
                yield place, Document(normal_form("NFC", one.filename), archive.read(one))
            except CorpusError as problem:
                on_bad_line(problem)
            except (OSError, EOFError, RuntimeError, ValueError, zlib.error, LZMAError, zipfile.BadZipFile) as reason:
                on_bad_line(CorpusError(f"{place}: cannot be read ({first_line(reason)}): pack the archive again"))


def _say(left_out: Counter[str], note: Note) -> None:
    if left_out:
        kinds = [f"{suffix or 'without a suffix'} ({count})" for suffix, count in left_out.most_common(SHOWN)]
        files = "1 file" if left_out.total() == 1 else f"{left_out.total():,} files"
        needed = (
            f" (.docx and .pdf: {INSTALL})" if any(lacks_library(PurePath(f"x{suffix}")) for suffix in left_out) else ""
        )
        note(f"{files} left out: {', '.join(kinds)}{', …' if len(left_out) > SHOWN else ''}{needed}")


def _files(root: Path, on_bad_line: BadLine, left_out: Counter[str]) -> Iterator[Path]:
    """Yield the documents in a folder, in no order; what may not be read is a bad line, and other files are counted.

    Symbolic links are followed, but each folder is read once: under its own path, if that is below the root, else under
    the first link to it. Hidden files and folders are left out: folders copied from other systems are full of them.
    """
    seen: set[tuple[int, int]] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else heapq.heappop(links)
        try:
            facts = folder.stat()
            entries = [] if (facts.st_dev, facts.st_ino) in seen else list(os.scandir(folder))
        except OSError as reason:
            on_bad_line(_unreadable(folder, reason))
            continue
        seen.add((facts.st_dev, facts.st_ino))
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir():
                    heapq.heappush(links, path) if entry.is_symlink() else folders.append(path)
                # A link that leads nowhere is found out where it is read.
                elif is_document(path) and (entry.is_file() or not path.exists()):
                    yield path
                elif entry.is_file():
                    left_out[path.suffix.lower()] += 1
            except OSError as reason:  # of a link that leads to where one may not look, or round in a circle
                if is_document(path) or reason.errno != errno.ELOOP:
                    on_bad_line(_unreadable(path, reason))


def _unreadable(path: Path, reason: OSError) -> CorpusError:
    return CorpusError(f"{source_name(str(path))}: cannot be read ({reason.strerror}): check its path and permissions")
