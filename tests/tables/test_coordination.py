"""Coordination: a phrase in a list becomes all of its items, and nothing else does."""

import pytest

from kbq.tables.phrases import conjuncts


@pytest.mark.parametrize(
    ("text", "phrase", "items"),
    [
        ("She was an actress, inventor and film producer.", "inventor", "actress|inventor|film producer"),
        ("She was an actress, inventor and film producer.", "film producer", "actress|inventor|film producer"),
        ("She was an actress, an inventor, and a film producer.", "actress", "actress|inventor|film producer"),
        ("Ann Lee, Bo Kim and Cy J. Oz are their children.", "Bo Kim", "Ann Lee|Bo Kim|Cy J. Oz"),
        ("Ann Lee, Bo Kim and Cy J. Oz are their children.", "Ann Lee, Bo Kim and Cy J. Oz", "Ann Lee|Bo Kim|Cy J. Oz"),
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
    assert "|".join(text[slice(*place)] for place in conjuncts(text, start, start + len(phrase))) == items
