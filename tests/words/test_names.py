"""Names: the pages that a reading of the whole corpus finds, without one."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kbq.corpus.pages import Page, Paragraph
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.text.normal_forms import folded
from kbq.text.queries import Query
from kbq.words import names
from kbq.words.names import NOWHERE, Naming, PageNaming, SubjectName

SUBJECTS = (
    "Ann Lee", "ann lee", "Lee", "Łódź", "Lodz City", "St. Ann's", "C++ Lee", "Lee (river)",
    "river", "U.S.", "Анна Ли",
)  # fmt: skip
PIECES = (
    "U.S.", "Анна", "Ли", "Анна Ли",
    "Ann", "Lee", "Ann Lee", "Lódz", "Łódź", "city", "St. Ann's", "St. Ann’s", "C++ Lee", "river",
    "AT&T", "Leeds",
)  # fmt: skip


def page(number: int, title: str, *texts: str) -> Page:
    return Page(
        str(number), title, tuple(Paragraph(place, text) for place, text in enumerate(texts))
    )


def built(pages: Sequence[Page], folder: Path, model: Model) -> KnowledgeBase:
    """A knowledge base with a shard for every two pages."""
    for first in range(0, len(pages), 2):
        kb = KnowledgeBase.build(pages[first : first + 2], folder, model, append=first > 0)
    return kb


def of(kb: KnowledgeBase, subject: str) -> Naming:
    return kb.searcher.words.naming(Query.of(f"{subject} [SEP] length"))


def without_brackets(text: str) -> str:
    return re.sub(r"\s*\([^()]*\)$", "", text)


def read_through(pages: Sequence[Page], subject: str) -> dict[str, PageNaming]:
    """The oracle: every text is folded and read, word by word."""
    bare = without_brackets(subject)
    wanted = re.compile(rf"(?<!\w){re.escape(folded(bare))}(?!\w)")
    found = {}
    for one in pages:
        titles = folded(one.title), folded(without_brackets(one.title))
        is_title = not {folded(bare), folded(subject)}.isdisjoint(titles)
        places, begin = [], 0
        for paragraph in one.paragraphs:
            places += [begin + match.start() for match in wanted.finditer(folded(paragraph.text))]
            begin += len(paragraph.text.encode())
        if places or is_title:
            found[one.page_id] = PageNaming(len(places), 0 if is_title else places[0])
    return found


def test_the_pages_are_those_that_a_reading_of_all_finds(model: Model, tmp_path: Path) -> None:
    source = random.Random(7)
    pages = []
    for number in range(12):
        texts = [
            " ".join(source.choices(PIECES, k=source.randint(1, 6)))
            for _ in range(source.randint(1, 3))
        ]
        pages.append(page(number, source.choice((*SUBJECTS, "Other")), *texts))
    kb = built(pages, tmp_path / "kb", model)
    for subject in SUBJECTS:
        assert of(kb, subject).pages == read_through(pages, subject), subject


@pytest.fixture(scope="module")
def kb(model: Model, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    pages = [
        page(1, "Minutes", "The river.", "Ann Lee spoke. Ann Lee left."),
        page(2, "Letter", "Lee and Ann met."),
        page(3, "Ann Lee", "She was born in Paris.", "A long city."),
        page(4, "Bodies", "The World Health Organization (WHO) met. Who spoke?"),
    ]
    return built(pages, tmp_path_factory.mktemp("names") / "kb", model)


def test_a_page_says_how_often_and_where_it_names_a_subject(kb: KnowledgeBase) -> None:
    naming = of(kb, "Ann Lee")
    assert naming.pages == {"1": PageNaming(2, len("The river.")), "3": PageNaming(0, 0)}
    first, second = (naming.of_shards[name] for name in ("shard-00000", "shard-00001"))
    assert (first.paragraphs.tolist(), second.paragraphs.tolist()) == ([0, 1], [0, 1])
    share = 1 / (1 + 2 / names.SELDOM)
    minutes = share * (names.NAMED + np.log1p(2) - np.log1p(0.1))
    assert first.points == pytest.approx([minutes, minutes])  # the paragraph without the name, too
    assert second.points == pytest.approx([share * names.NAMED] * 2)


def test_an_acronym_in_brackets_behind_a_name_is_known(kb: KnowledgeBase) -> None:
    assert of(kb, "World Health Organization").pages == {"4": PageNaming(1, 4, "WHO")}


@pytest.mark.parametrize(
    "subject",
    ["", "?", "X", "of the", "AT&T", "居里夫人", "(.*)+", "Ann Leeds", "a" * 300, "\x00", "Lee ("],
)
def test_a_name_that_cannot_be_looked_up_is_nowhere(kb: KnowledgeBase, subject: str) -> None:
    assert of(kb, subject) == Naming({}, {})
    assert [
        mention.start
        for mention in SubjectName(subject).mentions("What? X is of the (.*)+ Ann Lees")
    ] == []


def test_signs_of_regular_expressions_are_letters_of_a_name() -> None:
    assert [
        mention.start
        for mention in SubjectName("C++ (.*) Lee").mentions("c++ (.*) lee, C+++ (.*) Lee")
    ] == [0]


LONGER_OR_SHORTER = [
    "Œ", "ß", "ﬃ", "&amp;", "e\u0301", "Łódź", "J. R. ", "A.C. ", "½", "\u00ad", " ", "a", ". ",
    "\n",
]  # fmt: skip


@pytest.mark.parametrize("subject", ["Zoe", "J. Q. Zoe"])
def test_a_name_is_where_it_stands_in_the_text_itself(subject: str) -> None:
    """The places of a name among letters that folding makes longer or shorter, against all that can
    be seen.
    """
    moved = 0
    for seed in range(300):
        letters = random.Random(seed)
        parts = [
            "".join(letters.choices(LONGER_OR_SHORTER, k=letters.randrange(12))) for _ in range(3)
        ]
        text = f" {subject} ".join(parts)
        name = SubjectName(subject)
        whole = [found.start() for found in re.finditer(re.escape(subject), text)]
        assert name.places(text) == whole
        moved += [mention.start for mention in name.mentions(text)] != whole
    assert moved > 150


def test_a_question_and_a_mention_name_nobody(kb: KnowledgeBase) -> None:
    asked = "where was Ann Lee born?", "by [START_ENT] Ann Lee [END_ENT]"
    assert [kb.searcher.words.naming(Query.of(text)) for text in asked] == [NOWHERE, NOWHERE]


def test_of_many_paragraphs_the_best_are_read_and_the_others_count(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MOST_READ", 3)
    pages = [page(number, "Page", "Ann Lee " * (number + 1), "Ann Lee") for number in range(4)]
    naming = of(built(pages, tmp_path / "kb", model), "Ann Lee")
    assert sum(found.mentions for found in naming.pages.values()) == 4 + 3 + 2
    (points, *_) = naming.of_shards["shard-00000"].points.tolist()
    assert points == pytest.approx(naming.pages["1"].points / (1 + (3 + 5) / names.SELDOM))


def test_a_page_that_names_the_subject_comes_first(kb: KnowledgeBase) -> None:
    """Of two pages with the same words, the one that has the name gains what it is worth."""
    texts = ["Ann Lee [SEP] length"]
    (scores,) = kb.searcher.words.all_scores(list(map(Query.of, texts)), 4.0, 2.0)
    index = kb.searcher.words.bm25[0]
    words = index.scores(["ann", "lee", "length"], [1, 1, 0.25])
    named = of(kb, "Ann Lee").of_shards["shard-00000"]
    expected = words.copy()
    expected[named.paragraphs] += named.points
    assert scores.bonus(0, [0])[0] == pytest.approx(4 * expected, rel=1e-6)
    assert kb.query(texts, k=1, unit="page", backend="hybrid")[0][0].page_id in ("1", "3")
