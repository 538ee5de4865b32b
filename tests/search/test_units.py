"""Units: k distinct phrases, sentences, paragraphs or pages, each with the best score of its
phrases.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from paragraphs import EncodedParagraph

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.dump import resumable_build
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search import search as search_module
from kbq.search.options import Unit
from kbq.search.search import search
from kbq.search.spans import Sentences, Spans, best_units, paragraph_spans

Place = tuple[str, int, int, int]  # page id, paragraph number, characters [start, end) of the unit
UNITS = get_args(Unit)


def all_spans(kb: KnowledgeBase, start: np.ndarray, end: np.ndarray) -> list[tuple[float, Place]]:
    """Score, page, paragraph and characters of every legal span, best first, in float64."""
    scale = kb.model.scale.astype(np.float64)
    spans = []
    for shard in kb.searcher.shards:
        vectors = shard.vectors.astype(np.float64) * scale
        opens, closes = vectors @ start.astype(np.float64), vectors @ end.astype(np.float64)
        for paragraph in range(len(shard.texts)):
            first = int(shard.paragraph_rows[paragraph - 1]) if paragraph else 0
            page = shard.ids[int(shard.paragraph_pages[paragraph])]
            number = int(shard.paragraph_numbers[paragraph])
            for one in range(first, int(shard.paragraph_rows[paragraph])):
                for other in range(one, int(shard.paragraph_rows[paragraph])):
                    legal = shard.edges[one] & OPENS and shard.edges[other] & CLOSES
                    if legal and int(shard.positions[other]) - int(shard.positions[one]) < 20:
                        place = (page, number, int(shard.starts[one]), int(shard.ends[other]))
                        spans.append((opens[one] + closes[other], place))
    return sorted(spans, key=lambda span: -span[0])


def all_units(
    kb: KnowledgeBase, start: np.ndarray, end: np.ndarray, unit: Unit
) -> list[tuple[float, Place]]:
    """All distinct units, best first: by the definition."""
    texts = {
        (shard.ids[int(place_of_page)], int(number)): shard.texts[place]
        for shard in kb.searcher.shards
        for place, (place_of_page, number) in enumerate(
            zip(shard.paragraph_pages, shard.paragraph_numbers, strict=True)
        )
    }
    units: list[tuple[float, Place]] = []
    for score, (page, number, first, stop) in all_spans(kb, start, end):
        text = texts[page, number]
        if unit == "sentence":
            first, stop = Sentences(text).around(first, stop)
        elif unit != "phrase":
            first, stop = 0, len(text)
        taken = (
            (unit == "page" and page == other[0])
            or ((page, number) == other[:2] and first < other[3] and other[2] < stop)
            for _, other in units
        )
        if not any(taken):
            units.append((score, (page, number, first, stop)))
    return units


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    """Start and end vectors. Shape: (2, queries, dim)."""
    return np.random.default_rng(0).normal(size=(2, 3, 16)).astype(np.float32)


def searched(
    kb: KnowledgeBase, queries: np.ndarray, k: int, unit: Unit = "phrase"
) -> list[list[Answer]]:
    return search(kb.searcher.search_context, kb.model.in_row_units(*queries), k, unit)


@pytest.mark.parametrize("k", [1, 4, 1000])
@pytest.mark.parametrize("unit", UNITS)
def test_k_distinct_units_when_k_exist(
    unit: Unit, k: int, kb: KnowledgeBase, queries: np.ndarray
) -> None:
    found = searched(kb, queries, k, unit)
    for hits, start, end in zip(found, queries[0], queries[1], strict=True):
        expected = all_units(kb, start, end, unit)[:k]
        assert len(hits) == len(expected)
        for hit, (score, place) in zip(hits, expected, strict=True):
            assert hit.score == pytest.approx(score, abs=1e-3)
            assert (hit.page_id, hit.paragraph, *hit.unit) == place
            assert hit.text == hit.context[hit.start : hit.end]
            assert hit.unit[0] <= hit.start < hit.end <= hit.unit[1]


@pytest.mark.parametrize("unit", UNITS)
def test_several_shards_answer_like_one(
    unit: Unit,
    kb: KnowledgeBase,
    pages: list[Page],
    model: Model,
    queries: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumable_build, "BLOCK_CHARACTERS", 2**18)
    kb = KnowledgeBase.build(pages, tmp_path / "one", model)
    parts = tmp_path / "parts"
    for first in range(0, 12, 3):
        many = KnowledgeBase.build(pages[first : first + 3], parts, model, append=first > 0)
    assert (len(kb.searcher.shards), len(many.searcher.shards)) == (1, 4)
    for one, other in zip(
        searched(kb, queries, 7, unit), searched(many, queries, 7, unit), strict=True
    ):
        assert [hit.page_id for hit in one] == [hit.page_id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=0.05)


def spans(*items: tuple[float, int, int], complete_above: float = -np.inf) -> Spans:
    scores, starts, ends = zip(*items, strict=True)
    rows, nothing_shorter = np.arange(7), np.full((7, 2), -100, np.float32)
    columns = np.array(scores, np.float32), np.array(starts), np.array(ends)
    return Spans(*columns, complete_above, rows, nothing_shorter, np.zeros(7, np.float32))


@pytest.fixture
def shard(encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]) -> Shard:
    """Page 0: `w0 w1 w2` twice (rows 0-2, 3-5); page 1: `w0` (row 6)."""
    three = [[1, 0], [0, 1], [1, 1]]
    return make_shard([encoded(three), encoded(three, number=4)], [encoded([[1, 1]])])


FOUND = ((9.0, 0, 1), (8.0, 1, 2), (7.0, 2, 2), (6.0, 3, 4), (5.0, 6, 6), (4.0, 0, 0))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("phrase", [(9.0, "w0 w1", 0), (7.0, "w2", 0), (6.0, "w0 w1", 4), (5.0, "w0", 0)]),
        ("sentence", [(9.0, "w0 w1", 0), (6.0, "w0 w1", 4), (5.0, "w0", 0)]),
        ("paragraph", [(9.0, "w0 w1", 0), (6.0, "w0 w1", 4), (5.0, "w0", 0)]),
        ("page", [(9.0, "w0 w1", 0), (5.0, "w0", 0)]),
    ],
)
def test_units_that_can_be_checked_by_eye(
    unit: Unit, expected: list[tuple[float, str, int]], shard: Shard
) -> None:
    units = best_units([shard], [spans(*FOUND)], unit, k=10)
    assert [(hit.score, hit.text, hit.paragraph) for hit in units.hits] == expected
    assert units.is_complete


@pytest.mark.parametrize(
    ("complete_above", "k", "scores", "is_complete"),
    [
        (8.5, 1, [9.0], True),
        (8.5, 2, [9.0], False),
        (6.5, 2, [9.0, 7.0], True),
        (6.0, 3, [9.0, 7.0], False),
        (9.0, 1, [], False),
        (-np.inf, 9, [9.0, 7.0, 6.0, 5.0], True),
    ],
)
def test_what_may_be_beaten_is_not_given(
    complete_above: float, k: int, scores: list[float], is_complete: bool, shard: Shard
) -> None:
    units = best_units([shard], [spans(*FOUND, complete_above=complete_above)], "phrase", k)
    assert ([hit.score for hit in units.hits], units.is_complete) == (scores, is_complete)


def test_shards_are_merged_by_score(
    shard: Shard, make_shard: Callable[..., Shard], encoded: Callable[..., EncodedParagraph]
) -> None:
    other = make_shard([encoded([[1, 1]])], name="other")
    found = [spans((9.0, 0, 1), (5.0, 6, 6)), spans((7.0, 0, 0))]
    units = best_units([shard, other], found, "page", k=3)
    assert [(hit.score, hit.page_id) for hit in units.hits] == [
        (9.0, "shard-0"),
        (7.0, "other-0"),
        (5.0, "shard-1"),
    ]


def test_phrases_of_the_same_paragraph_number_on_two_pages_are_two(shard: Shard) -> None:
    units = best_units([shard], [spans((9.0, 0, 0), (8.0, 6, 6))], "phrase", k=2)
    assert [(hit.title, hit.start, hit.end) for hit in units.hits] == [
        ("Page 0", 0, 2),
        ("Page 1", 0, 2),
    ]


@pytest.mark.parametrize(
    ("text", "phrase", "sentence"),
    [
        ("She was born. In Warsaw she lived. She left.", "Warsaw", "In Warsaw she lived."),
        ("She was born. In Warsaw she lived.", "She was", "She was born."),
        ("Dr. Curie left. She came.", "Curie", "Dr. Curie left."),
        ("She left. She came back.", "left. She", "She left. She came back."),
        ("  one sentence\n", "one", "one sentence"),
        ("居里夫人。出生在华沙。", "华沙", "出生在华沙。"),
        ("no end", "no end", "no end"),
    ],
)
def test_sentence_around(text: str, phrase: str, sentence: str) -> None:
    start = text.index(phrase)
    first, stop = Sentences(text).around(start, start + len(phrase))
    assert text[first:stop] == sentence


def test_many_queries_are_answered_in_order(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the river", "Paris", "Marie Curie [SEP] place of birth", "the city", "born in Warsaw"]
    alone = [kb.query([text], k=2)[0] for text in texts]
    monkeypatch.setattr(search_module, "BATCH", 2)
    for one, other in zip(alone, kb.query(texts, k=2), strict=True):
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=0.1)


def test_the_best_phrase_of_a_paragraph_is_its_best_span(
    kb: KnowledgeBase, queries: np.ndarray
) -> None:
    (shard,) = kb.searcher.shards
    best = paragraph_spans(shard, 0, queries[:, 0] * kb.model.scale)
    true = [
        score
        for score, place in all_spans(kb, queries[0, 0], queries[1, 0])
        if place[:2] == ("P1", 0)
    ]
    assert best.scores[0] == pytest.approx(true[0], abs=1e-3)


def test_a_search_takes_the_models_length_penalty(kb: KnowledgeBase, queries: np.ndarray) -> None:
    free = searched(kb, queries, 1000)
    config = kb.model.config
    kb.model.config = replace(config, length_penalty=0.5)
    try:
        hits = searched(kb, queries, 1000)
    finally:
        kb.model.config = config
    best = [{hit.place: hit.score for hit in found} for found in free]
    lost = [
        one.score - known[one.place]
        for found, known in zip(hits, best, strict=True)
        for one in found
        if one.place in known
    ]
    assert min(lost) < -0.4
    assert max(lost) < 0.001


def test_fewer_units_than_asked_for_are_found_at_once(
    kb: KnowledgeBase, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: list[int] = []
    candidates = kb.searcher.search_context.index.candidates

    def counted(starts: np.ndarray, ends: np.ndarray, k: int, bonus: object = None) -> object:
        depths.append(k)
        return candidates(starts, ends, k, bonus)  # type: ignore[arg-type]

    monkeypatch.setattr(kb.searcher.search_context.index, "candidates", counted)
    found = searched(kb, queries, 10, "page")
    pages = {hit.page_id for hit in searched(kb, queries, 1000)[0]}
    assert [len(hits) for hits in found] == [len(pages)] * 3
    assert len(pages) < 10
