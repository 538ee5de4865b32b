"""Exact search: no row that opens a good enough span is missed, in integers and in floats."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from brute_force import best_spans
from numpy.typing import NDArray
from paragraphs import EncodedParagraph

from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.index import exact, inner_products
from kbq.index.exact import BOTH, ExactIndex, _lowers_of_all
from kbq.index.inner_products import Factors

CPU = torch.device("cpu")
SIZES = ((1,), (5, 0, 3), (30, 1, 0, 0, 25, 12), (0, 60, 7), (20, 40, 41, 19, 21), tuple(range(40)))


@pytest.fixture(params=[True, False], ids=["integers", "floats"])
def in_integers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    wanted = bool(request.param)
    if wanted and not hasattr(torch, "_int_mm"):
        pytest.skip("this torch multiplies no int8")
    monkeypatch.setattr(inner_products, "has_fast_int8", lambda device: wanted)
    return wanted


def random_queries(dim: int = 16, seed: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Start and end vectors of very different sizes. Shapes: (7, dim)."""
    source = np.random.default_rng(seed)
    sizes = 10.0 ** source.integers(-3, 3, (2, 7, 1))
    starts, ends = (source.normal(size=(2, 7, dim)) * sizes).astype(np.float32)
    return starts, ends


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize("with_bonus", [False, True])
@pytest.mark.parametrize("block", [2, 3, 128])
@pytest.mark.parametrize("k", [1, 2, 5, 1000])
@pytest.mark.parametrize("kept", SIZES)
def test_every_row_that_opens_one_of_the_k_best_spans_is_a_candidate(
    kept: tuple[int, ...],
    k: int,
    block: int,
    with_bonus: bool,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "BLOCK_SCORES", block * 7)
    monkeypatch.setattr(exact, "LEAST_PIECES", 2)
    shard = random_shard(*kept)
    starts, ends = random_queries()
    bonus = (
        np.random.default_rng(2).normal(size=(7, len(kept))).astype(np.float32)
        * np.abs(starts).max()
        * 1000
    )
    paragraphs = shard.paragraphs_of(np.arange(len(shard)))
    (found_of_each,) = ExactIndex([shard], [CPU]).candidates(
        starts, ends, k, [bonus] if with_bonus else None
    )
    for query, found in enumerate(found_of_each):
        true = best_spans(shard, starts[query], ends[query]) + with_bonus * bonus[
            query, paragraphs
        ].astype(np.float64)
        assert (np.diff(found.starts) > 0).all()
        assert np.delete(true, found.starts).max(initial=-np.inf) <= found.complete_above
        assert np.count_nonzero(true[found.starts] > found.complete_above) >= min(
            k, -(-sum(kept) // 20)
        )


def test_what_shards_on_several_devices_leave_out_is_below_the_bound(
    random_shard: Callable[..., Shard],
) -> None:
    shards = [
        random_shard(*[30] * 6),
        random_shard(*[25] * 8, seed=1),
        random_shard(*[30] * 7, seed=2),
    ]
    starts, ends = random_queries()
    devices = [CPU, torch.device("cpu", 0), CPU]  # not equal, as two GPUs are not
    by_shard = ExactIndex(shards, devices).candidates(starts, ends, 2)
    for shard, found_of_each in zip(shards, by_shard, strict=True):
        for query, found in enumerate(found_of_each):
            true = best_spans(shard, starts[query], ends[query])
            assert np.delete(true, found.starts).max(initial=-np.inf) <= found.complete_above
    assert sum(len(found_of_each[0].starts) for found_of_each in by_shard) < 250  # of 590


@pytest.mark.usefixtures("in_integers")
def test_most_rows_are_left_out(random_shard: Callable[..., Shard]) -> None:
    shard = random_shard(*range(20, 60))  # 1,580 rows in 98 pieces
    (found,) = ExactIndex([shard], [CPU]).candidates(*random_queries(), 5)
    assert max(len(candidates.starts) for candidates in found) < 400


@pytest.fixture
def three(encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]) -> Shard:
    """Three paragraphs of 20 rows, and an empty one behind the first. Best rows 8 (of 1 + 7), 17
    and 2.
    """
    first, second, third = (
        encoded(good + [[-9, -9]] * (20 - len(good)))
        for good in ([[5, 0], [0, 1], [1, 7]], [[9, 8]], [[1, 1]])
    )
    return make_shard([first, encoded([])], [second, third])


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize(
    ("bonus", "k", "rows", "bound"),
    [
        (None, 1, [20], 17.0),
        (None, 2, [0, 1, 2, 20], 8.0),  # starts 5, 0 and 1 and the best end in reach, 8
        (None, 3, list(range(60)), -np.inf),
        ([1, 99, 0, 20], 1, [40], 22.0),
        ([1, 99, 0, 20], 2, [20, 40], 17.0),
        ([9, 99, 0, 20], 2, [0, 1, 2, 20, 40], 17.0),
    ],
)
def test_candidates_that_can_be_checked_by_eye(
    bonus: list[float] | None, k: int, rows: list[int], bound: float, three: Shard
) -> None:
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    added = None if bonus is None else [np.array([bonus], np.float32)]
    ((found,),) = ExactIndex([three], [CPU]).candidates(starts, ends, k, added)
    assert found.starts.tolist() == rows
    assert found.complete_above == pytest.approx(bound, abs=0.1)


def test_an_end_in_the_next_piece_is_seen(
    encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    # A start in the last row of a piece, its end in the first row of the next one; elsewhere one
    # good row.
    long = [[0, 0]] * 19 + [[6, 0], [0, 6]] + [[0, 0]] * 9
    shard = make_shard([encoded(long), encoded([[5, 5]]), encoded([[0, 5]] * 30)])
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    ((found,),) = ExactIndex([shard], [CPU]).candidates(starts, ends, 1)
    assert found.starts.tolist() == [19, 30]


@pytest.mark.usefixtures("in_integers")
def test_rows_that_are_no_phrase_alone_say_nothing_of_what_can_be_reached(
    encoded: Callable[..., EncodedParagraph], make_shard: Callable[..., Shard]
) -> None:
    # Of three pieces only the last one is known to have a span, of -8; others may have better ones.
    worse = [encoded([[-2, -2]] * 20, edges=[OPENS, CLOSES] * 10) for _ in range(2)]
    shard = make_shard([*worse, encoded([[-4, -4]] * 20)])
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    index = ExactIndex([shard], [CPU])
    for k, bound in ((1, -8), (2, -np.inf)):
        ((found,),) = index.candidates(starts, ends, k)
        assert found.starts.tolist() == [*range(0, 40, 2), *range(40, 60)]
        assert found.complete_above == pytest.approx(bound, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_the_best_row_alone_bounds_its_piece_from_below(dtype: torch.dtype) -> None:
    # Two rows a piece.
    by_piece = torch.tensor([[[[5], [4]], [[9], [9]]], [[[1], [1]], [[2], [2]]]], dtype=dtype)
    # The first row of all is a phrase alone.
    edges = torch.tensor([[BOTH, OPENS], [CLOSES, 0]], dtype=torch.uint8)
    factors = Factors(
        torch.empty(0), units=torch.tensor([0.5]), errors=torch.tensor([1.0]), in_integers=True
    )
    assert _lowers_of_all(by_piece, edges, factors).tolist() == [[(5 + 4) * 0.5 - 1.0, -torch.inf]]


def test_an_empty_shard_has_no_candidates(make_shard: Callable[..., Shard]) -> None:
    ones = np.ones((1, 2), np.float32)
    ((found,),) = ExactIndex([make_shard()], [CPU]).candidates(ones, ones, 5)
    assert (found.starts.tolist(), found.complete_above) == ([], -np.inf)
