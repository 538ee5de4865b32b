"""Readers: a file, a folder or standard input becomes a stream of `Page`s.

| format | a page is | its id | its paragraphs, numbered from 0 |
|---|---|---|---|
| kilt | a line of a KILT knowledge source | `wikipedia_id` | `text` without title line and headings |
| jsonl | a line `{"id", "title", "text"}` | `id`, of BEIR `_id` | `text` split at blank lines, or `paragraphs` |
| squad | an article of a SQuAD file | `id`, else `title` | its `context`s |
| dpr | consecutive rows with the same title | id of the first passage | passages, each numbered by its own id |
| msmarco | a line of an id, a tab and a passage | the id | the passage |
| text | a document, or a page of a PDF | path in the folder or zip | as its reader sees them |
| table | a row of CSV, TSV, XLSX or Parquet | `id`, or its place | `text` split at blank lines, or each cell |

Columns of a table and fields of jsonl may be named otherwise (`CorpusColumns`). jsonl and kilt may
be one JSON array. Titles and paragraphs are cleaned by `clean_text` and otherwise unchanged;
character positions refer to the cleaned text; those of documents to the text that is shown. Blank
paragraphs, title lines and KILT headings are left out, and the others keep their numbers; a page
without paragraphs is still a page. The other fields of a kilt or jsonl line are the page's
metadata, except kilt's `_id`, `anchors` and `categories`. Ids are stripped strings, so 7 and "7"
are the same id; a duplicate id (squad: title, where there are no ids) is a bad line. One page is in
memory at a time; for text, one file; for squad, the whole corpus.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import NamedTuple, get_args

from kbq.corpus.documents import (
    document_pages,
    first_bytes,
    is_archive,
    is_document,
    is_folder,
    read_documents,
    refuse_other_kinds,
)
from kbq.corpus.formats import (
    DPR_HEADER,
    dpr_pages,
    jsonl_page,
    kilt_page,
    msmarco_page,
    squad_pages,
)
from kbq.corpus.options import CorpusColumns, CorpusFormat, DocumentOptions
from kbq.corpus.pages import Page, PageIds, refuse_long_names
from kbq.corpus.reading import LIBRARIES, PLAIN
from kbq.corpus.table_pages import Source, table_pages
from kbq.errors import MOST_PROBLEMS, CorpusError, KbqError
from kbq.storage.lines import (
    BadLine,
    Line,
    parse_json_lines,
    read_lines,
    refuse,
    source_name,
    without_compression,
)
from kbq.storage.paths import as_path
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import SUFFIXES

READ_ON = 100_000  # pages that are read after the first bad line, in search of more
_CHOOSE = "choose the format: " + ", ".join(get_args(CorpusFormat)[1:])
_LINES = ("", ".json", ".jsonl", ".ndjson", ".tsv")  # a zero byte makes one bad line of theirs
_FIRST_LINES: tuple[tuple[CorpusFormat, str], ...] = (
    ("squad", r'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?("data"\s*:|$)'),
    ("kilt", r'\s*(\[\s*)?\{.*"wikipedia_id"\s*:'),
    ("jsonl", r'\s*(\[\s*)?\{.*"(text|paragraphs)"\s*:'),
    ("dpr", DPR_HEADER + r"\s*$"),
    ("msmarco", r"[0-9]+\t[^\t]*$"),
)
# JSON, DPR, compressed.
_HEAD = re.compile(
    rb"(\xef\xbb\xbf)?\s*([{\[]\s*[\"{]|id\ttext|\x1f\x8b|\xfd7zXZ|BZh|\x28\xb5\x2f\xfd)"
)


def read_corpus(
    source: str | Path,
    format: CorpusFormat = "auto",
    on_bad_line: BadLine = refuse,
    known_ids: Iterable[str] = (),
    columns: CorpusColumns | None = None,
    note: Note = unheard,
    documents: DocumentOptions | None = None,
) -> Iterator[Page]:
    """Stream the pages of a corpus, plain or compressed with gzip, xz, bzip2, Zstandard or zip.

    To skip bad lines and collect them: `problems = []`, then `on_bad_line=problems.append`.

    Args:
        source: a file, a folder or zip of documents, or "-" for standard input.
        format: see the table above; "auto" recognises it by the first line, or else by the path.
        on_bad_line: called with the `CorpusError` of a bad line (squad: article; text: file); if it
            returns, the line is skipped. The default raises.
        known_ids: page ids that are taken already, for instance in the knowledge base to append to.
        columns: what holds id, title and text, of tables and jsonl.
        note: called with a sentence about files, and parts of documents, that are left out.
        documents: how documents are read.

    Raises:
        CorpusError: a bad line, no page at all, an unknown format, or a file that cannot be read.
    """
    source = str(as_path(source, "a corpus"))
    if format not in get_args(CorpusFormat):
        raise CorpusError(f"{source_name(source)}: format {format!r} is unknown: {_CHOOSE}")
    known = PageIds(known_ids)
    page_ids = PageIds()
    count = 0
    for location, read_page in _pages(
        source, format, on_bad_line, columns or CorpusColumns(), note, documents
    ):
        try:
            page = read_page()
            refuse_long_names(page)
            if page.page_id in known:
                raise CorpusError(
                    f"page id {page.page_id!r} is already in the knowledge base: leave the page "
                    "out (if all pages are, they were appended before)"
                )

            if not page_ids.add(page.page_id):
                raise CorpusError(
                    f"page id {page.page_id!r} is that of an earlier page, too: give every page "
                    "its own id"
                )
        except CorpusError as problem:
            on_bad_line(CorpusError(f"{location}: {problem.typed}"))
        else:
            count += 1
            yield page

    if count == 0:
        raise CorpusError(
            f"{source_name(source)} contains no pages: check that it is the right file"
        )


class Preview(NamedTuple):
    """The beginning of a document or page, as it will be read."""

    id: str
    title: str
    words: str  # the first ones
    left_out: dict[str, int]  # how often for each reason


def preview(
    source: str | Path,
    most: int,
    format: CorpusFormat = "auto",
    columns: CorpusColumns | None = None,
    note: Note = unheard,
    documents: DocumentOptions | None = None,
) -> Iterator[Preview]:
    """Yield the beginnings of some documents of each kind or, of another corpus, of its first
    pages.
    """
    source = str(as_path(source, "a corpus"))
    if format == "text" or (format == "auto" and _format_of_path(source) == "text"):
        refuse_other_kinds(source)
        for _, one in read_documents(
            source, refuse, note, documents or DocumentOptions(), columns or CorpusColumns(), most
        ):
            yield Preview(one.id, one.title, one.reading.pages[0][1][0], one.reading.left_out)
        return

    for page in islice(read_corpus(source, format, columns=columns, note=note), most):
        yield Preview(
            page.page_id, page.title, page.paragraphs[0].text if page.paragraphs else "", {}
        )


def _pages(
    source: str,
    format: CorpusFormat,
    on_bad_line: BadLine,
    columns: CorpusColumns,
    note: Note,
    documents: DocumentOptions | None,
) -> Iterator[Source]:
    """Return what reads each page of a source, in its format."""
    name = source_name(source)
    refuse_other_kinds(source)
    if format == "auto":
        format = _format_of_path(source)
    lines = read_lines(source, CorpusError, on_bad_line)
    if format == "auto":
        format, lines = _recognised(source, lines, columns)
    if format == "text":
        return document_pages(source, on_bad_line, note, documents or DocumentOptions(), columns)
    if documents and documents.encoding:
        raise CorpusError(
            f"{name} is not a document, so --encoding has no effect: save it as UTF-8"
        )

    if format == "table":
        return table_pages(source, on_bad_line, columns, note)
    if format == "squad":
        return squad_pages(lines, name)
    if format == "dpr":
        return dpr_pages(lines, name, on_bad_line)
    if format == "msmarco":
        return (
            (f"{name}:{number}", partial(msmarco_page, line))
            for number, line in lines
            if line.strip()
        )

    read_page = kilt_page if format == "kilt" else partial(jsonl_page, columns)
    numbered = parse_json_lines(lines, source, CorpusError, on_bad_line)
    return ((f"{name}:{number}", partial(read_page, fields)) for number, fields in numbered)


def _format_of_path(source: str) -> CorpusFormat:
    """Return the format that a path and its first bytes show, or "auto"."""
    if source == "-":
        return "auto"
    path = without_compression(PurePath(source))
    if is_folder(source) or is_archive(source):
        return "text"
    if SUFFIXES.get(path.suffix.lower()) in ("csv", "parquet", "xlsx"):
        return "table"
    beginning = first_bytes(Path(source))
    if path.suffix.lower() in (*LIBRARIES, *PLAIN) and not _HEAD.match(beginning):
        return "text"
    if path == PurePath(source) and path.suffix.lower() not in _LINES and b"\0" in beginning:
        raise CorpusError(
            f"{source} is not text (byte {beginning.index(0) + 1} is 0): give JSON lines, a table, "
            f"or a document of a known kind, in UTF-8"
        )

    return "auto"


def _recognised(
    source: str, lines: Iterator[Line], columns: CorpusColumns
) -> tuple[CorpusFormat, Iterator[Line]]:
    """Return the format of the corpus, and all its lines but blank ones, as standard input cannot
    be read twice.
    """
    head: list[Line] = []
    first = ""
    for line in lines:
        if line[1].strip():
            head.append(line)
        if first.strip():
            first = first + line[1].strip()
        else:
            first = line[1]
        if first.strip() not in ("", "[", "[{"):  # the second line of an array says more
            break

    if not first.strip():
        return "jsonl", iter(head)  # only blank lines: no pages, whatever the format
    for format, pattern in _FIRST_LINES:
        if re.match(pattern, first):
            return format, chain(head, lines)

    if source != "-" and is_document(PurePath(source)):
        return "text", lines
    if re.match(r"\s*(\[\s*)?\{", first) and (
        columns != CorpusColumns() or first.lstrip().startswith("[")
    ):
        return "jsonl", chain(head, lines)

    if (
        source != "-"
        and SUFFIXES.get(without_compression(PurePath(source)).suffix.lower()) == "tsv"
    ):
        return "table", lines

    raise CorpusError(
        f"{source_name(source)}: the first line {first!r:.60} is not in a known format: {_CHOOSE}"
    )


class BadLines:
    """The bad lines of a corpus: skipped with a note, or collected, so that the corpus is refused
    with all of them.
    """

    def __init__(self, corpus: object, are_skipped: bool, note: Note) -> None:
        self._corpus = source_name(str(corpus))
        self._are_skipped = are_skipped
        self._note = note
        self._problems: list[str] = []
        self.count = 0

    def add(self, problem: KbqError) -> None:
        """Take the problem of a line. Raises CorpusError if there are too many."""
        self.count += 1
        if self._are_skipped:
            self._note(f"skipped: {problem.typed}")
            return
        self._problems.append(problem.typed)
        if self.count == MOST_PROBLEMS:
            raise self._refusal(all_read=False)

    def all_or_none(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield the pages up to the first bad line; from there on, only read the corpus, so that
        all are named.
        """
        read_on = 0
        try:
            for page in pages:
                if not self._problems:
                    yield page
                    continue
                read_on += 1
                if read_on >= READ_ON:
                    break
        except CorpusError:
            if not self._problems:  # else it only says that there was no good line
                raise

        if self._problems:
            raise self._refusal(all_read=read_on < READ_ON)

    def _refusal(self, all_read: bool) -> CorpusError:
        if self._problems[1:]:
            return CorpusError(
                f"{self._corpus} has {self.count} bad lines{'' if all_read else ', or more'}: "
                "correct them, or leave them out with --skip-bad-lines",
                self._problems,
            )
        return CorpusError(self._problems[0])
