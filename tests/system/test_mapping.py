"""What the system is told of mapped files: whole pages, each range in pieces that it does not cut."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from kbq.system import machine
from kbq.system.machine import PIECE, expect_random_access, prefetch, stays_in_memory

PAGE = mmap.PAGESIZE
SMAPS = Path("/proc/self/smaps")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Begin, size and advice of each call."""
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr(machine, "_madvise", lambda: lambda *call: calls.append(call))
    monkeypatch.setattr(mmap, "MADV_RANDOM", 1, raising=False)
    monkeypatch.setattr(mmap, "MADV_WILLNEED", 3, raising=False)
    return calls


def test_advice_begins_with_a_page(told: list[tuple[int, ...]]) -> None:
    expect_random_access(7 * PAGE + 5, 2 * PAGE)
    assert told == [(7 * PAGE, 2 * PAGE + 5, 1)]


def test_large_ranges_are_prefetched_in_pieces(told: list[tuple[int, ...]]) -> None:
    prefetch(PAGE + 7, 2 * PIECE + 2)
    assert told == [(PAGE, PIECE, 3), (PAGE + PIECE, PIECE, 3), (PAGE + 2 * PIECE, 9, 3)]


def test_nothing_is_said_of_nothing(told: list[tuple[int, ...]]) -> None:
    expect_random_access(PAGE, 0)
    prefetch(PAGE + 7, 0)
    assert not told


def test_systems_without_advice_get_none(told: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_RANDOM")
    monkeypatch.delattr(mmap, "MADV_WILLNEED")
    expect_random_access(PAGE, 9)
    prefetch(PAGE, 9)
    assert not told


@pytest.mark.skipif(not SMAPS.exists() or "VmFlags" not in SMAPS.read_text(), reason="needs Linux")
def test_linux_remembers_it(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(9000))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    pattern = rf" {re.escape(str(tmp_path / 'rows.npy'))}\n(?:\w+:.*\n)*?VmFlags:.* rr"
    assert not re.search(pattern, SMAPS.read_text())
    expect_random_access(rows.ctypes.data, rows.nbytes)
    assert re.search(pattern, SMAPS.read_text())
    prefetch(rows.ctypes.data, rows.nbytes)
    assert int(rows.sum()) == 9000 * 8999 // 2


def test_half_of_the_free_memory_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 100.0)
    assert stays_in_memory(50)
    assert not stays_in_memory(51)
