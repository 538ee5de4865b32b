"""Pickled weights: a PyTorch checkpoint is loaded by a child process first, as few bytes of it may take forever.

PyTorch builds tensors and plain values alone, but compares keys, and unpacks parts that it would never compress itself.
"""

import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from kbq.storage.limited import MEMORY, LimitedProcess, LimitExceeded

SECONDS = 30.0  # of computing, torch's import included


def refuse_bombs(path: Path) -> None:
    """Refuse a file of weights that would take far more time or memory than its size allows.

    Whatever else is wrong with it, PyTorch says when it loads it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is one.
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
    """Refuse tensors that are not plain: without values, sparse, quantised, or larger than their storage.

    Raises:
        ValueError: the first such weight.
    """
    for name, tensor in weights.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not is_plain or tensor.is_quantized or tensor.is_nested or tensor.is_complex():
            raise ValueError(f"its weight {name:.100} is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"its weight {name:.100} has more values than are stored")
