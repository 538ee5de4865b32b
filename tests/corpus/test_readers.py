"""Readers: every format, its exact pages and paragraph numbers, and all its errors."""

import errno
import gzip
import io
import json
import lzma
import math
import os
import re
import sys
import tracemalloc
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from kbq.corpus.options import CorpusFormat, DocumentOptions
from kbq.corpus.pages import Page, Paragraph, checked_pages
from kbq.corpus.readers import read_corpus
from kbq.errors import CorpusError, KbqError

STRICT = DocumentOptions(strict=True)
KILT_LINE = {
    "_id": "1",
    "wikipedia_id": "1",
    "wikipedia_title": "Rain",
    "text": ["Rain\n", "It falls.\n"],
}
KILT_PAGE = Page("1", "Rain", (Paragraph(1, "It falls.\n"),))
JSONL_LINE = {"id": 7, "title": "雨", "text": "雨が降る。\n\n止む。"}
JSONL_PAGE = Page("7", "雨", (Paragraph(0, "雨が降る。"), Paragraph(1, "止む。")))
SQUAD = {
    "version": "1.1",
    "data": [{"title": "New_York", "paragraphs": [{"context": " A city.", "qas": []}]}],
}
SQUAD_PAGE = Page("New_York", "New York", (Paragraph(0, " A city."),))
DPR = (
    'id\ttext\ttitle\n1\t"A ""god"" of rain."\tChaac\n2\tHe has an axe.\tChaac\n3\tSnow.\t"""S"""\n'
)
DPR_PAGES = [
    Page("1", "Chaac", (Paragraph(1, 'A "god" of rain.'), Paragraph(2, "He has an axe."))),
    Page("3", '"S"', (Paragraph(3, "Snow."),)),
]


def write(folder: Path, content: str | bytes, name: str = "corpus") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def write_lines(folder: Path, *lines: object) -> str:
    return write(folder, "".join(json.dumps(line) + "\n" for line in lines))


def kilt_paragraphs(folder: Path, *texts: str) -> tuple[Paragraph, ...]:
    source = write_lines(folder, KILT_LINE | {"text": list(texts)})
    return next(read_corpus(source, "kilt")).paragraphs


@pytest.mark.parametrize(
    ("format", "content", "pages"),
    [
        ("kilt", json.dumps(KILT_LINE), [KILT_PAGE]),
        ("jsonl", json.dumps(JSONL_LINE, ensure_ascii=False), [JSONL_PAGE]),
        ("squad", json.dumps(SQUAD), [SQUAD_PAGE]),
        ("squad", json.dumps({"data": SQUAD["data"]}, indent=4), [SQUAD_PAGE]),
        ("dpr", DPR, DPR_PAGES),
        ("dpr", DPR.replace("\n", "\r\n"), DPR_PAGES),
    ],
)
@pytest.mark.parametrize("prefix", ["", "\ufeff", "\n \n"])
def test_format_given_recognised_compressed_and_on_standard_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: CorpusFormat,
    content: str,
    pages: list[Page],
    prefix: str,
) -> None:
    content = prefix + content
    assert list(read_corpus(write(tmp_path, content), format)) == pages
    assert list(read_corpus(write(tmp_path, content))) == pages
    compressed = gzip.compress(content.encode())
    assert list(read_corpus(write(tmp_path, compressed))) == pages
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(compressed))))
    assert list(read_corpus("-")) == pages


def test_kilt_headings_lists_and_gaps(tmp_path: Path) -> None:
    assert kilt_paragraphs(
        tmp_path,
        " Rain ",
        "",
        "Water falls.\n",
        "Section::::History.\n",
        "Section::::History.:Early life.:A: b.",
        "BULLET::::- item",
        "BULLET::::12. twelfth\n",
        "BULLET::::-\n",
        "BULLET::::bare",
        "BULLET::::- -5 degrees",
        " \n",
        "Section::::Cast.\nA text that follows.",
        "The word BULLET::::- inside.",
    ) == (
        Paragraph(2, "Water falls.\n", 0),
        Paragraph(5, "BULLET::::- item", 12),
        Paragraph(6, "BULLET::::12. twelfth\n", 14),
        Paragraph(8, "BULLET::::bare", 10),
        Paragraph(9, "BULLET::::- -5 degrees", 12),
        Paragraph(11, "Section::::Cast.\nA text that follows.", 17),
        Paragraph(12, "The word BULLET::::- inside.", 0),
    )


def test_kilt_first_line_that_is_not_the_title_is_a_paragraph(tmp_path: Path) -> None:
    assert kilt_paragraphs(tmp_path, "Rain falls.", "Rain") == (
        Paragraph(0, "Rain falls."),
        Paragraph(1, "Rain"),
    )


def test_pages_without_paragraphs_are_pages(tmp_path: Path) -> None:
    source = write_lines(
        tmp_path,
        {"id": "a", "title": "", "text": " \n\n "},
        {"id": "b", "title": "B", "paragraphs": []},
    )
    assert list(read_corpus(source)) == [Page("a", "", ()), Page("b", "B", ())]


def test_jsonl_paragraphs_as_they_are(tmp_path: Path) -> None:
    source = write_lines(
        tmp_path, {"id": " a ", "title": " A\n", "paragraphs": ["one\n\none", "", " two "]}
    )
    paragraphs = (Paragraph(0, "one\n\none"), Paragraph(2, " two "))
    assert list(read_corpus(source)) == [Page("a", "A", paragraphs)]


def test_jsonl_text_is_split_at_blank_lines(tmp_path: Path) -> None:
    source = write_lines(
        tmp_path, {"id": "a", "title": "A", "text": "\none\ntwo\r\n \t\r\n\n  three \n"}
    )
    assert [paragraph.text for paragraph in next(read_corpus(source)).paragraphs] == [
        "one\ntwo ",
        "  three ",
    ]


def test_text_of_every_script_and_length(tmp_path: Path) -> None:
    texts = ["Cafe\u0301\x00\x1f!", "שלום \u202eעולם", "漢" * 100_000, "half \ud800", "👩\u200d🚀"]
    source = write_lines(tmp_path, {"id": "ü", "title": "I\u0308", "paragraphs": texts})
    page = next(read_corpus(source))
    assert page.title == "Ï"
    assert [paragraph.text for paragraph in page.paragraphs] == [
        "Café  !",
        "שלום \u202eעולם",
        "漢" * 100_000,
        "half \ufffd",
        "👩\u200d🚀",
    ]


def test_squad_id_and_several_articles(tmp_path: Path) -> None:
    article = {
        "title": "New_York",
        "id": 1147,
        "paragraphs": [{"context": ""}, {"context": "City"}],
    }
    source = write(tmp_path, json.dumps({"data": [article, article | {"id": 2}]}))
    paragraphs = (Paragraph(1, "City"),)
    assert list(read_corpus(source)) == [
        Page("1147", "New York", paragraphs),
        Page("2", "New York", paragraphs),
    ]


def test_dpr_pages_are_neighbouring_rows(tmp_path: Path) -> None:
    source = write(
        tmp_path, "5\tfive\tA\n4\tfour\tA\n6\t \tB\n7\tseven\tA\n8\teight\t\n9\tnine\t\n"
    )
    assert list(read_corpus(source, "dpr")) == [
        Page("5", "A", (Paragraph(5, "five"), Paragraph(4, "four"))),
        Page("6", "B", ()),
        Page("7", "A", (Paragraph(7, "seven"),)),
        Page("8", "", (Paragraph(8, "eight"),)),
        Page("9", "", (Paragraph(9, "nine"),)),
    ]


MARKDOWN = """\
# Rain in *Spain* ##
It falls
on the plain.
## Why
- it is wet

```
# no heading

x = 1
```
#hashtag
"""


def test_a_hidden_file_that_is_named_is_read(tmp_path: Path) -> None:
    assert [page.title for page in read_corpus(write(tmp_path, "Some text.", ".notes.txt"))] == [
        ".notes"
    ]


def test_folder_of_text_files(tmp_path: Path) -> None:
    write(tmp_path, MARKDOWN, "b/rain.MD")
    write(tmp_path, "\ufeffOne\r\ntwo.\r\n\r\nThree.", "a_long_name.txt")
    write(tmp_path, lzma.compress(b"No heading."), "b/a.md.xz")
    write(tmp_path, "", "c.txt")
    write(tmp_path, "# Not read", "b/script.py")
    write(tmp_path, b"\x00\x05\x16\x07\xff", "b/._rain.md")
    write(tmp_path, "# A tool's own", ".tool/notes.md")
    (tmp_path / "folder.txt").mkdir()
    assert list(read_corpus(str(tmp_path))) == [
        Page("a_long_name.txt", "a long name", (Paragraph(0, "One two."), Paragraph(1, "Three."))),
        Page("b/a.md.xz", "a", (Paragraph(0, "No heading."),)),
        Page(
            "b/rain.MD",
            "Rain in Spain",
            [
                "Rain in Spain – It falls on the plain.",
                "Why – it is wet",
                "# no heading x = 1",
                "#hashtag",
            ],
        ),
    ]


def test_links_to_folders_are_followed_and_each_folder_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "1.", "corpus/a/one.txt")
    write(tmp_path, "2.", "elsewhere/deep/two.txt")
    write(tmp_path, "3.", "elsewhere/.hidden/three.txt")
    corpus = tmp_path / "corpus"
    (corpus / "z").symlink_to(tmp_path / "elsewhere")
    (corpus / "b").symlink_to("../elsewhere")  # the first of two links to one folder
    (corpus / "0").symlink_to("a")  # its own path comes first, whatever a link to it is called
    (corpus / "a" / "up").symlink_to("..")  # in a circle
    (corpus / "self").symlink_to("self")
    (corpus / "gone").symlink_to("nowhere")
    for number in range(12):  # each leads to all: 12! ways
        (corpus / f"{number}").mkdir(exist_ok=True)
        for other in range(12):
            (corpus / f"{number}" / f"to-{other}").symlink_to(f"../{other}")
    assert [page.page_id for page in read_corpus(corpus)] == ["a/one.txt", "b/deep/two.txt"]


def test_a_link_to_a_text_that_is_gone_is_a_bad_line(tmp_path: Path) -> None:
    write(tmp_path, "1.", "corpus/one.txt")
    (tmp_path / "corpus" / "gone.txt").symlink_to("nowhere.txt")
    (tmp_path / "corpus" / "self.md").symlink_to("self.md")
    (tmp_path / "corpus" / ".#lock.txt").symlink_to("user@host")  # as an editor makes
    problems: list[KbqError] = []
    assert [
        page.page_id
        for page in read_corpus(tmp_path / "corpus", on_bad_line=problems.append, documents=STRICT)
    ] == ["one.txt"]
    assert sorted(str(problem).removeprefix(f"{tmp_path}/corpus/") for problem in problems) == [
        "gone.txt: cannot be read (No such file or directory): check its path and permissions",
        "self.md: cannot be read (Too many levels of symbolic links): check its path and "
        "permissions",
    ]


@pytest.mark.parametrize("locked", ["closed", "linked", "closed/deep", "."])
def test_a_folder_that_may_not_be_read_is_said(
    locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "1.", "corpus/one.txt")
    write(tmp_path, "2.", "corpus/closed/deep/two.txt")
    write(tmp_path, "3.", "elsewhere/three.txt")
    write(tmp_path, "4.", "corpus/.git/four.txt")  # hidden: not looked at
    corpus = tmp_path / "corpus"
    (corpus / "linked").symlink_to(tmp_path / "elsewhere")
    scandir = os.scandir

    def refuse(path: Path) -> object:  # whoever runs the tests may read everything
        if path in (corpus / locked, corpus / ".git"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        CorpusError,
        match=rf"^{corpus / locked}: cannot be read \(Permission denied\): check its path and permissions$",
    ):
        list(read_corpus(corpus, documents=STRICT))
    problems: list[KbqError] = []
    ids = {"closed": ["linked/three.txt", "one.txt"], "linked": ["closed/deep/two.txt", "one.txt"]}
    if locked == ".":
        with pytest.raises(
            CorpusError, match=r"contains no \.txt, \.md, \.html, \.docx, .* or \.parquet file"
        ):
            list(read_corpus(corpus, on_bad_line=problems.append, documents=STRICT))
    else:
        found = [
            page.page_id
            for page in read_corpus(corpus, on_bad_line=problems.append, documents=STRICT)
        ]
        assert found == ids[locked.partition("/")[0]]
    assert len(problems) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("corpus/shut", "corpus/shut"),
        ("elsewhere", "corpus/linked"),
        ("elsewhere/deep", "corpus/linked"),
        ("corpus", "corpus"),
        ("corpus/one.txt", "corpus/one.txt"),
    ],
)
def test_what_another_user_may_not_read_is_said(
    closed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "1.", "corpus/one.txt")
    write(tmp_path, "2.", "corpus/shut/two.txt")
    write(tmp_path, "3.", "elsewhere/deep/three.txt")
    (tmp_path / "corpus" / "linked").symlink_to("../elsewhere/deep")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755)
    (tmp_path / closed).chmod(0o700)
    monkeypatch.chdir(tmp_path)
    try:
        os.seteuid(65534)
        if closed.endswith(".txt") and not os.access(sys.executable, os.X_OK, effective_ids=True):
            pytest.skip("another user may not start this Python, in which a file is read")
        with pytest.raises(
            CorpusError, match=rf"^{said}: cannot be read \(Permission denied\): check its path"
        ):
            list(read_corpus("corpus", documents=STRICT))
    finally:
        os.seteuid(0)


METADATA = {
    "url": "https://a.org",
    "tags": ["Cafe\u0301", {"de\u0301": "a\u0000b"}],
    "n": 1.5,
    "no": None,
}
CLEAN = {"url": "https://a.org", "tags": ["Café", {"dé": "a b"}], "n": 1.5, "no": None}


@pytest.mark.parametrize(
    ("line", "format", "metadata"),
    [
        (JSONL_LINE | METADATA, "jsonl", CLEAN),
        ({"id": 1, "title": "", "paragraphs": []} | METADATA, "jsonl", CLEAN),
        (
            {"id": 1, "title": "", "text": "", "wikipedia_id": 3, "_id": 4},
            "jsonl",
            {"wikipedia_id": 3, "_id": 4},
        ),
        (KILT_LINE | METADATA | {"anchors": [], "categories": "x"}, "kilt", CLEAN),
        (
            KILT_LINE | {"history": {"pageid": "1"}, "id": 7},
            "kilt",
            {"history": {"pageid": "1"}, "id": 7},
        ),
        (JSONL_LINE, "jsonl", {}),
    ],
)
def test_other_fields_of_a_line_are_metadata(
    line: dict[str, object], format: CorpusFormat, metadata: dict[str, object], tmp_path: Path
) -> None:
    (page,) = read_corpus(write_lines(tmp_path, line), format)
    assert page.metadata == metadata
    assert list(page.metadata) == list(metadata)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (
            '"score": NaN',
            "score is NaN: write text, a finite number, true, false, null, a list or an object",
        ),
        ('"a": [1, {"b": -Infinity}]', "a[1].b is -Infinity: write text, a finite number"),
        ('"a": 1e999', "a is Infinity: write text, a finite number"),
        ('"\u00e9": 1, "e\u0301": 2', "the page has two fields 'é': give each its own name"),
        ('"a": {"\u00e9": 1, "e\u0301": 2}', "a has two fields 'é': give each its own name"),
        (f'"a": {nested(51)}', "is nested more than 50 deep: flatten it"),
        (f'"a": {nested(900)}', "its lists are nested more than 100 deep"),
    ],
)
def test_metadata_that_is_no_json_is_a_bad_line(field: str, problem: str, tmp_path: Path) -> None:
    source = write(
        tmp_path, f'{{"id": 1, "title": "", "text": "", {field}}}\n' + json.dumps(JSONL_LINE)
    )
    problems: list[KbqError] = []
    assert list(read_corpus(source, "jsonl", problems.append)) == [JSONL_PAGE]
    assert len(problems) == 1
    assert str(problems[0]).startswith(f"{source}:1: ")
    assert problem in str(problems[0])
    write(tmp_path, f'{{"id": 1, "title": "", "text": "", "a": {nested(50)}}}\n')
    assert len(list(read_corpus(source, "jsonl"))) == 1


def test_cells_of_a_table_become_json_or_are_bad_lines(tmp_path: Path) -> None:
    deep: object = "x"
    for _ in range(60):
        deep = {"a": deep}
    cells: list[object] = [{"years": [date(1815, 12, 10)]}, {"a": b"x"}, deep]
    kept: list[object] = []
    for cell in cells:
        table = pyarrow.table({"title": ["Ada"], "text": ["Text."], "more": [cell]})
        pyarrow.parquet.write_table(table, tmp_path / "pages.parquet")
        try:
            kept += [page.metadata for page in read_corpus(tmp_path / "pages.parquet")]
        except CorpusError as error:
            kept.append(str(error).partition(": ")[2])
    assert kept == [
        {"more": {"years": ["1815-12-10"]}},
        "more.a is b'x': write text, a finite number, true, false, null, a list or an object",
        f"more{'.a' * 18}… is nested more than 50 deep: flatten it",
    ]


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"a": math.nan}, "page '1': a is NaN: write text, a finite number"),
        ({"a": (1, 2)}, "page '1': a is (1, 2): write text"),
        ({"a": {1: "b"}}, "page '1': a has the field 1: use text as its name"),
        (
            {"a": ["\ud800"]},
            "page '1': metadata contains '\\ud800', half of a character: leave it out",
        ),
    ],
)
def test_metadata_that_are_made_in_python_are_json(
    metadata: dict[str, object], problem: str
) -> None:
    with pytest.raises(CorpusError, match=re.escape(problem)):
        list(checked_pages([Page("1", "", metadata=metadata)]))


def test_a_page_has_metadata_of_its_own() -> None:
    given = {"url": "a"}
    page = Page("1", "Title", ["Text."], metadata=given)
    given["url"] = "b"
    assert page.metadata == {"url": "a"}
    assert (Page("1", "Title").metadata, Page("1", "Title").paragraphs) == ({}, ())
    assert page != Page("1", "Title", ["Text."])
    assert hash(page) == hash(Page("1", "Title", ["Text."]))
    assert replace(page, title="Other") == Page("1", "Other", ["Text."], metadata={"url": "a"})
    assert list(checked_pages([page])) == [page]
    with pytest.raises(CorpusError, match=r"the metadata of page '1' are 'url': give a dict"):
        Page("1", "Title", metadata="url")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["some_notes.txt", "some_notes.md", "some_notes.txt.gz"])
def test_one_text_file(tmp_path: Path, name: str) -> None:
    pages = [Page(name, "some notes", (Paragraph(0, "Rain."),))]
    assert list(read_corpus(write(tmp_path, "Rain.", name))) == pages
    assert list(read_corpus(write(tmp_path, "Rain.", name), "text")) == pages


def kilt(**changes: object) -> str:
    return json.dumps(KILT_LINE | changes)


def jsonl(**changes: object) -> str:
    return json.dumps(JSONL_LINE | changes)


def squad(article: object) -> str:
    return json.dumps({"data": [article]})


BAD = [
    (
        "kilt",
        "{",
        ":1: not JSON (Expecting property name enclosed in double quotes, column 2): write one "
        "object",
    ),
    ("kilt", "[]", " contains no pages"),
    (
        "kilt",
        kilt(wikipedia_id=None),
        ":1: wikipedia_id is missing: write a whole number, or text without",
    ),
    ("kilt", kilt(wikipedia_id=True), ":1: wikipedia_id is True: write a whole number, or"),
    ("kilt", kilt(wikipedia_id=1.5), ":1: wikipedia_id is 1.5: write a whole number, or"),
    ("kilt", kilt(wikipedia_id=" "), ":1: wikipedia_id is ' ': write a whole number, or"),
    ("kilt", kilt(wikipedia_id="a\nb"), ":1: wikipedia_id is 'a\\nb': write a whole number, or"),
    (
        "kilt",
        kilt(wikipedia_id="\ud800"),
        ":1: wikipedia_id is '\\ud800': write a whole number, or",
    ),
    ("kilt", kilt(wikipedia_title=12), ":1: wikipedia_title is 12: write text in quotes"),
    ("kilt", kilt(text="Rain"), ":1: text is 'Rain': write a list"),
    ("kilt", kilt(text=["Rain", None]), ":1: text[1] is missing: write text in quotes"),
    ("jsonl", jsonl(id=None), ":1: id is missing: write a whole number, or"),
    ("jsonl", jsonl(title=None), ":1: title is missing: write text in quotes"),
    (
        "jsonl",
        jsonl(title="x" * 4097),
        f":1: the title '{'x' * 40}'… has 4,097 characters: shorten it to 4,096 at most",
    ),
    (
        "jsonl",
        jsonl(id="x" * 4097),
        f":1: the page id '{'x' * 40}'… has 4,097 characters: shorten it to 4,096 at most",
    ),
    ("jsonl", jsonl(text=["a"]), ":1: text is ['a']: write text in quotes"),
    (
        "jsonl",
        jsonl(paragraphs=["a"]),
        ":1: the page has both text and paragraphs: keep one of them",
    ),
    (
        "jsonl",
        '{"id": 1, "title": "", "paragraphs": [1]}',
        ":1: paragraphs[0] is 1: write text in quotes",
    ),
    ("jsonl", "\n\n" + jsonl(title=0), ":3: title is 0: write text in quotes"),
    (
        "squad",
        "{",
        ": not JSON (Expecting property name enclosed in double quotes: line 2 column 1 (char "
        "2)): write",
    ),
    ("squad", "[]", ": it has no list of articles: write one object"),
    ("squad", '{"data": {}}', ": it has no list of articles: write one object"),
    ("squad", squad("x"), ": article 1: the article is 'x': write an object"),
    ("squad", squad({"paragraphs": []}), ": article 1: title is missing: write text in quotes"),
    ("squad", squad({"title": "A"}), ": article 1: paragraphs is missing: write a list"),
    (
        "squad",
        squad({"title": "A", "paragraphs": [0]}),
        ": article 1: paragraphs[0] is 0: write an object",
    ),
    (
        "squad",
        squad({"title": "A", "paragraphs": [{}]}),
        ": article 1: paragraphs[0].context is missing: write text",
    ),
    (
        "dpr",
        "a\tb",
        ":1: ['a', 'b'] is not a passage: write id (up to 9 digits), text and title, sep",
    ),
    ("dpr", "-1\tb\tc", ":1: ['-1', 'b', 'c'] is not a passage"),
    ("dpr", "1234567890\tb\tc", ":1: ['1234567890', 'b', 'c'] is not a passage"),
    (
        "dpr",
        '1\t"b\tc',
        ":1: unexpected end of data: enclose the text in quotation marks and double those inside "
        "it",
    ),
    ("dpr", '1\t"b" c\td', ":1: '\t' expected after '\"': enclose the text in quotation marks"),
    ("dpr", "1\tb\tc\n1\td\tc", ":1: passages of 'c' share an id: give every passage its own"),
    (
        "auto",
        "Rain falls.",
        ": the first line 'Rain falls.' is not in a known format: choose the format: kilt, jsonl, "
        "squad, dpr",
    ),
    (
        "auto",
        '{"id": 1}',
        ": the first line '{\"id\": 1}' is not in a known format: choose the format: kilt",
    ),
    ("auto", "", " contains no pages: check that it is the right file"),
    ("auto", "\n \n", " contains no pages"),
    ("kilt", "", " contains no pages"),
    ("squad", '{"data": []}', " contains no pages"),
    ("dpr", "id\ttext\ttitle\n", " contains no pages"),
]


@pytest.mark.parametrize(("format", "content", "problem"), BAD)
def test_broken_corpus(tmp_path: Path, format: CorpusFormat, content: str, problem: str) -> None:
    source = write(tmp_path, content)
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(source, format))
    assert str(caught.value).startswith(source + problem)


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError,
        match="format 'csv' is unknown: choose the format: kilt, jsonl, squad, dpr, msm",
    ):
        list(read_corpus(write(tmp_path, "a"), "csv"))  # type: ignore[arg-type]


def test_missing_source_and_folder_without_text(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none: cannot be read \(No such file or directory\)"):
        list(read_corpus(str(tmp_path / "none")))
    with pytest.raises(
        CorpusError,
        match=r"contains no \.txt, \.md, \.html, \.docx, .* or \.parquet file: choose another folder",
    ):
        list(read_corpus(str(tmp_path)))
    with pytest.raises(CorpusError, match="is a folder: give a file"):
        list(read_corpus(str(tmp_path), "kilt"))


def test_bad_lines_can_be_skipped(tmp_path: Path) -> None:
    lines = [
        kilt(wikipedia_id=1),
        "{",
        kilt(text=0),
        "",
        kilt(wikipedia_id="1"),
        "\xff",
        kilt(wikipedia_id=2),
    ]
    source = write(tmp_path, "\n".join(lines).encode("latin-1"))
    problems: list[KbqError] = []
    assert [page.page_id for page in read_corpus(source, on_bad_line=problems.append)] == ["1", "2"]
    assert {type(problem) for problem in problems} == {CorpusError}
    assert [str(problem).removeprefix(source)[:30] for problem in problems] == [
        ":2: not JSON (Expecting proper",
        ":3: text is 0: write a list",
        ":5: page id '1' is that of an ",
        ":6: not UTF-8 (byte 1 is 0xff)",
    ]


def test_bad_passages_can_be_skipped(tmp_path: Path) -> None:
    problems: list[KbqError] = []
    source = write(tmp_path, 'id\ttext\ttitle\n1\ta\tA\n2\t"b\tA\n3\tc\tA\n')
    pages = list(read_corpus(source, on_bad_line=problems.append))
    assert pages == [Page("1", "A", (Paragraph(1, "a"), Paragraph(3, "c")))]
    assert [str(problem).removeprefix(str(tmp_path)).split(": ")[0] for problem in problems] == [
        "/corpus:3"
    ]


def test_nothing_left_after_skipping(tmp_path: Path) -> None:
    problems: list[KbqError] = []
    with pytest.raises(CorpusError, match="contains no pages"):
        list(read_corpus(write(tmp_path, "{\n["), "kilt", problems.append))
    assert len(problems) == 2


def test_truncated_corpus_names_file_and_line(tmp_path: Path) -> None:
    source = write(
        tmp_path, gzip.compress(b"".join(jsonl(id=n).encode() + b"\n" for n in range(3)))[:-9]
    )
    with pytest.raises(CorpusError, match=r"corpus:\d: compressed data is damaged"):
        list(read_corpus(source))


def test_taken_page_ids(tmp_path: Path) -> None:
    source = write_lines(tmp_path, JSONL_LINE, JSONL_LINE | {"id": "07"}, JSONL_LINE | {"id": " 7"})
    with pytest.raises(
        CorpusError, match="corpus:3: page id '7' is that of an earlier page, too: give every page"
    ):
        list(read_corpus(source))
    with pytest.raises(
        CorpusError, match="corpus:2: page id '07' is already in the knowledge base: leave"
    ):
        list(read_corpus(source, known_ids=["8", "07"]))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for number in range(5000):
            file.write(json.dumps({"id": number, "title": "", "text": "rain " * 1000}) + "\n")
    assert path.stat().st_size > 25_000_000
    tracemalloc.start()
    try:
        pages = sum(1 for _ in read_corpus(str(path)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pages == 5000
    assert peak < 1_500_000


def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\n\xff\n\xfe\n")
    with pytest.raises(CorpusError) as caught:
        list(read_corpus(str(picture)))
    assert str(caught.value) == (
        f"{picture} is not text (byte 9 is 0): give JSON lines, a table, or a document of a known "
        "kind, in UTF-8"
    )


@pytest.mark.parametrize("page_id", ["NaN", "1e999", "-Infinity", "1.5"])
def test_a_number_that_is_not_whole_is_no_id(page_id: str, tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(f'{{"id": {page_id}, "title": "A", "text": "b"}}\n')
    with pytest.raises(CorpusError, match=r"c\.jsonl"):
        list(read_corpus(str(corpus)))
