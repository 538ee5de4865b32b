"""Linear layers: packed products are the usual ones, whatever happened to the weights."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from kbq.encoding import bert
from kbq.encoding.backbone import pretrained_backbone
from kbq.encoding.bert import FEW, Linear, can_pack, pack_few_rows
from kbq.encoding.devices import autocast
from kbq.encoding.queries import QueryEncoder, encode_queries
from kbq.training.engine import Descent


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
@pytest.mark.parametrize("is_cast", [True, False])
def test_changed_weights_are_seen(name: str, is_cast: bool) -> None:
    made, states = layer(), torch.randn(5, 48)

    def is_right() -> bool:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):  # it remembers weights till its end
            return unlike(made, states) < (0.1 if is_cast else 1e-4)

    assert is_right()
    with torch.no_grad():
        getattr(made, name).mul_(-2)
    assert is_right()
    setattr(made, name, nn.Parameter(torch.randn_like(getattr(made, name))))
    assert is_right()
    assert unlike(made, states) < 1e-4  # in another type
    assert is_right()
    made.double()
    assert unlike(made, states.double()) < 1e-9


@needs_packing
def test_steps_of_a_fused_optimiser_are_seen() -> None:
    made, states = layer(), torch.randn(5, 48)
    descent = Descent(list(made.parameters()), learning_rate=0.1, warmup=0.0, steps=5)
    for _ in range(3):
        with torch.no_grad():
            before = made(states)
        descent.add(made(states).square().mean())
        descent.step()
        with torch.no_grad():
            assert (made(states) - before).abs().max() > 0.1
        assert unlike(made, states) < 1e-4


@needs_packing
def test_a_query_encoder_packs(checkpoint: Path) -> None:
    encoder = QueryEncoder(pretrained_backbone(checkpoint), shared=True).eval()
    encode_queries(encoder, [[2, 7, 3]], pad_id=0)
    layers = [part for part in encoder.modules() if isinstance(part, Linear)]
    assert len(layers) > 6
    assert all(part._packed is not None for part in layers)


@pytest.mark.parametrize("states", [torch.ones(5, 48).bfloat16(), torch.ones(5, 48).double()])
def test_what_pytorch_refuses_is_refused(states: torch.Tensor) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="dtype"):
        layer()(states)


def test_weights_of_inference_mode_are_never_packed() -> None:
    with torch.inference_mode():
        made = layer()
    for _ in range(2):
        assert unlike(made, torch.randn(5, 48)) == 0
        with torch.inference_mode():
            made.weight.mul_(2)


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

    monkeypatch.setattr(bert, "_reordered", missing)
    can_pack.cache_clear()
    try:
        made = layer()
        assert unlike(made, torch.randn(5, 48)) == 0
        assert made._packed is None
    finally:
        can_pack.cache_clear()
