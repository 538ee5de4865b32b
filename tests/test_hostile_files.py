"""Hostile files: what takes minutes or gigabytes of a few kilobytes is left out by name, and the
rest is read.
"""

import gzip
import io
import resource
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbq.corpus.options import DocumentOptions
from kbq.corpus.readers import read_corpus
from kbq.errors import CorpusError, KbqError
from kbq.storage import rows as row_reader
from kbq.tables.tables import read_table

pytestmark = pytest.mark.slow
SECONDS = 1.0  # of computing, for each
LARGEST = 150_000  # bytes of a file
MOST_MEMORY = 1.5 * 2**30
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def zipped(parts: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def office(main: str, kind: str, body: str, **more: str) -> bytes:
    """A package whose main part is `main`."""
    targets = f'<Override PartName="/{main}" ContentType="{kind}"/>'
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType='
            f'"application/xml"/>{targets}</Types>',
            "_rels/.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
                f'Type="{OFFICE}/officeDocument" Target="{main}"/></Relationships>'
            ),
            main: body,
        }
        | more
    )


def docx(body: str) -> bytes:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return office(
        "word/document.xml",
        kind,
        f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
    )


def xlsx(rows: str, after: str = "", strings: str = "", sheets: int = 1) -> bytes:
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
    listed = "".join(f'<sheet name="s{n}" sheetId="{n}" r:id="r1"/>' for n in range(1, sheets + 1))
    book = f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>'
    links = f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    links += f'<Relationship Id="r2" Type="{OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
    more = {
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData>{after}</worksheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{strings}</sst>',
    }
    return office("xl/workbook.xml", kind, book, **more)


def pdf(content: bytes, filters: bytes = b"", kids: int = 1) -> bytes:
    pages = b"3 0 R " * kids
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (kids, pages),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d%s>>stream\n%s\nendstream" % (len(content), filters, content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    made = b"%PDF-1.4\n" + b"".join(
        b"%d 0 obj%s endobj\n" % (n, part) for n, part in enumerate(parts, 1)
    )
    return made + b"trailer<</Root 1 0 R/Size 6>>"


def packed_pdf(content: bytes) -> bytes:
    return pdf(zlib.compress(zlib.compress(content, 9), 9), b"/Filter[/FlateDecode/FlateDecode]")


ROW = "<row><c><v>1</v></c></row>"
DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "matter.md": lambda: b"---\n" + b"a: [" * 12_000 + b"\n---\ntext",
    "aliases.md": lambda: (
        b"---\na0: &a0 [x, x]\n"
        + b"".join(
            b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
        )
        + b"---\ntext"
    ),
    "table.md": lambda: b"|a" * 30_000 + b"\n" + b"|-" * 30_000 + b"\n" + b"|b" * 10_000,
    "headings.md": lambda: b"# " * 30_000 + b"x",
    "comments.md": lambda: b"<!--" * 20_000,
    "emphasis.md": lambda: b"*a **b _c " * 8_000,
    "links.md": lambda: b"[a](" * 20_000,
    "brackets.md": lambda: b"[" * 60_000,
    "quotes.md": lambda: b"> " * 20_000 + b"a",
    "nested.html": lambda: b"<div>" * 25_000 + b"text",
    "table.html": lambda: b"<table><tr>" + b"<td colspan=9999 rowspan=9999>x" * 3000 + b"</table>",
    "attributes.html": lambda: b"<p " + b"a%d=x " * 12_000 + b">text",
    "tags.html": lambda: b"<a><b><i><p>" * 10_000,
    "empty.docx": lambda: docx("<w:p/>" * 3_000_000),
    "rows.docx": lambda: docx(
        "<w:tbl>" + "<w:tr><w:tc><w:p/></w:tc></w:tr>" * 500_000 + "</w:tbl>"
    ),
    "runs.docx": lambda: docx("<w:p>" + "<w:r><w:tab/><w:t>a</w:t></w:r>" * 500_000 + "</w:p>"),
    "deep.docx": lambda: docx(
        "<w:tbl><w:tr><w:tc>" * 60_000 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 60_000
    ),
    "deep.rtf": lambda: b"{\\rtf1 " + b"{\\b a" * 20_000,
    "macros.tex": lambda: (
        b"\\newcommand{\\a}{x x x x x x x x}"
        + b"".join(b"\\newcommand{\\%c}{%s}" % (98 + n, b"\\%c" % (97 + n) * 9) for n in range(20))
        + b"\\u"
    ),
    "deep.mediawiki": lambda: b"{{" * 20_000 + b"'''" * 10_000,
    "operators.pdf": lambda: packed_pdf(b"BT /F 1 Tf" + b"(a)Tj " * 12_000_000 + b"ET"),
    "ascii85.pdf": lambda: pdf(b"z" * 140_000, b"/Filter[/ASCII85Decode" + b"]"),
    "kids.pdf": lambda: pdf(b"BT /F 1 Tf (word)Tj ET", kids=20_000),
}
TABLES: dict[str, Callable[[], bytes]] = {
    "strings.xlsx": lambda: xlsx(ROW, strings="<si><t>a</t></si>" * 3_000_000),
    "rows.xlsx": lambda: xlsx("<row/>" * 8_000_000),
    "cells.xlsx": lambda: xlsx("<row>" + "<c/>" * 9_000_000 + "</row>"),
    "merged.xlsx": lambda: xlsx(
        ROW, '<mergeCells><mergeCell ref="A1:A1048576"/></mergeCells>' * 400
    ),
    "far.xlsx": lambda: xlsx(ROW + ROW + '<row r="1048000"><c r="XFD1048000"><v>1</v></c></row>'),
    "sheets.xlsx": lambda: xlsx(ROW * 10_000, sheets=3_000),
    "blank.csv.gz": lambda: gzip.compress(b"a\n" + b"\n" * 20_000_000, 9),
}


def made(folder: Path, files: dict[str, Callable[[], bytes]]) -> list[Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content())
        assert (folder / name).stat().st_size < LARGEST, name
    return [folder / name for name in files]


@pytest.fixture(autouse=True)
def no_process_is_large_or_left() -> Iterator[None]:
    before = resource.getrusage(
        resource.RUSAGE_CHILDREN
    ).ru_maxrss  # of children of any test in this process
    yield
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert largest == before or largest * 1024 < MOST_MEMORY
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text().split():
            assert " Z " not in Path("/proc", child, "stat").read_text()


def test_documents_are_left_out_by_name_and_the_others_are_read(tmp_path: Path) -> None:
    made(tmp_path, DOCUMENTS)
    (tmp_path / "zz.txt").write_text("Marie Curie was born in Warsaw.")  # after all others
    notes: list[str] = []
    problems: list[KbqError] = []  # such as a title of 60,000 characters
    pages = {
        page.page_id.partition("#")[0]
        for page in read_corpus(
            tmp_path,
            on_bad_line=problems.append,
            note=notes.append,
            documents=DocumentOptions(seconds_per_document=SECONDS),
        )
    }
    assert "zz.txt" in pages
    assert pages <= {*DOCUMENTS, "zz.txt"}
    left_out = [note for note in notes if note.startswith(f"left out: {tmp_path}")]
    more = sum(
        int(note.split()[2]) for note in notes if "more documents that cannot be read" in note
    )
    assert len(pages - {"zz.txt"}) + len(left_out) + more + len(problems) >= len(DOCUMENTS)
    with pytest.raises(CorpusError, match=r"it takes more than|cannot be read|has no text|ended"):
        list(
            read_corpus(
                tmp_path, documents=DocumentOptions(seconds_per_document=SECONDS, strict=True)
            )
        )


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_or_refused_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reader, "SECONDS", SECONDS)
    (path,) = made(tmp_path, {name: TABLES[name]})
    said = ""
    try:
        read_table(path)
    except KbqError as problem:
        said = str(problem)
    assert not said or (str(path) in said and len(said.splitlines()) == 1)
