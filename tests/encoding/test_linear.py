import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from kbq.encoding import linear
from kbq.encoding.devices import autocast
from kbq.encoding.linear import FEW, Linear, can_pack, pack_few_rows


def layer(packs: bool = True) -> Linear:
    torch.manual_seed(0)
    made = Linear(48, 32)
    with torch.no_grad():
        made.weight.normal_()
        made.bias.normal_()
    if packs:
        pack_few_rows(nn.Sequential(made))
    return made


@torch.no_grad()
def unlike(made: Linear, states: torch.Tensor) -> float:
    """How far a layer is from PyTorch's own."""
    return float((made(states) - nn.functional.linear(states, made.weight, made.bias)).abs().max())


needs_packing = pytest.mark.skipif(not can_pack(torch.float32), reason="PyTorch without oneDNN")


@pytest.mark.parametrize("rows", [1, 7, FEW, FEW + 1])
@pytest.mark.parametrize("packs", [True, False])
def test_products_are_pytorchs(rows: int, packs: bool) -> None:
    assert unlike(layer(packs), torch.randn(rows, 48)) < 1e-4


@needs_packing
def test_few_rows_alone_are_multiplied_with_reordered_weights() -> None:
    made = layer()
    made(torch.randn(3, 48))
    with torch.no_grad():
        made(torch.randn(FEW + 1, 48))
    assert made._packed is None
    with torch.no_grad():
        made(torch.randn(FEW, 48))
    assert made._packed is not None


@needs_packing
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_changed_weights_are_seen(name: str) -> None:
    made, states = layer(), torch.randn(5, 48)
    before = unlike(made, states)
    with torch.no_grad():
        getattr(made, name).mul_(-2)
    assert before < 1e-4
    assert unlike(made, states) < 1e-4
    setattr(made, name, nn.Parameter(torch.randn_like(getattr(made, name))))
    assert unlike(made, states) < 1e-4
    made.double()
    assert unlike(made, states.double()) < 1e-9


def test_weights_of_inference_mode_are_multiplied() -> None:
    with torch.inference_mode():
        made = layer()
    assert unlike(made, torch.randn(5, 48)) < 1e-4


def test_gradients_flow() -> None:
    made = layer()
    made(torch.randn(5, 48)).sum().backward()
    assert made.weight.grad is not None
    assert made.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_have_an_order_of_their_own(copied: Callable[[Linear], Linear]) -> None:
    made, states = layer(), torch.randn(5, 48)
    unlike(made, states)
    other = copied(made)
    assert other._packed is None
    with torch.no_grad():
        other.weight.zero_()
    assert unlike(made, states) < 1e-4
    assert unlike(other, states) < 1e-4


def test_autocast_decides_the_type() -> None:
    made, states = layer(), torch.randn(5, 48)
    with torch.no_grad(), autocast(torch.device("cpu")):
        found = made(states)
        assert found.dtype == nn.functional.linear(states, made.weight, made.bias).dtype
    assert found.float().sub(nn.functional.linear(states, made.weight, made.bias)).abs().max() < 0.2


def test_without_onednn_products_are_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> torch.Tensor:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(linear, "_reordered", missing)
    can_pack.cache_clear()
    try:
        made = layer()
        assert unlike(made, torch.randn(5, 48)) == 0
        assert made._packed is None
    finally:
        can_pack.cache_clear()
