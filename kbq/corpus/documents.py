"""Documents: read a folder, an archive or a single file as pages, one for a document, a page of a
PDF or a row.
"""

import errno
import heapq
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from lzma import LZMAError
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import unquote

from kbq.corpus.options import CorpusColumns, DocumentOptions
from kbq.corpus.pages import Page, PageIds, clean_metadata
from kbq.corpus.reading import (
    HTML,
    INSTALL,
    LIBRARIES,
    PLAIN,
    ZIPPED,
    Reading,
    TitleParts,
    chosen_title,
    lacks_library,
    read_several,
    shared_ends,
)
from kbq.corpus.table_pages import NAMED, TableRow, is_table, rows_of_file
from kbq.errors import CorpusError, KbqError, first_line
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.lines import (
    BadLine,
    is_member,
    read_bytes,
    source_name,
    without_compression,
)
from kbq.storage.reading import refuse_large, unreadable
from kbq.storage.reports import Note
from kbq.storage.rows import SUFFIXES
from kbq.text.normal_forms import clean_text, normal_form, normalised, without_surrogates

SHOWN = 8  # kinds of files, or documents, that a note names
# documents, and bytes, that are read in one call.
TOGETHER = 32
SMALL = 2**18
LOCK = "~$"  # prefix of Office's lock files
KINDS = (
    ".txt, .md, .html, .docx, .odt, .rtf, .epub, .pptx, .pdf, .mediawiki, .tex, .eml, .mbox, "
    ".csv, .xlsx or .parquet"
)
# Kinds of files that look like documents, and what to do with them.
OTHERS = {
    ".doc": "is of an old version of Word: save it as .docx",
    ".dot": "is of an old version of Word: save it as .docx",
    ".ppt": "is of an old version of PowerPoint: save it as .pptx",
    ".pages": "is of Apple Pages: export it as .docx",
    ".xls": "is of an old version of Excel: save it as .xlsx, or as CSV",
    ".ods": "is a spreadsheet: save it as .xlsx, or as CSV",
    ".feather": "is an Arrow file: save it as Parquet",
    ".arrow": "is an Arrow file: save it as Parquet",
    ".tar": "is an archive: unpack it, or make a zip",
    ".tgz": "is an archive: unpack it, or make a zip",
    ".7z": "is an archive: unpack it, or make a zip",
    ".rar": "is an archive: unpack it, or make a zip",
    ".mobi": "is an e-book of Amazon's: convert it to EPUB",
    ".azw3": "is an e-book of Amazon's: convert it to EPUB",
    ".msg": "is a mail of Outlook: save it as .eml",
    ".djvu": "is a scan: save it as PDF, with its text recognised (OCR)",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A document that has been read."""

    id: str  # its path in the folder or the archive, or its name
    title: str
    reading: Reading

    def page(self, number: int, texts: Sequence[str]) -> Page:
        """Return one of its pages. Raises CorpusError if its metadata are not text."""
        page_id = self.id
        metadata = self.reading.metadata
        if number:
            page_id = f"{self.id}#page={number}"
            metadata = {"page": number} | metadata
        return Page(page_id, self.title, map(clean_text, texts), metadata=clean_metadata(metadata))


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a folder or an archive, or one alone."""

    place: str  # name for messages
    id: str
    read: Callable[[], bytes]  # decompressed; raises CorpusError
    start: Callable[[], bytes]  # some of its first bytes, if it is not compressed
    path: str = ""  # the path of a file outside archives

    @property
    def suffix(self) -> str:
        """Its suffix in lower case, without that of a compressed file."""
        return without_compression(PurePath(self.id)).suffix.lower()


Group: TypeAlias = list[tuple[_File, bytes]]


def name_of(page_id: str) -> str:
    """Return the words of the name of a file.

    >>> name_of("a/marie_jahoda.html"), name_of("HedyLamarr.md"), name_of("Hedy Lamarr - Wikipedia.html")
    ('marie jahoda', 'Hedy Lamarr', 'Hedy Lamarr')
    """
    stem = unquote(without_compression(PurePath(page_id)).stem).replace("_", " ").strip()
    if re.fullmatch("(?:[A-Z][a-z]+){2,}", stem):
        stem = re.sub("(?<=[a-z])(?=[A-Z])", " ", stem)
    if " " in stem:
        words = stem
    else:
        words = stem.replace("-", " ").strip() or stem
    return re.sub(r"\s+[-–—]\s+Wikipedia$", "", words)


def is_document(path: PurePath) -> bool:
    """Return whether a name is that of a document, of a kind whose library is installed."""
    suffix = without_compression(path).suffix.lower()
    return (
        suffix in (*PLAIN, *LIBRARIES)
        and not lacks_library(suffix)
        and not path.name.startswith(LOCK)
    )


def is_source(path: PurePath) -> bool:
    """Return whether a file of a folder or an archive is read: it is a document, or a table."""
    return is_document(path) or (is_table(path) and not path.name.startswith((LOCK, ".")))


def document_pages(
    source: str, on_bad_line: BadLine, note: Note, options: DocumentOptions, columns: CorpusColumns
) -> Iterator[tuple[str, Callable[[], Page]]]:
    """Yield the place of each page, for messages, and a function that gives it or raises
    CorpusError.

    Documents come in the order of their paths, and tables, whose rows are pages, behind them.
    """
    for place, document in read_documents(source, on_bad_line, note, options, columns):
        if document.id != without_surrogates(document.id):
            on_bad_line(CorpusError(f"{place}: its name is not UTF-8: rename it"))
            continue
        for number, texts in document.reading.pages:
            yield place, partial(document.page, number, texts)


def read_documents(
    source: str,
    on_bad_line: BadLine,
    note: Note,
    options: DocumentOptions,
    columns: CorpusColumns = NAMED,
    most: int | None = None,
) -> Iterator[tuple[str, Document]]:
    """Yield documents and rows of tables with their places for messages, at most `most` of each
    kind if given.
    """
    said = _Said()
    kinds = Counter[str]()
    if not options.strict and (is_folder(source) or is_archive(source)):
        on_bad_line = said.bad.append
    files = list(_found(source, on_bad_line, note))
    sites = shared_ends(file.start() for file in files if file.suffix in HTML)
    documents = [file for file in files if not is_table(PurePath(file.id))]
    wanted = (file for file in documents if most is None or kinds[file.suffix] < most)

    for file, reading in _readings(wanted, on_bad_line, options, 1 if most else TOGETHER):
        kinds[file.suffix] += 1
        title = chosen_title(reading, name_of(file.id), options.title_from, sites)
        yield file.place, Document(file.id, said.own_title(title, file.id), reading)
        said.add(file.place, reading)

    for file in files:
        if is_table(PurePath(file.id)) and (most is None or kinds[file.suffix] < most):
            left = None if most is None else most - kinds[file.suffix]
            for row in islice(_rows(file, on_bad_line, columns, said.left_out, note), left):
                kinds[file.suffix] += 1
                if row.lacks:
                    said.left_out[row.lacks] += 1
                    continue
                title = said.own_title(row.title, f"{file.id}#{row.where}")
                reading = Reading(TitleParts(), [(0, row.texts)], row.metadata)
                yield row.place, Document(f"{file.id}#{row.where}", title, reading)

    said.tell(note)


def _rows(
    file: _File, on_bad_row: BadLine, columns: CorpusColumns, left_out: Counter[str], note: Note
) -> Iterator[TableRow]:
    """Yield the rows of a table; those of an archive are unpacked for it."""
    with nullcontext("") if file.path else TemporaryDirectory() as folder:

        def shown(text: str) -> str:
            return text.replace(path, file.place)

        def tell(problem: KbqError) -> None:
            on_bad_row(CorpusError(shown(problem.typed), list(map(shown, problem.typed_problems))))

        path = file.path
        try:
            if not path:
                path = str(Path(folder) / PurePath(file.id).name)
                Path(path).write_bytes(file.read())
            for row in rows_of_file(path, tell, columns, left_out, lambda text: note(shown(text))):
                yield replace(row, place=shown(row.place))
        except KbqError as problem:
            tell(problem)


def _readings(
    files: Iterable[_File], on_bad_line: BadLine, options: DocumentOptions, together: int
) -> Iterator[tuple[_File, Reading]]:
    """Read files in a process with limits, small ones together, and report those that cannot be
    read.
    """
    with LimitedProcess() as child:

        def read(group: Group) -> list[Reading | str]:
            requests = [(content, file.suffix, options.encoding or "") for file, content in group]
            try:
                return child.call(read_several, requests, seconds=options.seconds_per_document)
            except LimitExceeded as problem:
                if group[1:]:
                    return [read([pair])[0] for pair in group]
                advice = (
                    ": divide it, or give more --seconds-per-document"
                    if problem.limit == "seconds"
                    else ""
                )
                return [f"{problem}{advice}"]

        for group in _groups(files, on_bad_line, together):
            for (file, _), reading in zip(group, read(group), strict=True):
                if isinstance(reading, str):
                    on_bad_line(CorpusError(f"{file.place}: {reading}"))
                else:
                    yield file, reading


def _groups(files: Iterable[_File], on_bad_line: BadLine, together: int) -> Iterator[Group]:
    """Yield files in groups that one request reads: several small ones, or one large one."""
    group: Group = []
    for file in files:
        try:
            group.append((file, file.read()))
        except CorpusError as problem:
            reason = problem.typed.removeprefix(f"{file.place}: ")
            on_bad_line(CorpusError(f"{file.place}: {reason}"))
        if len(group) == together or sum(len(content) for _, content in group) > SMALL:
            yield group
            group = []

    if group:
        yield group


@dataclass(slots=True)
class _Said:
    """What is to be said about the documents that were read."""

    bad: list[KbqError] = field(default_factory=list)
    titles: PageIds = field(default_factory=PageIds)
    repeated: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def own_title(self, title: str, page_id: str) -> str:
        """Return a title that no document before has."""
        if self.titles.add(normalised(title)):
            return title
        self.repeated.append(page_id)
        return f"{title} ({page_id})"

    def add(self, place: str, reading: Reading) -> None:
        """Count what was left out of a document."""
        self.left_out.update(reading.left_out)
        if reading.encoding:
            self.guessed.append(f"{place} ({reading.encoding})")

    def tell(self, note: Note) -> None:
        """Say it all, in a line for each kind."""
        for problem in self.bad[:SHOWN]:
            note(f"left out: {problem.typed}")
        if len(self.bad) > SHOWN:
            note(
                f"left out: {len(self.bad) - SHOWN:,} more documents that cannot be read; "
                "--strict refuses the first"
            )

        if self.left_out:
            parts = ", ".join(
                f"{reason} ({count:,})" for reason, count in self.left_out.most_common()
            )
            note(f"not read within documents: {parts}")

        if self.guessed:
            note(f"encodings guessed, as --encoding is not given: {_some(self.guessed)}")
        if self.repeated:
            note(
                "titles that other documents have, too, so their paths were added: "
                f"{_some(self.repeated)}"
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    )


def _found(source: str, on_bad_line: BadLine, note: Note) -> Iterator[_File]:
    """Yield the documents, and count other files in a note. Raises CorpusError if there is no
    document.
    """
    root = Path(source)
    if is_archive(source):
        yield from _members(root, note)
        return

    left_out = Counter[str]()
    if is_folder(source):
        paths = sorted(_files(root, on_bad_line, left_out))
    else:
        paths = [root]
    _say(left_out, note)
    if not paths:
        raise CorpusError(f"{source_name(source)} contains no {KINDS} file: choose another folder")
    for path in paths:
        page_id = normal_form(
            "NFC", path.name if path == root else path.relative_to(root).as_posix()
        )
        yield _File(
            source_name(str(path)),
            page_id,
            partial(_content, path),
            partial(first_bytes, path),
            str(path),
        )


def first_bytes(path: Path) -> bytes:
    """Return the beginning of a file, or nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _content(path: Path) -> bytes:
    """Read a file; decompress it unless its kind is a zip itself, or PDF."""
    if path.suffix.lower() not in (*ZIPPED, ".pdf"):
        return read_bytes(str(path), CorpusError)
    try:
        refuse_large("it", path.stat().st_size, CorpusError)
        return path.read_bytes()
    except OSError as reason:
        raise _unreadable(path, reason) from None


def is_folder(source: str) -> bool:
    return os.path.isdir(source)  # noqa: PTH112 - where one may not look it is False, and reading the file says why


def is_archive(source: str) -> bool:
    """Return whether a source is a zip of documents, and not one file of another kind that is only
    compressed.
    """
    try:
        if source == "-" or PurePath(source).suffix.lower() != ".zip":
            return False
        with zipfile.ZipFile(source) as archive:
            members = [PurePath(entry.filename) for entry in archive.infolist() if is_member(entry)]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False  # reading it will say what is wrong
    return len(members) > 1 or any(map(is_document, members))


def refuse_other_kinds(source: str) -> None:
    """Refuse a file of a kind that kbq does not read, and say what to do. Raises CorpusError."""
    path = PurePath(source)
    suffixes = "".join(path.suffixes[-2:]).lower()
    if suffixes.startswith(".tar."):
        kind = ".tar"
    else:
        kind = path.suffix.lower()
    if source != "-" and kind in OTHERS and not is_folder(source):
        raise CorpusError(f"{source_name(source)} {OTHERS[kind]}")
    suffix = without_compression(path).suffix.lower()
    if source != "-" and lacks_library(suffix) and not is_folder(source):
        raise CorpusError(f"{source_name(source)} needs a further package: {INSTALL}")


def _members(path: Path, note: Note) -> Iterator[_File]:
    """Yield the documents of a ZIP archive by name. Raises CorpusError if it has none."""
    name = source_name(str(path))
    archive = zipfile.ZipFile(path)
    members = sorted(
        (entry for entry in archive.infolist() if is_member(entry)), key=lambda one: one.filename
    )
    wanted = [member for member in members if is_source(PurePath(member.filename))]
    _say(
        Counter(_kind(PurePath(member.filename)) for member in members if member not in wanted),
        note,
    )
    if not wanted:
        raise CorpusError(f"{name} contains no {KINDS} file: choose another archive")
    for one in wanted:
        yield _File(
            f"{name}/{one.filename}",
            normal_form("NFC", one.filename),
            partial(_unpacked, path, one),
            bytes,
        )

    archive.close()


def _unpacked(path: Path, member: zipfile.ZipInfo) -> bytes:
    """Return a file of an archive. Raises CorpusError if it is too large or damaged."""
    refuse_large("it", member.file_size, CorpusError)
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    except (
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        zlib.error,
        LZMAError,
        zipfile.BadZipFile,
    ) as reason:
        raise CorpusError(
            f"cannot be read ({first_line(reason)}): pack the archive again"
        ) from None


def _kind(path: PurePath) -> str:
    if path.name.startswith(LOCK):
        return "lock files of Office"
    return path.suffix.lower()


def _say(left_out: Counter[str], note: Note) -> None:
    """Note how many files are left out, and of which kinds."""
    if left_out:
        common = sorted(left_out.items(), key=lambda one: (-one[1], one[0]))[:SHOWN]
        kinds = [f"{suffix or 'without a suffix'} ({count})" for suffix, count in common]
        if left_out.total() == 1:
            files = "1 file"
        else:
            files = f"{left_out.total():,} files"
        lacking = [suffix for suffix in left_out if lacks_library(suffix)]
        needed = ""
        if lacking:
            needed = f" ({', '.join(lacking)}: {INSTALL})"
        note(
            f"{files} left out: {', '.join(kinds)}{', …' if len(left_out) > SHOWN else ''}{needed}"
        )
        if lines := sorted(
            set(left_out) & {suffix for suffix, kind in SUFFIXES.items() if kind == "jsonl"}
        ):
            note(f"JSON lines are no documents ({', '.join(lines)}): build each file by itself")

        if ".msg" in left_out:
            note("mails of Outlook are not read (.msg): save them as .eml")


def _files(root: Path, on_bad_line: BadLine, left_out: Counter[str]) -> Iterator[Path]:
    """Yield the documents in a folder, in no order; what may not be read is a bad line, and other
    files are counted.

    Symbolic links are followed, but each folder is read once: under its own path, if that is below
    the root, else under the first link to it. Hidden files and folders are left out: folders copied
    from other systems are full of them.
    """
    seen: set[tuple[int, int]] = set()
    folders = [root]
    links = list[Path]()
    while folders or links:
        folder = folders.pop() if folders else heapq.heappop(links)
        try:
            facts = folder.stat()
            entries = []
            if (facts.st_dev, facts.st_ino) not in seen:
                entries = list(os.scandir(folder))
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
                    if entry.is_symlink():
                        heapq.heappush(links, path)
                    else:
                        folders.append(path)
                # A link that leads nowhere is found out where it is read.
                elif is_source(path) and (entry.is_file() or not path.exists()):
                    yield path
                elif entry.is_file():
                    left_out[_kind(path)] += 1
            except (
                OSError
            ) as reason:  # a link that leads to where one may not look, or round in a circle
                if is_source(path) or reason.errno != errno.ELOOP:
                    on_bad_line(_unreadable(path, reason))


def _unreadable(path: Path, reason: OSError) -> CorpusError:
    return CorpusError(unreadable(source_name(str(path)), reason))
