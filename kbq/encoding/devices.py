"""Devices: where networks compute, and the 16-bit type in which they do that fast."""

import copy
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from kbq.errors import ModelError, first_line
from kbq.system.machine import cpu_has


def choose_device(name: str) -> torch.device:
    """`auto` (CUDA where there is one that works), `cpu`, `cuda` or `cuda:n`.

    Raises:
        ModelError: CUDA is asked for where there is none that computes, or the name means nothing.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and _why_not(torch.device("cuda")) is None else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ModelError(f"device {name!r} is unknown: choose auto, cpu, cuda or cuda:0, cuda:1, …", is_usage=True)
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"device {name!r} asked for, but {torch.cuda.device_count()} CUDA devices are here: "
            "use --device cpu or auto"
        )
    problem = _why_not(device) if device.type == "cuda" else None
    if problem:
        raise ModelError(f"device {name!r} cannot be used ({problem}): use --device cpu or auto")
    return device


@cache
def _why_not(gpu: torch.device) -> str | None:
    """What keeps a GPU from computing: it is full, another process has it, or it is too old for this torch."""
    try:
        torch.ones(1, device=gpu).sum().item()
    except RuntimeError as error:
        return first_line(error)
    return None


@cache
def fast_dtype(device: torch.device) -> torch.dtype:
    """The 16-bit type in which this device multiplies fast; float32 where there is none."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if cpu_has("avx512_bf16", "amx_bf16", "bf16") else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Matrix products in the device's fast type, everything else in float32."""
    dtype = fast_dtype(device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def fast_copy(network: Any, device: torch.device) -> Any:
    """A copy to encode with, everything in the device's fast type: faster than `autocast`."""
    return copy.deepcopy(network).to(fast_dtype(device)).eval()


# Fused attention over 190 tokens takes a CPU with matrix tiles (AMX) longer than over 208, and is a third of all work.
LONG, MULTIPLE = 160, 16


def pad(rows: Iterable[list[int]], value: int, device: torch.device) -> Tensor:
    """Rows of unequal length as one matrix. Shape: (rows, longest); a length above LONG is rounded up."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
    more = -padded.shape[1] % MULTIPLE if padded.shape[1] > LONG else 0
    return nn.functional.pad(padded, (0, more), value=value).to(device)


def padded(rows: Sequence[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids of texts of unequal length, and a mask, 1 where there is a token. Shapes: (texts, longest)."""
    ids = pad(rows, pad_id, device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()


def batch_tokens(device: torch.device) -> int:
    """How many tokens a network reads at once: more would fall out of a CPU's cache; a GPU takes more."""
    return 2048 if device.type == "cpu" else 65536


def readable_length(backbone: Any, wanted: int) -> int:
    """The longest input of at most `wanted` tokens that a network still reads when it is padded."""
    positions = int(getattr(backbone.config, "max_position_embeddings", wanted))
    return min(wanted, positions if positions <= LONG else positions // MULTIPLE * MULTIPLE)


def buckets(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Indices grouped into batches of similar length, each of at most `max_tokens` with its padding.

    A single text longer than `max_tokens` is a batch of its own.

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
