"""Table pages: rows of tables in a folder are pages, with titles from a column that is guessed and
said.
"""

import zipfile
from datetime import date
from pathlib import Path

import pytest

from kbq.corpus.options import CorpusColumns, DocumentOptions
from kbq.corpus.pages import Page
from kbq.corpus.readers import preview, read_corpus
from kbq.errors import CorpusError
from kbq.storage import rows

openpyxl = pytest.importorskip("openpyxl", reason="it writes XLSX")


def facts(page: Page) -> tuple[str, str, list[str]]:
    return page.page_id, page.title, [one.text for one in page.paragraphs]


def workbook(path: Path) -> None:
    """A workbook with a title above the header, a column without a name, formats, a second sheet
    and a legend.
    """
    book = openpyxl.Workbook()
    objects = book.active
    objects.title = "Objects"
    objects.append(["Catalogue of the museum, 2019"])
    objects.merge_cells("A1:E1")
    objects.append([])
    objects.append(["Inv. No.", "Object", "Maker", "Weight", None, "Made"])
    objects.append([2345, "Long lamp", "Ann Orr", 12.5, "oak", date(1851, 5, 3)])
    objects["A4"].number_format, objects["D4"].number_format = "00000", '0.0" kg"'
    objects.append([17, "Clock 7", "n/a"])
    objects.append([18, None, "Karl Vane", 1])
    people = book.create_sheet("People")
    people.append(["Name", "Born", "Web url", "Work"])
    people.append(["Ann Orr", date(1820, 1, 1), "http://e.org/orr", "lamps\n\nclocks"])
    people["B2"].number_format = "yyyy"
    people.append(["Karl Vane"])
    book.create_sheet("Legend").append(["kg: with its base"])
    book.save(path)


OBJECTS = [
    (
        "museum.xlsx#sheet=Objects&row=4",
        "Long lamp",
        [
            "Inv. No.: 02345",
            "Maker: Ann Orr",
            "Weight: 12.5 kg",
            "column 5: oak",
            "Made: 3 May 1851",
        ],
    ),
    ("museum.xlsx#sheet=Objects&row=5", "Clock 7", ["Inv. No.: 17"]),
    ("museum.xlsx#sheet=People&row=2", "Ann Orr", ["Born: 1820", "Work: lamps", "Work: clocks"]),
]
MEMBERS = (
    "Members, 1901\n\nName;Born;Place\nAnn Lee;1851-05-07;Bath\nTom;1849;Hull;x\nIda "
    "Brandt;-;Graz\n"
)


def test_rows_of_tables_in_a_folder_are_pages_behind_its_documents(tmp_path: Path) -> None:
    workbook(tmp_path / "museum.xlsx")
    (tmp_path / "members.csv").write_text(MEMBERS, "utf-8")
    (tmp_path / "x.txt").write_text("Ann Lee\n\nAnn Lee was a surveyor.", "utf-8")
    notes: list[str] = []
    pages = list(
        read_corpus(tmp_path, note=lambda text: notes.append(text.replace(f"{tmp_path}/", "")))
    )
    assert list(map(facts, pages)) == [
        ("x.txt", "Ann Lee", ["Ann Lee – Ann Lee was a surveyor."]),
        ("members.csv#line=4", "Ann Lee (members.csv#line=4)", ["Born: 7 May 1851", "Place: Bath"]),
        ("members.csv#line=6", "Ida Brandt", ["Place: Graz"]),
        *OBJECTS,
    ]
    assert [page.metadata for page in pages[2:]] == [
        {"line": 6}, {"sheet": "Objects", "row": 4}, {"sheet": "Objects", "row": 5},
        {"sheet": "People", "row": 2, "Web url": "http://e.org/orr"},
    ]  # fmt: skip
    assert notes == [
        "members.csv: each row is a page, with the title in 'Name'",
        "museum.xlsx#Objects: each row is a page, with the title in 'Object'",
        "museum.xlsx#People: each row is a page, with the title in 'Name'",
        "left out: museum.xlsx#Legend has no column that looks like one of titles: name it with "
        "--title",
        "left out: members.csv:5: 4 values for 3 columns, ';' between them: put quotes around a "
        "value that holds one",
        "not read within documents: lines above the header of a table (3), rows without a title "
        "(1), rows with a title alone (1)",
        "titles that other documents have, too, so their paths were added: members.csv#line=4",
    ]
    assert [one.id for one in preview(tmp_path, 1)] == [
        "x.txt", "members.csv#line=4", "museum.xlsx#sheet=Objects&row=4"
    ]  # fmt: skip
    with pytest.raises(CorpusError, match=r"members\.csv:5: 4 values for 3 columns"):
        list(read_corpus(tmp_path, documents=DocumentOptions(strict=True)))


def test_a_workbook_alone_and_tables_in_an_archive(tmp_path: Path) -> None:
    workbook(tmp_path / "museum.xlsx")
    assert list(map(facts, read_corpus(tmp_path / "museum.xlsx"))) == OBJECTS
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "museum.xlsx", "in/museum.xlsx")
        archive.writestr("in/bad.xlsx", "x")
    notes: list[str] = []
    pages = list(read_corpus(tmp_path / "a.zip", note=notes.append))
    assert list(map(facts, pages)) == [
        (f"in/{page_id}", title, texts) for page_id, title, texts in OBJECTS
    ]
    reason = "cannot be read (File is not a zip file): check that it is an XLSX file"
    assert f"left out: {tmp_path}/a.zip/in/bad.xlsx {reason}" in notes


@pytest.mark.parametrize(
    ("written", "columns", "found"),
    [
        ("Title,Artist\nMill,Ann Orr\n", CorpusColumns(), [("t.csv#line=2", "Mill", ["Artist: Ann Orr"])]),
        ("nr,who\n7,Ann Orr\n", CorpusColumns(), [("t.csv#line=2", "Ann Orr", ["nr: 7"])]),
        ("nr,who\n7,Ann Orr\n", CorpusColumns("nr"), [("7", "Ann Orr", ["nr: 7"])]),
        ("who,what\nAnn,Mill\n", CorpusColumns(title="what"), [("t.csv#line=2", "Mill", ["who: Ann"])]),
        ("who,text\nAnn Orr,a\n", CorpusColumns(), [("t.csv#line=2", "Ann Orr", ["a"])]),
        ("title,text,year\nAnn,a,1\n", CorpusColumns(), [("Ann", "Ann", ["a"])]),
        ("a,b\n1,2\n", CorpusColumns(), r"no column that looks like one of titles: name it with title="),
        ("who,b\nAnn,2\n", CorpusColumns(title="c"), r"has no column 'c', it has 'who', 'b': name it with title="),
        ("who,b\nAnn,2\n", CorpusColumns(text="c"), r"has no column 'c', it has 'who', 'b': name it with text="),
        ("who,b\nAnn,\n", CorpusColumns(), "contains no pages"), ("", CorpusColumns(), "is empty"),
        ("who,b,b\nAnn,2,3\n", CorpusColumns(), "2 columns 'b': give each its own name"),
    ],
)  # fmt: skip
def test_columns_of_a_table(
    written: str, columns: CorpusColumns, found: object, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(written, "utf-8")
    if isinstance(found, str):
        with pytest.raises(CorpusError, match=found):
            list(read_corpus(tmp_path / "t.csv", columns=columns))
    else:
        assert list(map(facts, read_corpus(tmp_path / "t.csv", columns=columns))) == found


@pytest.mark.parametrize(
    ("above", "header"),
    [
        ("", "name,born,died"), ("Members\n", "name,born,died"), ("Members,,\n,,\n", "name,born,died"),
        ("Members of the club, 1901\n\n", "name,born,died"), ("Members: all\nAs of 1901\n", "name;born;died"),
        ("", ",name,born"),
    ],
)  # fmt: skip
def test_a_title_above_the_header(above: str, header: str, tmp_path: Path) -> None:
    row = "Ann Lee,1851,1931" if header != ",name,born" else "0,Ann Lee,1851"
    mark = ";" if ";" in header else ","
    (tmp_path / "t.csv").write_text(f"{above}{header}\n{row.replace(',', mark)}\n", "utf-8")
    (page,) = read_corpus(tmp_path / "t.csv")
    assert (page.title, page.metadata["line"]) == ("Ann Lee", 2 + above.count("\n"))
    assert "born: 1851" in [one.text for one in page.paragraphs]


def test_a_workbook_that_takes_too_long_is_left_out_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a million rows; CSV has no such limit, as it is read row by row."""
    monkeypatch.setattr(rows, "SECONDS", 0.001)
    workbook(tmp_path / "museum.xlsx")
    (tmp_path / "x.txt").write_text("Ann Lee was a surveyor.", "utf-8")
    notes: list[str] = []
    assert [page.page_id for page in read_corpus(tmp_path, note=notes.append)] == ["x.txt"]
    assert notes[0].startswith(
        f"left out: {tmp_path}/museum.xlsx: it takes more than 0.001 seconds"
    )
    assert notes[0].endswith("divide it into several tables, or save it as CSV")


def two_sheets(path: Path, *rows: tuple[object, ...]) -> None:
    book = openpyxl.Workbook()
    for sheet in (book.active, book.create_sheet("Second")):
        for row in rows:
            sheet.append(row)
    book.save(path)


def test_a_refused_row_ends_the_reading_not_its_sheet(tmp_path: Path) -> None:
    """One sheet or two: what is wrong with a row is an error, unless bad lines may be left out."""
    path = tmp_path / "t.xlsx"
    two_sheets(path, ("name", "born"), ("Ann Orr", 1820), ("Karl Vane", 1830, "too many"))
    with pytest.raises(CorpusError, match=r"t\.xlsx#Sheet:3: "):
        list(read_corpus(str(path)))


def test_rows_with_texts_of_several_sheets_have_ids_of_their_own(tmp_path: Path) -> None:
    two_sheets(tmp_path / "t.xlsx", ("title", "text"), ("Ann Orr", "She made lamps."))
    ids = [page.page_id for page in read_corpus(str(tmp_path))]
    assert ids == ["t.xlsx#sheet=Sheet&row=2", "t.xlsx#sheet=Second&row=2"]


def test_an_encrypted_workbook_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600))
    with pytest.raises(CorpusError, match="is encrypted, or of an old version: save it as"):
        list(read_corpus(str(path)))


def test_a_preview_shows_so_many_rows_of_each_kind(tmp_path: Path) -> None:
    for number in range(4):
        text = f"name,born\nAnn Orr,18{number}0\nKarl Vane,1830\nEmil Dorn,1840\n"
        (tmp_path / f"{number}.csv").write_text(text)
    assert len(list(preview(str(tmp_path), 2))) == 2
