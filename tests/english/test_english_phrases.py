"""Coordination: a phrase in a list becomes all of its items, and nothing else does."""

import pytest

from kbq.english.phrases import Things, conjuncts

NAMES = [
    ("It is in Bosnia and Herzegovina.", "Bosnia", "places", "Bosnia and Herzegovina"),
    (
        "It is in Bosnia & Herzegovina and Croatia.",
        "Croatia",
        "places",
        "Bosnia & Herzegovina|Croatia",
    ),
    (
        "It borders St. Kitts and Nevis, Cuba and Haiti.",
        "Cuba",
        "places",
        "St. Kitts and Nevis|Cuba|Haiti",
    ),
    ("It is in Austria and Hungary.", "Austria", "places", "Austria|Hungary"),
    ("It is in Passau and Linz.", "Linz", "places", "Passau|Linz"),
    ("Its genre is rock and roll.", "rock", "others", "rock and roll"),
    ("It plays rock 'n' roll and blues.", "blues", "others", "rock 'n' roll|blues"),
    (
        "It plays rhythm and blues, drum & bass and jazz.",
        "jazz",
        "others",
        "rhythm and blues|drum & bass|jazz",
    ),
    ("made by Procter and Gamble.", "Procter", "others", "Procter"),
    ("made by Procter and Gamble.", "Procter and Gamble", "others", "Procter and Gamble"),
    ("made by Vane & Lorimer.", "Vane & Lorimer", "others", "Vane & Lorimer"),
    ("made by Vane Works & Lorimer Works.", "Vane Works", "others", "Vane Works"),
    ("made by Orr Company and Vane Company.", "Orr Company", "others", "Orr Company|Vane Company"),
    (
        "the Food and Drug Administration",
        "Food and Drug Administration",
        "others",
        "Food and Drug Administration",
    ),
    (
        "the National Aeronautics and Space Administration",
        "National Aeronautics",
        "others",
        "National Aeronautics",
    ),
    ("sung by Simon and Garfunkel.", "Simon and Garfunkel", "persons", "Simon and Garfunkel"),
    ("sung by Crosby, Stills & Nash.", "Crosby, Stills & Nash", "persons", "Crosby, Stills & Nash"),
    ("sung by Ann Lee & Bo Ray.", "Bo Ray", "persons", "Ann Lee|Bo Ray"),
    ("by Joel and Ethan Coen.", "Ethan Coen", "persons", "Joel and Ethan Coen"),
    ("by Joel and Ethan Coen.", "Joel", "persons", "Joel and Ethan Coen"),
    ("by Joel & Ethan Coen.", "Joel", "persons", "Joel"),
    ("had two children, Ann and Bo.", "Ann", "kin", "Ann|Bo"),
    ("owned by Sony, Philips and Nokia.", "Sony", "others", "Sony|Philips|Nokia"),
    ("owned by Sony and Apple.", "Sony", "others", "Sony|Apple"),
]


@pytest.mark.parametrize(("text", "phrase", "things", "items"), NAMES)
def test_a_name_with_and_is_no_list(text: str, phrase: str, things: Things, items: str) -> None:
    start = text.index(phrase)
    found = conjuncts(text, start, start + len(phrase), things, {"Sony", "Apple"}.__contains__)
    assert "|".join(text[slice(*place)] for place in found) == items


@pytest.mark.parametrize(
    ("text", "phrase", "items"),
    [
        (
            "She was an actress, inventor and film producer.",
            "inventor",
            "actress|inventor|film producer",
        ),
        (
            "She was an actress, inventor and film producer.",
            "film producer",
            "actress|inventor|film producer",
        ),
        (
            "She was an actress, an inventor, and a film producer.",
            "actress",
            "actress|inventor|film producer",
        ),
        ("Ann Lee, Bo Kim and Cy J. Oz are their children.", "Bo Kim", "Ann Lee|Bo Kim|Cy J. Oz"),
        (
            "Ann Lee, Bo Kim and Cy J. Oz are their children.",
            "Ann Lee, Bo Kim and Cy J. Oz",
            "Ann Lee|Bo Kim|Cy J. Oz",
        ),
        ("It flows through Germany, Austria and Hungary.", "Hungary", "Germany|Austria|Hungary"),
        ("It was written by Ann Lee and Bo Kim in 1990.", "Bo Kim", "Ann Lee|Bo Kim"),
        ("a physicist and chemist who conducted research", "chemist", "physicist|chemist"),
        ("He married Ann Lee and moved to Bonn.", "Ann Lee", "Ann Lee"),
        ("He was a painter and lived in Rome.", "painter", "painter"),
        ("He was a painter and he wrote.", "painter", "painter"),
        ("She was born in Vienna, Austria, in 1900 and died there.", "Vienna", "Vienna"),
        ("He was a poet. Later and elsewhere he taught.", "poet", "poet"),
        ("poet", "poet", "poet"),
    ],
)
def test_items_of_a_list(text: str, phrase: str, items: str) -> None:
    start = text.index(phrase)
    assert (
        "|".join(text[slice(*place)] for place in conjuncts(text, start, start + len(phrase)))
        == items
    )
