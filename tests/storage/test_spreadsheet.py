"""Spreadsheets: they are read as a person sees them, what is written computes nothing, and bad
files are named.
"""

import datetime
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbq.errors import KbqError
from kbq.tables.tables import Table, read_table, write_table

openpyxl = pytest.importorskip("openpyxl")


def book(
    path: Path,
    change: Callable[[Any], object] = lambda book: None,
    rows: Any = (("name", "born"), ("Ann", 1851)),
) -> Path:
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
    change(made)
    made.save(path)
    return path


def test_values_are_those_that_a_person_sees(tmp_path: Path) -> None:
    rows = [
        (None, None), ("name", "born", "at", "n"),
        ("Ann", datetime.date(1851, 3, 1), datetime.datetime(2000, 1, 2, 3, 4), 5.0),
        (None, None, None, None), ("Bob", datetime.time(1, 2), 0.5, True), ("Łódź 👩‍🔬", "=\"x\"", "'", None),
    ]  # fmt: skip
    path = book(
        tmp_path / "t.xlsx", lambda book: setattr(book.active["B6"], "data_type", "s"), rows
    )
    table = read_table(path)
    assert table.columns == ("name", "born", "at", "n")
    assert [list(row.values()) for row in table.rows] == [
        ["Ann", datetime.datetime(1851, 3, 1), datetime.datetime(2000, 1, 2, 3, 4), 5],
        ["Bob", datetime.time(1, 2), 0.5, True], ["Łódź 👩‍🔬", '="x"', "'", None],
    ]  # fmt: skip
    write_table(table, tmp_path / "t.csv", "csv")
    assert (tmp_path / "t.csv").read_text("utf-8").splitlines()[1:3] == [
        "Ann,1851-03-01,2000-01-02 03:04:00,5", "Bob,01:02:00,0.5,true",
    ]  # fmt: skip


def test_types_are_kept(tmp_path: Path) -> None:
    zone = datetime.UTC
    rows: list[Any] = [
        "a", 0.25, 7, 1984.0, True, datetime.datetime(1934, 7, 4), datetime.datetime(2000, 1, 2, 3, 4),
        datetime.date(2001, 5, 6), datetime.time(1, 2), datetime.timedelta(hours=30), None,
        datetime.datetime(2000, 1, 1, tzinfo=zone), datetime.date(1867, 11, 7),
    ]  # fmt: skip
    names = tuple(map(str, range(len(rows))))
    write_table(Table(names, [dict(zip(names, rows, strict=True))]), tmp_path / "t.xlsx", "xlsx")
    (found,) = [list(row.values()) for row in read_table(tmp_path / "t.xlsx").rows]
    assert found == [
        "a", 0.25, 7, 1984, True, datetime.datetime(1934, 7, 4), datetime.datetime(2000, 1, 2, 3, 4),
        datetime.datetime(2001, 5, 6), datetime.time(1, 2), datetime.timedelta(hours=30), None,
        "2000-01-01 00:00:00+00:00", "1867-11-07",
    ]  # fmt: skip
    write_table(read_table(tmp_path / "t.xlsx"), tmp_path / "again.xlsx", "xlsx")
    assert [list(row.values()) for row in read_table(tmp_path / "again.xlsx").rows] == [found]


def test_merged_cells_have_their_value_and_a_sheet_is_named(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book.active.append(["Bob", 2])
        book.active.merge_cells("A2:A3")
        book.create_sheet("empty")

    path = book(tmp_path / "t.xlsx", change)
    assert [row["name"] for row in read_table(path).rows] == ["Ann", "Ann"]
    path = book(tmp_path / "two.xlsx", lambda book: book.create_sheet("Other").append(["x"]))
    with pytest.raises(
        KbqError,
        match=r"two.xlsx has 2 sheets, Sheet, Other: name the one to read, such as .*xlsx#Sheet$",
    ):
        read_table(path)
    assert read_table(f"{path}#Other").columns == ("x",)
    with pytest.raises(KbqError, match=r"two\.xlsx has no sheet 'x': choose from Sheet, Other"):
        read_table(f"{path}#x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "is encrypted, or of an old version: save it as .xlsx without a password",
        ),
        (b"PK", "cannot be read (File is not a zip file): check that it is an XLSX file"),
        (b"", "cannot be read (File is not a zip file): check that it is an XLSX file"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(content)
    with pytest.raises(KbqError) as caught:
        read_table(tmp_path / "t.xlsx")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [("name", "x"), ("Ann", "=1+1")],
            "has a formula without its value in B2: open and save it in a spreadsheet",
        ),
        ([("name", "name"), ("a", "b")], "has 2 columns 'name': give each its own name"),
        (
            [("name",), ("Ann", "x")],
            ":2: a value is right of the last column that has a name: name its column",
        ),
        ([], "is empty: write a header with the names of the columns, and rows below it"),
    ],
)
def test_a_sheet_that_is_no_table_is_one_sentence(rows: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(KbqError) as caught:
        read_table(book(tmp_path / "t.xlsx", rows=rows))
    assert said in str(caught.value)


def test_what_would_be_huge_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"xl/worksheets/sheet{number}.xml", bytes(2**26))
    with pytest.raises(
        KbqError, match=r"t\.xlsx has 335,544,320 bytes, 268,435,456 at most are read: divide it"
    ):
        read_table(tmp_path / "t.xlsx")


SHEET = "xl/worksheets/sheet1.xml"
ALL = b"A1:XFD1048576"


def moved(parts: dict[str, bytes], place: str) -> None:
    parts[place] = parts.pop(SHEET)
    for name in ("xl/_rels/workbook.xml.rels", "[Content_Types].xml"):
        parts[name] = parts[name].replace(b"/xl/worksheets/sheet1.xml", f"/{place}".encode())


def more(parts: dict[str, bytes], old: bytes, new: bytes) -> None:
    parts[SHEET] = parts[SHEET].replace(old, new, 1)


def rows_elsewhere(parts: dict[str, bytes]) -> None:
    more(parts, b"<sheetData>", b"<sheetData>" + b"<row/>" * 6_000_000)
    moved(parts, "xl/media/picture.png")


def merged_elsewhere(parts: dict[str, bytes]) -> None:
    more(
        parts,
        b"</sheetData>",
        b'</sheetData><mergeCells><mergeCell ref="' + ALL + b'"/></mergeCells>',
    )
    moved(parts, "xl/other/sheet1.dat")


def far_rows(parts: dict[str, bytes]) -> None:
    more(parts, b"<sheetData>", b"<sheetData><row>" + b"<c><v>1</v></c>" * 100 + b"</row>")
    more(parts, b"</sheetData>", b'<row r="1048000"><c><v>1</v></c></row></sheetData>')


def linked(parts: dict[str, bytes]) -> None:
    links = b'<hyperlinks><hyperlink ref="' + ALL + b'" location="a"/></hyperlinks>'
    more(parts, b"</sheetData>", b"</sheetData>" + links)


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        (rows_elsewhere, True),
        (merged_elsewhere, True),
        (far_rows, True),
        (linked, False),
    ],
)
def test_a_sheet_that_takes_too_long_or_too_much_is_refused(
    change: Callable[[dict[str, bytes]], None],
    is_refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.storage.rows.SECONDS", 3)
    with zipfile.ZipFile(book(tmp_path / "whole.xlsx")) as archive:
        parts = {one.filename: archive.read(one) for one in archive.infolist()}
    change(parts)
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    if not is_refused:
        assert [list(row.values()) for row in read_table(tmp_path / "t.xlsx").rows] == [
            ["Ann", 1851]
        ]
        return
    with pytest.raises(
        KbqError,
        match=r"takes more than (3 seconds|1,024 MB of memory) to read: |has 16384 columns",
    ):
        read_table(tmp_path / "t.xlsx")


def test_what_is_written_is_read_as_it_was_and_computes_nothing(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"a": "=1+1", "b": 5, "c": ["x", "y"]},
        {"a": "\x07bell\nline", "b": None, "c": 0.5},
        {"a": "@x", "b": True, "c": ""},
    ]
    table = Table.of(rows)
    table.to_excel(tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    assert [[cell.data_type for cell in row] for row in sheet.iter_rows(min_row=2)] == [
        ["s", "n", "s"], ["s", "n", "n"], ["s", "b", "n"],
    ]  # fmt: skip
    assert [list(row.values()) for row in read_table(tmp_path / "t.xlsx").rows] == [
        ["=1+1", 5, "x|y"], [" bell\nline", None, 0.5], ["@x", True, None],
    ]  # fmt: skip
    assert write_table(table, tmp_path / "again.xlsx", "xlsx") == 0
    with pytest.raises(KbqError, match=r"t.xlsx would be CSV, not xlsx: use to_excel"):
        table.to_csv(tmp_path / "t.xlsx")
    with pytest.raises(
        KbqError,
        match="row 1 has more than 32,767 characters in 'a', which XLSX cannot hold: write CSV",
    ):
        Table.of([{"a": "x" * 40_000}]).to_excel(tmp_path / "long.xlsx")


def test_the_same_rows_give_the_same_bytes_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Table.of([{"name": "Ann"}]).to_excel(tmp_path / "now.xlsx")
    monkeypatch.setattr("time.localtime", lambda *_: (2031, 5, 4, 3, 2, 1, 0, 0, 0))
    monkeypatch.setattr("time.time", lambda: 2e9)
    Table.of([{"name": "Ann"}]).to_excel(tmp_path / "later.xlsx")
    assert (tmp_path / "now.xlsx").read_bytes() == (tmp_path / "later.xlsx").read_bytes()
    with zipfile.ZipFile(tmp_path / "now.xlsx") as archive:
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("docProps/core.xml").count(b"1980-01-01T00:00:00Z") == 2
