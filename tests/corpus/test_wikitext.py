"""Wikitext: what the arguments of templates say is read, whatever their order and spelling."""

import os
import random
from collections import Counter

import pytest

from kbq.corpus.reading import read_document
from kbq.corpus.wikitext import plain_wikitext
from kbq.errors import CorpusError

pytest.importorskip("mwparserfromhell", reason="it parses wikitext")
pytest.importorskip("pypandoc", reason="it reads wikitext")
BOX = """{{Short description|x}}
{{Infobox person
| name = Ann
| birth_name = Anna Holz
| spouse = Bo<br>Cid
| image = a.jpg
| children =
}}
'''Ann Lee''' was a clerk.{{citation needed}}
[[File:a.jpg|thumb|A boat]]
[[Category:Clerks]]"""


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{birth date|1881|5|7|df=y}}", "7 May 1881"), ("{{death date and age|1950|3|4|1881|5|7}}", "4 March 1950"),
        ("{{convert|61|m|ft}}", "61 m"), ("{{cvt|3|-|5|km|mi}}", "3–5 km"), ("{{formatnum:12500}}", "12500"),
        ("{{USD|9.98 million}}", "$9.98 million"), ("{{lang|de|Anna Holz}}", "Anna Holz"),
        ("{{circa|1881}}", "c. 1881"),
        ("{{nihongo|Lake House|湖の家}}", "Lake House"), ("{{small|{{nowrap|Bo Ray}}}}", "Bo Ray"),
        ("{{plainlist|\n* Ann\n* Bo\n}}", "Ann, Bo"), ("{{cite web|url=x|title=y}}", ""),
    ],
)  # fmt: skip
def test_templates_in_sentences(template: str, said: str) -> None:
    assert plain_wikitext(f"It is {template}.", Counter())[0] == f"It is {said}."


def test_a_page_without_what_is_no_text() -> None:
    reading = read_document(BOX.encode(), ".mediawiki")
    texts = [text for _, several in reading.pages for text in several]
    assert texts == ["Birth name: Anna Holz", "Spouse: Bo, Cid", "Ann Lee was a clerk."]
    assert (reading.titles.metadata, reading.left_out) == ("Ann Lee", {"templates": 2})


def test_a_redirect_is_no_page() -> None:
    with pytest.raises(CorpusError, match="it only leads to 'Ann Lee'"):
        read_document(b"#REDIRECT [[Ann Lee]]", ".mediawiki")


@pytest.mark.slow
def test_every_argument_of_a_box_is_read() -> None:
    """KBQ_CASES sets how many boxes; each value has a number that is nowhere else."""
    draw = random.Random(3)
    numbers = iter(range(1, 10**9))
    values = [
        *(
            "w{}", "[[w{}]]", "[[x|w{}]]", "{{{{nowrap|w{}}}}}", "w{}<ref>r</ref>", "''w{}''",
            "w{}<!-- c -->",
        ),
        *(
            "{{{{birth date|{}|5|7}}}}",
            "\n* w{}\n",
            "{{{{plainlist|\n* w{}\n}}}}",
            "{{{{convert|{}|km|mi}}}}",
        ),
    ]  # fmt: skip
    pages, wanted = list[str](), dict[str, str]()
    for _ in range(int(os.environ.get("KBQ_CASES", "100"))):
        box = ""
        space = draw.choice(["", " ", "  "])
        for _ in range(draw.randint(2, 6)):
            name, number = f"Field {next(numbers)}", str(next(numbers))
            wanted[name] = number
            value = draw.choice(values).format(number)
            box += f"\n{space}|{space}{name.lower().replace(' ', '_')}{space}={space}{value}"
        pages.append(f"{{{{Infobox thing{box}\n}}}}\n'''A{next(numbers)}''' is it.")
    reading = read_document("\n\n".join(pages).encode(), ".mediawiki")
    lines = [text for _, several in reading.pages for text in several if ": " in text]
    said = dict(line.split(": ", 1) for line in lines)
    assert [
        (name, number) for name, number in wanted.items() if number not in said.get(name, "")
    ] == []
