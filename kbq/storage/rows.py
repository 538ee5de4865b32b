"""Rows: tables of any format row by row, written back in the format they came from.

Every table, triple, identifier, decision and gold value that kbq reads comes through here. Nothing
is computed: a formula has the value that was saved with it.
"""

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from pathlib import Path, PurePath
from statistics import median
from typing import Any, Literal, TypeAlias, TypeVar

from kbq.errors import KbqError, first_line
from kbq.storage import reading
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.lines import (
    MARK,
    BadLine,
    parse_json_lines,
    read_any_lines,
    read_growing_lines,
    read_whole_lines,
    refuse,
    source_name,
    without_compression,
)
from kbq.storage.reading import refuse_large
from kbq.storage.reports import Note, unheard
from kbq.storage.spreadsheets import Cells, filled_sheets, path_and_sheet, read_xlsx, whole
from kbq.text.normal_forms import EMPTY

NEEDS_PYARROW = "needs pyarrow: pip install pyarrow, or use CSV"

RowFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet", "xlsx"]
Read = TypeVar("Read")
# The line where it ends, or its number; its cells by column.
NumberedRow: TypeAlias = tuple[int, dict[str, Any]]
SUFFIXES: dict[str, RowFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
SPREADSHEETS = (".xls", ".ods")
# Advice for a file without rows.
NOTHING = "write a header with the names of the columns, and rows below it"
HEAD = 20  # rows among which the header is looked for
SECONDS = 60.0  # time of computing, for a table of a format that a library reads
LOOKED_AT = 2**16  # characters of a header that tell how a file is written
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def sheets_of(path: Path) -> list[str]:
    """Return the titles of the sheets of an XLSX file that have a value. Raises KbqError if it
    cannot be read.
    """
    return _in_child(filled_sheets, path)


def read_parquet(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Return the rows of a file, and its pyarrow.Table.

    Raises KbqError if it cannot be read, its footer says that it is too large, or pyarrow is
    missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise KbqError(f"{path} {NEEDS_PYARROW}") from None

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = [
                file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)
            ]
            refuse_large(str(path), sum(group.total_byte_size for group in groups))
            refuse_repeated(str(path), file.schema_arrow.names)
            table = file.read()
        rows = table.to_pylist()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise KbqError(
            f"{path} cannot be read ({reason}): check that it is a Parquet file"
        ) from None

    if any("binary" in str(field.type) for field in table.schema):
        rows = [{name: _as_text(value) for name, value in row.items()} for row in rows]
    return rows, table


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return list(map(_as_text, value))
    return value


def refuse_repeated(name: str, columns: Sequence[str], error: type[KbqError] = KbqError) -> None:
    """Raise an error of this class if two columns have one name."""
    column, count = next(iter(Counter(columns).most_common(1)), ("", 0))
    if count > 1:
        raise error(f"{name} has {count} columns {column!r}: give each its own name")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file of rows is written."""

    format: RowFormat = "csv"
    delimiter: str = ","
    line_end: str = "\n"
    has_mark: bool = False  # a byte order mark
    quotes_all: bool = False  # false: only what needs them has quotation marks
    has_blanks: bool = False  # true: a blank follows each delimiter
    unnamed: int = 0  # columns at the end without names and values, as spreadsheets write them


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file, which are read once, as they are asked for."""

    name: str
    columns: tuple[str, ...]  # names in the header; JSON has none, as each row has its own
    numbered: Iterator[NumberedRow]
    dialect: Dialect = Dialect()
    arrow: Any = None  # the pyarrow.Table of a Parquet file
    above: int = 0  # lines, or rows with a value, that stand above the header


def read_rows(
    source: str,
    error: type[KbqError] = KbqError,
    on_bad_row: BadLine | None = None,
    has_header: bool = True,
    note: Note = unheard,
    grows: bool = False,
    finds_header: bool = False,
) -> Rows:
    """Read the rows of a file, plain or compressed; see `lines`.

    Parquet and XLSX are recognised by the suffix, JSON by its first character, TSV by the suffix or
    a tab in the first line. CSV may have semicolons, tabs or bars between its values, and blanks
    behind these. A row may lack its last columns.

    Args:
        source: a path, or "-" for standard input.
        error: class of the errors: the file cannot be read, is empty, has two columns of one name,
            or bad rows.
        on_bad_row: called for a row with more values than columns, or a line that is not JSON; by
            default, these rows are named together at the end.
        has_header: without a header, the columns are called 0, 1, …
        note: told if a text is not UTF-8 and its encoding is a guess, and of an unfinished last
            line.
        grows: leave out an unfinished last line of a .jsonl file, which somebody may be writing.
        finds_header: a title and notes may stand above the header of CSV, TSV and XLSX, and columns
            may lack a name.
    """
    name = source_name(source)
    suffix = _suffix(source)
    if suffix in SPREADSHEETS:
        raise error(
            f"{name} is a spreadsheet, which kbq does not read: save it as .xlsx, or as CSV"
        )

    try:
        if _suffix(str(path_and_sheet(source)[0])) == ".xlsx":
            return _xlsx(source, error, on_bad_row, has_header, finds_header)
        if suffix == ".parquet":
            cells, arrow = _in_child(read_parquet, Path(source))
            return Rows(
                source,
                tuple(arrow.column_names),
                enumerate(cells, start=1),
                Dialect("parquet"),
                arrow,
            )
    except KbqError as problem:
        raise error(problem.typed) from None

    is_json = SUFFIXES.get(suffix) == "jsonl"  # JSON lines are UTF-8
    if is_json:
        lines = (
            read_growing_lines(source, error, note) if grows else read_whole_lines(source, error)
        )
    else:
        lines = read_any_lines(source, error, note)

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
        stripped = (
            (number, line.rstrip("\r\n")) for number, line in chain([(first[0], text)], lines)
        )
        numbered = parse_json_lines(stripped, source, error, on_bad_row or refuse)
        return Rows(name, (), numbered, Dialect("jsonl", has_mark=has_mark))

    pieces = chain(_LINE.findall(text), (line for _, line in lines))
    header = next(pieces)
    number = first[0]
    delimiter = ""
    if said := re.match(r"sep=([^\r\n])\s*$", header):  # Excel's own line above the header
        header = next(pieces, "")
        number = number + 1
        delimiter = said[1]

    above = 0
    if finds_header and not delimiter:
        head = [header, *islice(pieces, HEAD)]
        above = _header_place([_split(line, suffix) for line in head])
        header = head[above]
        pieces = chain(head[above + 1 :], pieces)
        number = number + above

    dialect = _dialect(header, suffix, has_mark, delimiter)
    values = _values(chain([header], pieces), name, dialect, error, number)
    rows = _separated(values, name, dialect, error, on_bad_row, has_header, finds_header)
    return replace(rows, above=above)


def text_of(value: object) -> str:
    """Return the value of a cell as text: whole numbers without a point, dates in ISO 8601, no
    value as "".

    >>> [text_of(value) for value in (1984.0, 0.5, 7, True, None, math.nan, "1.0", datetime(1934, 7, 4))]
    ['1984', '0.5', '7', 'true', '', '', '1.0', '1934-07-04']
    """
    if value is None:
        return ""
    if isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        is_day = value.time() == time() and value.tzinfo is None
        if is_day:
            return value.date().isoformat()
        return value.isoformat(" ")
    if isinstance(value, timedelta):
        return _duration_text(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return str(whole(value))


def _duration_text(duration: timedelta) -> str:
    """Return a duration as hours, minutes and seconds, as spreadsheets show it.

    >>> _duration_text(timedelta(hours=30)), _duration_text(timedelta(seconds=-90.5))
    ('30:00:00', '-00:01:30.500000')
    """
    seconds, fraction = divmod(abs(duration), timedelta(seconds=1))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    sign = "-" if duration < timedelta() else ""
    parts_of_second = f".{fraction.microseconds:06}" if fraction else ""
    return f"{sign}{hours:02}:{minute:02}:{second:02}{parts_of_second}"


def empty_markers(texts: Iterable[str] = EMPTY) -> frozenset[str]:
    """Return the texts that stand for no value, as given, in lower and in upper case: Na is sodium.

    >>> "n/a" in empty_markers(), "Na" in empty_markers()
    (True, False)
    """
    markers: set[str] = set()
    for text in texts:
        markers.update((text, text.lower(), text.upper()))
    return frozenset(markers)


def _suffix(source: str) -> str:
    return without_compression(PurePath(source)).suffix.lower()


def _dialect(header: str, suffix: str, has_mark: bool, delimiter: str = "") -> Dialect:
    """Tell from its first line how a file with separated values is written, whose delimiter may be
    known.
    """
    body = header.rstrip("\r\n")
    line_end = header[len(body) :] or "\n"
    body = body[:LOOKED_AT]
    is_tsv = SUFFIXES.get(suffix) == "tsv" or (suffix != ".csv" and "\t" in body)
    counts = {
        delimiter: len(next(csv.reader([body], delimiter=delimiter), ())) for delimiter in ",;\t|"
    }
    likely = (
        "\t" if is_tsv else "," if counts[","] > 1 else max(counts, key=lambda one: counts[one])
    )
    delimiter = delimiter or likely
    if is_tsv:
        return Dialect("tsv", delimiter, line_end, has_mark)
    quoted = r'"(?:[^"]|"")*"'
    mark = re.escape(delimiter)
    quotes_all = re.fullmatch(rf"{quoted}(?:{mark}{quoted})*", body) is not None
    has_blanks = re.fullmatch(rf"[^{mark}]+(?:{mark} [^{mark}]*)+", body) is not None

    return Dialect("csv", delimiter, line_end, has_mark, quotes_all, has_blanks)


def _values(
    lines: Iterable[str], name: str, dialect: Dialect, error: type[KbqError], first: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the values of each row, with the number of its last line; the first line has the number
    `first`.
    """
    # Characters of the next row.
    limit = csv.field_size_limit(sys.maxsize)
    size = 0

    def pieces() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > reading.LARGEST:
                refuse_large(
                    f"{name}:{number + 1}: the row, whose quotation marks may not all be closed,",
                    size,
                    error,
                )
            if "\r" in line:
                yield from _LINE.findall(line)
            else:
                yield line

    # In TSV a quotation mark is a letter like any other; see `_unquoted`.
    settings: dict[str, Any] = (
        {"quoting": csv.QUOTE_NONE} if dialect.format == "tsv" else {"strict": True}
    )
    reader = csv.reader(
        pieces(), delimiter=dialect.delimiter, skipinitialspace=dialect.has_blanks, **settings
    )
    number = first - 1
    try:
        for values in reader:
            number = first - 1 + reader.line_num
            size = 0
            if dialect.format == "tsv":
                values = list(map(_unquoted, values))
            yield number, values
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
    names_all: bool,
) -> Rows:
    """Return the rows of a CSV or TSV file, named by its header or by numbers."""
    number, header = next(values)
    if has_header:
        columns = tuple(header)
    else:
        columns = tuple(map(str, range(len(header))))
    if has_header:
        named = len(columns)
        while named and not columns[named - 1].strip():
            named -= 1
        if 0 < named < len(columns) - 1:  # a single one may be numbers of rows
            columns, dialect = columns[:named], replace(dialect, unnamed=len(columns) - named)
        columns = _all_named(columns) if names_all else columns
        refuse_repeated(name, columns, error)

    def numbered() -> Iterator[NumberedRow]:
        problems: list[str] = []
        for number, row in values if has_header else chain([(first_number, header)], values):
            if len(row) > len(columns) + dialect.unnamed or any(
                map(str.strip, row[len(columns) :])
            ):
                advice = (
                    "put quotes around a value that holds one"
                    if dialect.format == "csv"
                    else "leave them out"
                )
                what = (
                    f"{len(row)} values for {len(columns)} columns, {dialect.delimiter!r} between "
                    f"them: {advice}"
                )
                if dialect.unnamed:
                    what = (
                        f"a value is right of the last column that has a name, {columns[-1]!r}: "
                        "name its column"
                    )

                problem = error(f"{name}:{number}: {what}")
                if on_bad_row:
                    on_bad_row(problem)
                else:
                    problems.append(problem.typed)
            elif row:  # a blank line is not a row
                yield number, dict(zip(columns, row, strict=False))

        if problems:
            raise error(f"{len(problems)} of the rows of {name} cannot be used", problems)

    first_number = number
    return Rows(name, columns, numbered(), dialect)


def _xlsx(
    source: str,
    error: type[KbqError],
    on_bad_row: BadLine | None,
    has_header: bool,
    finds_header: bool,
) -> Rows:
    """Read a sheet. The first row with a value is the header, and nothing may be right of its last
    name.
    """
    rows = _in_child(read_xlsx, source)
    if not rows:
        raise error(f"{source} is empty: {NOTHING}")
    above = 0
    if finds_header:
        above = _header_place([row for _, row in rows[:HEAD]])
    rows = rows[above:]
    columns = tuple(map(str, range(max(len(row) for _, row in rows))))
    if has_header:
        _, cells = rows.pop(0)
        last = max(number for number, value in enumerate(cells) if value not in (None, ""))
        columns = tuple(map(text_of, cells[: last + 1]))
        columns = _all_named(columns) if finds_header else columns
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

    return Rows(source, columns, numbered(), Dialect("xlsx"), above=above)


def _split(line: str, suffix: str) -> list[str]:
    """Return the values of a line, by the delimiter that is likely for it alone."""
    dialect = _dialect(line, suffix, has_mark=False)
    return next(csv.reader([line.rstrip("\r\n")], delimiter=dialect.delimiter), [])


def _header_place(rows: Sequence[Cells]) -> int:
    """Return which of the first rows is the header: what stands above it fills few cells, or
    repeats one.

    >>> _header_place([["Members, 1901", "", ""], [], ["name", "born", "died"], ["Ann Lee", "1851", ""]])
    2
    """
    filled = []
    for row in rows:
        texts = {text_of(cell).strip() for cell in row}
        filled.append(len(texts - {""}))
    usual = 0.0
    if any(filled):
        usual = median(count for count in filled if count)
    for place, row in enumerate(rows):
        if filled[place] >= max(2, usual / 2) and len(row) > 0.7 * usual:
            return place
    return 0


def _all_named(columns: Sequence[str]) -> tuple[str, ...]:
    """Give columns without a name one.

    >>> _all_named(["name", " ", "born"])
    ('name', 'column 2', 'born')
    """
    return tuple(
        name if name.strip() else f"column {number}" for number, name in enumerate(columns, start=1)
    )


def _unquoted(value: str) -> str:
    """Read a value of TSV, where a quotation mark is a letter like any other: "Heroes" is a song.

    Only values that programs have quoted lose their marks: inside of these, marks are doubled.

    >>> [_unquoted(value) for value in ('"Heroes"', '"the ""Heroes"" tour"', '""')]
    ['"Heroes"', 'the "Heroes" tour', '']
    """
    if value[:1] != '"':
        return value
    if value[-1:] != '"':
        return value
    if len(value) < 2:
        return value
    inner = value[1:-1]
    is_quoted = '"' not in inner.replace('""', "") and ('"' in inner or not inner)
    if is_quoted:
        return inner.replace('""', '"')
    return value


def _in_child(read: Callable[..., Read], source: str | Path) -> Read:
    """Read a file with a library that may need far more time and memory than the file has bytes."""
    try:
        with LimitedProcess() as process:
            return process.call(read, source, seconds=SECONDS)
    except LimitExceeded as problem:
        raise KbqError(
            f"{source}: {problem}: divide it into several tables, or save it as CSV"
        ) from None
