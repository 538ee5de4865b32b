"""Devices: choose a device, with what suits it best."""

import copy
import re
import warnings
from collections.abc import Sequence
from functools import cache
from itertools import chain
from logging import getLogger
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbq.errors import ModelError, first_line
from kbq.storage.machine import cpu_has

# On a CPU with matrix tiles (AMX), fused attention, a third of all work, is slower over 190 tokens
# than over 208. So batches longer than LONG tokens are padded to a multiple.
LONG = 160
MULTIPLE = 16


def choose_device(name: str) -> torch.device:
    """Return the device of a name: `cpu`, `cuda`, `cuda:n`, or `auto`, which is CUDA if it works
    and else the CPU.

    Raises ModelError if the name is unknown, or there is no such device, or it does not work.
    """
    if name == "auto":
        return torch.device(
            "cuda" if _sees_gpus() and _why_not(torch.device("cuda")) is None else "cpu"
        )

    if not isinstance(name, str) or not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ModelError(
            f"device {name!r} is unknown: choose auto, cpu, cuda or cuda:0, cuda:1, …",
            is_usage=True,
        )

    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"device {name!r} does not exist, this machine has {torch.cuda.device_count()} CUDA "
            f"devices{_why_none()}: use --device=cpu or auto"
        )

    problem = None
    if device.type == "cuda":
        problem = _why_not(device)
    if problem:
        raise ModelError(f"device {name!r} cannot be used ({problem}): use --device=cpu or auto")
    return device


def _sees_gpus() -> bool:
    """Whether PyTorch sees a GPU. Of what it warns, such as a driver that is too old, the log has
    one line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sees = torch.cuda.is_available()
    for warning in caught:
        _log_once(str(warning.message).partition("\n")[0])
    return sees


@cache
def _log_once(problem: str) -> None:
    getLogger("kbq").warning("PyTorch warns of the GPU: %s", problem)


def _why_none() -> str:
    """Say why no GPU is seen, if PyTorch knows: its build has no CUDA, or the driver is too old for
    it.
    """
    if torch.cuda.device_count():
        return ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # only builds without CUDA assert
        return f" ({first_line(error)})"
    return ""


@cache
def _why_not(gpu: torch.device) -> str | None:
    """Say why a GPU cannot be used: it is full, used exclusively by another process, or too old for
    this PyTorch.
    """
    try:
        torch.ones(1, device=gpu).sum().item()
    except RuntimeError as error:
        return first_line(error)
    return None


@cache
def fast_dtype(device: torch.device) -> torch.dtype:
    """Return the 16-bit type that this device multiplies fast; float32 if there is none."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return (
                torch.bfloat16
                if torch.cuda.is_bf16_supported(including_emulation=False)
                else torch.float16
            )
    if cpu_has("avx512_bf16", "amx_bf16", "bf16"):
        return torch.bfloat16
    return torch.float32


def dtype_for(network: Any, device: torch.device) -> torch.dtype:
    """Return the type to compute a network in: the fast one, unless its configuration asks for full
    precision.
    """
    is_full = getattr(getattr(network, "config", None), "full_precision", False)
    if is_full:
        return torch.float32
    return fast_dtype(device)


def autocast(device: torch.device, network: Any = None) -> torch.autocast:
    """Compute matrix products in the type for a network, and everything else in float32."""
    dtype = dtype_for(network, device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def fast_copy(network: Any, device: torch.device) -> Any:
    """Copy a network for inference, entirely in the type for it: faster than `autocast`."""
    return copy.deepcopy(network).to(dtype_for(network, device)).eval()


def pad(rows: Sequence[list[int]], value: int, device: torch.device, length: int = 0) -> Tensor:
    """Make one matrix of rows of different lengths. Shape: (rows, `length`), by default the
    longest, rounded up.
    """
    lengths = np.array([len(row) for row in rows])
    if not length:
        length = int(lengths.max())
        if length > LONG:
            length += -length % MULTIPLE
    matrix = np.full((len(rows), length), value, np.int64)
    matrix[np.arange(length) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(rows), np.int64, lengths.sum()
    )
    return torch.from_numpy(matrix).to(device)


def padded(
    rows: Sequence[list[int]], pad_id: int, device: torch.device, length: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the token ids of texts of different lengths, and a mask, 1 for each token; shapes as
    of `pad`.
    """
    ids = pad(rows, pad_id, device, length)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()


def batch_tokens(device: torch.device) -> int:
    """Return how many tokens to encode at a time: on a CPU, as many as fit in its cache; on a GPU,
    more.
    """
    return 2048 if device.type == "cpu" else 65536


def readable_length(backbone: Any, wanted: int) -> int:
    """Return the longest input, `wanted` tokens at most, that a network can read when it is padded."""
    positions = int(getattr(backbone.config, "max_position_embeddings", wanted))
    if positions > LONG:
        positions -= positions % MULTIPLE
    return min(wanted, positions)


def buckets(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Group the indices of texts into batches of similar length, each of `max_tokens` at most,
    padding included.

    A text longer than `max_tokens` is a batch of its own.

    >>> buckets([5, 1, 4, 1], max_tokens=8)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
