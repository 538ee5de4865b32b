"""Mapping: what the system is told of files that are mapped into memory, so that it reads what is needed and no more.

It reads ahead when a page is missing, up to some megabytes, which is right for whoever reads all of a file. A search in
cells reads a little in many places: where the files are larger than memory, what was read ahead pushed out the rest.
"""

import ctypes
import mmap
from collections.abc import Callable
from functools import cache


def scatter(address: int, size: int) -> None:
    """What is mapped here is read in places: nothing is read ahead, where the system can be told."""
    _advise(address, size, "MADV_RANDOM")


def fetch(address: int, size: int) -> None:
    """What is mapped here is needed next: it is read from now on, all of it, while the caller does other things."""
    _advise(address, size, "MADV_WILLNEED")


def _advise(address: int, size: int, advice: str) -> None:
    if size and hasattr(mmap, advice):
        begin = address - address % mmap.PAGESIZE
        _madvise()(begin, address + size - begin, getattr(mmap, advice))


@cache
def _madvise() -> Callable[[int, int, int], int]:
    """That of the C library; what it returns is not looked at, since nothing depends on it."""
    call = ctypes.CDLL(None).madvise
    call.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return call
