"""Documents: files of every kind become pages, without their marks, at the positions of their source."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.answers import CorpusColumns
from kbq.corpus.markdown import markdown_parts
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
    assert (page.id, page.title) == ("stone-bridge.md", "Stone Bridge")
    assert page.metadata == {"author": "Jane Roe", "source": "https://example.org/bridge", "tags": ["bridge", "stone"]}
    assert words(page) == [
        "The Stone Bridge was designed by Ann Aal .",
        "See AAL .",
        "part year arch 1410",
        "A *star *, 2 * 3 * 4, snake_case, bold a plan",
    ]
    source = FRONT.splitlines()[8]
    assert page.paragraphs[0].text.find("Ann Aal") == source.find("Ann Aal") == 38
    assert len(page.paragraphs[0].text) == len(source)


@pytest.mark.parametrize(
    ("text", "title", "paragraphs"),
    [
        ("# Stone Bridge\r\rAnn Aal designed it.", "Stone Bridge", ["Ann Aal designed it."]),
        ("Stone Bridge\n====\nText.", "Stone Bridge", ["Text."]),
        ("Stone Bridge\n----\nText.", "a file", ["Text."]),
        ("Text\n---\n\nmore", "a file", ["more"]),
        ("---\na: [unclosed\n---\nText.", "a file", ["Text."]),
        ("---\nText between rules.\n---\nmore", "a file", ["more"]),
        ("+++\ntitle = 'T'\n+++\nText.", "T", ["Text."]),
        ("> quoted\n> again", "a file", ["quoted again"]),
        ("1. first\n2. second", "a file", ["first second"]),
        ("```\n*kept* `so`\n```", "a file", ["*kept* `so`"]),
        ("C* and A* are stars", "a file", ["C* and A* are stars"]),
        ("<!-- gone -->x <https://a.org/b> y", "a file", ["x https://a.org/b y"]),
        ("[ref]: https://a.org\n\na [link][ref] b", "a file", ["a link b"]),
        ("# *C\\#* language #\n\nx", "C # language", ["x"]),
    ],
)  # fmt: skip
def test_markdown(text: str, title: str, paragraphs: list[str], tmp_path: Path) -> None:
    page = only_page(tmp_path, "a_file.md", text)
    assert (page.title, words(page)) == (title, paragraphs)


@given(st.lists(st.text("ab*_`[]()#>|!\\~<- \t.:", max_size=30), max_size=6))
def test_marks_become_blanks_and_nothing_moves(lines: list[str]) -> None:
    text = "\n".join(["x", *lines])  # no front matter
    source = markdown_parts(["```", *text.split("\n"), "```"]).paragraphs
    for paragraph in markdown_parts(text.split("\n")).paragraphs:
        assert any(
            len(paragraph) == len(block)
            and all(mine in (" ", theirs) for mine, theirs in zip(paragraph, block, strict=True))
            for whole in [*source, text]
            for start in range(len(whole) - len(paragraph) + 1)
            for block in [whole[start : start + len(paragraph)]]
        )


def test_html(tmp_path: Path) -> None:
    text = """<!DOCTYPE html><html lang="de"><head><title>Stone Bridge – Wiki</title><style>p {x}</style></head>
<body><nav>Home</nav><h1>Stone Bridge</h1><p>By <b>Ann</b>&nbsp;Aal,<br>in 1410.<p>Café &amp; bar
<table><tr><th>part<td>year<tr><td>arch<td>1410</table><script>var x = "<p>no";</script><h2>More</h2>loose</body>"""
    page = only_page(tmp_path, "b.html", text)
    assert (page.title, page.metadata) == ("Stone Bridge", {"language": "de"})
    assert words(page) == ["By Ann Aal, in 1410.", "Café & bar", "part year", "arch 1410", "loose"]


ROWS = [("q1", "Łódź", "A city.\n\nIn Poland."), ("q2", "Kraków", "Another, city.")]


@pytest.mark.parametrize("name", ["c.csv", "c.tsv", "c.parquet", "c.jsonl", "c.json"])
def test_tables_are_corpora(name: str, tmp_path: Path) -> None:
    columns = ("qid", "name", "abstract", "year")
    if name == "c.parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
        parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
        values = [list(column) for column in zip(*ROWS, strict=True)]
        parquet.write_table(pyarrow.table(dict(zip(columns, [*values, [1, None]], strict=True))), tmp_path / name)
    elif name.startswith("c.json"):
        objects = [dict(zip(columns, [*row, 1], strict=True)) for row in ROWS]
        text = json.dumps(objects, indent=1) if name == "c.json" else "\n".join(map(json.dumps, objects))
        (tmp_path / name).write_text(text)
    else:
        ends = {"c.csv": ('"', ","), "c.tsv": ("", "\t")}[name]
        shown = [
            [ends[0] + cell.replace("\n", "\n" if ends[0] else " ") + ends[0] for cell in (*row, "1")] for row in ROWS
        ]
        (tmp_path / name).write_text("\n".join(ends[1].join(row) for row in [columns, *shown]))
    pages = list(read_corpus(tmp_path / name, columns=CorpusColumns("qid", "name", "abstract")))
    assert [(page.id, page.title, words(page)) for page in pages] == [
        ("q1", "Łódź", ["A city.", "In Poland."] if name != "c.tsv" else ["A city. In Poland."]),
        ("q2", "Kraków", ["Another, city."]),
    ]
    assert str(pages[0].metadata["year"]) == "1"
    with pytest.raises(CorpusError, match=r"no column 'title'|id is missing|not in a known format"):
        list(read_corpus(tmp_path / name))


def test_a_row_with_more_fields_than_columns_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("title,text\na,b\nWashington, D.C.,x\nc,d\n")
    problems: list[Exception] = []
    assert [page.id for page in read_corpus(tmp_path / "c.csv", on_bad_line=problems.append)] == ["a", "c"]
    assert [str(one).split(": ")[0].removeprefix(str(tmp_path)) for one in problems] == ["/c.csv:3"]


def test_what_is_left_out_of_folders_and_archives_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.odt", "b.odt", "c.png", "plain", "d.md", "e.html"):
        (folder / name).write_text("text")
    notes: list[str] = []
    assert [page.id for page in read_corpus(folder, note=notes.append)] == ["d.md", "e.html"]
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"in/{path.name}")
    assert [page.id for page in read_corpus(tmp_path / "corpus.zip", note=notes.append)] == ["in/d.md", "in/e.html"]
    assert notes == ["4 files left out: .odt (2), .png (1), without a suffix (1)"] * 2


def test_ids_are_in_nfc(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "Cafe\u0301 Mu\u0308ller.md").write_text("text")
    (page,) = read_corpus(folder)
    assert (page.id, page.title) == ("Café Müller.md", "Café Müller")
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "e\u0301", "title": "x", "text": "y"}))
    assert [page.id for page in read_corpus(tmp_path / "c.jsonl")] == ["é"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")
def test_names_that_are_no_text_and_links_to_pipes(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("Ann Aal was born here.")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked.txt").symlink_to("pipe")  # who opened it would wait for ever
    assert [page.id for page in read_corpus(tmp_path)] == ["ann.txt"]
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("In Latin-1.")
    with pytest.raises(CorpusError, match=r"caf.\.txt: its name is not UTF-8: rename it"):
        list(read_corpus(tmp_path))
