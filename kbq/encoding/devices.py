"""Devices: where networks compute, and the 16-bit type in which they do that fast."""

import copy
import re
from functools import cache
from typing import Any

import torch

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
