"""Losses: equal to the formulas in float64, and without a gradient where there is nothing to learn."""

import math

import numpy as np
import pytest
import torch

from kbq.finetuning.candidates import phrases_of
from kbq.finetuning.losses import Choice, choices, marginal_loss


def by_hand(scores: list[float], counted: list[bool], positive: list[bool]) -> float:
    everything = [score for score, counts in zip(scores, counted, strict=True) if counts]
    right = [score for score, counts, wins in zip(scores, counted, positive, strict=True) if counts and wins]
    return -math.log(math.fsum(map(math.exp, right)) / math.fsum(map(math.exp, everything))) if right else 0.0


def choice(counted: object, positive: object) -> Choice:
    return Choice(torch.tensor(counted, dtype=torch.bool), torch.tensor(positive, dtype=torch.bool))


def test_equal_to_the_formula_in_float64() -> None:
    source = np.random.default_rng(0)
    scores = source.normal(scale=5, size=(40, 9))
    counted, positive = source.random((40, 9)) < 0.8, source.random((40, 9)) < 0.2
    positive[:5] = False
    given = torch.tensor(scores, dtype=torch.float32, requires_grad=True)
    losses = marginal_loss(given, choice(counted, positive))
    expected = [by_hand(*map(list, row)) for row in zip(scores, counted, positive, strict=True)]
    assert losses.tolist() == pytest.approx(expected, abs=1e-4)
    assert losses[:5].tolist() == [0.0] * 5
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    for gradient, row, counts, wins in zip(given.grad.numpy(), scores, counted, positive, strict=True):
        # What the gradient pulls down is the share among all; what it lifts, the share among the positives.
        weights, right = np.exp(row) * counts, np.exp(row) * (counts & wins)
        share = weights / weights.sum() - right / right.sum() if right.any() else np.zeros(9)
        assert gradient == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize(
    ("scores", "counted", "positive", "expected"),
    [
        ([0, 0, 0], [1, 1, 1], [1, 0, 0], math.log(3)),
        ([0, 0, 0], [1, 1, 1], [1, 1, 0], math.log(1.5)),
        ([0, 0, 0], [1, 1, 1], [1, 1, 1], 0),
        ([0, 0, 0], [1, 1, 0], [1, 0, 1], math.log(2)),  # what does not compete cannot win
        ([0, 0, 0], [1, 1, 0], [0, 0, 1], 0),
        ([0, 0, 0], [0, 0, 0], [0, 0, 0], 0),
        ([1e4, -1e4, 0], [1, 1, 1], [0, 0, 1], 1e4),
        ([1e4, -1e4, 0], [1, 1, 1], [0, 0, 0], 0),
    ],
)
def test_numbers(scores: list[float], counted: list[int], positive: list[int], expected: float) -> None:
    given = torch.tensor([scores], dtype=torch.float32, requires_grad=True)
    loss = marginal_loss(given, choice([counted], [positive]))
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-6)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    assert torch.isfinite(given.grad).all()
    if not expected:
        assert given.grad.abs().max() < 1e-6


def test_a_query_without_any_phrase_has_no_loss() -> None:
    assert marginal_loss(torch.zeros(2, 0), choice(np.zeros((2, 0)), np.zeros((2, 0)))).tolist() == [0, 0]


def test_a_row_of_several_phrases_competes_once_and_is_right_if_one_of_them_is() -> None:
    phrases = phrases_of([(0, 1, 2), (0, 1, 5), (0, 3, 5), (1, 3, 5)])
    chosen = choices(phrases, np.array([False, True, False, False]))
    assert {term: (counted.tolist(), right.tolist()) for term, (counted, right) in chosen.items()} == {
        "joint": ([True] * 4, [False, True, False, False]),
        "start": ([True, False, True, True], [True, True, False, False]),
        "end": ([True, True, False, True], [False, True, True, False]),
    }
    of_rows = torch.tensor([[2.0, 2.0, 1.0, 0.5]])  # the first two phrases start at the same row
    loss = marginal_loss(of_rows, choice(*([part.tolist()] for part in chosen["start"])))
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-1) + math.exp(-1.5)), abs=1e-6)


def test_no_phrases_have_no_choices() -> None:
    for counted, right in choices(phrases_of([]), np.zeros(0, bool)).values():
        assert (counted.tolist(), right.tolist()) == ([], [])
