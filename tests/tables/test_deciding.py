"""Deciding: which answers are claims, which of them are one value, and what a person's decisions
change.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kbq.answers import Answer
from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue
from kbq.kb import KnowledgeBase
from kbq.tables.claims import Alternative, Claim, QuantityValue, written
from kbq.tables.deciding import IN_ONE_PLACE, IN_TIME, RIVALS, Decider, Decision
from kbq.tables.options import Dates
from kbq.tables.outputs import views
from kbq.tables.relations import Relation, Slot, known_relations, relation_named
from kbq.tables.values import normal_form
from kbq.text.normal_forms import normalised


class OneTitle:
    """Stands for the titles of a knowledge base with one page."""

    def page(self, text: str) -> PageValue | None:
        return PageValue("P1", "Łódź") if text in ("Łódź", "LODZ (city)") else None

    def pages(self, text: str) -> list[PageValue]:
        """Two pages have the title Twice."""
        return [PageValue("P7", text), PageValue("P8", text)] if text == "Twice" else []


def answer(text: str, probability: float | None, start: int = 0) -> Answer:
    context = f"{'x ' * (start // 2)}{text} is said here. And no more."
    return Answer(
        text,
        10 * (probability or 0),
        "P7",
        "T",
        3,
        start,
        start + len(text),
        context,
        (0, 1),
        {},
        probability,
    )


def decided(
    answers: list[Answer],
    *more: list[Answer],
    decisions: dict[str, str] | None = None,
    top: int = 3,
    **settings: object,
) -> list[tuple[str, bool, tuple[str, ...]]]:
    """Value, whether it is accepted, and the alternatives, of each claim."""
    relation = Relation("r", ("r",), **settings)  # type: ignore[arg-type]
    choices = {
        value: Decision("s", "r", value, choice)  # type: ignore[arg-type]
        for value, choice in (decisions or {}).items()
    }
    decider = Decider(OneTitle(), 0.5, top, {("s", "r"): choices})  # type: ignore[arg-type]
    claims = decider.claims(Slot("s", relation), [answers, *more])
    return [
        (claim.value, claim.accepted, tuple(other.value for other in claim.alternatives))
        for claim in claims
    ]


LIKELY, NEXT, LESS = answer("Paris", 0.8), answer("Rome", 0.6, 40), answer("Bonn", 0.3, 80)


@pytest.mark.parametrize(
    ("answers", "settings", "claims"),
    [
        ([LIKELY, NEXT, LESS], {}, [("Paris", True, ("Rome", "Bonn"))]),
        ([LIKELY, NEXT, LESS], {"top": 1}, [("Paris", True, ("Rome",))]),
        ([LIKELY, NEXT, LESS], {"values": "many"}, [("Paris", True, ("Bonn",)), ("Rome", True, ())]),
        ([LESS, NEXT], {}, [("Bonn", False, ("Rome",))]),  # the order is that of the search
        ([LESS], {"min_probability": 0.2}, [("Bonn", True, ())]),
        ([LIKELY], {"min_probability": 0.9}, [("Paris", False, ())]),
        ([answer("Paris", None)], {}, [("Paris", False, ())]),
        ([answer("Paris", None)], {"min_probability": 0.0}, [("Paris", True, ())]),
        ([], {}, []),
        ([LIKELY, answer("May 1867", 0.7, 40)], {"type": "date"}, [("May 1867", True, ("Paris",))]),
        ([LIKELY], {"type": "date"}, [("Paris", False, ())]),
        ([LIKELY], {"type": "page"}, [("Paris", True, ())]),
        ([LIKELY, answer("in Paris", 0.7, 40)], {"values": "many"}, [("Paris", True, ()), ("in Paris", True, ())]),
        ([answer("1 May 1867", 0.8), answer("May 1, 1867", 0.7, 40)], {"values": "many"}, [("1 May 1867", True, ())]),
        ([answer("Łódź", 0.8), answer("LODZ (city)", 0.7, 40)], {"values": "many"}, [("Łódź", True, ())]),
        ([LIKELY, NEXT], {"decisions": {"paris": "reject"}}, [("Rome", True, ())]),
        ([LIKELY, LESS], {"decisions": {"bonn": "accept"}}, [("Bonn", True, ("Paris",))]),
        ([LIKELY, LESS], {"decisions": {"bonn": "accept"}, "values": "many"},
         [("Bonn", True, ()), ("Paris", True, ())]),
        ([LIKELY], {"decisions": {"paris": "reject"}}, []),
        ([answer("1 May 1867", 0.8), answer("May 1, 1867", 0.7, 40)],
         {"type": "date", "decisions": {"1 may 1867": "reject"}}, []),
        ([answer("May 1, 1867", 0.8)], {"type": "date", "decisions": {"1 may 1867": "reject"}}, []),
        ([answer("Anna Lind", 0.8)], {"property": "P26", "decisions": {"a lind": "reject"}}, []),
        ([answer("A. Lind", 0.8)], {"property": "P26", "decisions": {"anna lind": "reject"}}, []),
        ([answer("Main Street", 0.8)], {"decisions": {"m street": "reject"}}, [("Main Street", True, ())]),
        ([answer("Anna Lind", 0.8)], {"property": "P26", "decisions": {"a lind": "reject", "anna lind": "accept"}},
         [("Anna Lind", True, ())]),
        ([answer("277 miles (446 km)", 0.8)], {"type": "quantity"}, [("277 miles", True, ())]),
        ([answer("410 m (1,345 ft) above", 0.8)], {"type": "quantity"}, [("410 m (1,345 ft) above", False, ())]),
        ([answer("412 tons", 0.8), answer("90 m", 0.7, 40)], {"type": "quantity", "measures": ("length",)},
         [("90 m", True, ("412 tons",))]),
        ([answer("412 tons", 0.8)], {"type": "quantity", "measures": ("length", "mass")}, [("412 tons", True, ())]),
        ([answer("412", 0.8)], {"type": "quantity", "measures": ("length",)}, [("412", True, ())]),
        ([answer("12 %", 0.8)], {"type": "quantity", "measures": ("count",)}, [("12 %", False, ())]),
        ([answer("actor, poet and painter", 0.8)], {"values": "many", "decisions": {"actor": "reject"}},
         [("poet", True, ()), ("painter", True, ())]),
        ([LIKELY], {"decisions": {"nowhere": "accept"}}, [("Paris", True, ())]),
    ],
)  # fmt: skip
def test_answers_become_claims(
    answers: list[Answer], settings: dict[str, object], claims: object
) -> None:
    assert decided(answers, **settings) == claims  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "property", "value"),
    [
        ("Ann Lee and Bo Ray", "P161", "Ann Lee"),  # cast member: usually several
        ("Ann Lee & Bo Ray", "P161", "Ann Lee"),
        ("singing, acting and dancing", "P106", "singing"),
        ("Simon and Garfunkel", "P161", "Simon and Garfunkel"),
        ("Ann Lee and Bo Ray", "P22", "Ann Lee and Bo Ray"),  # father: one
        ("Ann Lee and Bo Ray", "", "Ann Lee and Bo Ray"),
        (
            "National Aeronautics and Space Administration",
            "P108",
            "National Aeronautics and Space Administration",
        ),
        ("Texas A&M Choir", "P175", "Texas A&M Choir"),
        ("rock and roll", "P136", "rock and roll"),
        ("LODZ (city)", "P161", "LODZ (city)"),
    ],
)
def test_one_value_of_a_list_is_its_first_item(text: str, property: str, value: str) -> None:
    assert decided([answer(text, 0.8)], property=property) == [(value, True, ())]


@pytest.mark.parametrize(
    ("text", "head", "property", "value"),
    [
        ("He is a Spanish racing driver from Madrid.", "driver", "P106", "racing driver"),
        (
            "He was a former professional baseball player.",
            "player",
            "P106",
            "professional baseball player",
        ),
        ("She is a Bronx-born heavy metal musician.", "musician", "P106", "heavy metal musician"),
        ("He was elected mayor.", "mayor", "P106", "mayor"),
        ("Moving to Rome, he became mayor.", "mayor", "P106", "mayor"),
        ("A lawyer turned politician", "politician", "P106", "politician"),
        ("His brother poet came.", "poet", "P106", "poet"),
        ("word " * 5000 + "driver", "driver", "P106", "driver"),
        ("She was a renowned actress.", "actress", "P106", "actress"),
        ("She became a highly respected physicist.", "physicist", "P106", "physicist"),
        ("An art museum director", "director", "P106", "art museum director"),
        ("A trade union founded it.", "union", "P112", "union"),  # founded by
        (
            "It is a refundable tax credit.",
            "credit",
            "P279",
            "refundable tax credit",
        ),  # subclass of
        ("driver", "driver", "P106", "driver"),
    ],
)
def test_an_occupation_has_the_nouns_that_narrow_it(
    text: str, head: str, property: str, value: str
) -> None:
    found = answer(head, 0.8)
    start = text.index(head)
    found = replace(
        found, context=text, start=start, end=start + len(head), unit=(start, start + len(head))
    )
    assert [one for one, _, _ in decided([found], property=property)] == [value]


@pytest.mark.parametrize(
    ("text", "property", "value"),
    [
        ("Bo Howard, 6th Earl of Carlisle and Ryde", "P22", "Bo Howard, 6th Earl of Carlisle"),
        ("Bo Howard , 6th Earl of Carlisle", "P26", "Bo Howard , 6th Earl of Carlisle"),
        ("Bo Howard, Jr., in Bonn", "P22", "Bo Howard, Jr."),
        ("Bo Howard Sr and Ann", "P22", "Bo Howard Sr"),
        ("Bo Howard, an Earl", "P22", "Bo Howard"),
        ("Bo Howard, 6th of five", "P22", "Bo Howard"),
        ("Bo Howard, 6th Earl of Carlisle", "P138", "Bo Howard"),  # named after
    ],
)
def test_a_person_has_the_whole_name(text: str, property: str, value: str) -> None:
    found = replace(answer("Bo Howard", 0.8), context=text, start=0, end=9, unit=(0, 9))
    assert [one for one, _, _ in decided([found], property=property)] == [value]


@pytest.mark.parametrize(
    ("name", "is_accepted"), [("Poland", False), ("Georgia", True), ("Masovia", True)]
)
def test_a_country_is_no_administrative_unit(name: str, is_accepted: bool) -> None:
    assert decided([answer(name, 0.8)], property="P131") == [(name, is_accepted, ())]
    assert decided([answer(name, 0.8)], property="P17") == [(name, True, ())]


@pytest.mark.parametrize("property", ["P19", "P131", "P276", "P551"])
def test_an_adjective_of_a_country_is_no_place(property: str) -> None:
    found = [answer("English", 0.8), answer("Leeds", 0.6, 4)]
    assert decided(found, property=property) == [("Leeds", True, ("English",))]
    assert decided([answer("English", 0.8)], property="P27") == [("English", True, ())]


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("the United States", "page", "United States"),
        ("the arts", "page", "the arts"),
        ("The Hague", "page", "The Hague"),
        ("the United States", None, "the United States"),
        ("the\u00a0United States", "page", "United States"),
        ("", "page", ""),
    ],
)
def test_a_name_is_without_its_article(text: str, type: str | None, value: str) -> None:
    assert decided([answer(text, 0.8)], type=type) == [(value, True, ())]


@pytest.mark.parametrize(
    ("choice", "claims"),
    [("reject", []), ("accept", [("the United States", True, ())])],
)
def test_decisions_on_a_name_with_its_article_count(choice: str, claims: object) -> None:
    found = [answer("the United States", 0.8)]
    assert decided(found, type="page", decisions={"the united states": choice}) == claims


def test_an_occupation_is_one_value_with_and_without_its_nouns() -> None:
    text = "She is a racing driver."
    here = replace(answer("driver", 0.8), context=text, start=16, end=22, unit=(16, 22))
    assert decided([here, answer("driver", 0.7, 40)], property="P106", values="many") == [
        ("racing driver", True, ())
    ]


@pytest.mark.parametrize(
    ("wording", "values"), [("country", ["Denmark"]), ("language", ["Denmark", "Danish"])]
)
def test_a_country_and_its_adjective_are_one_value_where_a_country_is_asked_for(
    wording: str, values: list[str]
) -> None:
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    found = [answer("Denmark", 0.8), answer("Danish", 0.7, 40)]
    claims = decider.claims(Slot("s", Relation("r", (wording,), values="many")), [found])
    assert [claim.value for claim in claims] == values
    assert [claim.says_the_same for claim in claims] == ([2] if len(values) == 1 else [1, 1])


def test_the_best_wording_counts() -> None:
    assert decided([LESS], [NEXT, LIKELY]) == [("Rome", True, ("Paris", "Bonn"))]


def test_the_declared_type_counts_whatever_the_wording() -> None:
    cut, born = answer("Hol", 0.96), answer("1 May 1867", 0.9, 40)
    assert decided([cut], [born], type="date") == [("1 May 1867", True, ("Hol",))]
    assert decided([cut, LESS], [born], type="date") == [("1 May 1867", True, ("Hol", "Bonn"))]


def test_a_list_is_several_values() -> None:
    text = "She was an actress, inventor and film producer."
    found = Answer("inventor", 0.0, "P7", "T", 0, 20, 28, text, (20, 28), {}, 0.8)
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]

    def said(values: str, chance: float) -> list[tuple[str, float | None, int]]:
        relation = Relation("occupation", ("occupation",), values=values)  # type: ignore[arg-type]
        claims = decider.claims(Slot("s", relation), [[replace(found, probability=chance)]])
        return [(claim.value, claim.probability, claim.start) for claim in claims]

    assert said("many", 0.8) == [
        ("inventor", 0.8, 20),
        ("actress", 0.76, 11),
        ("film producer", 0.76, 33),
    ]
    assert said("one", 0.8) == [("inventor", 0.8, 20)]
    assert said("many", 0.4) == [("inventor", 0.4, 20)]  # one that is not accepted is not split


def test_a_claim_has_its_evidence() -> None:
    decider = Decider(OneTitle(), 0.5, 1, {})  # type: ignore[arg-type]
    found = [answer("1867", 0.81234567, 40), answer("1867", 0.7, 80), LESS]
    (claim,) = decider.claims(Slot("s", Relation("r", ("r",), type="date")), [found])
    assert (claim.probability, claim.says_the_same, claim.normal) == (
        0.8123,
        2,
        DateValue("1867", 9),
    )
    assert (claim.page_id, claim.title, claim.paragraph, claim.start, claim.end) == (
        "P7",
        "T",
        3,
        40,
        44,
    )
    assert claim.sentence == found[0].context.partition(" And")[0]
    assert claim.parts[1] == "1867"
    assert claim.alternatives == (
        Alternative("Bonn", 0.3, "P7", "T", 3, 80, 84, LESS.context.partition(" And")[0], 0),
    )


def test_titles_that_two_pages_have_are_no_value() -> None:
    from kbq.dump.page_directory import Titles

    titles = Titles(KnowledgeBase.sample().searcher.shards)
    assert titles.page("warsaw.") == PageValue("S111", "Warsaw")
    assert titles.page("Warsaw in spring") is None


def test_a_title_of_two_pages_is_nobodys(judging_model: Path, tmp_path: Path) -> None:
    from kbq.corpus.pages import Page, Paragraph
    from kbq.dump.page_directory import Titles

    text = (Paragraph(0, "the city"),)
    pages = [
        Page("1", "Paris", text),
        Page("2", "PARIS", text),
        Page("3", "Rome", text),
        Page("4", "rome", text),
    ]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", judging_model, device="cpu").delete("4")
    titles = Titles(kb.searcher.shards)
    assert (titles.page("Paris"), titles.page("Rome")) == (None, PageValue("3", "Rome"))


def claim(
    subject: str, relation: str, value: str, probability: float | None, start: int = 0
) -> Claim:
    return Claim(
        subject=subject, relation=relation, value=value, probability=probability, accepted=(probability or 0) >= 0.5,
        page_id="P", title="T", paragraph=0, start=start, end=start + len(value), sentence=value, sentence_start=start,
        normal=normal_form(value, "date"),
    )  # fmt: skip


def consistent(claims: list[Claim]) -> list[Claim]:
    relations = [relation_named(one.relation) for one in claims]
    return Decider(OneTitle(), 0.5, 3, {}).consistent(claims, relations)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claims", "kept"),
    [
        (
            [("father", "Ann Lee", 0.6, 0), ("spouse", "Ann  lee", 0.9, 30)],
            [0.06, 0.9],
        ),  # 0.6 of the 0.1 that are left
        ([("father", "Ann Lee", 0.6, 0), ("employer", "Ann Lee", 0.9, 0)], [0.6, 0.9]),  # no rivals
        ([("father", "Ann Lee", 0.6, 0), ("spouse", "Bo Kim", 0.9, 0)], [0.6, 0.9]),
        ([("Date of birth", "1900", 0.8, 0), ("date of death", "1900", 0.7, 40)], [0.8, 0.14]),
        ([("place of birth", "Bonn", 0.8, 0), ("place of death", "Bonn", 0.7, 0)], [0.8, 0.14]),
        (
            [("place of birth", "Bonn", 0.8, 0), ("place of death", "Bonn", 0.7, 60)],
            [0.8, 0.7],
        ),  # said twice
        (
            [("place of birth", "Bonn", 0.95, 0), ("place of death", "Bonn", 0.92, 0)],
            [0.95, 0.92],
        ),  # of both
        ([("father", "Ann Lee", None, 0), ("spouse", "Ann Lee", None, 0)], [None, None]),
        (
            [("date of birth", "1843", 0.9, 0), ("date of death", "2019", 0.6, 40)],
            [0.9, 0.06],
        ),  # 176 years
        ([("date of birth", "1843", 0.6, 0), ("date of death", "1842", 0.9, 40)], [0.06, 0.9]),
        (
            [("date of birth", "7 May 1843", 0.9, 0), ("date of death", "May 1843", 0.6, 40)],
            [0.9, 0.6],
        ),
        ([("date of birth", "44 BC", 0.9, 0), ("date of death", "AD 14", 0.8, 40)], [0.9, 0.8]),
        (
            [
                ("inception", "1900", 0.9, 0),
                ("dissolved, abolished or demolished date", "1800", 0.8, 9),
            ],
            [0.9, 0.08],
        ),
        (
            [("date of birth", "the 1860s", 0.9, 0), ("date of death", "1862", 0.8, 9)],
            [0.9, 0.8],
        ),  # born in 1860
        (
            [("date of birth", "the 1860s", 0.9, 0), ("date of death", "1989", 0.8, 9)],
            [0.9, 0.8],
        ),  # born in 1869
        ([("date of birth", "the 1860s", 0.9, 0), ("date of death", "1990", 0.8, 9)], [0.9, 0.08]),
        ([("start time", "1914", 0.9, 0), ("end time", "1918", 0.8, 9)], [0.9, 0.8]),
        ([("date_of_birth", "1914", 0.9, 0), ("deathDate", "1918", 0.8, 0)], [0.9, 0.8]),
        ([("date_of_birth", "1914", 0.9, 0), ("deathDate", "1900", 0.8, 0)], [0.9, 0.08]),
        (
            [
                ("inception", "1900", 0.9, 0),
                ("dissolved, abolished or demolished date", "1900", 0.8, 9),
            ],
            [0.9, 0.08],
        ),
        ([("predecessor", "Bo Kim", 0.6, 0), ("successor", "Bo Kim", 0.9, 0)], [0.06, 0.9]),
        ([("replaces", "Bo Kim", 0.9, 0), ("replaced by", "Bo Kim", 0.8, 0)], [0.9, 0.08]),
        ([("predecessor", "Bo Kim", 0.9, 0), ("followed by", "Bo Kim", 0.8, 0)], [0.9, 0.08]),
        ([("predecessor", "Bo Kim", 0.9, 0), ("replaces", "Bo Kim", 0.8, 0)], [0.9, 0.8]),
        ([("subsidiary", "Orr", 0.9, 0), ("parent company", "Orr", 0.8, 0)], [0.9, 0.08]),
    ],
)
def test_a_value_belongs_to_one_rival(
    claims: list[tuple[str, str, float | None, int]], kept: list[float | None]
) -> None:
    found = consistent([claim("Eve", *one) for one in claims])
    assert [one.probability for one in found] == kept
    assert [one.accepted for one in found] == [(chance or 0) >= 0.5 for chance in kept]


def alternative(value: str, probability: float | None) -> Alternative:
    return Alternative(value, probability, "P", "T", 0, 60, 60 + len(value), value, 60)


def test_an_empty_cell_shows_the_likeliest_of_what_was_found() -> None:
    couple = claim("Eve", "spouse", "Ann Lee", 0.9)
    father = replace(
        claim("Eve", "father", "Ann Lee", 0.6),
        alternatives=(alternative("Bo", 0.3), alternative("Cy", 0.4)),
    )
    guess, _ = consistent([father, couple])
    assert (guess.value, guess.probability, guess.accepted, guess.start) == ("Cy", 0.4, False, 60)
    assert [(other.value, other.probability) for other in guess.alternatives] == [
        ("Bo", 0.3),
        ("Ann Lee", 0.06),
    ]


def test_what_fills_a_cell_stays_and_no_alternative_is_likelier() -> None:
    born = replace(
        claim("Eve", "date of birth", "1867", 0.6),
        alternatives=(alternative("7 November", 0.8), alternative("x", 0.1)),
    )
    (found,) = consistent([born])
    assert (found.value, found.probability, found.accepted) == ("1867", 0.6, True)
    assert [(other.value, other.probability) for other in found.alternatives] == [
        ("7 November", 0.6),
        ("x", 0.1),
    ]


def test_what_a_person_has_accepted_stays_however_unlikely() -> None:
    decisions = {("Eve", "father"): {"bo": Decision("Eve", "father", "Bo", "accept")}}
    chosen = replace(
        claim("Eve", "father", "Bo", 0.1), accepted=True, alternatives=(alternative("Cy", 0.4),)
    )
    found = Decider(OneTitle(), 0.5, 3, decisions).consistent([chosen], [relation_named("father")])  # type: ignore[arg-type]
    assert found == [chosen]


def values_of(claim: Claim) -> set[str]:
    return {claim.value} | {other.value for other in claim.alternatives}


def test_no_alternative_is_likelier_whatever_is_found() -> None:
    source = random.Random(7)
    names = ("father", "spouse", "mother", "date of birth", "date of death")
    for _ in range(300):
        relations = [relation_named(name) for name in source.sample(names, 4)]
        decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
        claims: list[Claim] = []
        for relation in relations:
            texts = source.sample(
                ("Ann Lee", "Bo Kim", "1843", "2 May 1843", "1990", "24 May", "Cy Orr"), 5
            )
            answers = [
                answer(text, round(source.random(), 3), 40 * place)
                for place, text in enumerate(texts)
            ]
            claims += decider.claims(Slot("Eve", relation), [answers])
        found = decider.consistent(claims, relations)
        assert [one.relation for one in found] == [one.relation for one in claims]
        for before, one in zip(claims, found, strict=True):
            assert all(
                (other.probability or 0) <= (one.probability or 0) for other in one.alternatives
            )
            assert not one.accepted or one.value == before.value
            assert values_of(one) == values_of(before)
            assert one.parts[1] == one.value


def test_subjects_do_not_exclude_each_other() -> None:
    rows = [claim("Eve", "father", "Ann Lee", 0.6), claim("Ada", "spouse", "Ann Lee", 0.9)]
    assert consistent(rows) == rows


def test_every_name_in_a_rule_is_a_known_relation() -> None:
    known = {relation.name for relation in known_relations()}
    named = {name for names in (*RIVALS, *IN_TIME, IN_ONE_PLACE) for name in names}
    assert named - known == set()
    assert len(named) > 15


@pytest.mark.parametrize(
    ("dates", "values"),
    [
        ([("1867", 0.9, 0), ("7 November 1867", 0.5, 40)], [("7 November 1867", 0.9)]),
        ([("7 November 1867", 0.9, 0), ("1867", 0.5, 40)], [("7 November 1867", 0.9)]),
        (
            [("1867", 0.9, 0), ("7 November 1867", 0.2, 40)],
            [("1867", 0.9)],
        ),  # hardly of the same event
        ([("1867", 0.9, 0), ("7 November 1868", 0.8, 40)], [("1867", 0.9)]),
        ([("the 1860s", 0.9, 0), ("1867", 0.5, 40), ("May 1867", 0.4, 80)], [("May 1867", 0.9)]),
        ([("May 1867", 0.9, 0), ("1867", 0.6, 40), ("7 May 1867", 0.5, 80)], [("7 May 1867", 0.9)]),
        (  # the exact one keeps the higher place
            [("7 May 1867", 0.6, 0), ("4 July 1934", 0.3, 40), ("1867", 0.2, 80)],
            [("7 May 1867", 0.6)],
        ),
    ],
)
def test_the_more_exact_date_of_a_page_wins(
    dates: list[tuple[str, float, int]], values: list[tuple[str, float]]
) -> None:
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    found = [answer(*one) for one in dates]
    claims = decider.claims(Slot("s", Relation("r", ("r",), type="date")), [found])
    assert [(claim.value, claim.probability) for claim in claims] == values
    apart = [replace(one, page_id=f"P{number}") for number, one in enumerate(found)]
    claims = decider.claims(Slot("s", Relation("r", ("r",), type="date")), [apart])
    assert claims[0].value == dates[0][0]


def test_an_exact_date_takes_no_place_of_a_span_or_of_what_people_accepted() -> None:
    relation = Relation("r", ("r",), type="date")
    slot = Slot("s", relation)
    for vague, exact in (("1921–24", "1923"), ("late 1940s", "1941")):
        found = [answer(vague, 0.9), answer(exact, 0.5)]
        claims = Decider(OneTitle(), 0.5, 3, {}).claims(slot, [found])  # type: ignore[arg-type]
        assert [claim.value for claim in claims] == [vague]
    found = [answer("1867", 0.9), answer("7 May 1867", 0.5)]
    for decision in (
        Decision("s", "r", "7 May 1867", "reject"),
        Decision("s", "r", "1867", "accept"),
    ):
        decisions = {slot.cell: {normalised(decision.value): decision}}
        claims = Decider(OneTitle(), 0.5, 3, decisions).claims(slot, [found])  # type: ignore[arg-type]
        assert [claim.value for claim in claims] == ["1867"]


def test_a_part_of_a_value_is_no_second_value() -> None:
    whole = replace(answer("veterinary nurse", 0.9), context="a veterinary nurse", start=2, end=18)
    part = replace(answer("veterinary", 0.7), context="a veterinary nurse", start=2, end=12)
    assert [value for value, *_ in decided([whole, part], values="many")] == ["veterinary nurse"]


@pytest.mark.parametrize(
    ("text", "property", "is_accepted"),
    [
        ("It lasted between |1788| and 1795.", "P580", True),
        ("It lasted between 1788 and |1795|.", "P582", True),
        ("It lasted between 26 May and |4 June 1940|.", "P582", True),
        ("It was |between 26 May and 4 June 1940|.", "P585", True),
        ("It was built in the |late 1950s|.", "P571", True),
        ("It was built |between 1921 and 1924|.", "P571", True),
        ("It existed until |1795|.", "P576", True),
        ("It existed until |1795|.", "P580", False),
    ],
)
def test_the_bounds_of_a_span_are_its_start_and_its_end(
    text: str, property: str, is_accepted: bool
) -> None:
    before, value, behind = text.split("|")
    at = len(before), len(before + value)
    said = replace(answer(value, 0.9), context=before + value + behind, start=at[0], end=at[1])
    assert decided([said], type="date", property=property) == [(value, is_accepted, ())]


def test_of_random_dates_the_first_or_a_more_exact_one_of_it_wins() -> None:
    texts = ("the 1860s", "1867", "May 1867", "7 May 1867", "1934", "July 1934", "4 July 1934")
    relation = Relation("r", ("r",), type="date")
    decider = Decider(OneTitle(), 0.0, 9, {})  # type: ignore[arg-type]
    source = random.Random(3)
    for _ in range(500):
        chances = sorted((round(source.random(), 3) for _ in range(4)), reverse=True)
        drawn = list(zip(source.sample(texts, 4), chances, strict=True))
        found = [answer(text, chance, 40 * n) for n, (text, chance) in enumerate(drawn)]
        (claim,) = decider.claims(Slot("s", relation), [found])
        first, chance = drawn[0]
        assert ("86" in claim.value) == ("86" in first)
        assert texts.index(claim.value) >= texts.index(first)
        assert claim.probability == chance
        values = [claim.value, *(one.value for one in claim.alternatives)]
        assert len(values) == len(set(values)) <= 4


def said(text: str, phrase: str, page_id: str = "P7") -> Answer:
    """An answer in a text of its own."""
    start = text.index(phrase)
    end = start + len(phrase)
    return replace(
        answer(phrase, 0.9), start=start, end=end, context=text, unit=(start, end), page_id=page_id
    )


@pytest.mark.parametrize(
    ("relation", "text", "value", "normal"),
    [
        ("population", "1,200| year-round residents", "1,200", ("1200", "")),
        ("population", "5,000| in (2010)", "5,000", ("5000", "")),
        ("population", "5,000| in “the town”", "5,000", ("5000", "")),
        ("population", "300| K inhabitants", "300", None),
        ("population", "12| per km²", "12", None),
        ("population", "12| %", "12", None),
        ("students count", "450| day pupils", "450", ("450", "")),
        ("students count", "120| second-year students", "120", ("120", "")),
        ("number of deaths", "45| in.", "45", ("45", "")),
        ("number of deaths", "30| foot soldiers", "30", ("30", "")),
        ("number of seasons", "three| years", "three", None),
        ("number of pages", "320 pages|", "320 pages", ("320", "pages")),
        ("total revenue", "3.4 billion| in (fiscal) 2012", "3.4 billion", ("3400000000", "")),
        ("total revenue", "2.5| million pounds", "2.5 million pounds", ("2500000", "pounds")),
        ("height", "30| foot", "30 foot", ("30", "foot")),
        ("height", "12| in long", "12 in", ("12", "in")),
        ("height", "30| storeys", "30", ("30", "")),
        ("length", "90| minutes", "90 minutes", ("90", "minutes")),
        ("length", "412| tons", "412", None),
        ("length", "a |90| minute-long film", "90 minute", ("90", "minute")),
        ("mass", "3| stone", "3 stone", ("3", "stone")),
        ("mass", "200| pounds", "200 pounds", ("200", "pounds")),
        ("area", "12 km| of road", "12 km", None),
    ],
)
def test_a_unit_measures_what_the_relation_asks_for(
    relation: str, text: str, value: str, normal: tuple[str, str] | None
) -> None:
    *_, phrase, _ = ("", *text.split("|"))
    slot = Slot("s", relation_named(relation))
    found = said(f"It has {text.replace('|', '')} and so on.", phrase)
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    (claim,) = decider.claims(slot, [[found]])
    assert (claim.value, claim.accepted) == (value, normal is not None)
    quantity = claim.normal
    assert normal == (
        (quantity.number, quantity.unit) if isinstance(quantity, QuantityValue) else None
    )


def test_measures_are_of_quantities_alone() -> None:
    relation = replace(relation_named("length"), type="date")  # as a client may ask
    found = said("It was opened on 7–8 May 1945, with 90 m.", "8 May 1945")
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    (claim,) = decider.claims(Slot("s", relation), [[found]])
    assert claim.value == "7–8 May 1945"


def test_a_day_has_its_year_from_the_sentence_before() -> None:
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    text = "Ann Lee wrote. In 1867 she moved to Bonn. On 7 November she married. She died old."
    slot = Slot("s", Relation("r", ("r",), type="date"))
    (claim,) = decider.claims(slot, [[said(text, "7 November")]])
    assert (claim.value, claim.normal, claim.accepted) == (
        "7 November",
        DateValue("1867-11-07", 11),
        True,
    )
    assert claim.sentence == "In 1867 she moved to Bonn. On 7 November she married."
    forms: tuple[Dates, ...] = ("text", "iso", "edtf")
    assert [written(claim, form) for form in forms] == [
        "7 November 1867",
        "1867-11-07",
        "1867-11-07",
    ]
    other = said(text.replace("1867", "1868"), "7 November", "P8")
    (claim,) = decider.claims(slot, [[said(text, "7 November"), other]])
    (alternative,) = claim.alternatives  # the same words are the day of another year
    assert alternative.sentence == "In 1868 she moved to Bonn. On 7 November she married."
    assert views(claim, slot.relation, {})[1]["normal"]["edtf"] == "1868-11-07"


def test_no_value_of_a_name_that_two_pages_have_is_sure() -> None:
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    slot, found = (
        Slot("Twice", Relation("r", ("r",))),
        [answer("Paris", 0.8), answer("Rome", 0.7, 40)],
    )
    assert [
        (one.value, one.probability, one.accepted) for one in decider.claims(slot, [found])
    ] == [("Paris", 0.4, False)]
    other = [found[0], replace(found[1], page_id="P8")]
    assert [one.value for one in decider.claims(slot, [other], "P8")] == ["Rome"]
    assert decider.claims(slot, [found], "P8") == []


def test_names_and_adjectives_of_one_country_are_one_value() -> None:
    decider = Decider(OneTitle(), 0.5, 3, {})  # type: ignore[arg-type]
    found = [answer("American", 0.8), answer("United States", 0.7, 40), answer("USA", 0.6, 80)]
    for name, values in (
        ("citizenship", ["American"]),
        ("native language", ["American", "United States"]),
    ):
        claims = decider.claims(Slot("s", Relation(name, (name,), values="many")), [found])
        assert [claim.value for claim in claims] == values
