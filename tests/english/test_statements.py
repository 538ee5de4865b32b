"""Statements: a value that the text denies, says of somebody else, or in the other direction, is no
answer.
"""

import random

import pytest

from kbq.answers import Answer
from kbq.english.statements import (
    is_denied,
    is_no_thing,
    is_other_direction,
    is_ruled_out,
    is_said_of_another,
)
from kbq.text.queries import Query

DENIALS = ["never played for", "is not a member of", "did not study at", "was not designed by", "is no longer owned by",
           "declined to become", "refused to join", "didn't work for", "has never been married to",
           "failed to win"]  # fmt: skip
STATED = ["played for", "not only played for", "did not rest until he joined", "was not a painter but worked for",
          "never married, but lived with", "had no sons and joined", "is not far from", "never left"]  # fmt: skip
NAMES = ["Ann Lee", "Bo Kim", "Aarhus United", "the Social Party", "Lars Moe"]


def test_denials_are_no_answers_and_all_else_is_one() -> None:
    """A thousand sentences, each of a subject, a form that denies or one that does not, and a
    value.
    """
    draw = random.Random(1)
    for _ in range(1000):
        is_negative = draw.random() < 0.5
        form = draw.choice(DENIALS if is_negative else STATED)
        before = (
            f"{draw.choice(['', 'Eva is a skier. ', 'In 1990, '])}{draw.choice(['Eva', 'She'])} "
            f"{form} "
        )
        assert is_denied(before) == is_negative, before


@pytest.mark.parametrize(
    ("before", "denies"),
    [
        ("She owned it. Nor was the house designed by ", True),
        ("Neither was she a member of ", True),
        ("Never has he lived in ", True),
        ("the author of Never Let Me Go, ", False),
        ("the album Neither Here Nor There by ", False),
    ],
)
def test_a_sentence_may_begin_with_its_denial(before: str, denies: bool) -> None:
    assert is_denied(before) == denies


@pytest.mark.parametrize(
    ("relation", "before", "is_other"),
    [
        ("successor", "Ben Ashby succeeded ", True), ("predecessor", "Ben Ashby succeeded ", False),
        ("predecessor", "He was succeeded by ", True), ("successor", "He was succeeded by ", False),
        ("successor", "Her predecessor was ", True), ("predecessor", "Her successor, ", True),
        ("replaced by", "She took over from ", True), ("replaces", "He was replaced by Bishop ", True),
        ("followed by", "It was preceded by ", True), ("follows", "It preceded ", True),
        ("follows", "It was preceded by ", False), ("employer", "He succeeded ", False),
    ],
)  # fmt: skip
def test_directions(relation: str, before: str, is_other: bool) -> None:
    assert is_other_direction(relation, before) == is_other


@pytest.mark.parametrize(
    ("subject", "relation", "text", "is_other"),
    [
        (
            "Karl Dorn",
            "place of birth",
            "He was the son of Emil Dorn, who was born in |Riga|.",
            True,
        ),
        (
            "Emil Dorn",
            "place of birth",
            "He was the son of Emil Dorn, who was born in |Riga|.",
            False,
        ),
        (
            "Orr Film",
            "award received",
            "It was directed by Ann Lee, who won the |Orr Prize|.",
            True,
        ),
        ("Ann Lee", "occupation", "Her father, a |merchant| from Hull, died.", True),
        ("Ann Lee", "place of birth", "His wife, born in |Bergen|, was a cook.", True),
        ("Ann Lee", "occupation", "His wife Ann was a |cook|.", False),
        ("Ann Lee", "occupation", "He met her mother, the Norwegian |skier| Ann Lee.", False),
        (
            "Ann Lee",
            "place of death",
            "She followed her father to Vienna, where she died in |1900|.",
            False,
        ),
        (
            "Ann Lee",
            "educated at",
            "Her father was a cook, and she attended |Oslo University|.",
            False,
        ),
        ("Liv Dahl", "spouse", "Pia Holm was the first wife of |Sven Dahl|.", True),
        (
            "Liv Dahl",
            "spouse",
            "Pia Holm was the wife of |Sven Dahl|, with whom she had a daughter, Liv Dahl.",
            True,
        ),
        ("Liv Dahl", "spouse", "|Pia Holm| was the wife of Sven Dahl. Liv was her daughter.", True),
        ("Sven Dahl", "spouse", "|Pia Holm| was the second wife of the painter Sven Dahl.", False),
        ("Ann Lee", "spouse", "Bo Ray was the son of |Emil Ray| and his wife Ann Lee.", False),
        ("Pia Holm", "spouse", "Pia Holm was the first wife of |Sven Dahl|.", False),
        ("Pia Holm", "spouse", "She was the first wife of |Sven Dahl|.", False),
        (
            "Bo Ray",
            "residence",
            "Bo is a racer from the United States, who lives in |Bonn|.",
            False,
        ),
    ],
)
def test_what_is_said_of_somebody_else(
    subject: str, relation: str, text: str, is_other: bool
) -> None:
    before, _, behind = text.split("|")
    assert is_said_of_another(subject, relation, before, behind, relation == "spouse") == is_other
    assert is_ruled_out(Query.of(f"{subject} [SEP] {relation}"), answer_in(text)) == is_other


@pytest.mark.parametrize(
    ("subject", "relation", "text", "is_out"),
    [
        ("Ann Lee", "spouse", "Bo, son of |Emil Ray|, 2nd Earl, by his wife, the former Ann Lee.", False),
        ("Ann Lee", "spouse", "Bo, son of |Emil Ray|, 2nd Earl, and his wife Ida Dahl.", True),
        ("Ann Lee", "sibling", "Bo, son of |Emil Ray|, 2nd Earl, and his wife Ann Lee.", True),
        ("Acme", "founded by", "It was founded by |Emil|'s late father, Bo Ray.", True),
        ("Bo Ray", "child", "Bo Ray, |Emil|'s father, was a clerk.", False),
        ("Una Ray", "spouse", "Una and Bea were daughters of Emil and his wife |Ida|.", True),
        ("Una Ray", "mother", "Una and Bea were daughters of Emil and his wife |Ida|.", False),
        ("Emil Ray", "spouse", "Una and Bea were daughters of Emil and his wife |Ida|.", False),
        ("Una Ray", "child", "|Ida Holm|, whose daughter Una is a nurse, sang.", True),
        ("Una Ray", "mother", "|Ida Holm|, whose daughter Una is a nurse, sang.", False),
        ("Bo Ray", "child", "|Emil|'s son-in-law, Bo Ray, came.", True),
        ("Bo Ray", "spouse", "|Ida Holm|, was a cousin of Bo Ray.", True),
        ("Bo Ray", "spouse", "|Ida Holm| was the wife of Bo Ray.", False),
        ("Bo Ray", "child", "|Emil Ray| was the father of Bo Ray.", True),
        ("Una Ray", "child", "Ida married |Emil|. Their daughter Una sang.", True),
        ("Una Ray", "father", "Ida married |Emil|. Their daughter Una sang.", False),
        ("Bo Ray", "employer", "He never married and worked for |Acme|.", False),
        ("Acme", "founded by", "It was not founded and owned by |Emil Ray|.", True),
        ("Acme", "founded by", "It was founded by Bo and not, as is often said, by |Emil|.", True),
    ],
)  # fmt: skip
def test_words_of_kinship_around_a_value(
    subject: str, relation: str, text: str, is_out: bool
) -> None:
    assert is_ruled_out(Query.of(f"{subject} [SEP] {relation}"), answer_in(text)) == is_out


def answer_in(text: str) -> Answer:
    """The answer between bars."""
    before, value, behind = text.split("|")
    context = before + value + behind
    return Answer(value, 0.0, "1", "T", 0, len(before), len(before + value), context, (0, 1))


@pytest.mark.parametrize(
    ("title", "text", "is_none"),
    [
        ("Mercury", "Mercury may refer to: Mercury (planet); Mercury (element).", True),
        ("Orr (disambiguation)", "Orr is a name.", True),
        ("Orr", "Orr can also refer to several places.", True),
        ("Orr", "Orr is the name of several rivers.", True),
        ("Lake Superb", "#REDIRECT [[Lake Sorn]]", True),
        ("Lake Superb", "Redirect to: Lake Sorn", True),
        ("Lake Sorn", "Lake Sorn is a lake. Its name may refer to a swan.", False),
        ("Redirection", "Redirection of a river is hard.", False),
        ("Orr", "", False),
    ],
)
def test_pages_of_no_thing(title: str, text: str, is_none: bool) -> None:
    assert is_no_thing(title, text) == is_none
