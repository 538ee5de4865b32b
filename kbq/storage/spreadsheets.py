"""Spreadsheets: the sheets of an XLSX file as rows of what a spreadsheet shows."""

import io
import re
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

from kbq.errors import KbqError, first_line
from kbq.storage.reading import refuse_large

NEEDS_OPENPYXL = "needs openpyxl: pip install openpyxl, or use CSV"
SUFFIX = ".xlsx"
# Limits of a cell and of a sheet, in Excel.
MOST_CHARACTERS = 32_767
MOST_ROWS = 1_048_576
COMPOUND = b"\xd0\xcf\x11\xe0"  # how an encrypted Office file, or one of old versions, begins
# Times and durations that hide nothing, so keep their type.
WHOLE_CLOCKS = (
    "h:mm:ss",
    "[hh]:mm:ss",
)
UNITS = {"h": 3600, "m": 60, "s": 1}  # seconds
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# A number's format: text in quotation marks or behind a backslash, a currency, colours and widths,
# digits, a letter.
_PART = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]|(?P<unseen>\[[A-Za-z]+\d*\]|_.|\*.)'
    r"|(?P<digits>[0#](?:[0#,.]*[0#])?,*\.?)|(?P<sign>[-$+():!^&'~{}<>=%/ €£¥])|(?P<other>.)",
    re.DOTALL,
)
_SECTION = re.compile(r'((?:"[^"]*"|\\.|\[[^\]]*\]|[^;"\\\[])*)(?:;|$)')
_CLOCK = re.compile(
    r'\[(?P<all>h+|m+|s+)\]|(?P<part>h+|m+|s+)|"(?P<quoted>[^"]*)"|\\?(?P<other>.)', re.IGNORECASE
)

Cells: TypeAlias = Sequence[Any]
# Key: row; columns and first row of merged cells.
Merged = Mapping[int, Sequence[tuple[int, int, int]]]


def read_xlsx(source: str) -> list[tuple[int, Cells]]:
    """Read the rows of `t.xlsx`, or of one of its sheets, `t.xlsx#Sheet`, that have a value, with
    their numbers.

    Whole numbers are integers, and all cells of a merged one have its value. openpyxl reads nothing
    but the rows: it would give a cell to every link and note.

    Raises KbqError if it cannot be read, is encrypted or too large, several sheets have values, or
    openpyxl is missing.
    """
    path, wanted = path_and_sheet(source)
    with _opened(path) as (load, archive):
        values = load(data_only=True)
        formulas = load(data_only=False)
        title = _title(path, values, wanted)
        return _rows(path, values[title], formulas[title], _merged(archive, title))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Callable[..., Any], zipfile.ZipFile]]:
    """Open a workbook: give what loads it with openpyxl, and its parts.

    Raises KbqError if it cannot be read, is encrypted or too large, or openpyxl is missing.
    """
    try:
        import openpyxl
    except ImportError:
        raise KbqError(f"{path} {NEEDS_OPENPYXL}") from None

    try:
        with path.open("rb") as file:  # openpyxl would leave it open where it fails
            if file.read(len(COMPOUND)) == COMPOUND:
                raise KbqError(
                    f"{path} is encrypted, or of an old version: save it as .xlsx without a "
                    "password"
                )
            # It warns of what it does not read.
            with zipfile.ZipFile(file) as archive, warnings.catch_warnings(action="ignore"):
                refuse_large(str(path), sum(one.file_size for one in archive.infolist()))
                yield partial(openpyxl.load_workbook, file, read_only=True), archive
    except KbqError:
        raise
    except Exception as error:  # openpyxl raises what its parsers raise
        raise KbqError(
            f"{path} cannot be read ({first_line(error)}): check that it is an XLSX file"
        ) from None


def path_and_sheet(source: str) -> tuple[Path, str]:
    """Split a name into the file and the sheet, which may be empty.

    >>> path_and_sheet("a/t.xlsx#People"), path_and_sheet("a#b.xlsx")
    ((PosixPath('a/t.xlsx'), 'People'), (PosixPath('a#b.xlsx'), ''))
    """
    path, mark, sheet = source.rpartition("#")
    is_named = bool(mark) and path.lower().endswith(SUFFIX) and not Path(source).exists()
    if is_named:
        return Path(path), sheet
    return Path(source), ""


def write_xlsx(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a workbook with one sheet, whose first row is its header; all text stays text, and
    nothing is computed.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font
    except ImportError:
        raise KbqError(f"{path} {NEEDS_OPENPYXL}") from None

    book = Workbook(write_only=True)
    sheet = book.create_sheet("kbq")
    sheet.freeze_panes = "A2"  # the header stays in sight
    bold = Font(bold=True)

    for number, row in enumerate(rows):
        cells = []
        for value in row:
            if isinstance(value, str):
                cell = WriteOnlyCell(
                    sheet, ILLEGAL_CHARACTERS_RE.sub(" ", value.encode("utf-8", "replace").decode())
                )
                cell.data_type = "s"  # else "=1+1" is a formula
                if number == 0:
                    cell.font = bold
                cells.append(cell)
            else:
                cells.append(value)

        sheet.append(cells)

    saved = io.BytesIO()
    book.save(saved)
    # The same rows give the same bytes: openpyxl writes when it saves.
    with (
        zipfile.ZipFile(saved) as parts,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in parts.namelist():
            content = parts.read(name)
            if name == "docProps/core.xml":
                content = _TIME.sub(b"1980-01-01T00:00:00Z", content)
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def _title(path: Path, book: Any, wanted: str) -> str:
    """Return the title of the sheet to read: the one that is named, or the only one that has a
    value.
    """
    if wanted and wanted in [sheet.title for sheet in book.worksheets]:
        return wanted
    filled = _filled(book)
    names = ", ".join(filled)
    if wanted:
        raise KbqError(f"{path} has no sheet {wanted!r}: choose from {names}")
    if len(filled) > 1:
        raise KbqError(
            f"{path} has {len(filled)} sheets, {names}: name the one to read, such as "
            f"{path}#{filled[0]}"
        )

    if filled:
        return str(filled[0])
    return str(book.worksheets[0].title)


def _filled(book: Any) -> list[str]:
    """Return the titles of the sheets that have a value."""
    return [
        sheet.title
        for sheet in book.worksheets
        if any(cell.value not in (None, "") for row in _rows_of(sheet) for cell in row)
    ]


def filled_sheets(path: Path) -> list[str]:
    """Return the titles of the sheets of a file that have a value. Raises KbqError if it cannot be
    read.
    """
    with _opened(path) as (load, _):
        return _filled(load(data_only=True))


def _rows_of(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # the file may state any
    yield from sheet.iter_rows(max_row=MOST_ROWS)


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
    """Return the rows of a sheet as they are shown; merged cells all have the first one's value."""
    found = list[tuple[int, Cells]]()
    width = 0
    firsts = dict[tuple[int, int], Any]()
    both = _rows_of(sheet), _rows_of(formulas)

    for number, (row, with_formulas) in enumerate(zip(*both, strict=True), start=1):
        cells = [
            shown(cell.value, getattr(cell, "number_format", None) or "General") for cell in row
        ]
        for left, right, top in merged.get(number, ()):
            cells += [None] * (right - len(cells))
            value = firsts[left, top] = (
                cells[left - 1] if number == top else firsts.get((left, top))
            )
            cells[left - 1 : right] = [value] * (right - left + 1)

        cells += [None] * (width - len(cells))
        for formula, value in zip(with_formulas, cells, strict=False):
            if value is None and formula.data_type == "f":
                where = f"{path} has a formula without its value in {formula.coordinate}"
                raise KbqError(f"{where}: open and save it in a spreadsheet")

        if any(value not in (None, "") for value in cells):
            width = width or len(cells)
            found.append((number, cells))

    return found


def shown(value: Any, format: str) -> Any:
    """Return the value of a cell, as text where its format shows more than a number, or less than a
    day.

    >>> shown(0.075, "0.0%"), shown(2345, "00000"), shown(1931.0, "General"), shown(12.5, '0.0" kg"')
    ('7.5%', '02345', 1931, '12.5 kg')
    >>> shown(date(1931, 5, 1), "mmmm yyyy"), shown(timedelta(hours=30), "[h]:mm"), shown(time(9, 5), "h:mm")
    ('1931-05', '30:00', '9:05')
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = _number_shown(value, format)
        if text is None:
            return whole(value)
        return text
    if format in WHOLE_CLOCKS:
        return value
    letters = re.sub(r'"[^"]*"|\\.|\[\$[^\]]*\]', "", format).lower()
    if isinstance(value, timedelta) or (isinstance(value, time) and "/" not in letters):
        return _clock_shown(value, format) or value
    if (
        isinstance(value, date)
        and "y" in letters
        and "d" not in letters
        and not re.search("[hs]", letters)
    ):
        if "m" in letters:
            return f"{value.year}-{value.month:02}"
        return value.year

    return value


def whole(value: Any) -> Any:
    """Return a float without a fraction as an integer, and any other value as it is."""
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    )


def _number_shown(number: float, format: str) -> str | None:
    """Return a number as a format with a unit, a currency, a percent sign or leading zeros shows
    it, else None.
    """
    sections = [found[1] for found in _SECTION.finditer(format)][:-1] or [format]
    if number < 0 and sections[1:]:
        place = 1
    elif number == 0 and sections[2:]:
        place = 2
    else:
        place = 0
    parts = list(_PART.finditer(sections[place]))
    digits = [part["digits"] for part in parts if part["digits"]]
    written = [
        "".join(part[name] or "" for name in ("quoted", "escaped", "currency", "sign"))
        for part in parts
    ]
    is_more = any(re.search(r"[^\W\d_]|[%$€£¥°″′]", text) for text in written) or any(
        re.match("00", one) for one in digits
    )
    if not digits or not is_more:
        return None
    if any(part["other"] for part in parts):
        return None
    exact = Decimal(repr(number)) * 100 ** "".join(part["sign"] or "" for part in parts).count("%")
    numbers = _digits_shown(abs(exact), digits)
    if numbers is None:
        return None
    shown_numbers = iter(numbers)
    text = "".join(
        next(shown_numbers) if part["digits"] else one
        for part, one in zip(parts, written, strict=True)
    )
    is_below = number < 0 and place == 0 and re.search("[1-9]", "".join(numbers))

    sign = ""
    if is_below:
        sign = "-"
    return sign + " ".join(text.split())


def _digits_shown(number: Decimal, groups: Sequence[str]) -> list[str] | None:
    """Return the digits of a number in the groups of a format, or None if there are several that
    are not all zeros.

    >>> _digits_shown(Decimal("1234.5"), ["#,##0.00"]), _digits_shown(Decimal(123456789), ["000", "00", "0000"])
    (['1,234.50'], ['123', '45', '6789'])
    """
    if groups[1:]:
        zeros = "".join(groups)
        if set(zeros) != {"0"}:
            return None
        text = f"{int(number.to_integral_value(ROUND_HALF_UP)):0{len(zeros)}}"
        several = []
        for group in reversed(groups[1:]):
            several.append(text[-len(group) :])
            text = text[: -len(group)]
        return [text, *reversed(several)]

    pattern = groups[0].rstrip(",")
    thousands = len(groups[0]) - len(groups[0].rstrip(","))
    before, point, after = pattern.partition(".")
    after = after.replace(",", "")
    rounded = (number / 1000**thousands).quantize(Decimal(1).scaleb(-len(after)), ROUND_HALF_UP)
    units, _, fraction = f"{rounded:f}".partition(".")
    least = len(after.rstrip("#"))
    fraction = fraction[:least] + fraction[least:].rstrip("0")
    units = units.lstrip("0").rjust(before.count("0"), "0")
    if "," in before:
        if units:
            units = f"{int(units or 0):0{len(units)},}"
        else:
            units = ""

    return [f"{units}{point}{fraction}".removesuffix(".")]


def _clock_shown(value: timedelta | time, format: str) -> str:
    """Return a duration, or a time of the day, as its format shows it, or "" if it is a format of
    another kind.
    """
    if re.search("am/pm|general|0", re.sub(r"\[[^\]]*\]", "", format), re.IGNORECASE):
        return ""
    if isinstance(value, time):
        value = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
    seconds = int(value.total_seconds())
    parts = list(_CLOCK.finditer(format.split(";")[0]))
    if seconds < 0:
        return ""
    if not any(part["all"] or part["part"] for part in parts):
        return ""
    text = ""
    for part in parts:
        letters = (part["all"] or part["part"] or "").lower()
        size = UNITS.get(letters[:1], 1)
        most = 60
        if part["all"]:
            most = 10**9
        elif size == 3600:
            most = 24
        count = seconds // size % most
        if letters:
            text += f"{count:0{len(letters)}}"
        else:
            text += part["quoted"] or part["other"] or ""

    return text
