"""Office: DOCX and PDF become pages, headings are titles, page numbers metadata, and bad files one sentence."""

import io
from pathlib import Path
from typing import Any

import pytest

from kbq.corpus.office import _paragraphs
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.errors import CorpusError, KbqError

MARRIED = "He was married to Ann Aal, and died in the year 1900."
docx, pypdf = pytest.importorskip("docx"), pytest.importorskip("pypdf")


def word(path: Path) -> Path:
    made = docx.Document()
    made.core_properties.author = "Eve"
    made.add_heading("Ann Aal", 0)
    made.add_paragraph("Ann Aal was born in\nStonebridge.")
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Spouse", "Bob Beck"
    made.add_heading("Death", 1)
    made.add_paragraph(" ")
    made.add_paragraph("She died in 1901.")
    made.save(path)
    return path


def pdf(*pages: list[str], title: str = "", password: str = "") -> bytes:
    """A PDF whose pages have these lines, written by hand."""
    bodies = [" ".join(f"({line}) Tj T*" for line in lines) for lines in pages]
    streams = [f"BT /F1 12 Tf 14 TL 50 700 Td {body} ET" if body else "" for body in bodies]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
               "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]  # fmt: skip
    for number, stream in enumerate(streams):
        objects += [f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * number} 0 R "
                    "/Resources << /Font << /F1 3 0 R >> >> >>",
                    f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream"]  # fmt: skip
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n".encode()
    xref = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{xref}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\n"
    content += f"{end}startxref\n{len(content)}\n%%EOF\n".encode()
    if not title and not password:
        return content
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(content))
    if title:
        writer.add_metadata({"/Title": title, "/Author": "Eve"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_a_folder_of_documents(tmp_path: Path) -> None:
    word(tmp_path / "ann.docx")
    lines = [
        "Bob Beck was a mathematician who was born in Stone-",
        "bridge in 1851.",
        "He was married to Ann Aal, and died in the year 1900.",
    ]
    (tmp_path / "bob.pdf").write_bytes(pdf(lines, [], ["The end."], title="Bob  Beck"))
    (tmp_path / "x.odt").write_text("x")
    said: list[str] = []
    pages = {page.id: page for page in read_corpus(tmp_path, note=said.append)}
    ann = pages["ann.docx"]
    assert (ann.title, [one.text for one in ann.paragraphs], ann.metadata["author"]) == (
        "Ann Aal", ["Ann Aal was born in Stonebridge.", "Spouse Bob Beck", "She died in 1901."], "Eve",
    )  # fmt: skip
    assert pages["bob.pdf#page=1"] == Page(
        "bob.pdf#page=1", "Bob Beck",
        ["Bob Beck was a mathematician who was born in Stonebridge in 1851.", MARRIED],
        metadata={"page": 1, "author": "Eve"},
    )  # fmt: skip
    assert (pages["bob.pdf#page=3"].paragraphs[0].text, len(pages)) == ("The end.", 3)
    assert said == ["1 file left out: .odt (1)"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", pdf([], []), "it has no text: it may be scanned, so have its text recognised first (OCR)"),
        ("a.pdf", pdf(["x"], password="secret"), "it is encrypted: save it without a password"),
        ("a.pdf", pdf(["x"])[:200], "it cannot be read ("),
        ("a.pdf", b"", "it cannot be read ("),
        ("a.pdf", b"%PDF-1.4\nno more", "it cannot be read ("),
        ("a.docx", b"PK\x03\x04", "it cannot be read (File is not a zip file): check that it is a DOCX file"),
        ("a.docx", b"\xd0\xcf\x11\xe0", "it is encrypted, or of an old version: save it as .docx without a password"),
    ],
)
def test_bad_documents_are_one_sentence(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("Bob was born in Rome.")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(tmp_path))
    assert f"{name}: {said}" in str(caught.value)
    problems: list[KbqError] = []
    assert [page.id for page in read_corpus(tmp_path, on_bad_line=problems.append)] == ["b.txt"]
    assert len(problems) == 1


def test_a_pdf_of_many_pages(tmp_path: Path) -> None:
    (tmp_path / "long.pdf").write_bytes(pdf(*[[f"This is page {number}."] for number in range(1, 301)]))
    pages = list(read_corpus(tmp_path / "long.pdf"))
    assert (len(pages), pages[-1].id, pages[-1].title, pages[-1].metadata) == (
        300,
        "long.pdf#page=300",
        "long",
        {"page": 300},
    )


def test_without_their_packages_documents_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word(tmp_path / "ann.docx")
    (tmp_path / "b.txt").write_text("Bob was born in Rome.")
    said: list[Any] = []
    monkeypatch.setattr("kbq.corpus.office.find_spec", lambda name: None)
    assert [page.id for page in read_corpus(tmp_path, note=said.append)] == ["b.txt"]
    assert said == ["1 file left out: .docx (1) (.docx and .pdf: pip install '.[documents]' in the checkout of kbq)"]
    with pytest.raises(CorpusError, match=r"ann\.docx needs a further package: pip install"):
        list(read_corpus(tmp_path / "ann.docx"))


def test_cells_of_a_table_that_span_others(tmp_path: Path) -> None:
    made = docx.Document()
    made.add_heading("Ann Aal", 0)
    table = made.add_table(3, 3)
    for row, texts in enumerate((("Children", "", "born"), ("Bob", "Bea", "1851"), ("", "Cid", "1853"))):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 0).merge(table.cell(2, 0))
    (span,) = made.element.iter(docx.oxml.ns.qn("w:gridSpan"))
    made.save(tmp_path / "a.docx")
    (page,) = read_corpus(tmp_path / "a.docx")
    assert [paragraph.text for paragraph in page.paragraphs] == [
        "Children born", "Bob Bea 1851", "Bob Cid 1853",
    ]  # fmt: skip
    span.val = 10**9  # one number for each of these would be in memory
    made.save(tmp_path / "a.docx")
    (page,) = read_corpus(tmp_path / "a.docx")
    assert page.paragraphs[0].text == "Children born"


def test_a_document_of_nothing_but_paragraphs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbq.corpus.office.MOST_PARTS", 3)
    with pytest.raises(CorpusError, match=r"a\.docx: it has 9 paragraphs and cells, 3 at most are read: divide it"):
        list(read_corpus(word(tmp_path / "a.docx")))


def test_a_page_of_many_lines_is_read_in_time_that_grows_with_them() -> None:
    for line in ("The end", "end-"):
        (text,) = _paragraphs("\n".join([line] * 200_000))
        assert len(text) > 600_000
