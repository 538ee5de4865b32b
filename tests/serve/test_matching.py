"""Matching: names find pages by their titles."""

import math
import random
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.corpus.pages import Page
from kbq.dump.page_directory import Pages
from kbq.dump.shards import Shard
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.serve.titles import MISTYPED, SIMILAR, TitleWords, edits

TITLES = [
    "Marie Curie", "Pierre Curie", "Emma", "EMMA", "War and Peace", "Łódź", "1984", "Peace", "!!!", "Marie Curie", "C#",
    "A*",
]  # fmt: skip


@pytest.fixture(scope="session")
def shards_of(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Shard]]:
    """The shards of a knowledge base of empty pages with these titles: P0, P1, …."""

    def make(titles: Sequence[str], deleted: Sequence[str] = ()) -> list[Shard]:
        pages = [Page(f"P{number}", title, ["The river."]) for number, title in enumerate(titles)]
        folder: Path = tmp_path_factory.mktemp("kbs") / "titles"
        half = len(pages) // 2
        KnowledgeBase.build(pages[:half], folder, model, bm25=False)
        kb = KnowledgeBase.build(pages[half:], folder, model, append=True)
        return list((kb.delete(deleted) if deleted else kb).searcher.shards)

    return make


@pytest.fixture(scope="session")
def words(shards_of: Callable[..., list[Shard]]) -> TitleWords:
    return words_in(shards_of(TITLES))


def words_in(shards: Sequence[Shard]) -> TitleWords:
    return TitleWords(shards, Pages(shards))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Emma", [("P2", 1.0), ("P3", 0.99)]),
        ("emma", [("P2", 0.99), ("P3", 0.99)]),
        ("Marie  CURIE", [("P0", 0.99), ("P9", 0.99)]),
        ("Curie, Marie", [("P0", 0.95), ("P9", 0.95)]),
        ("peace & war and", [("P4", 0.95)]),
        ("lodz", [("P5", 0.99)]),
        ("P6", [("P6", 1.0)]),
        ("1985", []),
        ("!!!", [("P8", 1.0)]),
        ("c#", [("P10", 0.99)]),
        ("", []),
        (" , ", []),
        ("xyzzy", []),
        ("\x00\ud800", []),
        ("Emma" * 2000, []),
        (" ".join(["word"] * 900), []),
    ],
)
def test_a_name_finds_the_pages_that_have_it(
    name: str, found: list[tuple[str, float]], words: TitleWords
) -> None:
    assert [
        (page.page_id, page.likeness) for page in words.pages(name, 5) if page.has_name
    ] == found


def test_a_deleted_page_is_not_found(shards_of: Callable[..., list[Shard]]) -> None:
    words = words_in(shards_of(["Emma", "Emma", "Peace"], deleted=["P0", "P2"]))
    assert [page.page_id for page in words.pages("Emma", 5)] == ["P1"]
    assert words.pages("Peace", 5) == words.pages("P2", 5) == []


def test_no_titles_no_pages(shards_of: Callable[..., list[Shard]]) -> None:
    assert words_in(shards_of(["Emma", "Emma"], deleted=["P0", "P1"])).pages("Emma", 5) == []


def plain_likeness(name: str, title: str, weight: Mapping[str, float], unseen: float) -> float:
    """The same in plain words: `weight` is that of each word of a title, `unseen` that of a word of
    none.
    """
    theirs, shared, total = set(title.split()), 0.0, 0.0
    for word in set(name.split()):
        factor, forms = (1.0, {word}) if word in weight else (MISTYPED, edits(word) & set(weight))
        total += max((factor * weight[form] for form in forms), default=unseen)
        shared += max((factor * weight[form] for form in forms & theirs), default=0.0)
    return min(1.0, 2 * shared / (total + sum(weight[word] for word in theirs)))


def test_likeness_is_that_of_a_plain_computation(shards_of: Callable[..., list[Shard]]) -> None:
    source = random.Random(3)
    vocabulary = [
        "curie", "marie", "maria", "curia", "river", "rivers", "peace", "place", "of", "the",
    ]  # fmt: skip
    titles = [" ".join(source.choices(vocabulary, k=source.randint(1, 4))) for _ in range(60)]
    words = words_in(shards_of(titles))
    counts = Counter(word for title in titles for word in set(title.split()))
    weight = {
        word: math.log1p((60 - count + 0.5) / (count + 0.5)) for word, count in counts.items()
    }
    for _ in range(100):
        name = " ".join(
            source.choices([*vocabulary, "marje", "rivver", "unseen"], k=source.randint(1, 4))
        )
        found = words.pages(name, len(titles))
        assert [page.likeness for page in found] == sorted(
            (page.likeness for page in found), reverse=True
        )
        likeness = {page.page_id: page.likeness for page in found if not page.has_name}
        for number, title in enumerate(titles):
            if sorted(title.split()) != sorted(name.split()):
                wanted = SIMILAR * plain_likeness(name, title, weight, math.log1p(60.5 / 0.5))
                assert likeness.get(f"P{number}", 0.0) == pytest.approx(wanted, abs=1e-4)


def test_what_signs_tell_apart_is_a_candidate_and_no_match(words: TitleWords) -> None:
    for name, page_id in (("C", "P10"), ("A", "P11"), ("a", "P11")):
        (found,) = [one for one in words.pages(name, 5) if one.page_id == page_id]
        assert not found.has_name


def test_an_id_that_is_a_plain_number_is_a_candidate_and_no_match(
    model: Model, tmp_path: Path
) -> None:
    pages = [Page("300", "Abacus", ["x"]), Page("1984", "Bread", ["x"]), Page("7", "300", ["x"])]
    words = words_in(KnowledgeBase.build(pages, tmp_path / "kb", model, bm25=False).searcher.shards)
    assert [(one.title, one.has_name) for one in words.pages("1984", 5)] == [("Bread", False)]
    assert [(one.title, one.has_name) for one in words.pages("300", 5)] == [
        ("300", True),
        ("Abacus", False),
    ]


WORDS = st.text(string.ascii_lowercase, min_size=5, max_size=8)


def test_a_name_with_initials_finds_the_only_page_that_it_abbreviates(
    shards_of: Callable[..., list[Shard]],
) -> None:
    people = words_in(shards_of(["Lise Meitner", "Marie Jahoda", "Max Jahoda", "Vienna"]))
    assert people.pages("L. Meitner", 2)[0].likeness == 0.92
    assert people.pages("M. Jahoda", 2)[0].likeness < 0.9  # it may be either


@given(WORDS, WORDS)
def test_a_slip_can_be_undone_by_a_slip(word: str, other: str) -> None:
    assert (other in edits(word)) == (word in edits(other))
    assert all(abs(len(one) - len(word)) <= 1 for one in edits(word))


def all_edits(word: str) -> set[str]:
    """By definition: what differs in one place, lacks a letter or has one more, or has two
    neighbours swapped.
    """
    places = range(len(word))
    replaced = {
        word[:i] + letter + word[i + 1 :] for i in places for letter in string.ascii_lowercase
    }
    shorter = {word[:i] + word[i + 1 :] for i in places}
    longer = {
        word[:i] + letter + word[i:]
        for i in range(len(word) + 1)
        for letter in string.ascii_lowercase
    }
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-1]}
    return (replaced | shorter | longer | swapped) - {word}


@given(WORDS)
def test_edits_are_all_of_them(word: str) -> None:
    assert edits(word) == all_edits(word)
