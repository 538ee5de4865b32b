"""Mapping: what the system is told about files that are mapped into memory but do not stay there.

Where a page is missing it reads ahead, which suits whoever reads a whole file. A search reads a little in many places:
in a small memory, what was read ahead pushes out what is needed next. So a search reads nothing ahead, and asks for all
that it needs at once. Systems other than Linux do not say what memory is free: nothing changes there.
"""

import ctypes
import mmap
from collections.abc import Callable
from functools import cache

from kbq.system.machine import available_memory

PIECE = 2**17  # bytes asked for by one call: of more, Linux may read only as much as it would read ahead


def stays_in_memory(size: int) -> bool:
    """Whether files of so many bytes take at most half of the free memory: other things are read and made, too."""
    return size <= available_memory() / 2


def expect_random_access(address: int, size: int) -> None:
    """Tell the system to read nothing ahead in what is mapped here."""
    _advise(address, size, "MADV_RANDOM")


def prefetch(address: int, size: int) -> None:
    """Let the system read what is mapped here, while the caller goes on."""
    for begin in range(address - address % mmap.PAGESIZE, address + size, PIECE) if size else ():
        _advise(begin, min(PIECE, address + size - begin), "MADV_WILLNEED")


def _advise(address: int, size: int, advice: str) -> None:
    if size and hasattr(mmap, advice):
        begin = address - address % mmap.PAGESIZE
        _madvise()(begin, address + size - begin, getattr(mmap, advice))


@cache
def _madvise() -> Callable[[int, int, int], int]:
    """`madvise` of the C library; what it returns is not looked at, since nothing depends on it."""
    call = ctypes.CDLL(None).madvise
    call.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return call
