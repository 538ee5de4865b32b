"""Reading: DOCX, PDF and what pandoc reads become pages as their readers see them, and bad files
one sentence.
"""

import io
import random
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from pdfs import Lines, column, pdf
from reportlab.pdfgen.canvas import Canvas
from typer.testing import CliRunner

from cli import app
from kbq.corpus.options import DocumentOptions
from kbq.corpus.pages import Page
from kbq.corpus.readers import preview, read_corpus
from kbq.corpus.reading import (
    Reading,
    TitleParts,
    chosen_title,
    read_document,
    read_several,
    shared_ends,
)
from kbq.errors import CorpusError, KbqError
from kbq.storage.limited import LimitedProcess, LimitExceeded

pytest.importorskip("pypdfium2", reason="PDF needs it")
pytest.importorskip("pypandoc", reason="DOCX, ODT, RTF and others need it")
ENCRYPTS = pytest.mark.skipif(find_spec("reportlab") is None, reason="reportlab encrypts a PDF")
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
BY = 'w:id="1" w:author="x" w:date="2024-01-01T00:00:00Z"'
CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{}</dc:title><dc:creator>Eve</dc:creator>'
    "<dc:identifier>https://m.org/ann</dc:identifier></cp:coreProperties>"
)


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def word(*paragraphs: str, title: str = "") -> bytes:
    """A DOCX whose paragraphs and tables are given as XML; those that begin with # are headings."""
    body = ""
    for one in paragraphs:
        style = (
            f'<w:pPr><w:pStyle w:val="Heading{one.count("#", 0, 2)}"/></w:pPr>'
            if one.startswith("#")
            else ""
        )
        text = one.lstrip("# ")
        inner = text if text.startswith("<") else run(text)
        body += inner if text.startswith("<w:tbl") else f"<w:p>{style}{inner}</w:p>"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading '
        f'{level}"/></w:style>'
        for level in (1, 2)
    )
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    parts = {
        "[Content_Types].xml": (
            "<Types "
            'xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
            'Extension="xml" ContentType="application/xml"/><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
            f'PartName="/word/document.xml" ContentType="{types}.document.main+xml"/></Types>'
        ),
        "_rels/.rels": (
            f'<Relationships xmlns="{relations}"><Relationship Id="a" Target="word/document.xml" '
            f'Type="{kind}/officeDocument"/></Relationships>'
        ),
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{relations}"><Relationship Id="a" '
        f'Target="styles.xml" Type="{kind}/styles"/></Relationships>',
        "word/styles.xml": f"<w:styles {W}>{styles}</w:styles>",
        "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
        "docProps/core.xml": CORE.format(title),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return buffer.getvalue()


LAUGHS = "".join(
    ["<?xml version='1.0'?><!DOCTYPE html [<!ENTITY a0 'ha'>"]
    + [f"<!ENTITY a{number} '{10 * f'&a{number - 1};'}'>" for number in range(1, 12)]
    + ["]><html xmlns='http://www.w3.org/1999/xhtml'><body><p>&a11;</p></body></html>"]
).encode()


def encrypted() -> bytes:
    """A PDF that opens with a password only."""
    if find_spec("reportlab") is None:
        return b""
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt="secret")
    canvas.drawString(50, 700, "Nobody knows.")
    canvas.save()
    return buffer.getvalue()


def texts(reading: Reading) -> list[str]:
    return [text for _, paragraphs in reading.pages for text in paragraphs]


def test_docx_as_word_shows_it() -> None:
    designed = "Designed by "
    made = word(
        "# Ann Aal",
        f"{run(designed)}<w:ins {BY}>{run('Amy')}</w:ins><w:del {BY}><w:r><w:delText>Rory</w:delText></w:r></w:del>",
        f"{run(designed)}<w:sdt><w:sdtContent>{run('Bea')}</w:sdtContent></w:sdt>",
        f'{run(designed)}<w:smartTag w:element="x">{run("Cid")}</w:smartTag>',
        f'{run(designed)}<w:fldSimple w:instr=" DOCPROPERTY x ">{run("Dan")}</w:fldSimple>',
        f"{run(designed)}<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>{run('Eli')}",
        "## Death",
        "She died in 1901.",
        "<w:tbl>" + "".join(
            "<w:tr>" + "".join(f"<w:tc><w:p>{run(cell)}</w:p></w:tc>" for cell in row) + "</w:tr>"
            for row in (("Person", "Born in", "Died in"), ("Ann", "Bergen", "Bergen"))
        ) + "</w:tbl>",
        title="Microsoft Word - draft.docx",
    )  # fmt: skip
    reading = read_document(made, ".docx")
    assert texts(reading) == [
        "Ann Aal – Designed by Amy", *(f"Designed by {name}" for name in ("Bea", "Cid", "Dan", "Eli")),
        "Death – She died in 1901.", "Person Born in Died in", "Ann Bergen Bergen",
    ]  # fmt: skip
    assert chosen_title(reading, "draft") == "Ann Aal"
    assert reading.metadata == {"author": "Eve", "url": "https://m.org/ann"}


@pytest.mark.parametrize(
    ("style", "mark", "bold", "said"),
    [
        ("", "", "", ["Name: Ann Aal", "Born: Bergen"]),
        ("TableGrid", "", "", ["Name: Ann Aal", "Born: Bergen"]),
        ("LightList", "", "", ["Name: Born · Ann Aal: Bergen"]),
        ("TableGrid", "<w:trPr><w:tblHeader/></w:trPr>", "", ["Name: Born · Ann Aal: Bergen"]),
        ("TableGrid", "", "<w:rPr><w:b/></w:rPr>", ["Name: Born · Ann Aal: Bergen"]),
    ],
)
def test_a_form_of_word_has_no_names_of_columns(
    style: str, mark: str, bold: str, said: list[str]
) -> None:
    rows = [("Name", "Ann Aal", mark, bold), ("Born", "Bergen", "", "")]
    look = '<w:tblLook w:val="04A0" w:firstRow="1" w:firstColumn="1"/>'
    named = f'<w:tblStyle w:val="{style}"/>' if style else ""
    table = f"<w:tbl><w:tblPr>{named}{look}</w:tblPr>"
    for *cells, of_row, of_run in rows:
        texts_of_row = [f"<w:r>{of_run}<w:t>{cell}</w:t></w:r>" for cell in cells]
        cells_of_row = "".join(f"<w:tc><w:p>{text}</w:p></w:tc>" for text in texts_of_row)
        table += f"<w:tr>{of_row}{cells_of_row}</w:tr>"
    made = word("# Staff", "She is here.", f"{table}</w:tbl>")
    assert texts(read_document(made, ".docx"))[1:] == said


def test_pdf_in_columns_without_what_every_page_repeats() -> None:
    left = ["Ann Pond-", "Smith was born in Baden-", "Baden in 1914. She married Jean-", "Paul Roe, wrote a well-",
            "known book about the Rhine-", "land and died in Heidel-", "berg."]  # fmt: skip
    right = ["Her son was a painter, and", "lived in Paris for many years", "with his wife and their two", "children.",
             "He died in 1960 and is buried", "in the cemetery of the town", "where he was born."]  # fmt: skip
    rows = [line for pair in zip(column(left), column(right, 240), strict=True) for line in pair]

    def running(number: int) -> Lines:
        return [(50, 770, 8, f"Yearbook 2019 {number}"), (300, 20, 8, "Museum Society 2019")]

    heading: Lines = [(50, 740, 20, "Ann Pond-Smith")]
    made = pdf(
        [*running(1), *heading, *rows],
        [*running(2), *column(["The second page is short."])],
        title="untitled",
    )
    reading = read_document(made, ".pdf")
    assert texts(reading) == [
        "Ann Pond-Smith – Ann Pond-Smith was born in Baden-Baden in 1914. She married Jean-Paul "
        "Roe, wrote a well-known book about the Rhineland and died in Heidelberg.",
        "Her son was a painter, and lived in Paris for many years with his wife and their two "
        "children.",
        "He died in 1960 and is buried in the cemetery of the town where he was born.",
        "The second page is short.",
    ]
    assert reading.left_out == {"running headers, footers and page numbers": 4}
    assert chosen_title(reading, "scan 3") == "Ann Pond-Smith"


def test_numbers_of_lines_are_no_text() -> None:
    spoken = [
        "She said that the fire",
        "of 1911 destroyed most",
        "of the type that the",
        "press had bought in",
        "the year 1907.",
    ]
    numbers: Lines = [(20, 700 - 14 * number, 11, str(number + 11)) for number in range(5)]
    reading = read_document(pdf([*numbers, *column(spoken, 80)]), ".pdf")
    assert texts(reading) == [" ".join(spoken)]
    assert reading.left_out == {"numbers of lines": 5}


def test_pages_of_a_pdf_are_pages(tmp_path: Path) -> None:
    (tmp_path / "bob.pdf").write_bytes(
        pdf(column(["Bob Beck was a clerk."]), [], column(["The end."]), title="Bob Beck")
    )
    notes: list[str] = []
    assert list(read_corpus(tmp_path, note=notes.append)) == [
        Page(
            "bob.pdf#page=1",
            "Bob Beck",
            ["Bob Beck was a clerk."],
            metadata={"page": 1, "author": "Eve"},
        ),
        Page("bob.pdf#page=3", "Bob Beck", ["The end."], metadata={"page": 3, "author": "Eve"}),
    ]
    assert notes == ["not read within documents: pages without text (1)"]


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        (".rtf", rb"{\rtf1\ansi\ansicpg1252 {\b Caf\'e9 Roe}\par Opened in 1902.\par}", ["Café Roe – Opened in 1902."]),
        (".mediawiki", b"= Ann =\n'''Ann''' of [[Bergen (x)|Bergen]].<ref>Roe</ref>", ["Ann – Ann of Bergen.", "Roe"]),
        (".tex", rb"\section{Ann}\label{a}Ann of \emph{Bergen}~(Norway). % hidden", ["Ann – Ann of Bergen (Norway)."]),
    ],
)  # fmt: skip
def test_what_pandoc_reads(suffix: str, content: bytes, expected: list[str]) -> None:
    assert texts(read_document(content, suffix)) == expected


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", pdf([], []), "its 2 pages have no text: they may be scanned, so have their text"),
        ("a.pdf", pdf(column(["x"]))[:200], "it cannot be read ("),
        ("a.pdf", b"", "it is empty"),
        ("a.docx", b"\x07owner", "it is not a .docx file: check what it is, and rename it or save it anew"),
        ("a.docx", b"PK\x03\x04", "it cannot be read (File is not a zip file): check that it is a .docx file"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is encrypted, or of an old version of Word"),
        ("a.html", b"<div>" * 100_000, "its elements are nested too deep: save it anew with another program"),
        ("a.md", b"> " * 400 + b"x", "its elements are nested too deep: save it anew with another program"),
        ("a.xhtml", LAUGHS, "it cannot be read (Maximum entity amplification factor exceeded"),
        pytest.param("a.pdf", encrypted(), "it is encrypted: save it without a password", marks=ENCRYPTS),
        ("a.html", b"<script>x</script>", "it has no text"),
        ("a.txt", b"Entries\0\1\2binary", "it is not a text, as it is full of control characters: check what it is"),
        ("a.md", b"\x89PNG\r\n\x1a\n", "it is not a text, as it is full of control characters: check what it is"),
    ],
)  # fmt: skip
def test_a_bad_document_is_left_out_with_its_reason(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("Bob was born in Rome.")
    (tmp_path / name).write_bytes(content)
    notes: list[str] = []
    assert [page.page_id for page in read_corpus(tmp_path, note=notes.append)] == ["b.txt"]
    assert len(notes) == 1
    assert f"left out: {tmp_path / name}: {said}" in notes[0]
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(tmp_path, documents=DocumentOptions(strict=True)))
    assert f"{name}: {said}" in str(caught.value)


def test_html_that_takes_too_much_memory_says_so() -> None:
    with (
        LimitedProcess() as child,
        pytest.raises(LimitExceeded, match="it takes more than 256 MB of memory to read"),
    ):
        child.call(read_several, [(b"<p>x" * 2_000_000, ".html", "")], memory=2**28)


def test_a_document_that_takes_too_long_leaves_those_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "fast.html").write_text("<h1>Fast</h1><p>It is read.")
    (tmp_path / "slow.html").write_bytes(b"<p>x" * 2_000_000)
    notes: list[str] = []
    options = DocumentOptions(seconds_per_document=1.0)
    assert [
        page.title for page in read_corpus(str(tmp_path), documents=options, note=notes.append)
    ] == ["Fast"]
    assert "slow.html: it takes more than 1 seconds to read: divide it" in "\n".join(notes)


def test_the_address_of_a_page_becomes_a_reference(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    head = '<link rel="canonical" href="https://m.org/ann"><h1>Ann Aal</h1>'
    (tmp_path / "texts" / "ann.html").write_text(
        f"{head}<p>Ann Aal was born on 3 May 1851 in Bergen."
    )
    (tmp_path / "table.csv").write_text("subject\nAnn Aal\n")
    (tmp_path / "ids.csv").write_text("name,id\nAnn Aal,Q42\n")

    def run(*command: str) -> str:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        return done.output

    texts, kb = str(tmp_path / "texts"), str(tmp_path / "kb")
    assert run("build", texts, kb, "--preview", "1").startswith(
        "ann.html: Ann Aal\n  Ann Aal – Ann Aal was born on 3 May 1851 in Bergen."
    )
    assert not Path(kb).exists()
    run("build", texts, kb)
    table, filled, facts = (
        str(tmp_path / name) for name in ("table.csv", "filled.csv", "facts.qs")
    )
    run("fill", table, "--kb", kb, "--relations", "@date of birth", "--out", filled)
    claims, ids = str(tmp_path / "filled.claims.jsonl"), str(tmp_path / "ids.csv")
    run("export", claims, "--to", "quickstatements", "--ids", ids, "--out", facts)
    line = Path(facts).read_text("utf-8")
    assert line.startswith('Q42\tP569\t+1851-05-03T00:00:00Z/11\tS854\t"https://m.org/ann"\tS813\t')


def test_the_subject_of_a_mail_is_its_title() -> None:
    mail = b"From: a@m.org\nSubject: Speakers for May\n\nDear Tom,\n\nTwo can come."
    reading = read_document(mail, ".eml")
    assert chosen_title(reading, "mail") == "Speakers for May"
    assert texts(reading) == ["Speakers for May – Dear Tom,", "Two can come."]


def test_titles_in_their_order() -> None:
    def title(name: str = "a file", **parts: str) -> str:
        return chosen_title(
            Reading(TitleParts(**parts), [(0, ["Long Pier was built in 1893."])]), name
        )

    assert title(metadata="Long Pier", heading="Opening") == "Long Pier"
    # Nobody sees the first.
    assert title(metadata="Annual report", heading="Long Pier") == "Long Pier"
    assert title(metadata="i-xx_Pier-fm.indd", window="Pier - Wikipedia") == "Pier"
    assert title("Long Pier", opening="LONG PIER – a walk") == "Long Pier"
    assert title(opening="The Long Pier") == "The Long Pier"
    assert title("long pier", opening="Long Pier, built in 1893") == "Long Pier"
    assert title("hut book", opening="Grey Hut: the hut book") == "Grey Hut: the hut book"
    # A heading that is a text is no title.
    assert title("a file", heading="Long " * 200, opening="Pier") == "Pier"
    sites = shared_ends(
        [b"<title>Ann | Lives | Museum</title>", b"<title>Bob | Lives | Museum</title>", b"<p>"]
    )
    reading = Reading(TitleParts(window="Ann | Lives | Museum"), [])
    assert sites == {" | Lives | Museum", " | Museum"}
    assert chosen_title(reading, "x", "auto", sites) == "Ann"
    every = Reading(TitleParts("Meta Pier", "Head", "Window", ""), [(0, ["Pier"])])
    assert [chosen_title(every, "name", order) for order in ("auto", "heading", "metadata", "name")] == [
        "Meta Pier", "Head", "Meta Pier", "name",
    ]  # fmt: skip


def test_one_title_of_two_documents_is_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.md").write_text("# Letter\nText.")
    notes: list[str] = []
    assert [page.title for page in read_corpus(tmp_path, note=notes.append)] == [
        "Letter",
        "Letter (b/x.md)",
    ]
    assert notes == ["titles that other documents have, too, so their paths were added: b/x.md"]


@pytest.mark.parametrize(
    ("name", "content", "guess"),
    [
        ("a.html", "<meta charset=windows-1252><p>Café Müller".encode("cp1252"), ""),
        ("a.html", "<p>Café Müller".encode("utf-16"), ""),
        ("a.txt", "Café Müller".encode("utf-16"), ""),
        ("a.txt", "Café Müller".encode("cp1252"), "cp1252"),
        ("a.txt", "Café Müller".encode("utf-16-le"), "utf-16-le"),
        (
            "a.md",
            ("Ёлка стоит в лесу, и никто её не видит. " * 3 + "Café Müller").encode("utf-8"),
            "",
        ),
    ],
)
def test_encodings(name: str, content: bytes, guess: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    notes: list[str] = []
    (page,) = read_corpus(tmp_path, note=notes.append)
    assert page.paragraphs[0].text.endswith("Café Müller")
    said = f"encodings guessed, as --encoding is not given: {tmp_path / name} ({guess})"
    assert notes == ([said] if guess else [])
    if guess == "cp1252":
        (page,) = read_corpus(tmp_path, documents=DocumentOptions(encoding="cp1251"))
        assert page.paragraphs[0].text == "Cafй Mьller"
    with pytest.raises(
        KbqError, match="the encoding 'ansi' is unknown: write one such as utf-8, windows-1252 or"
    ):
        DocumentOptions(encoding="ansi")


def test_an_encoding_is_for_documents_alone(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes("id,title,text\n1,Łódź,A city.\n".encode("cp1250"))
    with pytest.raises(
        CorpusError,
        match=r"c\.csv is not a document, so encoding=… has no effect: save it as UTF-8",
    ):
        list(read_corpus(tmp_path / "c.csv", documents=DocumentOptions(encoding="cp1250")))


def test_a_preview_shows_some_documents_of_each_kind(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.md").write_text(f"# Title {number}\nText.")
    (tmp_path / "x.html").write_text("<nav>Home</nav><h1>Ann</h1><p>She lived.")
    assert [tuple(one) for one in preview(tmp_path, 2)] == [
        ("0.md", "Title 0", "Title 0 – Text.", {}),
        ("1.md", "Title 1", "Title 1 – Text.", {}),
        ("x.html", "Ann", "Ann – She lived.", {"navigation": 1}),
    ]
    (tmp_path / "c.jsonl").write_text('{"id": 1, "title": "Ann", "text": "She lived."}\n' * 2)
    assert [tuple(one) for one in preview(tmp_path / "c.jsonl", 1)] == [
        ("1", "Ann", "She lived.", {})
    ]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["It was built in 1851 by J.", "Samuel White of the island of Farvik."],
         "It was built in 1851 by J. Samuel White of the island of Farvik."),
        (["Here she lived for years with her mother-in-", "law and with one sister."],
         "Here she lived for years with her mother-in-law and with one sister."),
    ],
)  # fmt: skip
def test_lines_of_a_pdf_go_on(lines: list[str], text: str) -> None:
    long = "The pier of Farvik is as long as the river is wide, and as old as its mill."
    reading = read_document(pdf(column([long, *lines, long])), ".pdf")
    assert text in " ".join(reading.pages[0][1])


def test_what_project_gutenberg_writes_around_a_book_is_left_out() -> None:
    mark = "*** {} OF THE PROJECT GUTENBERG EBOOK THE MILL ***"
    written = (
        f"This is for anyone.\n\n{mark.format('START')}\n\nIt was "
        f"dark.\n\n{mark.format('END')}\n\nA licence."
    )
    reading = read_document(written.encode(), ".txt")
    assert reading.pages == [(0, ["It was dark."])]
    assert reading.left_out == {"licences of Project Gutenberg": 1}


@pytest.mark.parametrize("xfa", [b"", b"/XFA (form) "])
def test_what_was_filled_into_a_form_stands_beside_its_label(xfa: bytes) -> None:
    draw = random.Random(7)
    values = [f"{draw.choice(('Ann', 'Bo', 'Eve'))} {draw.randint(10, 99)}" for _ in range(20)]
    written = io.BytesIO()
    canvas = Canvas(written)
    for number, value in enumerate(values):
        canvas.drawString(50, 780 - 30 * number, f"Field {number}")
        canvas.acroForm.textfield(
            value=value, name=f"f{number}", x=150, y=775 - 30 * number, width=200, height=20
        )
    canvas.save()
    form = written.getvalue().replace(b"/Fields", xfa + b"/Fields")
    shown = " ".join(text for _, texts in read_document(form, ".pdf").pages for text in texts)
    missing = [
        value for number, value in enumerate(values) if f"Field {number} {value}" not in shown
    ]
    assert missing == []
