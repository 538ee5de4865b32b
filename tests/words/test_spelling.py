"""Spelling: every single edit is undone, common words are preferred, and suggestions are words of the corpus."""

import math
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.corpus.pages import Page, Paragraph
from kbq.encoding.model import Model
from kbq.kb import KnowledgeBase
from kbq.words.spelling import LETTERS, MOST, accented, bare, edits

WORDS = st.text(string.ascii_lowercase, min_size=5, max_size=8)


@given(WORDS, WORDS)
def test_a_slip_can_be_undone_by_a_slip(word: str, other: str) -> None:
    assert (other in edits(word)) == (word in edits(other))
    assert all(abs(len(one) - len(word)) <= 1 for one in edits(word))


def all_edits(word: str) -> set[str]:
    """By definition: what differs in one place, lacks a letter or has one more, or has two neighbours swapped."""
    places = range(len(word))
    replaced = {word[:i] + letter + word[i + 1 :] for i in places for letter in string.ascii_lowercase}
    shorter = {word[:i] + word[i + 1 :] for i in places}
    longer = {word[:i] + letter + word[i:] for i in range(len(word) + 1) for letter in string.ascii_lowercase}
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-1]}
    return (replaced | shorter | longer | swapped) - {word}


@given(WORDS)
def test_edits_are_all_of_them(word: str) -> None:
    assert edits(word) == all_edits(word)


@given(st.text("aelnzéłñź", min_size=4, max_size=4))
def test_other_accents_are_all_of_them(word: str) -> None:
    found = accented(word)
    assert len(set(found)) == len(found)
    assert word not in found
    assert {"".join(map(bare, one)) for one in found} == {"".join(map(bare, word))}
    every = math.prod(len(LETTERS[bare(letter)]) for letter in word) - 1
    assert len(found) == min(every, MOST)


def test_few_changes_come_first() -> None:
    changes = [sum(map(str.__ne__, one, "dvorak")) for one in accented("Dvorak")]
    assert changes == sorted(changes)
    assert "dvořák" in accented("Dvorak")
    assert len(accented("internationalisation")) == MOST


@pytest.fixture(scope="module")
def kb(model: Model, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    texts = {"Marie Curie": "She was born in that place.", "Places": "A plate and a place.", "Łódź": "Die Straßen."}
    pages = [Page(title, title, (Paragraph(0, text),)) for title, text in texts.items()]
    folder = tmp_path_factory.mktemp("spelling") / "kb"
    KnowledgeBase.build(pages[:1], folder, model)
    return KnowledgeBase.build(pages[1:], folder, model, append=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Marie Curie [SEP] plase of birth", {"plase": "place"}),  # a plate is as near, and rarer
        ("Curei [SEP] born", {"Curei": "Curie"}),  # as the title writes it
        ("Marei Curie [SEP] bron", {"Marei": "Marie", "bron": "born"}),
        ("Łódżź [SEP] born", {"Łódżź": "Łódź"}),
        ("Łodź [SEP] born", {"Łodź": "Łódź"}),
        ("Lodz [SEP] born", {"Lodz": "Łódź"}),
        ("Cúrie [SEP] born", {"Cúrie": "Curie"}),
        ("Straße [SEP] born", {"Straße": "Straßen"}),
        ("Qqzx [SEP] born", {"Qqzx": None}),
        ("Kur [SEP] born", {"Kur": None}),  # too short to tell
        ("Marie Curie [SEP] rivver", {"rivver": "river"}),  # no page has it, the encoder does
    ],
)
def test_what_may_have_been_meant(text: str, meant: dict[str, str | None], kb: KnowledgeBase) -> None:
    assert kb.unknown_words(text) == meant


def test_where_there_are_no_words_nothing_is_said(pages: list[Page], model: Model, tmp_path: Path) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, bm25=False)
    assert kb.unknown_words("Curei [SEP] bron") == {}
