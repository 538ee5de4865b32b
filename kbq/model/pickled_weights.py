"""Pickled weights: a PyTorch checkpoint is looked over before it is loaded, as few bytes of it may take forever.

PyTorch builds tensors and plain values alone, but compares keys: with a tuple of tuples, each twice in the next, that
takes twice as long for every level. The parts of its archives are never compressed: those that are may have any size.
"""

import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

MOST_IN_TUPLE = 1000  # values within a tuple, all levels together: those of tensors have some twenty
PICKLES = 5  # that follow one another in a file of PyTorch before 1.6
LARGEST = 2**28  # bytes of the pickle in an archive: its tensors are beside it
DAMAGED = zipfile.BadZipFile, LookupError, ValueError, TypeError, OverflowError, MemoryError, RuntimeError, EOFError
CONTAINERS = pickletools.pylist, pickletools.pydict, pickletools.pyset  # which are no keys


class BombError(Exception):
    """A file of weights that would take far more time or memory than its size allows."""


def refuse_bombs(path: Path) -> None:
    """Refuse such a file; whatever else is wrong with one, PyTorch says when it loads it.

    Raises:
        OSError: it cannot be read.
        BombError: it is one.
    """
    with path.open("rb") as file, suppress(*DAMAGED):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                for part in archive.infolist():
                    _look_at(archive, part, path.stat().st_size)
            return
        file.seek(0)
        for _ in range(PICKLES):
            if file.peek(1):
                _follow(file)


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


def _look_at(archive: zipfile.ZipFile, part: zipfile.ZipInfo, size: int) -> None:
    if part.compress_type != zipfile.ZIP_STORED or part.file_size > size:
        raise BombError("its parts are compressed, which PyTorch does not do")
    if part.filename.endswith(".pkl"):
        if part.file_size > LARGEST:
            raise BombError(f"{part.filename:.60} has {part.file_size:,} bytes")
        with archive.open(part) as file:
            _follow(file)


def _follow(file: IO[bytes]) -> None:
    """Follow a pickle, with the number of values within each thing on its stack instead of the thing."""
    stack: list[int | None] = []  # None: a mark
    memo: dict[Any, int] = {}
    for operation, argument, _ in _operations(file):
        if "PUT" in operation.name or operation.name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1] or 1
            continue
        after = operation.stack_after
        within = 1 + sum(_popped(stack, operation.stack_before))
        if "GET" in operation.name:
            within = memo.get(argument, 1)
        elif after and after[-1] in CONTAINERS:
            within = 1
        if "TUPLE" in operation.name and within > MOST_IN_TUPLE:
            raise BombError("a tuple in its pickle has tuples within tuples")
        stack += [None if kind is pickletools.markobject else within for kind in after]


def _operations(file: IO[bytes]) -> Iterator[Any]:
    """Yield the operations of a pickle up to its end, or to where it is damaged."""
    with suppress(ValueError):
        yield from pickletools.genops(file)


def _popped(stack: list[int | None], before: list[Any]) -> list[int]:
    """Pop the values that an operation takes: those above the last mark, and some below it."""
    taken: list[int | None] = []
    count = len(before)
    if pickletools.markobject in before:
        mark = len(stack) - 1 - stack[::-1].index(None)
        taken, count = stack[mark + 1 :], before.index(pickletools.markobject)
        del stack[mark:]
    if count:
        taken = stack[-count:] + taken
        del stack[-count:]
    return [one or 1 for one in taken]
