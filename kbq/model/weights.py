"""Weights: read the parameters of networks from safetensors or a checked PyTorch checkpoint, and write them.

They are stored by name, in float32, or in int8 with a scale per row, a quarter of the bytes: a matrix NAME of shape
(rows, columns) then comes with NAME.scale, of shape (rows, 1).

Of a pickle, PyTorch builds tensors and plain values alone. A child process tries it first, as it may take very long.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kbq.answers import WeightType
from kbq.errors import ModelError
from kbq.model.model_folder import CONFIG, ModelConfig, explained
from kbq.storage.limited import MEMORY, LimitedProcess, LimitExceeded
from kbq.storage.writing import replacing

WEIGHTS = "model.safetensors"
HEADER_LENGTH, METADATA = 8, "__metadata__"  # of a safetensors file: bytes that say how long its header is; facts there
NamedTensors = dict[str, Tensor]

SECONDS = 30.0  # of computing, torch's import included


def named_weights(network: nn.Module, prefix: str, without: Tensor | None = None) -> NamedTensors:
    """Return the parameters of a network by name, except `without`; a shared one appears under its first name only."""
    seen = set() if without is None else {without.data_ptr()}
    named = {}
    for name, tensor in network.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            named[prefix + name] = tensor.detach().cpu().contiguous()
    return named


def pack(weights: NamedTensors, weight_type: WeightType) -> NamedTensors:
    """Return the tensors to store: float32, or int8 with scales."""
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


def save_tensors(weights: NamedTensors, path: Path, facts: Mapping[str, str] | None = None) -> None:
    """Replace a file of weights; equal weights and facts give equal bytes. Raises OSError or SafetensorError."""
    with replacing(path) as partial:
        save_file(weights, partial, dict(facts) if facts else None)
        if not facts or len(facts) == 1:
            return
        with partial.open("r+b") as file:  # safetensors writes facts in an order that differs between runs
            size = int.from_bytes(file.read(HEADER_LENGTH), "little")
            header = json.loads(file.read(size))
            header[METADATA] = dict(sorted(header[METADATA].items()))
            file.seek(HEADER_LENGTH)
            file.write(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size))


def read_weights(path: Path, prefix: str = "") -> NamedTensors:
    """Read the weights of a file whose names begin with `prefix`; int8 becomes float32. Raises ModelError."""
    with explained(path):
        stored = {name: tensor for name, tensor in load_file(path).items() if name.startswith(prefix)}
        refuse_not_finite(stored)
        return unpacked(stored)


def read_model_weights(folder: Path, config: ModelConfig) -> NamedTensors:
    """Read the weights of a model folder as they are stored.

    Raises ModelError if they are missing or damaged, or have other fingerprints than the config names.
    """
    with explained(folder / WEIGHTS):
        stored: NamedTensors = load_file(folder / WEIGHTS)
        parts = {"query": {name: tensor for name, tensor in stored.items() if name.startswith("queries.")}}
        if not config.base:
            parts["phrase"] = {name: tensor for name, tensor in stored.items() if name not in parts["query"]}
        for side, weights in parts.items():
            named, found = getattr(config, f"{side}_fingerprint"), fingerprint(weights)
            if named != found:
                raise ValueError(f"its {side} fingerprint is {found}, {CONFIG} names {named}")
        refuse_not_finite(stored)
        return stored


def unpacked(stored: NamedTensors) -> NamedTensors:
    """Return stored weights, with int8 as float32. Raises ValueError if a scale is missing, or of another shape."""
    weights = {name: tensor for name, tensor in stored.items() if not name.endswith(".scale")}
    for name, tensor in weights.items():
        if tensor.dtype == torch.int8:
            scale = stored.get(f"{name}.scale")
            if scale is None or scale.shape != (*tensor.shape[:1], 1):  # with another shape, it could be any size
                raise ValueError(f"it lacks {name}.scale, a number for each of {len(tensor):,} rows")
            weights[name] = tensor.float() * scale
    return weights


def refuse_not_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError for NaN and infinity, with which all answers are equally good, and for unusual types."""
    for name, tensor in weights.items():
        if tensor.is_complex() or (tensor.is_floating_point() and tensor.itemsize < 2):
            raise ValueError(f"its weight {name} holds {tensor.dtype}, which kbq does not read")
        # A pass without a copy, 20 times faster than `isfinite` of all elements; NaN is both the least and the most.
        if tensor.is_floating_point() and tensor.numel() and not all(map(math.isfinite, map(float, tensor.aminmax()))):
            raise ValueError(f"its weight {name} holds NaN or infinity")


def load_weights(
    network: nn.Module, weights: NamedTensors, prefix: str, folder: Path, given: Tensor | None = None
) -> None:
    """Load all parameters of a network except `given` from the weights, float32 or as stored, that begin with `prefix`.

    Raises ModelError if weights of the model in `folder` are missing, and would stay uninitialised, have other shapes
    or no place, or the place of another weight with other values.
    """
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    with explained(folder / WEIGHTS):
        tensors = unpacked(own)
    places = network.state_dict()
    taken = {} if given is None else {given.data_ptr(): given}
    surplus = [name for name in tensors if name not in places]
    for name, place in places.items():
        if name in tensors:
            there = taken.setdefault(place.data_ptr(), tensors[name])
            if there is not tensors[name] and not torch.equal(there, tensors[name]):
                surplus.append(name)
    if surplus:
        raise ModelError(
            f"model folder {folder} has {len(surplus)} weights that its config has no place for, the first is "
            f"{prefix}{surplus[0]}: put back the config that belongs to them"
        )
    missing = [name for name, place in places.items() if place.data_ptr() not in taken]
    if missing:
        raise ModelError(f"model folder {folder} lacks {len(missing)} weights, the first is {prefix}{missing[0]}")
    try:
        network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"the weights in {folder} do not fit its config: {str(error).splitlines()[-1].strip()}"
        ) from None


def refuse_other_weights(weights: Iterable[str], prefixes: tuple[str, ...], folder: Path) -> None:
    """Raise ModelError for weights that belong to none of the networks of a folder."""
    others = [name for name in weights if not name.startswith(prefixes)]
    if others:
        raise ModelError(f"model folder {folder} has {len(others)} weights of no network, the first is {others[0]}")


def fingerprint(weights: NamedTensors) -> str:
    """Return a digest that identifies these weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].reshape(-1).view(torch.uint8).numpy().data)  # NumPy does not have every type
    return digest.hexdigest()[:16]


def refuse_bombs(path: Path) -> None:
    """Raise ValueError for a pickle that would take far more time or memory than its size allows.

    PyTorch says all else that is wrong with it when it loads it.
    """
    size = path.stat().st_size
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > size:
            raise ValueError("its parts are compressed, which PyTorch does not do")
    try:
        with LimitedProcess() as process:
            process.call(_try, path, seconds=SECONDS, memory=MEMORY + size)
    except LimitExceeded as problem:
        raise ValueError(str(problem)) from None


def _try(path: Path) -> None:
    with suppress(Exception):
        torch.load(path, "meta", weights_only=True, mmap=zipfile.is_zipfile(path))


def refuse_unusual(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError for tensors that are not plain: without values, sparse, quantised, larger than their storage."""
    for name, tensor in weights.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not is_plain or tensor.is_quantized or tensor.is_nested or tensor.is_complex():
            raise ValueError(f"its weight {name:.100} is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"its weight {name:.100} has more values than are stored")
