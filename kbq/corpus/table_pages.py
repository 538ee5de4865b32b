"""Table pages: each row of a table becomes a page.

A title stands in a column that is named, or guessed and said. Where no column holds texts, as in a
catalogue, each cell of a row is a paragraph, `Born: 3 May 1851`.
"""

import json
import re
from calendar import month_name
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import TypeAlias

from kbq.corpus.html_blocks import labelled
from kbq.corpus.options import CorpusColumns
from kbq.corpus.pages import (
    ADDRESS,
    Page,
    as_paragraphs,
    blocks,
    clean_metadata,
    jsonable,
    page_id_of,
)
from kbq.errors import CorpusError, KbqError
from kbq.storage.lines import BadLine, without_compression
from kbq.storage.reports import Note
from kbq.storage.rows import SUFFIXES, Rows, empty_markers, read_rows, sheets_of, text_of
from kbq.storage.spreadsheets import SUFFIX, path_and_sheet
from kbq.text.normal_forms import clean_text

Source: TypeAlias = tuple[str, Callable[[], Page]]
Row: TypeAlias = Mapping[str, object]

NAMED = CorpusColumns()  # what columns are called if nobody says it
LOOKED_AT = 100  # rows by which the column of titles is guessed
LONGEST_NAME = 80  # characters
LIKELY = frozenset({"full name", "label", "name", "object", "person", "subject", "titel", "title"})
UNTITLED = "rows without a title"
BARE = "rows with a title alone"
ABOVE = "lines above the header of a table"
_EMPTY = empty_markers()
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ]00:00(?::00)?)?")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table as a page."""

    place: str  # the place as messages name it
    where: str  # the place in the file: `line=7`, `row=7` or `sheet=People&row=7`
    title: str
    texts: Sequence[str]
    metadata: dict[str, object]
    key: str  # its own id, or empty
    has_text: bool  # whether its table has columns of titles and texts, as corpora have

    @property
    def lacks(self) -> str:
        """What it lacks to tell something of a thing, or ""."""
        if self.title and self.texts:
            return ""
        if self.title:
            return BARE
        return UNTITLED


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a row: `unit` is what rows are counted by."""

    table: str
    sheet: str  # "" if its file has no other
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.table}:{self.number}"

    @property
    def where(self) -> str:
        """The place within the file, as an id has it."""
        row = f"{self.unit}={self.number}"
        if self.sheet:
            return f"sheet={self.sheet}&{row}"
        return row


def is_table(path: PurePath) -> bool:
    """Return whether a file is a table by its name; JSON may be anything.

    >>> is_table(PurePath("a.CSV")), is_table(PurePath("a.tsv.gz")), is_table(PurePath("a.json"))
    (True, True, False)
    """
    return SUFFIXES.get(without_compression(path).suffix.lower(), "jsonl") != "jsonl"


def table_pages(
    source: str, on_bad_row: BadLine, columns: CorpusColumns, note: Note
) -> Iterator[Source]:
    """Yield the place of each page of a table, and a function that gives it or raises CorpusError."""
    left_out = Counter[str]()
    for row in rows_of_file(source, on_bad_row, columns, left_out, note):
        if row.has_text or not row.lacks:
            yield row.place, partial(_page, row, PurePath(source).name)
        else:
            left_out[row.lacks] += 1
    if left_out:
        parts = ", ".join(f"{reason} ({count:,})" for reason, count in left_out.items())
        note(f"not read within the table: {parts}")


def _page(row: TableRow, name: str) -> Page:
    page_id = row.key
    if not page_id and row.has_text:
        page_id = row.title
    elif not page_id:
        page_id = f"{name}#{row.where}"
    metadata = clean_metadata(row.metadata)
    return Page(page_id_of(page_id, "id"), row.title, as_paragraphs(row.texts), metadata=metadata)


def rows_of_file(
    source: str, on_bad_row: BadLine, columns: CorpusColumns, left_out: Counter[str], note: Note
) -> Iterator[TableRow]:
    """Yield the rows of a table or, of a workbook, those of all sheets that are tables.

    Raises CorpusError if it cannot be read or is no table, as a column that is named is not there,
    say.
    """
    sheets: list[str] = []
    if source.lower().endswith(SUFFIX):
        try:
            sheets = sheets_of(Path(source))
        except KbqError as problem:
            raise CorpusError(problem.typed) from None

    if len(sheets) < 2:
        rows = read_rows(source, CorpusError, on_bad_row, note=note, finds_header=True)
        yield from _table_rows(rows, columns, left_out, note)
        return

    refused: list[KbqError] = []

    def tell(problem: KbqError) -> None:
        refused.append(problem)
        on_bad_row(problem)  # an error here ends the whole reading, not the sheet
        refused.pop()

    for sheet in sheets:
        try:
            rows = read_rows(f"{source}#{sheet}", CorpusError, tell, finds_header=True)
            yield from _table_rows(rows, columns, left_out, note)
        except CorpusError as problem:  # a legend, say
            if refused:
                raise
            note(f"left out: {problem.typed}")


def _table_rows(
    rows: Rows, columns: CorpusColumns, left_out: Counter[str], note: Note
) -> Iterator[TableRow]:
    head = list(islice(rows.numbered, LOOKED_AT))
    present = rows.columns
    if not present:
        keys: list[str] = []
        for _, cells in head:
            keys.extend(cells)
        present = tuple(dict.fromkeys(keys))
    for option, column, usual in (
        ("title", columns.title, NAMED.title),
        ("text", columns.text, NAMED.text),
    ):
        if column not in (usual, *present):
            names = ", ".join(map(repr, present[:20]))
            raise CorpusError(
                f"{rows.name} has no column {column!r}, it has {names}: name it with --{option}"
            )

    column = (
        columns.title
        if columns.title in present
        else title_column(present, [cells for _, cells in head])
    )
    if not column:
        raise CorpusError(
            f"{rows.name} has no column that looks like one of titles: name it with --title"
        )

    has_text = columns.title in present and columns.text in present
    if not has_text:
        note(f"{rows.name}: each row is a page, with the title in {column!r}")
    if rows.above:
        left_out[ABOVE] += rows.above
    sheet = path_and_sheet(rows.name)[1]
    for number, cells in chain(head, rows.numbered):
        place = _Place(rows.name, sheet, _unit(rows), number)
        yield (
            _row_with_text(place, cells, columns)
            if has_text
            else _row(place, cells, column, columns)
        )


def _row_with_text(place: _Place, cells: Row, columns: CorpusColumns) -> TableRow:
    """Take a row of a table that is made as a corpus: what is neither id nor title nor text is the
    page's metadata.
    """
    others = {name: value for name, value in cells.items() if value not in (None, "")}
    for name in (columns.id, columns.title, columns.text):
        others.pop(name, None)
    title = _cell(cells.get(columns.title)).strip()
    texts = blocks(_cell(cells.get(columns.text)))
    key = ""
    if columns.id in cells:
        key = _key(cells[columns.id])
    return TableRow(str(place), place.where, title, texts, jsonable(others), key, has_text=True)


def _row(place: _Place, cells: Row, column: str, columns: CorpusColumns) -> TableRow:
    """Take a row whose title stands in a column, and make a paragraph of every other cell."""
    metadata: dict[str, object] = {"sheet": place.sheet} if place.sheet else {}
    metadata[place.unit] = place.number
    texts: list[str] = []
    for name, value in cells.items():
        text = _said(value)
        if name == column or text.strip() in _EMPTY:
            continue
        label = " ".join(name.split())
        if ADDRESS.search(label):
            metadata[label] = text.strip()
        elif name == columns.text:
            texts += blocks(text)
        else:
            texts += [labelled(label, block) for block in blocks(text)]

    title = " ".join(_cell(cells.get(column)).split())
    key = ""
    if columns.id in cells:
        key = _key(cells[columns.id])
    return TableRow(str(place), place.where, title, texts, metadata, key, has_text=False)


def _unit(rows: Rows) -> str:
    """Return what rows are counted by: a file of text has lines."""
    if rows.dialect.format in ("xlsx", "parquet"):
        return "row"
    return "line"


def _key(value: object) -> str:
    """Return an id as text, without the point that pandas writes in whole numbers beside an empty
    cell.
    """
    return re.sub(r"^([0-9]+)\.0$", r"\1", _cell(value))


def _said(value: object) -> str:
    """Return what a cell says: a day is written out, as in sentences, by which the model knows it.

    >>> _said("1851-05-03"), _said([1, "b"]), _said("1851-05")
    ('3 May 1851', '1, b', '1851-05')
    """
    if isinstance(value, list):
        return ", ".join(filter(None, map(_said, value)))
    text = _cell(value)
    day = _DAY.fullmatch(text.strip())
    if day and 1 <= int(day[2]) <= 12:
        return f"{int(day[3])} {month_name[int(day[2])]} {int(day[1])}"
    return text


def _cell(value: object) -> str:
    written = (
        json.dumps(value, ensure_ascii=False, default=text_of)
        if isinstance(value, dict)
        else text_of(value)
    )
    return clean_text(re.sub(r"\r\n?", "\n", written))


def title_column(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Guess the column that has the titles, or return "" if none has names: what it is called
    counts, and what it has.

    >>> title_column(["nr", "who", "born"], [{"nr": 1, "who": "Ann Lee", "born": "1851"}])
    'who'
    """

    def score(column: str) -> float:
        texts = (" ".join(_cell(row.get(column)).split()) for row in rows)
        values = [text for text in texts if text]
        return (names_things(column) + name_share(values)) * len(values) / max(1, len(rows))

    best = max(columns, key=score, default="")
    if best and score(best) > 0:
        return best
    return ""


def names_things(column: str) -> bool:
    """Return whether a column is called as those with names of things are.

    >>> names_things("Full  Name"), names_things("spouse")
    (True, False)
    """
    return " ".join(column.casefold().split()) in LIKELY


def name_share(values: Sequence[str]) -> float:
    """Return how far the values of a column look like names of different things, from 0 to 1.

    >>> name_share(["Marie Curie", "Ada Quist"]), name_share(["Marie Curie", "Marie Curie"]), name_share(["7", ""])
    (1.0, 0.5, 0.0)
    """
    names = sum(map(_looks_like_a_name, values))
    return names * len(set(values)) / max(1, len(values)) ** 2


def _looks_like_a_name(text: str) -> bool:
    """Return whether a text is short and begins with a capital letter, as neither numbers nor notes
    do.

    >>> [_looks_like_a_name(text) for text in ("Marie Curie", "7", "Q7186", "7 May 1867", "http://a.org", "see below")]
    [True, False, False, False, False, False]
    """
    has_digits = any(letter.isdigit() for letter in text)
    is_short = len(text) <= LONGEST_NAME
    return (
        text[:1].isupper() and is_short and not has_digits and "@" not in text and "://" not in text
    )
