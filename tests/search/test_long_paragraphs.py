"""Long paragraphs: what is found is what the old rules found, which compared every unit with every
other.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbq.corpus.pages import Page
from kbq.dump.shards import Texts
from kbq.english.sentences import sentence_bounds
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.options import Backend, Unit
from kbq.search.spans import RangesTaken, Sentences

RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 5)).map(lambda one: (one[0], one[0] + one[1]))
)


@given(RANGES)
@settings(max_examples=200)
def test_ranges_are_taken_as_if_each_were_compared_with_all(wanted: list[tuple[int, int]]) -> None:
    taken = RangesTaken()
    units: list[tuple[int, int]] = []
    for (
        begin,
        stop,
    ) in wanted:  # empty ones are among them: some tokenizers make tokens of no character
        obstacles = [first for first, last in units if begin < last and first < stop]
        assert taken.first_within(begin, stop) == min(obstacles, default=None)
        if not obstacles:
            units.append((begin, stop))
            taken.add(begin, stop)


def old_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The old rule, linear in the sentences and in their characters."""
    bounds = sentence_bounds(text)
    first = max((begin for begin, _ in bounds if begin <= start), default=0)
    last = min((stop for _, stop in bounds if stop >= end), default=len(text))
    inside = text[first:last]
    return first + len(inside) - len(inside.lstrip()), last - (len(inside) - len(inside.rstrip()))


@given(st.text(st.sampled_from("Ab \n\t\u3000\x1c.!?。é"), max_size=60), st.data())
@settings(max_examples=300)
def test_sentences_are_those_of_the_old_rule(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert Sentences(text).around(start, end) == old_around(text, start, end)


@pytest.mark.parametrize("unit", ["phrase", "sentence"])
def test_a_search_reads_a_paragraph_once_and_its_answers_share_it(
    unit: Unit, kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = Texts.__getitem__

    def counted(texts: Texts, index: int) -> str:
        reads.extend([index] * (texts is kb.searcher.shards[0].texts))
        return read(texts, index)

    monkeypatch.setattr(Texts, "__getitem__", counted)
    first, second = kb.query(["the river", "Paris"], 1000, unit)
    assert len(reads) == len(set(reads)) <= 18
    contexts: dict[tuple[str, int], str] = {}
    for answer in (*first, *second):
        assert (
            contexts.setdefault((answer.page_id, answer.paragraph), answer.context)
            is answer.context
        )


@pytest.fixture(scope="module")
def kb_with_words(
    pages: list[Page], model: Model, tmp_path_factory: pytest.TempPathFactory
) -> KnowledgeBase:
    return KnowledgeBase.build(pages, tmp_path_factory.mktemp("words") / "kb", model)


@pytest.mark.parametrize(
    ("unit", "backend"),
    [
        ("phrase", "dense"),
        ("sentence", "hybrid"),
        ("paragraph", "hybrid"),
        ("paragraph", "bm25"),
        ("page", "bm25"),
    ],
)
def test_k_is_bounded_by_what_there_is(
    unit: Unit, backend: Backend, kb_with_words: KnowledgeBase
) -> None:
    all_of_them = kb_with_words.query("the river", 10_000, unit, backend)
    assert 0 < len(all_of_them) < 10_000
    assert kb_with_words.query("the river", 10**30, unit, backend) == all_of_them


def test_as_many_explanations_as_there_are(kb_with_words: KnowledgeBase) -> None:
    assert kb_with_words.explain("the river", 10**30) == kb_with_words.explain("the river", 18)
