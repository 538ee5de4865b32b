"""Attention to train with: the plain formula states the truth."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from kbq.model.backbone import pretrained_backbone
from kbq.training import attention
from kbq.training.attention import RecomputedAttention, recompute_attention


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = scale * (q @ k.mT)
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1) @ v


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 5, 2, 7, 4, dtype=torch.float64).requires_grad_().unbind()
    return q, k, v


@pytest.mark.parametrize("pairs", [1, 200, 10**6])
@pytest.mark.parametrize("masked", [False, True])
def test_result_and_gradients_are_those_of_the_plain_formula(
    pairs: int, masked: bool, qkv: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "PAIRS", pairs)
    looked_at = torch.arange(7) < torch.tensor([7, 3, 1, 7, 5])[:, None]
    mask = looked_at[:, None, None].expand(5, 1, 7, 7) if masked else None
    weights = torch.randn(5, 2, 7, 4, dtype=torch.float64)
    outcomes = []
    for attend in (plain, RecomputedAttention.apply):
        result = attend(*qkv, mask, 0.5)
        outcomes.append([result, *torch.autograd.grad((result * weights).sum(), qkv)])
    for one, other in zip(*outcomes, strict=True):
        assert (one - other).abs().max() < 1e-12


@pytest.mark.parametrize("activation", ["gelu", "relu"])  # kbq's own BERT, and one of transformers
def test_a_network_learns_the_same_with_it(
    activation: str,
    make_checkpoint: Callable[..., Path],
    bert_config: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backward = mock.Mock(wraps=attention._backward)
    monkeypatch.setattr(attention, "_backward", backward)
    trained = pretrained_backbone(
        make_checkpoint(tmp_path, bert_config(hidden_act=activation))
    ).double()
    ids = torch.randint(5, 50, (3, 9))
    mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    gradients = []
    for change in (lambda network: None, recompute_attention):
        assert backward.call_count == 0
        network = copy.deepcopy(trained)
        change(network)
        vectors = network(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors[mask.bool()].square().sum().backward()
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
    assert backward.call_count == 2  # layers
    assert len(gradients[0]) == len(gradients[1]) > 10
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() < 1e-9 * max(1.0, float(one.abs().max()))
