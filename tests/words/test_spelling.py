"""Spelling: every single edit is undone, common words are preferred, and suggestions are words of the corpus."""

import string
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.corpus.pages import Page, Paragraph
from kbq.dump.arrays import Texts
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search import hybrid
from kbq.words import spelling
from kbq.words.bm25 import stems_of, words_of
from kbq.words.spelling import common_word, edits

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
        ("Łodź [SEP] born", {}),  # accents are no difference
        ("Lodz [SEP] born", {}),
        ("Loedz [SEP] born", {"Loedz": "Łódź"}),
        ("Cúrie [SEP] born", {}),
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


@given(st.lists(st.text("abcdeéılsyİßςΣ_ing1", min_size=1, max_size=7).map(str.lower), max_size=5))
def test_stems_are_those_of_words_in_a_text(words: list[str]) -> None:
    pairs = [(word, stem) for word, stems in zip(words, words_of(words), strict=True) for stem in stems]
    assert list(zip(*stems_of(words), strict=True)) == pairs


def test_thousands_of_variants_cost_a_few_looks_at_the_index(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, stemmed = [0], [0]
    read = Texts.__getitem__

    def counted_read(texts: Texts, index: int) -> str:
        looks[0] += 1
        return read(texts, index)

    def counted_stems(words: Sequence[str]) -> tuple[list[str], list[str]]:
        stemmed[0] += len(words)
        return stems_of(words)

    monkeypatch.setattr(Texts, "__getitem__", counted_read)
    monkeypatch.setattr(spelling, "stems_of", counted_stems)
    assert spelling.written_here("Qurqendel", kb.shards, kb.words.bm25) is None
    assert stemmed[0] == len(edits("Qurqendel"))
    assert looks[0] < 300


def test_a_word_is_looked_up_once_and_few_are_remembered(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(hybrid, "SPELLINGS", 2)
    monkeypatch.setattr(hybrid, "written_here", lambda word, shards, indexes: asked.append(word))
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    for word in ("Qqa", "Qqa", "Qqb", "Qqa", "Qqc", "Qqa", "Qqb"):
        assert kb.unknown_words(f"{word} [SEP] river") == {word: None}
    assert asked == ["Qqa", "Qqb", "Qqc", "Qqb"]  # Qqb was the one asked for longest ago


def test_of_words_as_common_the_first_by_code_points_is_meant() -> None:
    numbers = {"energy": 7, "énergy": 7, "enengy": 9}
    assert common_word("eénergy", lambda words: [numbers.get(word) for word in words]) == "energy"
