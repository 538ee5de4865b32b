"""Linear layers: their weights are always loaded, and kept in a second order for products of few rows."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

FEW = 128  # rows: with more, putting the weights in order for each product costs little


class Linear(nn.Linear):
    """A linear layer that takes no time for random weights.

    For each product oneDNN first puts the weights in an order of its own, which takes longer than the product with the
    dozen rows of a query. A layer that `packs` keeps the weights in this order, too. It notices when optimisers or
    PyTorch's operators change the weights, or others are assigned, but not what is written through `.data` or NumPy.
    """

    packs = False
    _packed: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    def reset_parameters(self) -> None:
        """Leave what is in memory."""

    def forward(self, states: Tensor) -> Tensor:
        """Shapes: states (rows, dim), result (rows, other dim)."""
        if torch.is_grad_enabled():
            self._packed = None  # the weights are about to change, which a fused optimiser does not tell
        elif self.packs and states.is_cpu and states.dim() == 2 and len(states) <= FEW:
            is_cast = torch.is_autocast_enabled("cpu")
            dtype = torch.get_autocast_dtype("cpu") if is_cast else self.weight.dtype
            if (is_cast or states.dtype == dtype) and can_pack(dtype) and not self.weight.is_inference():
                return _multiplied(states.to(dtype), *self._in_order(dtype))
        return super().forward(states)

    def _in_order(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The current weights, in oneDNN's order, and the bias."""
        version = dtype, *((part.data_ptr(), part._version) for part in (self.weight, self.bias))
        packed = self._packed
        if packed is None or packed[0] != version:
            packed = self._packed = version, _reordered(self.weight.to(dtype)), self.bias.to(dtype, copy=True)
        return packed[1:]

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: not the reordered weights, which it makes again."""
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


def pack_few_rows(network: nn.Module) -> None:
    """Let all linear layers of a network keep the order that few rows need: as much memory again as their weights."""
    for module in network.modules():
        if isinstance(module, Linear):
            module.packs = True


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this PyTorch keeps weights of a type in oneDNN's order."""
    ones = torch.ones(32, 32, dtype=dtype)
    try:
        return _multiplied(ones, _reordered(ones), ones[0]).tolist() == (32 * ones + 1).tolist()
    except (AttributeError, RuntimeError):  # built without oneDNN, or for a CPU that it does not know
        return False


def _reordered(weight: Tensor) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return reordered


def _multiplied(rows: Tensor, reordered: Tensor, bias: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, reordered, bias, "none", [], "")
    return product
