"""Exact search: no paragraph with a better span than promised is missed, in integers and in floats."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kbq.indexing import exact
from kbq.indexing.candidates import ranges
from kbq.indexing.dump import EncodedParagraph, Shard
from kbq.indexing.exact import ExactIndex, integer_products, reach, segment_max

CPU = torch.device("cpu")
SIZES = ((1,), (5, 0, 3), (30, 1, 0, 0, 25, 12), (0, 60, 7), tuple(range(40)))


@pytest.fixture(params=[True, False], ids=["integers", "floats"])
def in_integers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    wanted = bool(request.param)
    if wanted and not hasattr(torch, "_int_mm"):
        pytest.skip("this torch multiplies no int8")
    monkeypatch.setattr(exact, "has_fast_int8", lambda: wanted)
    return wanted


def random_queries(dim: int = 16, seed: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Start and end vectors of very different sizes. Shapes: (7, dim)."""
    source = np.random.default_rng(seed)
    sizes = 10.0 ** source.integers(-3, 3, (2, 7, 1))
    starts, ends = (source.normal(size=(2, 7, dim)) * sizes).astype(np.float32)
    return starts, ends


def best_spans(shard: Shard, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The float64 score of the best span of at most 20 tokens of each paragraph; -inf where it has no rows."""
    opens, closes = (shard.vectors.astype(np.float64) @ side.astype(np.float64) for side in (start, end))
    best = np.full(len(shard.texts), -np.inf)
    for paragraph in range(len(best)):
        first = int(shard.paragraph_rows[paragraph - 1]) if paragraph else 0
        for one in range(first, int(shard.paragraph_rows[paragraph])):
            for other in range(one, int(shard.paragraph_rows[paragraph])):
                if int(shard.positions[other]) - int(shard.positions[one]) < 20:
                    best[paragraph] = max(best[paragraph], opens[one] + closes[other])
    return best


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize("block", [1, 16, 4096])
@pytest.mark.parametrize("kept", SIZES)
def test_bounds_hold_in_float64(
    kept: tuple[int, ...], block: int, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "BLOCK_ROWS", block)
    shard = random_shard(*kept)
    starts, ends = random_queries()
    lower, upper, wrong = ExactIndex(shard, CPU)._bounds(starts, ends)
    for query in range(7):
        true = best_spans(shard, starts[query], ends[query])
        true = true[np.isfinite(true)]
        assert (lower[query] - wrong[query] <= true).all()
        assert (true <= upper[query] + wrong[query]).all()
        one_row = np.array([count for count in kept if count]) == 1
        assert (lower[query] == upper[query])[one_row].all()
        assert wrong[query] <= 1e-3 * max(np.abs(starts[query]).max(), np.abs(ends[query]).max()) * 127 * 16


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize("k", [1, 2, 5, 1000])
@pytest.mark.parametrize("kept", SIZES)
def test_candidates_hold_all_rows_of_the_best_paragraphs(
    kept: tuple[int, ...], k: int, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(*kept)
    starts, ends = random_queries()
    for query, found in enumerate(ExactIndex(shard, CPU).candidates(starts, ends, k)):
        true = best_spans(shard, starts[query], ends[query])
        chosen = np.unique(shard.paragraphs_of(found.starts))
        assert found.starts.tolist() == ranges(*shard.row_range(chosen)).tolist()
        best = np.argsort(-true)[: min(k, np.isfinite(true).sum())]
        assert set(best.tolist()) <= set(chosen.tolist())
        missed = np.delete(true, chosen)
        assert missed.max(initial=-np.inf) <= found.complete_above
        if k >= np.isfinite(true).sum():
            assert found.complete_above == -np.inf


@pytest.mark.usefixtures("in_integers")
def test_candidates_that_can_be_checked_by_eye(
    encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    # Best spans of the three paragraphs: 5 + 7, 9 + 8, 1 + 1.
    shard = make_shard([encoded([[5, 0], [0, 1], [1, 7]]), encoded([[9, 8]])], [encoded([[1, 1]])])
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    index = ExactIndex(shard, CPU)
    for k, rows, bound in ((1, [3], 12.0), (2, [0, 1, 2, 3], 2.0), (3, [0, 1, 2, 3, 4], -np.inf)):
        (found,) = index.candidates(starts, ends, k)
        assert found.starts.tolist() == rows
        assert found.complete_above == pytest.approx(bound, abs=0.1)


@pytest.mark.usefixtures("in_integers")
def test_a_bonus_is_added_to_every_span_of_its_paragraph(
    encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    # Best spans 12, 17 and 2; the second paragraph has no rows, the bonus of the last one is largest.
    shard = make_shard([encoded([[5, 0], [0, 1], [1, 7]]), encoded([])], [encoded([[9, 8]]), encoded([[1, 1]])])
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    bonus = np.array([[1, 99, 0, 20]], np.float32)
    index = ExactIndex(shard, CPU)
    for k, rows, bound in ((1, [4], 17.0), (2, [3, 4], 13.0), (3, [0, 1, 2, 3, 4], -np.inf)):
        (found,) = index.candidates(starts, ends, k, bonus)
        assert found.starts.tolist() == rows
        assert found.complete_above == pytest.approx(bound, abs=0.1)


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize("values", [[3.0, 1.0], [-3.0, 1.0], [3.0, -3.0], [0.0, 0.0], [1e-20, 1e20]])
def test_the_largest_value_of_a_query_is_kept(
    values: list[float], encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[127, 127]]), encoded([[-127, 127]]), encoded([[100, -127]])])
    starts = ends = np.array([values], np.float32)
    found, upper, wrong = ExactIndex(shard, CPU)._bounds(starts, ends)
    true = best_spans(shard, starts[0], ends[0])
    assert found.tolist() == upper.tolist()
    assert np.abs(found[0] - true).max() <= wrong[0] <= 1e-3 * max(127 * np.abs(starts).max(), 1e-20)


@pytest.mark.usefixtures("in_integers")
def test_the_error_covers_scores_that_cancel_out(
    encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    shard = make_shard([encoded([[127] * 8])], [encoded([[126] * 8])], dim=8)
    query = np.array([[1000.1, -1000, 33.3, -33.3, 777.7, -777.7, 0.1, -0.1]], np.float32)
    found, _, wrong = ExactIndex(shard, CPU)._bounds(query, query)
    assert np.abs(found[0] - best_spans(shard, query[0], query[0])).max() <= wrong[0]


@pytest.mark.parametrize("dim", [16, 768, 1024])
def test_wide_vectors_do_not_overflow(
    dim: int,
    encoded: Callable[..., EncodedParagraph],
    make_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "has_fast_int8", lambda: True)
    shard = make_shard([encoded([[127] * dim])], [encoded([[-127] * dim])], dim=dim)
    query = np.full((1, dim), 1.0, np.float32)
    found, _, wrong = ExactIndex(shard, CPU)._bounds(query, query)
    assert np.abs(found[0] - [2 * 127 * dim, -2 * 127 * dim]).max() <= wrong[0]


def test_an_empty_shard_has_no_candidates(make_shard: Callable[..., Shard]) -> None:
    (found,) = ExactIndex(make_shard(), CPU).candidates(np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), 5)
    assert (found.starts.tolist(), found.complete_above) == ([], -np.inf)


def test_reach(encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]) -> None:
    shard = make_shard([encoded([[0, 0]] * 4, positions=[0, 1, 4, 5]), encoded([[0, 0]] * 2)])
    assert reach(shard, np.arange(6), max_tokens=1).tolist() == [1, 1, 1, 1, 1, 1]
    assert reach(shard, np.arange(6), max_tokens=2).tolist() == [2, 1, 2, 1, 2, 1]
    assert reach(shard, np.arange(6), max_tokens=5).tolist() == [3, 3, 2, 1, 2, 1]


def test_segment_max() -> None:
    scores = torch.tensor([[1, 5, 2], [-1, -7, -2]])
    assert segment_max(scores, np.array([0, 2])).tolist() == [[5, 2], [-1, -2]]
    assert segment_max(scores, np.array([0, 1, 2])).tolist() == [[1, 5, 2], [-1, -7, -2]]


def test_integer_products() -> None:
    limbs = torch.tensor([[1, 2, 3, 4], [-1, 0, 5, 0]], dtype=torch.int8)  # high limbs, then low ones, of 2 queries
    block = torch.tensor([[3, 10], [-3, 0]], dtype=torch.int8)
    assert integer_products(block, limbs).tolist() == [
        [(3 - 10) * 128 + 59, 6 * 128 + 12],
        [-3 * 128 - 9, -6 * 128 - 12],
    ]
