"""Weights: the parameters of networks by name, in float32 or as int8 with one scale per row of a matrix.

int8 has a quarter of the bytes. Beside a matrix NAME, of shape (rows, columns), stand its scales, NAME.scale (rows, 1).
"""

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from kbq.errors import ModelError
from kbq.options import WeightType

NamedTensors = dict[str, Tensor]
WEIGHTS = "model.safetensors"  # the file of a model folder
FACTS = "training.json"  # how the weights of a folder without a configuration of kbq's came about


def named_weights(network: nn.Module, prefix: str, without: Tensor | None = None) -> NamedTensors:
    """Parameters by name; a parameter under two names is kept under the first, `without` is left out."""
    seen = set() if without is None else {without.data_ptr()}
    named = {}
    for name, tensor in network.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            named[prefix + name] = tensor.detach().cpu().contiguous()
    return named


def pack(weights: NamedTensors, weight_type: WeightType) -> NamedTensors:
    """The tensors as they are stored: int8 with scales, or float32."""
    if weight_type == "float32":
        return {name: tensor.float() for name, tensor in weights.items()}
    packed = {}
    for name, tensor in weights.items():
        if tensor.ndim != 2:
            packed[name] = tensor.float()
            continue
        step = tensor.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        packed[name] = (tensor / step).round().to(torch.int8)
        packed[f"{name}.scale"] = step.float()
    return packed


def read_weights(path: Path, prefix: str = "") -> NamedTensors:
    """The weights of a file whose names begin with `prefix`, unpacked.

    Raises OSError, SafetensorError, or ValueError where a scale is missing.
    """
    stored = {name: tensor for name, tensor in load_file(path).items() if name.startswith(prefix)}
    weights = {name: tensor for name, tensor in stored.items() if not name.endswith(".scale")}
    return {
        name: tensor.float() * _scale_of(stored, name) if tensor.dtype == torch.int8 else tensor
        for name, tensor in weights.items()
    }


def _scale_of(stored: NamedTensors, name: str) -> Tensor:
    if f"{name}.scale" not in stored:
        raise ValueError(f"it lacks {name}.scale")
    return stored[f"{name}.scale"]


def load_weights(
    network: nn.Module, weights: NamedTensors, prefix: str, folder: Path, given: Tensor | None = None
) -> None:
    """Load every parameter but the `given` one, or refuse: a missing one must never stay random.

    Raises:
        ModelError: weights of the model in `folder` are missing, or of other shapes.
    """
    tensors = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    shared = {tensor.data_ptr() for name, tensor in network.state_dict().items() if name in tensors}
    shared |= set() if given is None else {given.data_ptr()}
    missing = []
    for name, tensor in network.state_dict().items():
        if name not in tensors and tensor.data_ptr() not in shared:
            missing.append(name)
    if missing:
        raise ModelError(f"model folder {folder} lacks {len(missing)} weights, the first is {prefix}{missing[0]}")
    try:
        network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"the weights in {folder} do not fit its config: {str(error).splitlines()[-1].strip()}"
        ) from None


def fingerprint(weights: NamedTensors) -> str:
    """Tells these weights from any other's."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()[:16]
