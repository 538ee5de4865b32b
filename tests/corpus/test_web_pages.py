"""Web pages: kbq shows what a browser shows, and of that what is the page's own text."""

import io
import os
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas
import pytest
from trafilatura import bare_extraction

from kbq.corpus.html_blocks import joint, pieces_of, whole_contents
from kbq.corpus.html_tree import drop_unseen, html_tree
from kbq.corpus.web_pages import web_contents

PROSE = (
    "The harbour of the town was built by Ann Lee in 1881, and it has been used by fishermen ever "
    "since."
)
NAVIGATION = "".join(
    f'<li><a href="/{number}">Another page of this site, number {number}</a>'
    for number in range(30)
)


def texts(page: str) -> list[str]:
    return [block.text for block in web_contents(page).pages[0][1]]


@pytest.mark.parametrize(
    "name", ["overlay", "pagination-first", "social", "share", "related", "sidebar", "ad"]
)
def test_names_of_classes_and_ids_say_nothing_about_prose(name: str) -> None:
    page = (
        f"<body><h1>Farvik</h1><p>{PROSE}</p><section id={name}><h2>A part</h2><p class={name}>Bo "
        "Ray paid.</p>"
    )
    assert texts(f"{page}</section><ul>{NAVIGATION}</ul>") == [
        "Farvik",
        PROSE,
        "A part",
        "Bo Ray paid.",
    ]


def test_what_readers_say_is_left_out() -> None:
    said = "".join(
        f"<div><b>user{number}</b><p>My cousin {number} says that it is all wrong.</p></div>"
        for number in range(9)
    )
    contents = web_contents(
        f"<body><h1>Farvik</h1><p>{PROSE}</p><div><h3>9 responses</h3>{said}</div>"
    )
    assert [block.text for block in contents.pages[0][1]] == ["Farvik", PROSE]
    assert contents.left_out["navigation"] == 19


@pytest.mark.parametrize(
    ("heading", "is_of_readers"),
    [
        ("Response", False),
        ("Reactions", False),
        ("Answers in print", False),
        ("Comments", True),
        ("3 replies", True),
        ("Reader responses", True),
        ("Answers (4)", True),
        ("2 comments on “Farvik”", True),
    ],
)
def test_headings_of_what_readers_wrote(heading: str, is_of_readers: bool) -> None:
    said = "The mayor Bo Ray said that the harbour is the pride of the whole town and its people."
    page = f"<body><article><h1>Farvik</h1><p>{PROSE}</p><h2>{heading}</h2><p>{said}</p></article>"
    kept = [] if is_of_readers else [heading, said]
    assert texts(page) == ["Farvik", PROSE, *kept]


def test_the_sentences_below_a_headline_are_part_of_the_article() -> None:
    lede = "Ann Lee, who built the harbour of the town of Farvik for its fishermen, died on Sunday."
    header = f"<header><div><h1>Farvik</h1><p>{lede}</p></div><p>By Bo Ray</p></header>"
    story = "".join(f"<p>{PROSE} That was in {year}.</p>" for year in range(1900, 1909))
    shown = texts(f"<body><ul>{NAVIGATION}</ul><article>{header}{story}</article>")
    assert shown[:2] == ["Farvik", lede]


@pytest.mark.parametrize("caption", ["", "<figcaption>Its piers.</figcaption>"])
def test_a_table_in_a_frame_of_its_own_is_part_of_the_text_around_it(caption: str) -> None:
    rows = "".join(f"<tr><td>Pier {year}<td>{year}" for year in range(1900, 1904))
    frame = f"<figure><div class=wide><table>{rows}</table></div>{caption}</figure>"
    story = "".join(f"<p>{PROSE} That was in {year}.</p>" for year in range(1900, 1909))
    aside = "<aside><table><tr><td>Subscribe<td>Today<tr><td>Log in<td>Now</table></aside>"
    shown = texts(f"<body><ul>{NAVIGATION}</ul>{aside}<div>{story}{frame}{story}</div>")
    assert "Pier 1901: 1901" in shown
    assert "Subscribe: Today" not in shown


@pytest.mark.parametrize("seed", range(int(os.environ.get("KBQ_CASES", "5"))))
def test_what_teasers_repeat_stands_once(seed: int) -> None:
    """Teasers beside an article repeat some lines; a line stands as often as the library has it."""
    rng = random.Random(seed)
    story = [
        f"In {1800 + 7 * number} Ann Lee built pier number {number} of the harbour for the fishermen."
        for number in range(12)
    ]
    teasers = [f"<li><a href=/x>{line}</a>" for line in rng.choices(story, k=rng.randint(1, 6))]
    place = rng.randint(0, len(teasers))
    article = "".join(f"<p>{line}</p>" for line in story)
    before = f"<ul>{''.join(teasers[:place])}</ul>"
    behind = f"<ul>{''.join(teasers[place:])}</ul>"
    page = f"<body>{before}<article><h1>Farvik</h1>{article}</article>{behind}<ul>{NAVIGATION}</ul>"
    chosen = bare_extraction(page, fast=True, favor_recall=True, include_comments=False)
    library = "".join(chosen.body.itertext())
    shown = texts(page)
    assert [shown.count(line) for line in story] == [library.count(line) for line in story]
    assert [line for line in shown if line in story and library.count(line) == 1] == [
        line for line in story if library.count(line) == 1
    ]


def test_a_page_that_the_library_does_not_understand_is_read_whole() -> None:
    rows = "".join(
        f"<tr><td>Pier {number}</td><td>{1800 + number}</td></tr>" for number in range(3)
    )
    assert texts(f"<body><table>{rows}</table>") == ["Pier 0: 1800", "Pier 1: 1801", "Pier 2: 1802"]


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ('<title>Long Pier - News</title><meta property="og:title" content="Long Pier">', "Long Pier"),
        ('<meta property="og:site_name" content="N"><meta property="og:title" content="Long Pier | N">', "Long Pier"),
        ('<script type="application/ld+json">{"@graph": [{"headline": "Long Pier"}]}</script>', "Long Pier"),
        ('<script type="application/ld+json">{"headline": </script>', ""),
        ('<meta property="og:site_name" content="News"><meta property="og:title" content="News">', ""),
    ],
)  # fmt: skip
def test_titles_that_pages_state(head: str, title: str) -> None:
    assert web_contents(f"<head>{head}</head><body><h1>News</h1><p>{PROSE}").title == title


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("<tr><th>Year<th>Head<th>Clerk<tr><td>1901<td><td>Ann Orr", ["Year: 1901 · Head: – · Clerk: Ann Orr"]),
        ("<tr><td>Founder<td>Ann Lee<tr><td>Founded<td>1889", ["Founder: Ann Lee", "Founded: 1889"]),
        ("<tr><th rowspan=2>Name<th colspan=2>Life<tr><th>Born<th>Died<tr><td>Bo<td>1851<td>1919",
         ["Name: Bo · Life Born: 1851 · Life Died: 1919"]),
        ("<tr><th>Club<th>Year<tr><td rowspan=2>Orr<td>1901<tr><td>1902",
         ["Club: Orr · Year: 1901", "Club: Orr · Year: 1902"]),
        ("<form><tr><td>Seat<td>Ely</form>", ["Seat: Ely"]),
        ("<td>Owner</td><td>Corvo Ltd</td>", ["Owner: Corvo Ltd"]),
        ("<caption>Facts</caption>Loose<tr><td>Clients<td>500", ["Facts", "Loose", "Clients: 500"]),
    ],
)  # fmt: skip
def test_rows_of_tables(rows: str, expected: list[str]) -> None:
    assert [
        block.text for block in whole_contents(f"<body><table>{rows}</table>").pages[0][1]
    ] == expected


def spanned_table(draw: random.Random) -> str:
    """A table with names of columns, empty cells and cells that reach into the rows below them."""
    columns = draw.randint(3, 5)
    rows = [[f"<th>name {column}" for column in range(columns)]]
    reach = [0] * columns
    count = draw.randint(2, 6)
    for number in range(count):
        row = []
        for column in range(columns):
            if reach[column]:
                reach[column] -= 1
                continue
            height = min(draw.choice((1, 1, 1, 2, 3)), count + 1 - number)  # not below the table
            reach[column] = height - 1
            said = draw.choice((f"cell {number} {column}", f"cell {number} {column}", ""))
            row.append(f"<td rowspan={height}>{said}")
        rows.append(row)
    last = [f"<td>end {column}" for column in range(columns) if not reach[column]]
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in [*rows, last]) + "</table>"


def test_cells_stand_below_the_names_under_which_pandas_finds_them() -> None:
    draw = random.Random(7)
    for _ in range(int(os.environ.get("KBQ_CASES", "20"))):
        table = spanned_table(draw)
        frame = pandas.read_html(io.StringIO(table), flavor="lxml", keep_default_na=False)[0]
        expected = []
        seen = {"–"}
        for cells in frame.astype(str).replace({"": "–", "nan": "–"}).to_dict("records"):
            row = " · ".join(f"{name}: {value}" for name, value in cells.items())
            # A row with nothing but what reaches into it from above says nothing.
            expected += [row] if set(cells.values()) - seen else []
            seen |= set(cells.values())
        shown = [block.text for block in whole_contents(table).pages[0][1]]
        assert shown == expected, table


@pytest.mark.parametrize(
    ("before", "raised", "after", "sign"),
    [("10", "24", "", "^"), ("10", "−3", "", "^"), ("km", "2", "", ""), ("5", "th", "", ""), ("$11", "99", "", "."),
     ("5", "1", "/", " "), ("5", "1/2", "", " "), ("", "14", "C", "")],
)  # fmt: skip
def test_raised_digits_stay_apart(before: str, raised: str, after: str, sign: str) -> None:
    assert joint(before, raised, after, is_raised=True) == sign


STYLES = """.a {display: none} .b {visibility: hidden} #c, i.d {display:none} .e {display: none} p.e {display: block}
.f .g {display: none} @media print {.h {display: none}} @media (min-width: 600px) {.i {display: none}}
@media (max-width: 600px) {.j {display: none}} .k {display: none !important} .k.l {display: block}
.m > b {display: none} .n {visibility: visible} p.b {display: block} .a .n {visibility: hidden}"""


CELLS = (
    "<tr><td>{}</td><th>{}</th></tr>",
    "<form><tr><td>{}</td><td>{}</td></tr></form>",
    "<tbody><tr><td>{}<td>{}</tbody>",
    "<td>{}</td><td>{}</td>",
    "<caption>{}</caption><tr><td>{}",
)
TAGS = (
    "p", "b", "i", "span", "sup", "div", "section", "blockquote", "ul", "table", "math", "button",
    "form",
)  # fmt: skip
WITHIN = {"p": TAGS[1:5], "button": TAGS[1:5], "form": TAGS[:-1]} | dict.fromkeys(
    TAGS[1:5], TAGS[1:5]
)


def random_element(
    draw: random.Random, depth: int, word: Callable[[], str], tags: Sequence[str] = TAGS
) -> str:
    """Return a random element of a page, with elements in it that may stand there."""
    if depth == 0 or draw.random() < 0.2:
        return f" {word()} "
    tag = draw.choice(tags)
    allowed = [one for one in WITHIN.get(tag, TAGS) if one in tags]
    inner = "".join(
        random_element(draw, depth - 1, word, allowed) for _ in range(draw.randint(1, 3))
    )
    given = draw.choice(
        ["", "", "", " hidden", ' style="display:none"', ' style="color: red; DISPLAY : None"', " id=c",
         ' aria-hidden="true"', ' style="visibility: hidden"', ' style="Visibility:visible"',
         *(f' class="{draw.choice("abdefghijklmn")} {draw.choice("abdefghijklmn")}"' for _ in range(4))]
    )  # fmt: skip
    if tag == "ul":
        return f"<ul{given}><li>{inner}</li><li{given}>{word()}</li></ul>"
    if tag == "table":
        # In a form, browsers ignore another one, and then close the first with its end.
        cell = draw.choice([cell for cell in CELLS if "form" in tags or "form" not in cell])
        return f"<table{given}>{cell.format(word(), word())}</table>"
    if tag == "math":
        return f"<math><msup><mi>{word()}</mi><mn>{word()}</mn></msup><annotation>x</annotation></math>"
    if tag == "form":
        return (
            f"<form{given}><label>{word()}</label><input "
            f"value=x><textarea>y</textarea><script>z</script>{inner}</form>"
        )
    return f"<{tag}{given}>{inner}</{tag}>"


def words_of(text: str) -> list[str]:
    return sorted(re.findall(r"w\d+", text))


@pytest.mark.slow
def test_what_is_shown_is_what_a_browser_shows(browser: Any) -> None:
    """Chromium's `innerText` of random pages has the same words; KBQ_CASES sets how many."""
    draw, count = random.Random(7), int(os.environ.get("KBQ_CASES", "100"))
    numbers = iter(range(10**9))
    pages = [
        "".join(random_element(draw, 4, lambda: f"w{next(numbers)}") for _ in range(3))
        for _ in range(count)
    ]
    window = browser.new_page()
    window.set_content(f"<!doctype html><head><style>{STYLES}</style></head><body></body>")
    shown = window.evaluate(
        "pages => pages.map(page => { document.body.innerHTML = page; return "
        "document.body.innerText })",
        pages,
    )
    different = []
    for page, seen in zip(pages, shown, strict=True):
        root = html_tree(f"<!doctype html><head><style>{STYLES}</style></head><body>{page}</body>")
        drop_unseen(root)
        read = " ".join(piece.words for piece in pieces_of(root.find("body")))
        if words_of(read) != words_of(seen):
            different.append((page, words_of(read), words_of(seen)))
    assert different == []
