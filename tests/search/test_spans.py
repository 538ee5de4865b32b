"""Spans: each likely start with its best end, equal to a float64 search over all legal spans."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paragraphs import EncodedParagraph

from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.index.base import Candidates
from kbq.index.exact import ExactIndex
from kbq.index.inner_products import rounded_for_exact_sums
from kbq.search.spans import Spans, find_spans, paragraph_spans, range_argmax, reach

Make = Callable[..., EncodedParagraph]
Span = tuple[int, int]


def truth(
    shard: Shard, query: np.ndarray, max_tokens: int = 20, penalty: float = 0.0
) -> dict[Span, float]:
    """The float64 score of every legal span, by the definition."""
    opens, closes = (shard.vectors.astype(np.float64) @ side.astype(np.float64) for side in query)
    spans = {}
    for paragraph in range(len(shard.texts)):
        first = int(shard.paragraph_rows[paragraph - 1]) if paragraph else 0
        for start in range(first, int(shard.paragraph_rows[paragraph])):
            for end in range(start, int(shard.paragraph_rows[paragraph])):
                further = int(shard.positions[end]) - int(shard.positions[start])
                legal = shard.edges[start] & OPENS and shard.edges[end] & CLOSES
                if further < max_tokens and legal:
                    spans[start, end] = float(opens[start] + closes[end] - penalty * further)
    return spans


def best_of_each_start(spans: dict[Span, float]) -> dict[Span, float]:
    best: dict[int, Span] = {}
    for span, score in spans.items():
        if span[0] not in best or score > spans[best[span[0]]]:
            best[span[0]] = span
    return {span: spans[span] for span in best.values()}


def spans_of(
    shard: Shard,
    candidates: Candidates,
    query: np.ndarray,
    max_tokens: int = 20,
    penalty: float = 0.0,
    certain: bool = False,
) -> Spans:
    (found,) = find_spans(shard, [candidates], query[None], max_tokens, penalty, certain)
    return found


def everywhere(shard: Shard) -> Candidates:
    return Candidates(np.arange(len(shard)), -np.inf)


def as_dict(found: Spans) -> dict[Span, float]:
    spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return dict(zip(spans, found.scores.tolist(), strict=True))


def random_queries(count: int = 4) -> np.ndarray:
    """Start over end vectors. Shape: (count, 2, 16)."""
    return np.random.default_rng(1).normal(size=(count, 2, 16)).astype(np.float32)


# The first value of a row is its score as start, the second as end.
EYE = np.array([[1, 0], [0, 1]], np.float32)


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 20])
@pytest.mark.parametrize("kept", [(1,), (5, 0, 3), (30, 1, 0, 0, 25, 12), (0, 60)])
def test_every_start_has_its_best_end(
    kept: tuple[int, ...], max_tokens: int, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(*kept)
    for query in random_queries():
        found = spans_of(shard, everywhere(shard), query, max_tokens)
        assert as_dict(found) == pytest.approx(
            best_of_each_start(truth(shard, query, max_tokens)), abs=1e-3
        )
        assert (np.diff(found.scores) <= 0).all()
        assert found.complete_above == -np.inf


@pytest.mark.parametrize("penalty", [0.0, 0.1, 30.0])
@pytest.mark.parametrize("k", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    "kept", [(1,), (5, 0, 3), (30, 1, 0, 0, 25, 12), (3, 8, 2, 9, 9, 4, 1, 0, 7)]
)
def test_what_stands_above_the_bound_is_what_a_search_over_all_spans_finds(
    kept: tuple[int, ...], k: int, penalty: float, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(*kept)
    index = ExactIndex([shard], [torch.device("cpu")])
    queries = random_queries()
    (found_of_each,) = index.candidates(queries[:, 0], queries[:, 1], k)
    for query, candidates in zip(queries, found_of_each, strict=True):
        found = spans_of(shard, candidates, query, penalty=penalty)
        scores, true = as_dict(found), truth(shard, query, penalty=penalty)
        for span, score in true.items():
            if score > found.complete_above:
                assert span[0] in found.starts
        sure = int((found.scores > found.complete_above).sum())
        best = best_of_each_start(true)
        assert list(scores)[:sure] == sorted(best, key=lambda span: -best[span])[:sure]
        assert scores == pytest.approx({span: true[span] for span in scores}, abs=1e-3)
        assert sure > 0
        certain = spans_of(shard, candidates, query, penalty=penalty, certain=True)
        assert list(as_dict(certain).items()) == list(scores.items())[:sure]


def test_some_starts_only(random_shard: Callable[..., Shard]) -> None:
    shard = random_shard(12, 9, 20)
    (query,) = random_queries(1)
    best = best_of_each_start(truth(shard, query))
    for rows in ([], [0], [40], [3, 4, 11, 12, 30], list(range(0, 41, 2))):
        found = as_dict(spans_of(shard, Candidates(np.array(rows, np.int64), 3.5), query))
        assert found == pytest.approx(
            {span: score for span, score in best.items() if span[0] in rows}, abs=1e-3
        )


def test_scores_that_can_be_checked_by_eye(encoded: Make, make_shard: Callable[..., Shard]) -> None:
    shard = make_shard([encoded([[5, 0], [0, 1], [1, 7]]), encoded([[9, 8]])])
    found = spans_of(shard, everywhere(shard), EYE)
    assert as_dict(found) == {(3, 3): 17.0, (0, 2): 12.0, (2, 2): 8.0, (1, 2): 7.0}
    assert found.scores.tolist() == [17.0, 12.0, 8.0, 7.0]


def test_a_bonus_moves_all_spans_of_its_paragraph(
    encoded: Make, make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[5, 0], [0, 1], [1, 7]]), encoded([[9, 8]])])
    added = np.array([10, 10, 10, 0.5], np.float32)
    found = spans_of(shard, dataclasses.replace(everywhere(shard), bonus=added), EYE)
    assert as_dict(found) == {(0, 2): 22.0, (2, 2): 18.0, (3, 3): 17.5, (1, 2): 17.0}
    assert found.shortened(shard, 0, 2, limit=5) == (16.0, 1)  # without w2
    certain = spans_of(shard, Candidates(np.arange(4), 17.5, added), EYE, certain=True)
    assert as_dict(certain) == {(0, 2): 22.0, (2, 2): 18.0}
    assert certain.complete_above == 17.5


def test_a_span_is_not_shortened_to_where_no_phrase_closes(
    encoded: Make, make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[5, 0], [0, 1], [1, 7]], edges=[OPENS, OPENS | CLOSES, CLOSES])])
    found = spans_of(shard, everywhere(shard), EYE)
    assert as_dict(found) == {(0, 2): 12.0, (1, 2): 7.0}
    assert found.shortened(shard, 0, 2, limit=5) == (6.0, 1)
    assert found.shortened(shard, 0, 2, limit=2) is None  # w0 closes none


@pytest.mark.parametrize(
    ("penalty", "best"),
    [
        (0.0, {(0, 2): 12.0, (2, 2): 8.0, (1, 2): 7.0}),
        (0.5, {(0, 1): 10.5, (2, 2): 8.0, (1, 1): 6.0}),
        (7.0, {(2, 2): 8.0, (1, 1): 6.0, (0, 0): 5.0}),
    ],
)
def test_each_token_after_the_first_costs(
    penalty: float, best: dict[Span, float], encoded: Make, make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[5, 0], [0, 6], [1, 7]], positions=[0, 1, 4])])
    found = spans_of(shard, everywhere(shard), EYE, penalty=penalty)
    assert as_dict(found) == best
    assert found.shortened(shard, 0, 2, limit=5) == (
        (11.0 - penalty, 1) if penalty < 6 else (5.0, 0)
    )


def test_no_span_crosses_a_paragraph(encoded: Make, make_shard: Callable[..., Shard]) -> None:
    shard = make_shard([encoded([[9, 0]]), encoded([[0, 9]])], [encoded([[0, 9]])])
    assert as_dict(spans_of(shard, everywhere(shard), EYE)) == {
        (0, 0): 9.0,
        (1, 1): 9.0,
        (2, 2): 9.0,
    }


@pytest.mark.parametrize(("max_tokens", "best"), [(4, (0, 0)), (5, (0, 1))])
def test_length_is_counted_in_the_tokens_before_the_filter(
    max_tokens: int, best: Span, encoded: Make, make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[3, 0], [0, 3]], positions=[2, 6])])
    assert next(iter(as_dict(spans_of(shard, everywhere(shard), EYE, max_tokens)))) == best


def test_ties_stand_in_the_order_of_their_rows(
    encoded: Make, make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[1, 1]]), encoded([[1, 1], [1, 1]])])
    assert list(as_dict(spans_of(shard, everywhere(shard), EYE))) == [(0, 0), (1, 1), (2, 2)]


def test_an_empty_shard_has_no_spans(make_shard: Callable[..., Shard]) -> None:
    found = spans_of(make_shard(), Candidates(np.empty(0, np.int64), -np.inf), EYE)
    assert (found.scores.tolist(), found.complete_above) == ([], -np.inf)


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("with_bonus", [False, True])
def test_queries_that_are_asked_together_find_what_each_finds_alone(
    with_bonus: bool, certain: bool, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(30, 1, 0, 0, 25, 12)
    source = np.random.default_rng(2)
    candidates = []
    for count, bound in ((68, -np.inf), (0, 9.0), (1, -9.0), (20, 1.0)):
        bonus = source.normal(size=count).astype(np.float32) if with_bonus else None
        candidates.append(
            Candidates(np.sort(source.choice(68, count, replace=False)), bound, bonus)
        )
    queries = rounded_for_exact_sums(random_queries())
    together = find_spans(shard, candidates, queries, length_penalty=0.1, certain=certain)
    assert [len(found.scores) > 0 for found in together] == [True, False, True, True]
    for found, of_query, query in zip(together, candidates, queries, strict=True):
        alone = spans_of(shard, of_query, query, penalty=0.1, certain=certain)
        assert found.complete_above == alone.complete_above == of_query.complete_above
        for name in ("scores", "starts", "ends", "rows", "inner_products", "penalties"):
            assert np.array_equal(getattr(found, name), getattr(alone, name))


def test_spans_of_one_paragraph(random_shard: Callable[..., Shard]) -> None:
    shard = random_shard(12, 0, 20)
    (query,) = random_queries(1)
    best = best_of_each_start(truth(shard, query))
    for paragraph, rows in ((0, range(12)), (1, range(0)), (2, range(12, 32))):
        found = as_dict(paragraph_spans(shard, paragraph, query))
        assert found == pytest.approx(
            {span: score for span, score in best.items() if span[0] in rows}, abs=1e-3
        )


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_range_argmax(values: list[int], data: st.DataObject) -> None:
    begins = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=10))
    sizes = [data.draw(st.integers(1, len(values) - begin)) for begin in begins]
    found = range_argmax(
        np.array(values, np.float32), np.array(begins, np.int64), np.array(sizes, np.int64)
    )
    expected = [
        begin + int(np.argmax(values[begin : begin + size]))
        for begin, size in zip(begins, sizes, strict=True)
    ]
    assert found.tolist() == expected


def test_reach(encoded: Make, make_shard: Callable[..., Shard]) -> None:
    shard = make_shard([encoded([[0, 0]] * 4, positions=[0, 1, 4, 5]), encoded([[0, 0]] * 2)])
    rows = np.arange(6)
    assert reach(shard, rows, max_tokens=1).tolist() == [1, 1, 1, 1, 1, 1]
    assert reach(shard, rows, max_tokens=2).tolist() == [2, 1, 2, 1, 2, 1]
    assert reach(shard, rows, max_tokens=5).tolist() == [3, 3, 2, 1, 2, 1]
    assert reach(shard, np.array([1, 4]), max_tokens=5).tolist() == [3, 2]
    assert reach(shard, rows[:0]).tolist() == []
