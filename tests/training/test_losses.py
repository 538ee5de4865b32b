"""Losses: numbers that can be checked by eye, and float64."""

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from kbq.training.losses import filter_loss, marginal_nll, negatives_loss, single_passage_loss

SCORES = torch.tensor([[0.0, log(2), log(3)]])  # chances 1 : 2 : 3


def flags(*rows: str) -> Tensor:
    """`x.` → [[True, False]]."""
    return torch.tensor([[letter == "x" for letter in row] for row in rows])


@pytest.mark.parametrize(
    ("gold", "allowed", "loss"),
    [
        (".x.", "xxx", log(3)),
        (".xx", "xxx", log(6 / 5)),
        (".x.", "xx.", log(3 / 2)),
        (".x.", "..x", log(5 / 2)),
        (".x.", "...", 0.0),
        ("xxx", "xxx", 0.0),
    ],
)
def test_marginal_nll(gold: str, allowed: str, loss: float) -> None:
    assert float(marginal_nll(SCORES, flags(gold), flags(allowed))) == pytest.approx(loss, abs=1e-6)
    assert float(single_passage_loss(SCORES, flags(gold), flags(allowed))) == pytest.approx(loss, abs=1e-6)


def test_queries_are_averaged() -> None:
    both = marginal_nll(SCORES.repeat(2, 1), flags(".x.", "x.."), flags("xxx", "xx."))
    assert float(both) == pytest.approx((log(3) + log(3)) / 2)


@pytest.mark.parametrize(
    ("answers", "queued", "false_negatives", "loss"),
    [
        ("x.x", "", "...", log(4)),
        ("xxx", "", "...", log(6)),
        ("...", "", "...", 0.0),
        ("x.x", "4", "....", log(8)),
        ("x.x", "4", "..x.", log(5)),
        ("x.x", "4", "..xx", 0.0),
        ("x.x", "4", "x.xx", 0.0),
    ],
)
def test_negatives_loss(answers: str, queued: str, false_negatives: str, loss: float) -> None:
    queue = torch.tensor([[log(int(weight)) for weight in queued]])
    given = negatives_loss(SCORES, flags("x.."), flags(answers)[0], queue, flags(false_negatives))
    assert float(given) == pytest.approx(loss, abs=1e-6)


def test_filter_loss_weights_positives_by_their_rarity() -> None:
    labels = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]])
    mask = torch.tensor([[True, True, False]])
    assert float(filter_loss(torch.zeros((1, 3, 2)), labels, mask)) == pytest.approx(1.25 * log(2))


def test_losses_equal_float64() -> None:
    source = np.random.default_rng(0)
    scores = source.normal(size=(5, 40)) * 20
    gold = source.random((5, 40)) < 0.1
    gold[np.arange(5), np.arange(5)] = True
    allowed = source.random((5, 40)) < 0.5
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = -np.log((weights * gold).sum(axis=1) / (weights * (gold | allowed)).sum(axis=1)).mean()
    given = marginal_nll(torch.from_numpy(scores).float(), torch.from_numpy(gold), torch.from_numpy(allowed))
    assert float(given) == pytest.approx(expected, rel=1e-5)


def test_gradients_reach_allowed_and_gold_tokens_only() -> None:
    scores = SCORES.clone().requires_grad_()
    marginal_nll(scores, flags("x.."), flags(".x.")).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [pytest.approx([-2 / 3, 2 / 3, 0.0])]
