"""Spreadsheets: a sheet of an XLSX file becomes rows with the values that a person sees, and rows become such a file.

Nothing is computed: of a formula, the value that was saved with it counts.
"""

import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kbq.errors import KbqError, first_line
from kbq.storage.room import Room

NEEDS_OPENPYXL = "needs openpyxl: pip install openpyxl, or use CSV"
SUFFIX = ".xlsx"
LARGEST = 2**25  # bytes of XML: openpyxl takes some fifty times as many
MOST_CHARACTERS, MOST_ROWS = 32_767, 1_048_576  # of a cell and of a sheet, in Excel
COMPOUND = b"\xd0\xcf\x11\xe0"  # how an encrypted file, or one of old versions, begins

Cells = tuple[Any, ...]


def read_xlsx(source: str) -> Iterator[tuple[int, Cells]]:
    """Read the rows of a sheet that have a value, with their numbers: `t.xlsx`, or `t.xlsx#Sheet` of several sheets.

    Dates are in ISO 8601, whole numbers are integers, and all cells of a merged one have its value.

    Raises:
        KbqError: it cannot be read, is encrypted or too large, or several sheets have values; or openpyxl is missing.
    """
    try:
        import openpyxl
    except ImportError:
        raise KbqError(f"{source} {NEEDS_OPENPYXL}") from None
    path, wanted = path_and_sheet(source)
    try:
        with path.open("rb") as file:
            if file.read(len(COMPOUND)) == COMPOUND:
                raise KbqError(f"{path} is encrypted, or of an old version: save it as .xlsx without a password")
        with zipfile.ZipFile(path) as archive:
            _refuse_large(path, archive)
        with warnings.catch_warnings(action="ignore"):  # of what is not read: rules for input, colours, macros
            books = [openpyxl.load_workbook(path, data_only=is_value) for is_value in (True, False)]
        sheet = _sheet(path, books[0], wanted)
        return _rows(path, sheet, books[1][sheet.title])
    except KbqError:
        raise
    except Exception as error:  # openpyxl raises what its parsers raise
        raise KbqError(f"{path} cannot be read ({first_line(error)}): check that it is an XLSX file") from None


def path_and_sheet(source: str) -> tuple[Path, str]:
    """Split a name into the file and the sheet, if one is named.

    >>> path_and_sheet("a/t.xlsx#People"), path_and_sheet("a#b.xlsx")
    ((PosixPath('a/t.xlsx'), 'People'), (PosixPath('a#b.xlsx'), ''))
    """
    path, mark, sheet = source.rpartition("#")
    is_named = bool(mark) and path.lower().endswith(SUFFIX) and not Path(source).exists()
    return (Path(path), sheet) if is_named else (Path(source), "")


def write_xlsx(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a workbook with one sheet; text stays text, whatever it begins with, so that nothing in it is computed.

    Raises KbqError if openpyxl is missing.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    except ImportError:
        raise KbqError(f"{path} {NEEDS_OPENPYXL}") from None
    book = Workbook(write_only=True)
    sheet = book.create_sheet("kbq")
    for row in rows:
        cells = []
        for value in row:
            if isinstance(value, str):
                cell = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub(" ", value.encode("utf-8", "replace").decode()))
                cell.data_type = "s"  # else "=1+1" is a formula
                cells.append(cell)
            else:
                cells.append(value)
        sheet.append(cells)
    book.save(path)


def _refuse_large(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a file that takes openpyxl far more memory than its size: it keeps every cell, and every merged one.

    Raises KbqError.
    """
    from openpyxl.utils.cell import range_boundaries

    described = [one for one in archive.infolist() if one.filename.lower().endswith((".xml", ".rels", ".vml"))]
    if (size := sum(one.file_size for one in described)) > LARGEST:
        raise KbqError(f"{path} has {size:,} bytes of XML, {LARGEST:,} at most are read: divide it, or use CSV")
    for one in described:
        if "worksheets/" not in one.filename.lower():
            continue
        room, last = Room(str(path)), [0, 0]
        with archive.open(one) as sheet:
            for _, element in ElementTree.iterparse(sheet):
                kind = element.tag.rpartition("}")[2]
                ref = element.get("r" if kind == "c" else "ref", "") if kind in ("c", "mergeCell") else ""
                if ref:
                    left, top, right, bottom = (edge or 0 for edge in range_boundaries(ref))
                    last = [max(last[0], bottom), max(last[1], right)]
                    room.take(cells=(right - left + 1) * (bottom - top + 1))
                element.clear()
        Room(str(path)).take(last[0], last[0] * last[1])  # those without a value are made, too


def _sheet(path: Path, book: Any, wanted: str) -> Any:
    filled = [sheet for sheet in book.worksheets if sheet.max_row > 1 or sheet.max_column > 1 or sheet.cell(1, 1).value]
    names = ", ".join(sheet.title for sheet in filled)
    if wanted:
        found = [sheet for sheet in book.worksheets if sheet.title == wanted]
        if not found:
            raise KbqError(f"{path} has no sheet {wanted!r}: choose from {names}")
        return found[0]
    if len(filled) > 1:
        raise KbqError(
            f"{path} has {len(filled)} sheets, {names}: name the one to read, such as {path}#{filled[0].title}"
        )
    return filled[0] if filled else book.worksheets[0]


def _rows(path: Path, sheet: Any, formulas: Any) -> Iterator[tuple[int, Cells]]:
    merged = {
        (row, column): sheet.cell(area.min_row, area.min_col).value
        for area in sheet.merged_cells.ranges
        for row in range(area.min_row, area.max_row + 1)
        for column in range(area.min_col, area.max_col + 1)
    }
    room = Room(str(path))
    for number, (row, with_formulas) in enumerate(zip(sheet.iter_rows(), formulas.iter_rows(), strict=False), start=1):
        cells = tuple(_value(merged.get((cell.row, cell.column), cell.value)) for cell in row)
        room.take(1, len(cells), sum(len(value) for value in cells if isinstance(value, str)))
        for cell, formula, value in zip(row, with_formulas, cells, strict=True):
            if value is None and formula.data_type == "f":
                raise KbqError(
                    f"{path} has a formula without its value in {cell.coordinate}: open and save it in a spreadsheet"
                )
        if any(value not in (None, "") for value in cells):
            yield number, cells


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
