"""CPU: what this one can do beside what every one can."""

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
