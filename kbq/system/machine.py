"""Machine: what its CPU can do, how much memory is free, and giving memory back."""

import contextlib
import ctypes
import math
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class _Version(NamedTuple):
    """How one version of control groups names its files; `total`: how sums with subgroups begin in `memory.stat`."""

    folder: str
    limits: tuple[str, ...]
    usage: str
    total: str


VERSION_1 = _Version("memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_")
VERSION_2 = _Version("", ("memory.max", "memory.high"), "memory.current", "")


@cache
def cpu_has(*features: str) -> bool:
    """Whether the CPU has one of these, as Linux names them; False where that is not known."""
    try:
        described = set((PROC / "cpuinfo").read_text().split())
    except OSError:
        return False
    return not described.isdisjoint(features)


def available_memory() -> float:
    """Bytes that this process may still take, of the machine and of its control groups; infinite if unknown."""
    return min([_free_of_machine(), *_free_of_groups()])


def _free_of_machine() -> float:
    try:
        facts = (PROC / "meminfo").read_text()
    except OSError:
        return math.inf
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", facts, re.MULTILINE)
    return 1024.0 * int(match[1]) if match else math.inf


def _free_of_groups() -> Iterator[float]:
    """What each group of this process, and each above it, has left: containers have such limits."""
    try:
        groups = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version = VERSION_1 if controllers else VERSION_2
        root = GROUPS / version.folder
        own_folder = root / path.lstrip("/")
        for folder in (own_folder, *own_folder.parents[: len(own_folder.relative_to(root).parts)]):
            for limit in version.limits:
                with contextlib.suppress(OSError, ValueError):  # not there (in a container), or "max": no limit
                    most, taken = (int((folder / name).read_text()) for name in (limit, version.usage))
                    yield max(0.0, most - taken + _cached(folder, version))


def _cached(group: Path, version: _Version) -> int:
    """Bytes of files that a group has read: they go when it needs memory."""
    try:
        facts = (group / "memory.stat").read_text()
    except OSError:
        return 0
    return sum(map(int, re.findall(rf"^{version.total}(?:in)?active_file (\d+)$", facts, re.MULTILINE)))


def give_memory_back() -> None:
    """Give the system back what the C library keeps after batches of many shapes.

    Without this, a training with 4,096 tokens a batch grew to 10 GB within forty minutes; with it, 1 GB is left.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """`malloc_trim` of glibc; elsewhere, nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    return trim or (lambda keep: None)


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
