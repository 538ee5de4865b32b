"""Machine: what the CPU can do, how much memory is free."""

import contextlib
import ctypes
import errno
import math
import mmap
import os
import re
import sys
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
FAILED = ctypes.c_void_p(-1).value  # what `mmap` returns then
OFFSET = ctypes.c_int64 if sys.maxsize > 2**32 else ctypes.c_long
# Files of cgroups: the one with usage, and those with limits.
VERSION_1 = "memory.usage_in_bytes", ("memory.limit_in_bytes",)
VERSION_2 = "memory.current", ("memory.max", "memory.high")
PIECE = 2**17  # bytes per madvise call: of a larger range, Linux may read only its usual read-ahead


@cache
def cpu_has(*features: str) -> bool:
    try:
        described = set((PROC / "cpuinfo").read_text().split())
    except OSError:
        return False
    return not described.isdisjoint(features)


def available_memory() -> float:
    """Return the bytes that the machine and the cgroups of this process have left, or infinity if
    that is unknown.
    """
    kilobytes = _numbers(PROC / "meminfo", r"^MemAvailable:\s+(\d+) kB$")
    return min([*(1024.0 * number for number in kilobytes), *_free_of_groups()], default=math.inf)


def _numbers(path: Path, pattern: str) -> list[int]:
    """Return all numbers that a pattern finds in a file of the system, which may be missing."""
    try:
        return [int(number) for number in re.findall(pattern, path.read_text(), re.MULTILINE)]
    except OSError:
        return []


def _free_of_groups() -> Iterator[float]:
    """Yield the bytes left to each cgroup of this process and to its ancestors, which limit a
    container.
    """
    try:
        groups = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return

    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = GROUPS / "memory" if controllers else GROUPS  # version 1, or 2
        usage, limits = VERSION_1 if controllers else VERSION_2
        own_folder = root / path.lstrip("/")
        for folder in (own_folder, *own_folder.parents[: len(own_folder.relative_to(root).parts)]):
            for limit in limits:
                # Hidden from a container, or "max": no limit.
                with contextlib.suppress(OSError, ValueError):
                    most, used = (int((folder / name).read_text()) for name in (limit, usage))
                    total = "total_" if controllers else ""
                    cached = sum(
                        _numbers(folder / "memory.stat", rf"^{total}(?:in)?active_file (\d+)$")
                    )
                    # The system drops its cache when memory is needed.
                    yield max(0.0, most - used + cached)


def stays_in_memory(size: int) -> bool:
    """Return whether files of `size` bytes fit in half of the free memory, and so stay cached."""
    return size <= available_memory() / 2


@cache
def _library() -> Any:
    """Return the system's functions for maps, with the types of their arguments."""
    library = ctypes.CDLL(None, use_errno=True)
    pointer = ctypes.c_void_p
    size = ctypes.c_size_t
    number = ctypes.c_int
    library.mmap.argtypes = (pointer, size, number, number, number, OFFSET)
    library.mmap.restype = pointer
    library.munmap.argtypes = (pointer, size)
    library.madvise.argtypes = (pointer, size, number)
    return library


def give_memory_back() -> None:
    """Return freed memory, which glibc keeps after batches of many shapes, to the system.

    Training with 4,096 tokens a batch grew to 10 GB within forty minutes without this, to 1 GB with
    it.
    """
    if sys.platform == "linux" and hasattr(_library(), "malloc_trim"):
        _library().malloc_trim(0)


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map a file read-only, on Linux and macOS without keeping it open. Raises OSError.

    Before Python 3.13, its own maps keep a descriptor each, and each shard has two dozen files.
    """
    if os.name != "posix":
        return np.asarray(np.memmap(path, np.uint8, "r"))
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:  # nothing cannot be mapped
            return np.empty(0, np.uint8)
        address = _library().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)

    if address == FAILED:
        number = ctypes.get_errno()
        # Some file systems, such as VirtualBox's shared folders, map no files.
        if number == errno.ENODEV:
            return np.frombuffer(path.read_bytes(), np.uint8)
        raise OSError(number, os.strerror(number), str(path))

    memory = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, _library().munmap, address, size).atexit = False
    mapped = np.ctypeslib.as_array(memory)
    mapped.flags.writeable = False

    return mapped


def expect_random_access(address: int, size: int) -> None:
    """Turn off read-ahead for memory-mapped bytes."""
    _advise(address, size, "MADV_RANDOM")


def prefetch(address: int, size: int) -> None:
    """Have the system read memory-mapped bytes in the background."""
    for begin in range(address - address % mmap.PAGESIZE, address + size, PIECE) if size else ():
        _advise(begin, min(PIECE, address + size - begin), "MADV_WILLNEED")


def _advise(address: int, size: int, advice: str) -> None:
    """Advise the system, which may fail without harm."""
    if size and hasattr(mmap, advice):
        begin = address - address % mmap.PAGESIZE
        _library().madvise(begin, address + size - begin, getattr(mmap, advice))
