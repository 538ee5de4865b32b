"""Folders: a folder, an archive, or a file alone becomes the documents in it, in the order of their paths."""

import errno
import heapq
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePath

from kbq.corpus.documents import Document, is_document
from kbq.corpus.office import INSTALL, LARGEST, LIBRARIES, lacks_library
from kbq.errors import CorpusError, first_line
from kbq.storage.lines import LONGEST, BadLine, is_member, read_bytes, source_name
from kbq.storage.progress import Note
from kbq.text.normal_forms import normal_form

SHOWN = 8  # kinds of files that are left out


def documents(source: str, on_bad_line: BadLine, note: Note) -> Iterator[tuple[str, Document]]:
    """The documents, each with its place for messages; what else is there is named in a note.

    Raises:
        CorpusError: there is none.
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
    """The bytes of a file, decompressed; DOCX, which is a zip itself, and PDF as they are.

    Raises:
        CorpusError: it cannot be read, or is too large.
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
    """Whether a source is a zip of documents, not of one file of another kind, which is only compressed."""
    try:
        if source == "-" or PurePath(source).suffix.lower() != ".zip":
            return False
        with zipfile.ZipFile(source) as archive:
            members = [PurePath(one.filename) for one in archive.infolist() if is_member(one)]
    except (OSError, zipfile.BadZipFile):
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
    """The documents in a folder, in no order; what may not be read is a bad line, and other files are counted.

    Symbolic links are followed, but each folder is read once: under its own path, if that is below the root, else under
    the first link to it. Hidden files and folders are left out: folders that were copied from other systems are full of
    them.
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
                elif is_document(path) and (entry.is_file() or entry.is_symlink()):
                    yield path
                elif entry.is_file():
                    left_out[path.suffix.lower()] += 1
            except OSError as reason:  # of a link that leads to where one may not look, or round in a circle
                if is_document(path) or reason.errno != errno.ELOOP:
                    on_bad_line(_unreadable(path, reason))


def _unreadable(path: Path, reason: OSError) -> CorpusError:
    return CorpusError(f"{source_name(str(path))}: cannot be read ({reason.strerror}): check its path and permissions")
