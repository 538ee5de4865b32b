"""QuickStatements: every command is read back by the grammar of version 1, and what cannot be one
is named.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue
from kbq.errors import KbqError
from kbq.tables.claims import Claim, QuantityValue, Source
from kbq.tables.outputs import command, fact, ntriples, time_of, write_quickstatements
from kbq.tables.relations import Relation, number_of, read_ids
from kbq.tables.values import normal_form

SOURCE = Source("1.0", "m", "k", "kbq fill", "2026-11-24T12:34:56Z")
RELATIONS = [
    Relation("date of birth", ("born",), property="P569"),
    Relation("place of birth", ("born in",), property="http://www.wikidata.org/entity/P19"),
    Relation("length", ("length",), property="P2043"),
    Relation("motto", ("motto",), type="text", property="P1451"),
    Relation("nickname", ("nickname",)),
]
IDS = {"Marie Curie": "Q7186", "S9": "Q270", "km": "Q828224"}
BIRTH = Claim(
    subject="Marie Curie", relation="date of birth", value="7 November 1867", probability=0.93, accepted=True,
    page_id="S1", title="Marie Curie", paragraph=2, start=120, end=135, sentence="She was born on 7 November 1867.",
    sentence_start=104, normal=DateValue("1867-11-07", 11), metadata={"url": "https://example.org/curie"},
)  # fmt: skip


def saying(value: str, relation: str, normal: Any = None, **more: Any) -> Claim:
    place: dict[str, Any] = {
        "start": 104,
        "end": 104 + len(value),
        "sentence": value,
        "metadata": {},
    }
    return replace(BIRTH, value=value, relation=relation, normal=normal, **(place | more))


# Values of version 1, in the order in which QuickStatements tries them.
VALUES = {
    "item": r"[QP]\d+",
    "string": r'"(.*)"',
    "text": r'([a-z_-]+):"(.*)"',
    "time": r"[+-]\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\dZ/\d+",
    "quantity": r"[+-]?\d+(?:\.\d+)?(?:U\d+)?",
}


def parsed(line: str) -> tuple[str, str, tuple[str, str], dict[str, tuple[str, str]]]:
    """Item, property, value, and qualifiers and references by property."""
    item, property, value, *pairs = line.split("\t")
    assert re.fullmatch(r"Q\d+", item)
    assert re.fullmatch(r"P\d+", property)
    assert len(pairs) % 2 == 0
    more = {}
    for name, text in zip(pairs[::2], pairs[1::2], strict=True):
        assert re.fullmatch(r"[PS]\d+", name)
        more[name] = parsed_value(text)
    return item, property, parsed_value(value), more


def parsed_value(text: str) -> tuple[str, str]:
    assert text == text.strip()
    for kind, form in VALUES.items():
        if found := re.fullmatch(form, text):
            return kind, found[1] if kind == "string" else text
    raise AssertionError(text)


def written(folder: Path, claims: list[Claim]) -> tuple[list[str], list[str]]:
    path = folder / "facts.qs"
    _, left, _ = write_quickstatements(path, claims, SOURCE, RELATIONS, IDS)
    left_out = [
        json.loads(line)["reason"]
        for line in path.with_name("facts.qs.left-out.jsonl").read_text("utf-8").splitlines()
    ]
    assert left == len(left_out)
    return path.read_text("utf-8").split("\n")[:-1], left_out


def test_a_command_with_its_reference(tmp_path: Path) -> None:
    (line,), left_out = written(tmp_path, [BIRTH, BIRTH, replace(BIRTH, accepted=False)])
    assert line == (
        'Q7186\tP569\t+1867-11-07T00:00:00Z/11\tS854\t"https://example.org/curie"\tS813\t+2026-11-24T00:00:00Z/11'
        '\tS1683\ten:"She was born on 7 November 1867."'
    )
    assert left_out == []
    assert parsed(line) == (
        "Q7186", "P569", ("time", "+1867-11-07T00:00:00Z/11"),
        {
            "S854": ("string", "https://example.org/curie"), "S813": ("time", "+2026-11-24T00:00:00Z/11"),
            "S1683": ("text", 'en:"She was born on 7 November 1867."'),
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (
            saying("Warschau", "place of birth", PageValue("S9", "Warsaw")),
            ["P19", "Q270", "S1683", 'en:"Warschau"'],
        ),
        (
            saying("12.5 km", "length", QuantityValue("12.5", "km")),
            ["P2043", "12.5U828224", "S1683", 'en:"12.5 km"'],
        ),
        (
            saying("7 km", "length", QuantityValue("7", "km", about=True)),
            ["P2043", "7U828224", "P1480", "Q5727902", "S1683", 'en:"7 km"'],
        ),
        (
            saying("7 kilometres", "length", QuantityValue("7", "kilometres")),
            ["P2043", "7U828224", "S1683", 'en:"7 kilometres"'],
        ),
        (saying("-7", "length", QuantityValue("-7", "")), ["P2043", "-7", "S1683", 'en:"-7"']),
        (saying('"Ad\tastra"', "motto"), ["P1451", 'en:""Ad astra""', "S1683", 'en:""Ad astra""']),
        (
            saying("c. 1867", "date of birth", DateValue("1867~", 9)),
            ["P569", "+1867-00-00T00:00:00Z/9", "P1480", "Q5727902", "S1683", 'en:"c. 1867"'],
        ),
        (
            saying(
                "1867", "date of birth", DateValue("1867", 9), metadata={"url": 'https://x/"\n'}
            ),
            ["P569", "+1867-00-00T00:00:00Z/9", "S1683", 'en:"1867"'],
        ),
        (
            saying(
                "1867",
                "date of birth",
                DateValue("1867", 9),
                subject="Mme Curie",
                title="Mme Curie",
                page_id="S9",
            ),
            ["P569", "+1867-00-00T00:00:00Z/9", "S1683", 'en:"1867"'],
        ),
    ],
)
def test_what_a_value_becomes(tmp_path: Path, claim: Claim, expected: list[str]) -> None:
    (line,), _ = written(tmp_path, [claim])
    assert line.split("\t") == ["Q270" if claim.subject == "Mme Curie" else "Q7186", *expected]
    parsed(line)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (replace(BIRTH, subject="Eve"), "subject 'Eve' has no Q-number: add it to the file of ids"),
        (
            saying("x", "nickname"),
            "relation 'nickname' has no P-number: write it as property of the relation, or ask "
            "for @nickname",
        ),
        (
            saying("more than 7", "length", QuantityValue("7", "", bound=">")),
            "value 'more than 7' is a bound or a range, not one number",
        ),
        (
            saying("7 to 8", "length", QuantityValue("7", "", to="8")),
            "value '7 to 8' is a bound or a range, not one number",
        ),
        (
            saying("x", "other"),
            "relation 'other' has no P-number: write it as property of the relation",
        ),
        (
            saying("Rome", "place of birth", PageValue("S7", "Rome")),
            "page 'Rome' (S7) has no Q-number: add it to the file of ids",
        ),
        (
            saying("5 mi", "length", QuantityValue("5", "mi")),
            "unit 'mi' has no Q-number: add it to the file of ids",
        ),
        (
            saying("12/05/2003", "date of birth"),
            "value '12/05/2003' is not certainly a page, date or quantity, 'date of birth' not of "
            "type text",
        ),
    ],
)
def test_what_is_left_out_has_its_reason(tmp_path: Path, claim: Claim, reason: str) -> None:
    assert written(tmp_path, [claim]) == ([], [reason])
    assert not written(tmp_path, [BIRTH])[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 November 1867", "+1867-11-07T00:00:00Z/11"),
        ("November 1867", "+1867-11-00T00:00:00Z/10"),
        ("AD 79", "+0079-00-00T00:00:00Z/9/J"),
        ("15 April 1452", "+1452-04-15T00:00:00Z/11/J"),
        ("1368/1369", "+1360-00-00T00:00:00Z/8/J"),
        ("1 BC", "-0001-00-00T00:00:00Z/9/J"),
        ("c. 44 BC", "-0044-00-00T00:00:00Z/9/J"),
        ("March 44 BC", "-0044-03-00T00:00:00Z/10/J"),
        ("the 1990s", "+1990-00-00T00:00:00Z/8"),
        ("19th century", "+1801-00-00T00:00:00Z/7"),
        ("first century", "+0001-00-00T00:00:00Z/7/J"),
        ("5th century BC", "-0401-00-00T00:00:00Z/7/J"),
    ],
)
def test_dates_as_wikidata_has_them(text: str, expected: str) -> None:
    date = normal_form(text)
    assert isinstance(date, DateValue)
    assert time_of(date) == expected


@pytest.mark.parametrize(
    ("before", "behind"), [(0, 5000), (5000, 0), (5000, 5000), (700, 760), (749, 749)]
)
def test_a_long_quotation_keeps_the_value(tmp_path: Path, before: int, behind: int) -> None:
    sentence = "a" * before + "1867" + "b" * behind
    claim = replace(BIRTH, value="1867", sentence=sentence, start=104 + before, end=108 + before)
    (line,), _ = written(tmp_path, [claim])
    quotation = parsed(line)[3]["S1683"][1].removeprefix('en:"').removesuffix('"')
    assert quotation == "a" * min(before, 748) + "1867" + "b" * min(behind, 748)


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_every_text_is_one_field(text: str) -> None:
    claim = saying(text, "motto", subject="Marie Curie")
    line = command(claim, SOURCE, RELATIONS[3], IDS)
    assert len(line.split("\t")) == 5
    assert "\n" not in line


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("\ufeffpage\tqid\r\nS1\tQ7186\r\n\r\nCafe\u0301\thttps://www.wikidata.org/wiki/Q30022\nS1\tQ7186\n",
         {"S1": "Q7186", "Café": "Q30022", "CAFE": "Q30022"}),
        # Half done.
        ("name\tid\tclaims\nVienna\tQ1741\t86\nGraz\t\t3\n", {"Vienna": "Q1741", "Graz": ""}),
        # OpenRefine's, of two columns.
        ("name,city,city id,note,name id\nEve,Vienna,Q1741,Q,Q5\nBob,Graz,,x,Q6\n",
         {"Vienna": "Q1741", "Graz": "", "Eve": ""}),
        ("Q1741,Vienna\nQ270,Warsaw\n", {"Vienna": "Q1741", "warsaw": "Q270"}),
        ("US\tQ30\nus\tQ1\n", {"US": "Q30", "us": "Q1", "Us": ""}),  # alike, and different
    ],
)  # fmt: skip
def test_ids_are_read(content: str, names: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text(content, "utf-8")
    ids = read_ids(tmp_path / "ids.csv")
    assert {name: number_of(name, ids) for name in names} == names


def test_ids_that_are_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ids.tsv"
    path.write_text("S1\tQ7186\nS2\nS3\tP19\n\tQ1\nS1\tQ270\nS4\tQ0\n", "utf-8")
    with pytest.raises(KbqError, match=r"ids.tsv has 4 lines that cannot be used") as refused:
        read_ids(path)
    assert refused.value.problems == (
        f"{path}:3: 'P19' beside 'S3' is not a Q-number with its name",
        f"{path}:4: 'Q1' beside '' is not a Q-number with its name",
        f"{path}:5: 'S1' is both Q7186 and Q270: leave one of them out",
        f"{path}:6: 'Q0' beside 'S4' is not a Q-number with its name",
    )
    path.write_text("name\tid\nVienna\tGraz\n")
    with pytest.raises(
        KbqError,
        match=r"ids.tsv has no Q-number, such as Q7186: write names, and the Q-number of each",
    ):
        read_ids(path)


def test_values_are_things_and_names_without_a_number_are_listed(tmp_path: Path) -> None:
    relations = [
        Relation("place of birth", ("x",), type="page", property="P19"),
        Relation("b", ("b",), type="text", property="P19"),
        Relation("motto", ("x",), type="text", property="P1451"),
    ]
    vienna = saying("Vienna", "place of birth")
    claims = [vienna, saying("vienna", "b"), saying("Graz", "place of birth"), saying("Graz", "b")]
    claims += [saying("Vienna", "motto"), replace(vienna, by_hand=True, page_id="")]
    ids = {"Marie Curie": "Q7186", "Vienna": "Q1741", "\0vienna": "Q1741"}
    counts = write_quickstatements(tmp_path / "f.qs", claims, SOURCE, relations, ids)
    assert counts == (4, 2, 1)
    commands = [line.split("\t") for line in (tmp_path / "f.qs").read_text("utf-8").splitlines()]
    assert [line[:3] for line in commands] == [["Q7186", "P19", "Q1741"]] * 2 + [
        ["Q7186", "P1451", 'en:"Vienna"'], ["Q7186", "P19", "Q1741"]
    ]  # fmt: skip
    assert commands[3] == ["Q7186", "P19", "Q1741"]  # by hand: the text is no reference
    assert (tmp_path / "f.qs.ids-todo.tsv").read_text("utf-8") == "name\tid\tclaims\nGraz\t\t2\n"
    assert fact(claims[0], {}, ids).endswith("> <http://www.wikidata.org/entity/Q1741>")
    # Subjects and values at once.
    assert write_quickstatements(tmp_path / "f.qs", claims, SOURCE, relations, {})[2] == 4
    assert (tmp_path / "f.qs.ids-todo.tsv").read_text("utf-8").splitlines()[1:] == [
        "Marie Curie\t\t6", "Vienna\t\t2", "Graz\t\t2", "vienna\t\t1"
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "expected"), [("P1477", 'en:"Ann Lee"'), ("P742", '"Ann Lee"')])
def test_a_name_in_a_language_has_its_language(number: str, expected: str) -> None:
    claim = Claim(
        subject="Eve", relation="r", value="Ann Lee", probability=0.9, accepted=True, page_id="P", title="T",
        paragraph=0, start=13, end=20, sentence="Early life – Ann Lee was born – so they say.", sentence_start=0,
    )  # fmt: skip
    relation = Relation("r", ("r",), type="text", property=number)
    fields = command(claim, SOURCE, relation, {"Eve": "Q1"}).split("\t")
    assert fields[2] == expected
    assert fields[-1] == 'en:"Ann Lee was born – so they say."'  # without the heading, as it stands
    ((line,),) = [list(ntriples([claim], [relation], {"Eve": "Q1"}))]
    assert line.endswith('"Ann Lee"@en .' if number == "P1477" else '"Ann Lee" .')
