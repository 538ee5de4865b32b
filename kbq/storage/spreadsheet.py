"""Spreadsheets: a sheet of an XLSX file becomes rows with the values that a person sees, and rows become such a file.

Nothing is computed: of a formula, the value that was saved with it counts.
"""

import io
import re
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kbq.errors import KbqError, first_line
from kbq.storage.files import refuse_large

NEEDS_OPENPYXL = "needs openpyxl: pip install openpyxl, or use CSV"
SUFFIX = ".xlsx"
MOST_CHARACTERS, MOST_ROWS = 32_767, 1_048_576  # of a cell and of a sheet, in Excel
COMPOUND = b"\xd0\xcf\x11\xe0"  # how an encrypted Office file, or one of old versions, begins
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

Cells = Sequence[Any]
Merged = Mapping[int, Sequence[tuple[int, int, int]]]  # by row: columns and first row of merged cells


def read_xlsx(source: str) -> list[tuple[int, Cells]]:
    """Read the rows of a sheet that have a value, with their numbers: `t.xlsx`, or `t.xlsx#Sheet` of several sheets.

    Whole numbers are integers, and all cells of a merged one have its value. openpyxl only reads
    the rows: what else a sheet may have, such as links and notes, it would give a cell each, however many these are.

    Raises:
        KbqError: it cannot be read, is encrypted or too large, or several sheets have values; or openpyxl is missing.
    """
    try:
        import openpyxl
    except ImportError:
        raise KbqError(f"{source} {NEEDS_OPENPYXL}") from None
    path, wanted = path_and_sheet(source)
    try:
        with path.open("rb") as file:  # which openpyxl would leave open where it fails
            if file.read(len(COMPOUND)) == COMPOUND:
                raise KbqError(f"{path} is encrypted, or of an old version: save it as .xlsx without a password")
            with zipfile.ZipFile(file) as archive, warnings.catch_warnings(action="ignore"):  # of what is not read
                refuse_large(str(path), sum(one.file_size for one in archive.infolist()))
                books = [openpyxl.load_workbook(file, read_only=True, data_only=is_value) for is_value in (True, False)]
                title = _title(path, books[0], wanted)
                return _rows(path, books[0][title], books[1][title], _merged(archive, title))
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
    saved = io.BytesIO()
    book.save(saved)
    # The same rows give the same bytes: openpyxl writes when it saves.
    with zipfile.ZipFile(saved) as parts, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in parts.namelist():
            content = parts.read(name)
            if name == "docProps/core.xml":
                content = _TIME.sub(b"1980-01-01T00:00:00Z", content)
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def unpacked_sizes(archive: zipfile.ZipFile) -> tuple[int, int]:
    """Return the bytes of all parts of an Office file, and of those that are XML, whatever their names are."""
    parts = archive.infolist()
    return sum(one.file_size for one in parts), sum(one.file_size for one in parts if _is_xml(archive, one))


def _is_xml(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    with archive.open(part) as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")[:1] in (b"<", b"")


def _title(path: Path, book: Any, wanted: str) -> str:
    """Return the title of the sheet to read: the one that is named, or the one that has a value."""
    filled = [sheet.title for sheet in book.worksheets if any(map(_has_value, _rows_of(sheet)))]
    names = ", ".join(filled)
    if wanted:
        if wanted not in [sheet.title for sheet in book.worksheets]:
            raise KbqError(f"{path} has no sheet {wanted!r}: choose from {names}")
        return wanted
    if len(filled) > 1:
        raise KbqError(f"{path} has {len(filled)} sheets, {names}: name the one to read, such as {path}#{filled[0]}")
    return str(filled[0] if filled else book.worksheets[0].title)


def _rows_of(sheet: Any) -> Iterator[Sequence[Any]]:
    """Yield the cells of each row, none where there is no row."""
    sheet.reset_dimensions()  # a file may say anything
    yield from sheet.iter_rows(max_row=MOST_ROWS)


def _has_value(row: Iterable[Any]) -> bool:
    return any(cell.value not in (None, "") for cell in row)


def _merged(archive: zipfile.ZipFile, title: str) -> Merged:
    """Return the merged cells of a sheet."""
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.utils.cell import range_boundaries

    reader = ExcelReader(archive.fp, read_only=True)
    reader.read_manifest()
    reader.read_workbook()
    parts = {sheet.name: relation.target for sheet, relation in reader.parser.find_sheets()}
    merged = defaultdict(list)
    with archive.open(parts[title]) as sheet:
        for _, element in ElementTree.iterparse(sheet):
            if element.tag.endswith("}mergeCell"):
                left, top, right, bottom = range_boundaries(element.get("ref", ""))
                for row in range(top, bottom + 1):
                    merged[row].append((left, right, top))
            element.clear()
    return merged


def _rows(path: Path, sheet: Any, formulas: Any, merged: Merged) -> list[tuple[int, Cells]]:
    found, width, firsts = list[tuple[int, Cells]](), 0, dict[tuple[int, int], Any]()
    both = _rows_of(sheet), _rows_of(formulas)
    for number, (row, with_formulas) in enumerate(zip(*both, strict=True), start=1):
        cells = [_value(cell.value) for cell in row]
        for left, right, top in merged.get(number, ()):
            cells += [None] * (right - len(cells))
            value = firsts[left, top] = cells[left - 1] if number == top else firsts.get((left, top))
            cells[left - 1 : right] = [value] * (right - left + 1)
        cells += [None] * (width - len(cells))
        for formula, value in zip(with_formulas, cells, strict=False):
            if value is None and formula.data_type == "f":
                raise KbqError(
                    f"{path} has a formula without its value in {formula.coordinate}: open and save it in a spreadsheet"
                )
        if any(value not in (None, "") for value in cells):
            width = width or len(cells)
            found.append((number, cells))
    return found


def _value(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
