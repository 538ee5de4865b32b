"""Rows: CSV, TSV, JSON lines or one array, and Parquet become rows by column, with what they were written like.

Every table, triple, identifier, decision and gold value that kbq reads comes through here.
"""

import csv
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias, TypeVar

from kbq.errors import KbqError
from kbq.storage import files
from kbq.storage.files import refuse_large
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.lines import (
    COMPRESSED,
    MARK,
    BadLine,
    parse_json_lines,
    read_any_lines,
    read_whole_lines,
    refuse,
    source_name,
)
from kbq.storage.parquet import read_parquet, refuse_repeated
from kbq.storage.progress import Note, unheard
from kbq.storage.spreadsheet import path_and_sheet, read_xlsx
from kbq.text.markers import EMPTY

RowFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet", "xlsx"]
Read = TypeVar("Read")
NumberedRow: TypeAlias = tuple[int, dict[str, Any]]  # the line where it ends, or its number; its cells by column
SUFFIXES: dict[str, RowFormat] = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".xlsx": "xlsx",
}  # fmt: skip
SPREADSHEETS = (".xls", ".ods")
NOTHING = "write a header with the names of the columns, and rows below it"  # of a file without rows
SECONDS = 60.0  # of computing, for a table of a format that a library reads
LOOKED_AT = 2**16  # characters of a header that tell how a file is written
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file of rows is written."""

    format: RowFormat = "csv"
    delimiter: str = ","
    line_end: str = "\n"
    has_mark: bool = False  # a byte order mark
    quotes_all: bool = False  # not only what must be in quotation marks
    has_blanks: bool = False  # behind each delimiter
    unnamed: int = 0  # columns at the end without names and values, as spreadsheets write them


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file, which are read once, as they are asked for."""

    name: str
    columns: tuple[str, ...]  # of the header; of JSON none, each row has its own
    numbered: Iterator[NumberedRow]
    dialect: Dialect = Dialect()
    arrow: Any = None  # the pyarrow.Table of a Parquet file


def read_rows(
    source: str,
    error: type[KbqError] = KbqError,
    on_bad_row: BadLine | None = None,
    has_header: bool = True,
    note: Note = unheard,
) -> Rows:
    """Read the rows of a file, plain or compressed, - for standard input; see `lines`.

    Parquet is recognised by its suffix, JSON by its first character, TSV by the suffix or a tab in the first line. CSV
    may have semicolons, tabs or bars between its values, and blanks behind these. A row may lack its last columns.

    Args:
        source: a path, or "-".
        error: class of the errors.
        on_bad_row: called for a row with more values than columns, or a line that is not JSON; without it, these rows
            are named together at the end.
        has_header: else the columns are called 0, 1, …
        note: told if a text is not UTF-8, so that its encoding is guessed.

    Raises:
        KbqError: the file cannot be read, is empty, has two columns of one name, or bad rows.
    """
    name, suffix = source_name(source), _suffix(source)
    if suffix in SPREADSHEETS:
        raise error(f"{name} is a spreadsheet, which kbq does not read: save it as .xlsx, or as CSV")
    try:
        if _suffix(str(path_and_sheet(source)[0])) == ".xlsx":
            return _xlsx(source, error, on_bad_row, has_header)
        if suffix == ".parquet":
            cells, arrow = _in_child(read_parquet, Path(source))
            return Rows(source, tuple(arrow.column_names), enumerate(cells, start=1), Dialect("parquet"), arrow)
    except KbqError as problem:
        raise error(str(problem)) from None
    is_json = SUFFIXES.get(suffix) == "jsonl"  # which is UTF-8
    lines = read_whole_lines(source, error) if is_json else read_any_lines(source, error, note)
    has_mark = False
    for first in lines:
        has_mark = has_mark or first[1].startswith(MARK)
        if first[1].lstrip(MARK).strip():
            break
    else:
        if is_json:
            return Rows(name, (), iter(()), Dialect("jsonl"))
        raise error(f"{name} is empty: {NOTHING}")
    text = first[1].removeprefix(MARK)
    if is_json or re.match(r"\s*(\{|\[\s*(\{|\]|$))", text):
        stripped = ((number, line.rstrip("\r\n")) for number, line in chain([(first[0], text)], lines))
        numbered = parse_json_lines(stripped, source, error, on_bad_row or refuse)
        return Rows(name, (), numbered, Dialect("jsonl", has_mark=has_mark))
    pieces = chain(_LINE.findall(text), (line for _, line in lines))
    header, number, delimiter = next(pieces), first[0], ""
    if said := re.match(r"sep=([^\r\n])\s*$", header):  # Excel's own line above the header
        header, number, delimiter = next(pieces, ""), number + 1, said[1]
    dialect = _dialect(header, suffix, has_mark, delimiter)
    values = _values(chain([header], pieces), name, dialect, error, number)
    return _separated(values, name, dialect, error, on_bad_row, has_header)


def text_of(value: object) -> str:
    """Return a cell's value as text: whole numbers without a point, dates in ISO 8601, and "" for no value.

    >>> [text_of(value) for value in (1984.0, 0.5, 7, True, None, math.nan, "1.0", datetime(1934, 7, 4))]
    ['1984', '0.5', '7', 'true', '', '', '1.0', '1934-07-04']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime):
        is_day = value.time() == time() and value.tzinfo is None
        return value.date().isoformat() if is_day else value.isoformat(" ")
    return value.isoformat() if isinstance(value, date | time) else str(value)


def empty_markers(texts: Iterable[str] = EMPTY) -> frozenset[str]:
    """Return what stands for no value, in the case that is given, in lower and in upper case: Na is sodium.

    >>> "n/a" in empty_markers(), "Na" in empty_markers()
    (True, False)
    """
    return frozenset(form for text in texts for form in (text, text.lower(), text.upper()))


def _suffix(source: str) -> str:
    """Return how a file's name ends, in lower case, before what says that it is compressed."""
    path = PurePath(source)
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _dialect(header: str, suffix: str, has_mark: bool, delimiter: str = "") -> Dialect:
    """Tell how a file with separated values is written by its first line; `delimiter`: if that is known."""
    body = header.rstrip("\r\n")
    line_end, body = header[len(body) :] or "\n", body[:LOOKED_AT]
    is_tsv = SUFFIXES.get(suffix) == "tsv" or (suffix != ".csv" and "\t" in body)
    counts = {delimiter: len(next(csv.reader([body], delimiter=delimiter), ())) for delimiter in ",;\t|"}
    likely = "\t" if is_tsv else "," if counts[","] > 1 else max(counts, key=lambda one: counts[one])
    delimiter = delimiter or likely
    quoted, mark = r'"(?:[^"]|"")*"', re.escape(delimiter)
    return Dialect(
        "tsv" if is_tsv else "csv",
        delimiter,
        line_end,
        has_mark,
        not is_tsv and re.fullmatch(rf"{quoted}(?:{mark}{quoted})*", body) is not None,
        has_blanks=not is_tsv and re.fullmatch(rf"[^{mark}]+(?:{mark} [^{mark}]*)+", body) is not None,
    )


def _values(
    lines: Iterable[str], name: str, dialect: Dialect, error: type[KbqError], first: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the values of each row, with the number of its last line; `first`: the number of the first line."""
    limit, size = csv.field_size_limit(sys.maxsize), 0  # the second: characters of the row to come

    def pieces() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > files.LARGEST:
                refuse_large(f"{name}:{number + 1}: the row, whose quotation marks may not all be closed,", size, error)
            yield from _LINE.findall(line) if "\r" in line else (line,)

    # In TSV a quotation mark is a letter like any other: "Heroes" is a song.
    settings: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if dialect.format == "tsv" else {"strict": True}
    settings["skipinitialspace"] = dialect.has_blanks
    reader = csv.reader(pieces(), delimiter=dialect.delimiter, **settings)
    number = first - 1
    try:
        for values in reader:
            number, size = first - 1 + reader.line_num, 0
            yield number, list(map(_unquoted, values)) if dialect.format == "tsv" else values
    except csv.Error as reason:
        problem = f"{reason}: is it a CSV or TSV file, and all its quotation marks closed?"
        raise error(f"{name}:{number + 1}: {problem}") from None
    finally:
        csv.field_size_limit(limit)


def _separated(
    values: Iterator[tuple[int, list[str]]],
    name: str,
    dialect: Dialect,
    error: type[KbqError],
    on_bad_row: BadLine | None,
    has_header: bool,
) -> Rows:
    number, header = next(values)
    columns = tuple(header if has_header else map(str, range(len(header))))
    if has_header:
        named = len(columns)
        while named and not columns[named - 1].strip():
            named -= 1
        if 0 < named < len(columns) - 1:  # a single one may be numbers of rows
            columns, dialect = columns[:named], replace(dialect, unnamed=len(columns) - named)
        refuse_repeated(name, columns, error)

    def numbered() -> Iterator[NumberedRow]:
        problems: list[str] = []
        for number, row in values if has_header else chain([(first_number, header)], values):
            if len(row) > len(columns) + dialect.unnamed or any(map(str.strip, row[len(columns) :])):
                advice = "put quotes around a value that holds one" if dialect.format == "csv" else "leave them out"
                what = f"{len(row)} values for {len(columns)} columns, {dialect.delimiter!r} between them: {advice}"
                if dialect.unnamed:
                    what = f"a value is right of the last column that has a name, {columns[-1]!r}: name its column"
                problem = error(f"{name}:{number}: {what}")
                on_bad_row(problem) if on_bad_row else problems.append(str(problem))
            elif row:  # a blank line is not a row
                yield number, dict(zip(columns, row, strict=False))
        if problems:
            raise error(f"{name} has {len(problems)} rows that cannot be used", problems)

    first_number = number
    return Rows(name, columns, numbered(), dialect)


def _xlsx(source: str, error: type[KbqError], on_bad_row: BadLine | None, has_header: bool) -> Rows:
    """Read a sheet; the first row that has a value is the header, and nothing is right of its last name."""
    rows = _in_child(read_xlsx, source)
    if not rows:
        raise error(f"{source} is empty: {NOTHING}")
    columns = tuple(map(str, range(max(len(row) for _, row in rows))))
    if has_header:
        _, cells = rows.pop(0)
        last = max(number for number, value in enumerate(cells) if value not in (None, ""))
        columns = tuple(map(text_of, cells[: last + 1]))
        refuse_repeated(source, columns, error)

    def numbered() -> Iterator[NumberedRow]:
        for number, row in rows:
            if any(value not in (None, "") for value in row[len(columns) :]):
                what = "a value is right of the last column that has a name: name its column"
                problem = error(f"{source}:{number}: {what}")
                if on_bad_row is None:
                    raise problem
                on_bad_row(problem)
            else:
                yield number, dict(zip(columns, row, strict=False))

    return Rows(source, columns, numbered(), Dialect("xlsx"))


def _unquoted(value: str) -> str:
    """Read a value of TSV, where a quotation mark is a letter like any other: "Heroes" is a song.

    Only values that other programs, or kbq, quoted lose their marks: in these, marks are doubled inside.

    >>> [_unquoted(value) for value in ('"Heroes"', '"the ""Heroes"" tour"', '""')]
    ['"Heroes"', 'the "Heroes" tour', '']
    """
    if value[:1] != '"' or value[-1:] != '"' or len(value) < 2:
        return value
    inner = value[1:-1]
    is_quoted = '"' not in inner.replace('""', "") and ('"' in inner or not inner)
    return inner.replace('""', '"') if is_quoted else value


def _in_child(read: Callable[..., Read], source: str | Path) -> Read:
    """Read a file by a library, which may need far more time and memory than the file has bytes."""
    try:
        with LimitedProcess() as process:
            return process.call(read, source, seconds=SECONDS)
    except LimitExceeded as problem:
        raise KbqError(f"{source}: {problem}: divide it into several tables, or save it as CSV") from None
