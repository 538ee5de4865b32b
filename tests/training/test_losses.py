"""Losses: numbers that can be checked by eye, and float64."""

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from kbq.training.losses import filter_loss, marginal_losses, negatives_loss

SCORES = torch.tensor([[0.0, log(2), log(3)]])  # chances 1 : 2 : 3


def flags(*rows: str) -> Tensor:
    """`x.` → [[True, False]]."""
    return torch.tensor([[letter == "x" for letter in row] for row in rows], dtype=torch.bool)


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
def test_marginal_losses(gold: str, allowed: str, loss: float) -> None:
    assert float(marginal_losses(SCORES, flags(gold), flags(allowed))) == pytest.approx(
        loss, abs=1e-6
    )


def test_each_query_has_its_loss() -> None:
    scores, gold, allowed = SCORES.repeat(2, 1), flags(".x.", "x.."), flags("xxx", "xx.")
    assert marginal_losses(scores, gold, allowed).tolist() == pytest.approx([log(3), log(3)])


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


def test_losses_and_gradients_equal_float64() -> None:
    source = np.random.default_rng(0)
    scores = source.normal(size=(40, 9)) * 5
    gold, allowed = source.random((40, 9)) < 0.2, source.random((40, 9)) < 0.6
    gold[:5] = False
    given = torch.tensor(scores, dtype=torch.float32, requires_grad=True)
    losses = marginal_losses(given, torch.from_numpy(gold), torch.from_numpy(allowed))
    every, right = np.exp(scores) * (gold | allowed), np.exp(scores) * gold
    for loss, all_of, gold_of in zip(losses.tolist(), every, right, strict=True):
        expected = -np.log(gold_of.sum() / all_of.sum()) if gold_of.any() else 0.0
        assert loss == pytest.approx(expected, abs=1e-4)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    for gradient, all_of, gold_of in zip(given.grad.numpy(), every, right, strict=True):
        # What the gradient pulls down is the share among all; what it lifts, the share among the
        # right ones.
        shares = all_of / all_of.sum() - gold_of / gold_of.sum() if gold_of.any() else np.zeros(9)
        assert gradient == pytest.approx(shares, abs=1e-5)


@pytest.mark.parametrize(
    ("scores", "gold", "expected"),
    [([1e4, -1e4, 0.0], "..x", 1e4), ([1e4, -1e4, 0.0], "...", 0.0), ([], "", 0.0)],
)
def test_extremes_have_gradients(scores: list[float], gold: str, expected: float) -> None:
    given = torch.tensor([scores], requires_grad=True)
    loss = marginal_losses(given, flags(gold), flags("x" * len(gold)))
    assert loss.tolist() == [expected]
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    assert torch.isfinite(given.grad).all()


def test_gradients_reach_allowed_and_gold_tokens_only() -> None:
    scores = SCORES.clone().requires_grad_()
    marginal_losses(scores, flags("x.."), flags(".x.")).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [pytest.approx([-2 / 3, 2 / 3, 0.0])]
