"""Tables: files or data frames as rows by column, with typed cells, written back in their form."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import partial as partly
from importlib.util import find_spec
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import jsonlines

from kbq.answers import percentage
from kbq.corpus.table_pages import name_share, names_things
from kbq.english.dates import date_of_cell
from kbq.errors import KbqError
from kbq.storage.lines import MARK
from kbq.storage.paths import as_iterable, as_path
from kbq.storage.records import json_line
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import (
    NEEDS_PYARROW,
    NOTHING,
    SUFFIXES,
    Dialect,
    RowFormat,
    read_rows,
    refuse_repeated,
    text_of,
)
from kbq.storage.spreadsheets import MOST_CHARACTERS, MOST_ROWS, NEEDS_OPENPYXL, write_xlsx
from kbq.storage.writing import replacing, writing_to
from kbq.tables.claims import QuantityValue
from kbq.tables.options import SUBJECT
from kbq.tables.values import normal_form
from kbq.text import html
from kbq.text.normal_forms import clean_text

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kbq.tables.claims import Claim

SEPARATOR = "|"  # stands between the values of a cell
# Begins a cell that a spreadsheet computes. Source: OWASP.
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
PLAIN = (str, int, float, bool, type(None))
NUMBER = re.compile(r" *[+-]?\d[\d.,\s]*%?")

NAME = "the data frame"

Row: TypeAlias = Mapping[str, Any]
SHOWN = 20  # rows in a notebook
LOOKED_AT = 100  # rows by which the column of subjects is guessed
CSV = Dialect()
BREAKS = re.compile(r"[\t\r\n]+")  # TSV cannot hold them


def plain(value: Any) -> Any:
    """Return a cell's value as one of Python's types; missing values of NumPy and pandas are None."""
    if type(value) in PLAIN:
        return None if value != value else value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        if value.dtype.kind == "M":
            value = value.astype("datetime64[us]")
        value = value.tolist()
        if type(value) in PLAIN:
            return plain(value)
        return value
    return value


def is_empty(value: object, markers: Collection[str] = ()) -> bool:
    """Whether a cell has no value, or one of the `markers` that stand for none.

    >>> [is_empty(value) for value in (None, "", " ", [], math.nan, 0, False, "x")]
    [True, True, True, True, True, False, False, False]
    >>> is_empty("n/a", ["n/a"])
    True
    """
    if isinstance(value, float):
        return math.isnan(value)
    return (
        value is None
        or value == []
        or (isinstance(value, str) and (not value.strip() or value.strip() in markers))
    )


def texts_of(value: object, markers: Collection[str] = ()) -> list[str]:
    """Return the values of a cell as texts.

    >>> texts_of("Paris | Rome"), texts_of(["Paris", 1815]), texts_of(None)
    (['Paris', 'Rome'], ['Paris', '1815'], [])
    """
    parts = (
        []
        if is_empty(value)
        else value
        if isinstance(value, list)
        else text_of(value).split(SEPARATOR)
    )
    return [
        text for text in (text_of(part).strip() for part in parts) if not is_empty(text, markers)
    ]


def cell_text(value: object) -> str:
    """Return a cell as one text.

    >>> cell_text(None), cell_text(["Paris", "Rome"]), cell_text(1815.0), cell_text({"a": 1})
    ('', 'Paris|Rome', '1815', '{"a": 1}')
    """
    if isinstance(value, str) or is_empty(value):
        return value if isinstance(value, str) else ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return SEPARATOR.join(value)
    return (
        json.dumps(value, ensure_ascii=False, default=text_of)
        if isinstance(value, list | dict)
        else text_of(value)
    )


def subject_of(value: object) -> str:
    r"""Return the text of a subject's cell on one line.

    >>> subject_of("Marie\n Curie "), subject_of(None)
    ('Marie Curie', '')
    """
    return " ".join(clean_text(cell_text(value)).split())


def subject_column(
    table: Table, is_title: Callable[[str], bool] = lambda text: False, asked: Collection[str] = ()
) -> str:
    """Return the column that has the subjects: `subject` or, without it, the one that is called
    `name` or the like, whose values are most often titles of pages, or look most like names.

    `is_title`: whether a page has this title. `asked`: columns to fill, which hold no subjects. Of
    columns that are as good, the first is taken.

    >>> rows = [{"Nr": 1, "Born": "1867", "Who": "Marie Curie"}, {"Nr": 2, "Born": "1851", "Who": "Ada Quist"}]
    >>> table = Table.of(rows)
    >>> subject_column(table), subject_column(table, str.isdigit), subject_column(table, str.isdigit, ["Nr"])
    ('Who', 'Nr', 'Born')
    >>> rows = [{"Spouse": "Ann Lee", "Name": "Vera Stott"}, {"Spouse": "Bo Kim", "Name": "Vera Stott"}]
    >>> subject_column(Table.of(rows))
    'Name'
    """
    if SUBJECT in table.columns:
        return SUBJECT
    rows = table.rows[:LOOKED_AT]

    def score(column: str) -> float:
        values = [text for row in rows if (text := subject_of(row.get(column)))]
        titles = sum(map(is_title, values)) / max(1, len(values))
        likely = 2 * (titles + names_things(column))
        return (likely + name_share(values)) * len(values) / max(1, len(rows))

    columns = [column for column in table.columns if column not in asked]
    return max(columns, key=score, default=SUBJECT)


def column_like(name: str, columns: Collection[str]) -> str:
    """Return the column of this name, perhaps with other capitals or blanks, or else the name.

    >>> column_like("date of birth", [" Date  of Birth", "name"]), column_like("spouse", ["Spouse", "SPOUSE"])
    (' Date  of Birth', 'spouse')
    """
    key = " ".join(name.casefold().split())
    alike = [column for column in columns if " ".join(column.casefold().split()) == key]
    if name in columns or len(alike) != 1:
        return name
    return alike[0]


def note_guessed(column: str, note: Note) -> None:
    """Say which column has the subjects, where nobody has named it."""
    if column != SUBJECT:
        note(f"the subjects are taken from the column {column!r}: --subject names another one")


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may compute a text.

    >>> [is_formula(text) for text in ("=1+1", "@SUM(A1)", "-5", "+49 171 1", "- 5 km", "Paris")]
    [True, True, False, False, True, False]
    """
    return FORMULA.match(text) is not None and not NUMBER.fullmatch(text)


def guarded(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet may compute.

    >>> guarded("=1+1"), guarded("Paris")
    ("'=1+1", 'Paris')
    """
    if is_formula(text):
        return f"'{text}"
    return text


def for_spreadsheet(value: object) -> object:
    """Return a number, a truth value, a date or a time as it is, anything else as text."""
    is_kept = isinstance(value, int | float | date | time | timedelta) and not is_empty(value)
    # XLSX has no cells for zones.
    has_zone = isinstance(value, datetime | time) and value.tzinfo is not None
    is_early = isinstance(value, date) and value.year < 1900  # Excel has no numbers for these years
    if is_kept and not has_zone and not is_early:
        return value
    return cell_text(value) or None


def as_arrow(values: Sequence[Any], kind: Any) -> Any:
    """Return values as an Arrow array of a type, or None if one of them does not fit."""
    import pyarrow

    if pyarrow.types.is_null(kind):
        return None
    try:
        return pyarrow.array([_cell_of_type(value, kind) for value in values], kind)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError):
        return None


def _cell_of_type(value: Any, kind: Any) -> Any:
    """Return a value in the form of an Arrow type: a text that was filled in becomes a number, a
    day, or a list.

    Raises ValueError if it does not fit.
    """
    from pyarrow import types

    if value is None:
        return None
    if types.is_list(kind) or types.is_large_list(kind):
        return [
            _cell_of_type(one, kind.value_type)
            for one in (value if isinstance(value, list) else [value])
        ]

    if not isinstance(value, str):
        return value
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        found = normal_form(value, "quantity")
        if not isinstance(found, QuantityValue) or found.unit or found.about or not found.is_exact:
            raise ValueError(value)
        if types.is_integer(kind):
            return int(found.number)
        if types.is_floating(kind):
            return float(found.number)
        return Decimal(found.number)

    if types.is_date(kind) or types.is_timestamp(kind):
        day = date_of_cell(value)
        if day is None or day.julian or not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", day.edtf):
            raise ValueError(value)
        return (
            datetime.fromisoformat(day.edtf)
            if types.is_timestamp(kind)
            else date.fromisoformat(day.edtf)
        )

    return value


def _refuse_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise KbqError(f"{NAME} has a column {name!r:.60}: give it a text as its name")
    refuse_repeated(NAME, [str(name) for name in names])


def _frame_to_arrow(given: Any, subject: str) -> Any:
    try:
        import pyarrow
        import pyarrow.interchange
    except ImportError:
        raise KbqError(f"{NAME} {NEEDS_PYARROW}") from None

    try:
        if not hasattr(given, "__arrow_c_stream__") and hasattr(given, "__dataframe__"):
            return pyarrow.interchange.from_dataframe(given)
        if hasattr(given, "columns") or hasattr(given, "column_names"):
            return pyarrow.table(given)
        column = pyarrow.chunked_array(
            given if hasattr(given, "__arrow_c_stream__") else [pyarrow.array(given)]
        )
        return pyarrow.table({subject: column})
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise KbqError(
            f"{NAME} cannot be read ({error!s:.80}): give rows, or a data frame of pandas"
        ) from None


def _array(values: Sequence[Any], old: Any) -> Any:
    """Return a column's array, if possible with the type of the old one."""
    import pandas

    if isinstance(old, pandas.Series) and isinstance(old.dtype, pandas.CategoricalDtype):
        known = old.dtype.categories
        new = [value for value in dict.fromkeys(values) if value is not None and value not in known]
        return pandas.Categorical(
            values, known.append(pandas.Index(new)), ordered=old.dtype.ordered
        )

    if old is not None and (kept := _of_type(values, old)) is not None:
        return kept
    kinds = {type(value) for value in values}
    if type(None) in kinds and kinds <= {int, type(None)}:
        return pandas.array(values, dtype="Int64")
    if type(None) in kinds and kinds <= {bool, type(None)}:
        return pandas.array(values, dtype="boolean")

    return pandas.Series(values).array


def _of_type(values: Sequence[Any], old: Any) -> Any:
    """Return values as an array of a series' type, or None if one does not fit."""
    import pandas

    try:
        import pyarrow

        kind = pyarrow.Array.from_pandas(old).type
        fitting = as_arrow(values, kind)
        return (
            None if fitting is None else pandas.Series(fitting.to_pylist(), dtype=old.dtype).array
        )
    except (ImportError, ValueError, TypeError, OverflowError, NotImplementedError):
        return None


@dataclass(frozen=True, slots=True)
class FillCounts:
    """Numbers of what was asked for and found."""

    rows: int = 0
    cells: int = 0  # asked for; equal subjects count once
    queries: int = 0  # queries for these cells
    asked: int = 0  # queries without an answer from an earlier run
    filled: int = 0  # cells of those asked for; in a check, those that agree
    markers: int = 0  # cells that count as empty because of a marker
    formulas: int = 0  # values that got an apostrophe, as a spreadsheet would compute them
    unasked: tuple[str, ...] = ()  # why the cells of some rows stay empty
    seconds: float | None = None  # estimated time of filling, in a dry run
    # Decisions that changed the probabilities of other values, by relation.
    taught: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by column, each cell a text, a list of texts, or another value of its file; `claims`
    filled it.

    >>> import kbq
    >>> table = kbq.KnowledgeBase.sample().fill([{"subject": "Marie Curie"}], ["place of birth"])
    >>> table.rows, table.counts.filled, table.claims[0].title
    ([{'subject': 'Marie Curie', 'place of birth': 'Warsaw'}], 1, 'Marie Curie')
    """

    columns: tuple[str, ...]
    rows: Sequence[Row]
    claims: tuple[Claim, ...] = ()
    counts: FillCounts = FillCounts()
    before: Table | None = None  # the table that was filled
    dialect: Dialect = CSV  # dialect of the file that it was read from
    arrow: Any = None  # the pyarrow.Table that it was read from
    frame: Any = None  # the pandas.DataFrame that it was read from

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Table:
        """Make a table of rows in Python. Raises KbqError if they are not mappings whose keys are
        texts.
        """
        several = list(as_iterable(rows, KbqError, "the table is", "a path, or a list of rows"))
        columns: dict[str, None] = {}
        for number, row in enumerate(several, start=1):
            if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
                raise KbqError(
                    f"row {number} of the table is {row!r:.60}: give a mapping from columns to "
                    "values"
                )
            columns |= dict.fromkeys(row)

        return cls(
            tuple(columns), [{name: plain(cell) for name, cell in row.items()} for row in several]
        )

    @classmethod
    def of_frame(cls, given: Any, subject: str) -> Table | None:
        """Return the table of a data frame, or of a series of subjects, or None for anything else.

        Raises KbqError if a column has no name of its own, or a frame that is not of pandas is
        given without pyarrow.
        """
        pandas = sys.modules.get("pandas")
        if pandas and isinstance(given, pandas.Series | pandas.Index):
            given = given.to_frame(name=subject)
        if pandas and isinstance(given, pandas.DataFrame):
            names = tuple(given.columns)
            _refuse_names(names)
            cells = zip(*(map(plain, given[name].astype(object)) for name in names), strict=True)
            return cls(names, [dict(zip(names, row, strict=True)) for row in cells], frame=given)

        # Lazy.
        given = (
            given.collect()
            if hasattr(given, "collect_schema") and hasattr(given, "collect")
            else given
        )
        protocols = "__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"
        if not any(hasattr(given, name) for name in protocols):
            return None
        arrow = _frame_to_arrow(given, subject)
        _refuse_names(arrow.column_names)
        rows = [{name: plain(value) for name, value in row.items()} for row in arrow.to_pylist()]

        return cls(tuple(arrow.column_names), rows, arrow=arrow)

    def refuse_without(self, subject: str, name: object = "the table") -> None:
        """Raise KbqError, which calls the table by this name, if there is no such column of
        subjects.
        """
        if subject not in self.columns:
            near = get_close_matches(subject, self.columns[:1000], 1, 0.5)
            hint = (
                f"did you mean {near[0]!r}?"
                if near
                else f"it has {', '.join(map(repr, self.columns[:20]))}"
            )
            raise KbqError(
                f"{name} has no column {subject!r} ({hint}): name the column of subjects with "
                "--subject"
            )

    def is_filled(self, row: int, column: str) -> bool:
        """Whether a cell got its value from the knowledge base."""
        if self.before is None:
            return False
        now = self.rows[row]
        before = self.before.rows[row]
        is_same = now is before or now.get(column) is before.get(column)
        if is_same:
            return self.before.is_filled(row, column)
        return True

    def all_filled(self) -> Table:
        """Return the same table with all cells counted as filled."""
        return replace(self, before=Table(self.columns, [{}] * len(self.rows)))

    def to_csv(self, path: str | Path) -> None:
        """Write the table. Raises KbqError if it cannot be written, or the ending is another
        format's.
        """
        target = as_path(path, "path")
        known = SUFFIXES.get(target.suffix.lower(), "csv")
        if known != "csv":
            advice = "use to_excel" if known == "xlsx" else "end it in .csv"
            raise KbqError(f"{target} would be CSV, not {known}: {advice}")
        write_table(self, target, "csv")

    def to_excel(self, path: str | Path) -> None:
        """Write the table as XLSX. Raises KbqError if it cannot be written, or openpyxl is missing."""
        refuse_unwritable(self, "xlsx")
        write_table(self, as_path(path, "path"), "xlsx")

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a data frame, with the index and the types of the one that was
        filled.

        Raises KbqError if pandas is not installed.
        """
        if not find_spec("pandas"):
            raise KbqError("to_pandas needs pandas: pip install pandas")
        import pandas

        frame = (self.before or self).frame
        places = range(len(self.rows))
        arrays = {}
        for name in self.columns:
            old = None
            if frame is not None and name in frame.columns:
                old = frame[name]
            if old is not None and not any(self.is_filled(row, name) for row in places):
                arrays[name] = old.array
            else:
                arrays[name] = _array([row.get(name) for row in self.rows], old)

        index = None if frame is None else frame.index
        columns = list(self.columns)
        return (
            pandas.DataFrame(arrays, index=index, columns=columns)
            if arrays
            else pandas.DataFrame(index=index)
        )

    def to_arrow(self) -> pa.Table:
        """Return the table as one of Arrow, for polars, duckdb and others, with the types of the
        one that was filled.

        Raises KbqError if pyarrow is not installed.
        """
        if not find_spec("pyarrow"):
            raise KbqError(f"Arrow {NEEDS_PYARROW}")
        return _arrow_of(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the rows to a library that reads Arrow's streams: `polars.DataFrame(table)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook; a filled cell shows its evidence under the mouse."""
        claims = {(claim.subject, claim.relation): claim for claim in reversed(self.claims)}
        names = {claim.subject for claim in self.claims}
        rows = []
        for number, row in enumerate(self.rows[:SHOWN]):
            subject = next((text for text in map(subject_of, row.values()) if text in names), "")
            cells = []
            for column in self.columns:
                is_filled = self.is_filled(number, column)
                claim = None
                if is_filled:
                    claim = claims.get((subject, column))
                chance = (
                    ""
                    if claim is None or claim.probability is None
                    else percentage(claim.probability)
                )
                text = html.text(cell_text(row.get(column)))
                quiet = html.element("span", chance, style=html.QUIET)
                style = "background:#3b82c433" * is_filled
                title = ""
                if claim:
                    title = f"{claim.sentence} ({claim.title})"
                cells.append(html.element("td", text, " ", quiet, style=style, title=title))

            rows.append(cells)

        caption = (
            f"{len(self.rows):,} rows, {self.counts.filled:,} of {self.counts.cells:,} cells filled"
        )
        return html.table(self.columns, rows, caption)

    def __repr__(self) -> str:
        return (
            f"Table({len(self.rows):,} rows, {len(self.columns):,} columns, {len(self.claims):,} "
            "claims)"
        )


def read_table(path: str | Path, note: Note = unheard) -> Table:
    """Read a table in any form that `read_rows` reads. Raises KbqError if it cannot be read, or is
    empty.
    """
    rows = read_rows(str(path), note=note)
    table = Table.of(row for _, row in rows.numbered)
    if not rows.columns and not table.columns:
        raise KbqError(f"{rows.name} is empty: {NOTHING}")
    return replace(
        table, columns=rows.columns or table.columns, dialect=rows.dialect, arrow=rows.arrow
    )


def write_table(table: Table, path: Path, format: RowFormat) -> int:
    """Replace a file by the table in the dialect that it was read in; return how many texts got an
    apostrophe.

    In CSV and TSV, filled values and names of new columns get one if a spreadsheet would compute
    them.
    """
    read = (table.before or table).dialect
    with writing_to(path, KbqError, goes_on=True), replacing(path) as partial:
        if format == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(_arrow_of(table), partial)
        elif format == "xlsx":
            cells = (
                [for_spreadsheet(row.get(column)) for column in table.columns] for row in table.rows
            )
            write_xlsx(partial, chain([table.columns], cells))
        elif format == "jsonl":
            with partial.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                jsonlines.Writer(file, dumps=partly(json_line, default=text_of)).write_all(
                    table.rows
                )
        else:
            if read.format == format:
                return _write_separated(table, partial, read)
            separator = ","
            if format == "tsv":
                separator = "\t"
            return _write_separated(table, partial, Dialect(format, separator))

    return 0


def _write_separated(table: Table, path: Path, dialect: Dialect) -> int:
    """Write a table as CSV or TSV; return how many texts could be taken for formulas."""
    if table.before is None:
        known = table.columns
    else:
        known = table.before.columns
    header = [name if name in known else guarded(name) for name in table.columns]
    formulas = sum(name not in table.columns for name in header)
    # All names are quoted if one of them has a letter that might be taken for the delimiter.
    has_others = dialect.format != "tsv" and any(re.search(r"[;\t|]|^ ", name) for name in header)
    of_header = dialect
    if has_others:
        of_header = replace(dialect, quotes_all=True)

    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(MARK * dialect.has_mark + _line(header, of_header))
        for number, row in enumerate(table.rows):
            texts = [cell_text(row.get(column)) for column in table.columns]
            for place, column in enumerate(table.columns):
                if is_formula(texts[place]) and table.is_filled(number, column):
                    texts[place] = guarded(texts[place])
                    formulas += 1
            file.write(_line(texts, dialect))

    return formulas


def refuse_unwritable(table: Table, format: RowFormat) -> None:
    """Raise KbqError if a format cannot hold a table, before any work is spent on it."""
    if format == "parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise KbqError(f"Parquet {NEEDS_PYARROW}") from None

    if format == "xlsx":
        if not find_spec("openpyxl"):
            raise KbqError(f"XLSX {NEEDS_OPENPYXL}")
        if len(table.rows) >= MOST_ROWS:
            raise KbqError(
                f"the table has {len(table.rows):,} rows, XLSX has {MOST_ROWS:,} at most: write "
                "CSV instead"
            )

    for number, row in enumerate(table.rows if format in ("tsv", "xlsx") else (), start=1):
        for column in table.columns:
            text = cell_text(row.get(column))
            if format == "tsv" and BREAKS.search(text):
                raise KbqError(
                    f"row {number} has a tab or a line end in {column!r}, which TSV cannot hold: "
                    "write CSV instead"
                )
            if format == "xlsx" and len(text) > MOST_CHARACTERS:
                raise KbqError(
                    f"row {number} has more than {MOST_CHARACTERS:,} characters in {column!r}, "
                    "which XLSX cannot hold: write CSV instead"
                )


def _line(texts: Sequence[str], dialect: Dialect) -> str:
    """Return the line of a row."""
    # A quotation mark must not open a cell that swallows the rows after it: other programs read TSV
    # as they do CSV.
    buffer = StringIO(newline="")
    texts = [*texts, *[""] * dialect.unnamed]
    if dialect.has_blanks:  # csv writes a delimiter as one letter
        must_be_quoted = re.compile(rf'^ |["\r\n{re.escape(dialect.delimiter)}]')
        cells = (
            f'"{text.replace(chr(34), chr(34) * 2)}"' if must_be_quoted.search(text) else text
            for text in texts
        )
        return f"{dialect.delimiter} ".join(cells) + dialect.line_end

    if dialect.format == "tsv":
        texts = [BREAKS.sub(" ", text) for text in texts]
    quoting: Literal[0, 1] = csv.QUOTE_ALL if dialect.quotes_all else csv.QUOTE_MINIMAL
    # With these ends, it quotes either of them in a cell.
    csv.writer(
        buffer, delimiter=dialect.delimiter, quoting=quoting, lineterminator="\r\n"
    ).writerow(texts)

    return buffer.getvalue().removesuffix("\r\n") + dialect.line_end


def _arrow_of(table: Table) -> Any:
    """Return a table of Arrow; columns keep the types that they were read with if all values fit."""
    import pyarrow

    if table.before is None:
        arrow = table.arrow
    else:
        arrow = table.before.arrow
    arrays = []
    for column in table.columns:
        values = [None if is_empty(row.get(column)) else row[column] for row in table.rows]
        is_old = arrow is not None and column in arrow.column_names
        if is_old and not any(table.is_filled(row, column) for row in range(len(values))):
            arrays.append(arrow.column(column))
            continue
        if is_old and (kept := as_arrow(values, arrow.column(column).type)) is not None:
            arrays.append(kept)
            continue

        try:
            arrays.append(
                pyarrow.array(
                    values, pyarrow.string() if values.count(None) == len(values) else None
                )
            )
        except (pyarrow.ArrowException, TypeError, OverflowError):  # values of several types
            texts = [None if value is None else cell_text(value) for value in values]
            arrays.append(pyarrow.array(texts, pyarrow.string()))

    return pyarrow.table(arrays, names=list(table.columns))
