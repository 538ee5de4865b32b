"""Machine: what its CPU can do, how much memory is free, and giving memory back."""

import ctypes
import math
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path


@cache
def cpu_has(*features: str) -> bool:
    """Whether the CPU has one of these, as Linux names them; False where nobody says so."""
    try:
        described = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return not described.isdisjoint(features)


def available_memory() -> float:
    """Bytes that a program may still take; infinite where the system does not say."""
    try:
        facts = Path("/proc/meminfo").read_text()
    except OSError:
        return math.inf
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", facts, re.MULTILINE)
    return 1024.0 * int(found[1]) if found else math.inf


def give_memory_back() -> None:
    """What the C library keeps after batches of many shapes goes back to the system.

    Without this, a training with 4,096 tokens a batch grew to 10 GB within forty minutes; with it, 1 GB is left.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """`malloc_trim` of glibc; elsewhere, nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    return trim or (lambda keep: None)
