"""Candidates: what is retrieved is what a search over all phrases finds, and its vectors give its
scores.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.tuning.labels import Phrases, joined, penalties, phrases_of, retrieve, vectors

QUERIES = ["Marie Curie [SEP] place of birth", "the river?", "Warsaw [SEP] birth"]


def places(phrases: Phrases) -> list[tuple[int, int, int]]:
    return list(
        zip(phrases.shards.tolist(), phrases.starts.tolist(), phrases.ends.tolist(), strict=True)
    )


def each_start_with_its_best_end(
    kb: KnowledgeBase,
    spans: Callable[..., list[tuple[int, int, str]]],
    start: np.ndarray,
    end: np.ndarray,
) -> dict[tuple[int, int, int], float]:
    """Float64 scores of the best phrase of every start."""
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for number, shard in enumerate(kb.searcher.shards):
        rows = shard.vectors.astype(np.float64) * kb.model.scale
        opening, closing = rows @ start.astype(np.float64), rows @ end.astype(np.float64)
        for paragraph in range(len(shard.texts)):
            for first, last, _ in spans(shard, paragraph):
                score = float(opening[first] + closing[last])
                if (number, first) not in best or score > best[number, first][0]:
                    best[number, first] = score, last
    return {(number, first, last): score for (number, first), (score, last) in best.items()}


@pytest.mark.parametrize("k", [1, 7, 10**6])
def test_vectors_give_the_scores_of_the_search(
    k: int, any_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_kb.model, "config", replace(any_kb.model.config, length_penalty=0.25))
    starts, ends = any_kb.model.encode_queries(QUERIES)
    for phrases, start, end in zip(
        retrieve(any_kb.searcher, starts, ends, k), starts, ends, strict=True
    ):
        assert 0 < len(phrases) <= k
        opening, closing = vectors(any_kb.searcher, phrases)
        lost = penalties(any_kb.searcher, phrases)
        assert opening.dtype == closing.dtype == lost.dtype == np.float32
        assert opening @ start + closing @ end - lost == pytest.approx(phrases.scores, abs=1e-3)
        assert phrases.scores.tolist() == sorted(phrases.scores.tolist(), reverse=True)
        assert len({*places(phrases)}) == len(phrases)


def test_vectors_come_in_the_order_of_the_phrases(own_kb: KnowledgeBase) -> None:
    first, second = own_kb.searcher.shards
    opening, closing = vectors(own_kb.searcher, phrases_of([(1, 2, 3), (0, 5, 5), (1, 0, 1)]))
    scale = own_kb.model.scale
    assert opening == pytest.approx(
        np.stack([second.vectors[2], first.vectors[5], second.vectors[0]]) * scale
    )
    assert closing == pytest.approx(
        np.stack([second.vectors[3], first.vectors[5], second.vectors[1]]) * scale
    )


@pytest.mark.parametrize("k", [1, 7, 10**6])
@pytest.mark.parametrize("shards", [1, 2])
def test_an_exact_index_gives_the_best_of_all_phrases(
    shards: int,
    k: int,
    kb: KnowledgeBase,
    own_kb: KnowledgeBase,
    legal_spans: Callable[..., list[tuple[int, int, str]]],
) -> None:
    asked = kb if shards == 1 else own_kb
    assert len(asked.searcher.shards) == shards
    starts, ends = asked.model.encode_queries(QUERIES)
    for phrases, start, end in zip(
        retrieve(asked.searcher, starts, ends, k), starts, ends, strict=True
    ):
        truth = each_start_with_its_best_end(asked, legal_spans, start, end)
        best = sorted(truth.values(), reverse=True)[:k]
        assert len(phrases) == len(best)
        assert phrases.scores == pytest.approx(np.array(best), abs=1e-3)
        assert [truth[place] for place in places(phrases)] == pytest.approx(best, abs=1e-3)


def test_the_best_phrase_is_the_first_answer(kb: KnowledgeBase) -> None:
    starts, ends = kb.model.encode_queries(QUERIES)
    for phrases, hits in zip(
        retrieve(kb.searcher, starts, ends, 5), kb.query(QUERIES, 5), strict=True
    ):
        assert float(phrases.scores[0]) == pytest.approx(hits[0].score, abs=1e-3)


def test_a_phrase_that_is_known_is_not_added_again() -> None:
    found = Phrases(
        np.array([0, 0]), np.array([1, 3]), np.array([2, 3]), np.array([9, 8], np.float32)
    )
    both = joined(found, phrases_of([(0, 3, 3), (1, 3, 3), (0, 1, 4)]))
    assert places(both) == [(0, 1, 2), (0, 3, 3), (1, 3, 3), (0, 1, 4)]
    assert both.scores[:2].tolist() == [9, 8]
    assert np.isnan(both.scores[2:]).all()


def test_nothing_joins_nothing(kb: KnowledgeBase) -> None:
    nothing = joined(phrases_of([]), phrases_of([]))
    assert len(nothing) == 0
    assert [part.shape for part in vectors(kb.searcher, nothing)] == [(0, 16), (0, 16)]


def test_a_knowledge_base_of_titles_alone_has_no_candidates(
    model: Model, pages: list[Page], tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(
        [page for page in pages if not page.paragraphs], tmp_path / "kb", model
    )
    assert (kb.counts.pages, kb.counts.rows) == (3, 0)
    assert [
        len(phrases) for phrases in retrieve(kb.searcher, *model.encode_queries(QUERIES), 5)
    ] == [0, 0, 0]
