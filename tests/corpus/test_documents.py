"""Documents: files of every kind become pages, as their readers see them."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from kbq.corpus.options import CorpusColumns, DocumentOptions
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.errors import CorpusError

FRONT = """---
title: "Stone Bridge"
author: Jane Roe
source: https://example.org/bridge
tags: [bridge, stone]
---
# Another heading

The **Stone Bridge** was designed by [Ann Aal](people/ann.md)[^1].

[^1]: See `AAL`.

Its parts
=========

| part | year |
|------|------|
| arch | 1410 |

A \\*star\\*, 2 * 3 * 4, snake_case, <b>bold</b> ![a plan](plan.png)
"""


def only_page(folder: Path, name: str, content: str | bytes) -> Page:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (page,) = read_corpus(folder / name)
    return page


def words(page: Page) -> list[str]:
    return [" ".join(one.text.split()) for one in page.paragraphs]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_markdown_with_front_matter_and_marks(tmp_path: Path, end: str) -> None:
    page = only_page(tmp_path, "stone-bridge.md", FRONT.replace("\n", end))
    assert (page.page_id, page.title) == ("stone-bridge.md", "Stone Bridge")
    url = "https://example.org/bridge"
    assert page.metadata == {
        "author": "Jane Roe",
        "source": url,
        "tags": ["bridge", "stone"],
        "url": url,
    }
    assert words(page) == [
        "Another heading – The Stone Bridge was designed by Ann Aal.",
        "See AAL.",
        "Its parts – part: arch · year: 1410",
        "A *star*, 2 * 3 * 4, snake_case, bold",
    ]


@pytest.mark.parametrize(
    ("text", "title", "paragraphs"),
    [
        ("# Stone Bridge\r\rAnn Aal designed it.", "Stone Bridge", ["Stone Bridge – Ann Aal designed it."]),
        ("Stone Bridge\n====\nText.", "Stone Bridge", ["Stone Bridge – Text."]),
        ("Stone Bridge\n----\nText.", "Stone Bridge", ["Stone Bridge – Text."]),
        ("## Life\nText.\n## Work\nMore.", "a file", ["Life – Text.", "Work – More."]),
        ("---\na: [unclosed\n---\nText.", "a file", ["Text."]),
        ("---\ntitle: Untitled\n---\nText.", "a file", ["Text."]),
        ("+++\ntitle = 'T Text'\n+++\nText.", "T Text", ["Text."]),
        ("> quoted\n> again", "a file", ["quoted again"]),
        ("1. first\n2. [ ] second\n- [x] third", "a file", ["first", "[ ] second", "third"]),
        ("```\n*kept* `so` [[it]]\n```", "a file", ["*kept* `so` [[it]]"]),
        ("C* and A* are stars", "a file", ["C* and A* are stars"]),
        ("w <!-- gone -->x <https://a.org/b> y", "a file", ["w x https://a.org/b y"]),
        ("[ref]: https://a.org\n\na [link][ref] b", "a file", ["a link b"]),
        ("# *C\\#* language #\n\nx", "C# language", ["C# language – x"]),
        ("O\\'Hara, AT&amp;T [[Ned Ash|Ash]], [[Tess]] %% ask\nhim %% ![[a.png]]", "a file",
         ["O'Hara, AT&T Ash, Tess"]),
    ],
)  # fmt: skip
def test_markdown(text: str, title: str, paragraphs: list[str], tmp_path: Path) -> None:
    page = only_page(tmp_path, "a_file.md", text)
    assert (page.title, words(page)) == (title, paragraphs)


PAGE = """<!DOCTYPE html><!-- saved from url=(0020)https://m.org/bridge -->
<html lang="de"><head><title>Stone Bridge | Museum</title><style>p {x} .gone {display: none}</style></head>
<body><nav>Home</nav><div class="top-bar"><a href="/">Home</a> | <a href="/shop">Shop</a></div>
<h1>Stone Bridge</h1><h2>1410, Farvik</h2><p>By <b>Ann</b>&nbsp;Aal,<br>in 1410.<sup><a href="#n1">[1]</a></sup>
<span style="display:none">7003</span><span class=gone>x</span><span hidden>y</span><i aria-hidden="true">z</i>
<p>Café &amp; bar, 5 km<sup>2</sup><p>The bridge has carried the road from Farvik to the north ever since, and
10<sup>6</sup> carts.
<table><tr><th>part<td>year<tr><td>arch<td>1410</table><script>var x = "<p>no";</script><h2>More</h2>
<p>A stone of it is loose, and has been for years.
<div class="related">You may also like: <a href="x">Ned Ash</a></div><div id="footer">Opening hours</div></body>"""


def test_html_as_its_reader_sees_it(tmp_path: Path) -> None:
    page = only_page(tmp_path, "b.html", PAGE)
    assert (page.title, page.metadata) == (
        "Stone Bridge",
        {"language": "de", "url": "https://m.org/bridge"},
    )
    assert words(page) == [
        "Stone Bridge – 1410, Farvik – By Ann Aal, in 1410.",
        "Café & bar, 5 km2",
        "The bridge has carried the road from Farvik to the north ever since, and 10^6 carts.",
        "part: year",
        "arch: 1410",
        "More – A stone of it is loose, and has been for years.",
    ]


ROWS = [("q1", "Łódź", "A city.\n\nIn Poland."), ("q2", "Kraków", "Another, city.")]


@pytest.mark.parametrize("name", ["c.csv", "c.tsv", "c.parquet", "c.jsonl", "c.json"])
def test_tables_are_corpora(name: str, tmp_path: Path) -> None:
    columns = ("qid", "name", "abstract", "year")
    if name == "c.parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
        parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
        values = [list(column) for column in zip(*ROWS, strict=True)]
        parquet.write_table(
            pyarrow.table(dict(zip(columns, [*values, [1, None]], strict=True))), tmp_path / name
        )
    elif name.startswith("c.json"):
        objects = [dict(zip(columns, [*row, 1], strict=True)) for row in ROWS]
        text = (
            json.dumps(objects, indent=1)
            if name == "c.json"
            else "\n".join(map(json.dumps, objects))
        )
        (tmp_path / name).write_text(text)
    else:
        ends = {"c.csv": ('"', ","), "c.tsv": ("", "\t")}[name]
        shown = [
            [
                ends[0] + cell.replace("\n", "\n" if ends[0] else " ") + ends[0]
                for cell in (*row, "1")
            ]
            for row in ROWS
        ]
        (tmp_path / name).write_text("\n".join(ends[1].join(row) for row in [columns, *shown]))
    pages = list(read_corpus(tmp_path / name, columns=CorpusColumns("qid", "name", "abstract")))
    assert [(page.page_id, page.title, words(page)) for page in pages] == [
        ("q1", "Łódź", ["A city.", "In Poland."] if name != "c.tsv" else ["A city. In Poland."]),
        ("q2", "Kraków", ["Another, city."]),
    ]
    assert str(pages[0].metadata["year"]) == "1"
    if name.startswith("c.json"):
        with pytest.raises(CorpusError, match=r"id is missing|not in a known format"):
            list(read_corpus(tmp_path / name))
    else:
        place = {"c.parquet": "row=1", "c.tsv": "line=2"}.get(name, "line=4")  # where the row ends
        first = next(read_corpus(tmp_path / name))
        assert (first.page_id, first.title) == (f"{name}#{place}", "Łódź")


def test_a_row_with_more_fields_than_columns_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("title,text\na,b\nWashington, D.C.,x\nc,d\n")
    problems: list[Exception] = []
    assert [
        page.page_id for page in read_corpus(tmp_path / "c.csv", on_bad_line=problems.append)
    ] == ["a", "c"]
    assert [str(one).split(": ")[0].removeprefix(str(tmp_path)) for one in problems] == ["/c.csv:3"]


def test_what_is_left_out_of_folders_and_archives_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.doc", "b.doc", "c.png", "plain", "~$d.md", "d.md", "e.html", "f.txt"):
        (folder / name).write_text("" if name == "f.txt" else "text")
    notes: list[str] = []
    assert [page.page_id for page in read_corpus(folder, note=notes.append)] == ["d.md", "e.html"]
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"in/{path.name}")
    assert [page.page_id for page in read_corpus(tmp_path / "corpus.zip", note=notes.append)] == [
        "in/d.md",
        "in/e.html",
    ]
    kinds = "5 files left out: .doc (2), without a suffix (1), .png (1), lock files of Office (1)"
    assert notes == [
        kinds,
        f"left out: {folder}/f.txt: it is empty",
        kinds,
        f"left out: {folder}.zip/in/f.txt: it is empty",
    ]
    with pytest.raises(CorpusError, match=r"f\.txt: it is empty"):
        list(read_corpus(folder, documents=DocumentOptions(strict=True)))


def test_ids_are_in_nfc(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "Cafe\u0301 Mu\u0308ller.md").write_text("text")
    (page,) = read_corpus(folder)
    assert (page.page_id, page.title) == ("Café Müller.md", "Café Müller")
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "e\u0301", "title": "x", "text": "y"}))
    assert [page.page_id for page in read_corpus(tmp_path / "c.jsonl")] == ["é"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")
def test_names_that_are_no_text_and_links_to_pipes(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("Ann Aal was born here.")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked.txt").symlink_to("pipe")  # who opened it would wait for ever
    assert [page.page_id for page in read_corpus(tmp_path)] == ["ann.txt"]
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("In Latin-1.")
    with pytest.raises(CorpusError, match=r"caf.\.txt: its name is not UTF-8: rename it"):
        list(read_corpus(tmp_path, documents=DocumentOptions(strict=True)))


def test_json_lines_and_mails_that_are_left_out_are_named_with_what_to_do(tmp_path: Path) -> None:
    for name in ("a.txt", "b.json", "c.jsonl", "d.JSON", "e.msg", "f.png"):
        (tmp_path / name).write_text("Ada Quist was born in Oslo.", "utf-8")
    notes: list[str] = []
    assert [page.page_id for page in read_corpus(tmp_path, note=notes.append)] == ["a.txt"]
    assert notes == [
        "5 files left out: .json (2), .jsonl (1), .msg (1), .png (1)",
        "JSON lines are no documents (.json, .jsonl): build each file by itself",
        "mails of Outlook are not read (.msg): save them as .eml",
    ]
    with pytest.raises(CorpusError, match=r"e\.msg is a mail of Outlook: save it as \.eml"):
        list(read_corpus(tmp_path / "e.msg"))
