"""Machine: CPU features, the tightest of all memory limits, and advice on whole pages of mapped
files.
"""

import ctypes
import errno
import math
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kbq.storage import machine
from kbq.storage.machine import (
    PIECE,
    available_memory,
    cpu_has,
    expect_random_access,
    prefetch,
    stays_in_memory,
)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    cpu_has.cache_clear()
    yield
    cpu_has.cache_clear()


def test_one_of_the_features_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Path, "read_text", lambda path: "flags\t\t: sse avx512_bf16\nFeatures\t: fp i8mm\n"
    )
    assert cpu_has("amx_bf16", "avx512_bf16")
    assert cpu_has("i8mm")
    assert not cpu_has("bf16", "avx_vnni")


def test_a_system_that_says_nothing_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert not cpu_has("avx512_bf16")


VERSION_1, VERSION_2 = (
    "6:memoryless:/\n4:freezer,memory:/jobs/mine\n0::/\n",
    "3:cpu:/\n0::/jobs/mine\n",
)
NAMES = {
    VERSION_1: ("limit_in_bytes", "usage_in_bytes", "total_"),
    VERSION_2: ("max", "current", ""),
}


@pytest.fixture(params=[VERSION_1, VERSION_2], ids=["version 1", "version 2"])
def groups(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A process in the control group /jobs/mine, on a machine with 9,000 kB free."""
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(request.param)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  99999 kB\nMemAvailable:   9000 kB\n")
    return str(request.param)


def limit(version: str, root: Path, name: str, most: str, taken: int, cached: int = 0) -> None:
    """Set up a control group."""
    limit, usage, total = NAMES[version]
    folder = root / "groups" / ("memory" if version == VERSION_1 else "") / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"memory.{limit}").write_text(f"{most}\n")
    (folder / f"memory.{usage}").write_text(f"{taken}\n")
    files = f"{total}inactive_file {cached // 2}\n{total}active_file {cached - cached // 2}\n"
    (folder / "memory.stat").write_text(f"anon 7\n{total}inactive_anon 7\n{files}")


def test_without_limits_the_machine_says_what_is_free(groups: str, tmp_path: Path) -> None:
    assert available_memory() == 9000 * 1024
    limit(groups, tmp_path, "", "max" if groups == VERSION_2 else str(2**63 - 4096), 0)
    assert available_memory() == 9000 * 1024


def test_the_tightest_group_says_what_is_free(groups: str, tmp_path: Path) -> None:
    limit(groups, tmp_path, "jobs/mine", "5000", 1500, cached=500)  # cached files can be taken back
    assert available_memory() == 4000
    limit(groups, tmp_path, "jobs", "8000", 7000)
    assert available_memory() == 1000
    limit(groups, tmp_path, "", "300", 200)
    assert available_memory() == 100
    limit(groups, tmp_path, "jobs", "8000", 8001)
    assert available_memory() == 0


def test_groups_that_are_not_this_process_do_not_count(groups: str, tmp_path: Path) -> None:
    limit(groups, tmp_path, "jobs/other", "5", 0)
    limit(groups, tmp_path, "..", "5", 0)
    assert available_memory() == 9000 * 1024


def test_a_container_sees_its_limit_where_its_groups_begin(groups: str, tmp_path: Path) -> None:
    limit(groups, tmp_path, "", "300", 200)
    assert available_memory() == 100
    next((tmp_path / "groups").rglob("memory.stat")).unlink()
    assert available_memory() == 100


def test_a_limit_that_slows_down_is_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/jobs\n")
    limit(VERSION_2, tmp_path, "jobs", "8000", 1000)
    assert available_memory() == 7000
    (tmp_path / "groups" / "jobs" / "memory.high").write_text("4000\n")
    assert available_memory() == 3000


def test_the_name_of_a_group_may_have_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/system.slice/cri:mine:7\n")
    limit(VERSION_2, tmp_path, "system.slice/cri:mine:7", "8000", 1000)
    assert available_memory() == 7000


def test_a_system_that_says_nothing_of_memory_has_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert available_memory() == math.inf


PAGE = mmap.PAGESIZE
SMAPS = Path("/proc/self/smaps")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Begin, size and advice of each call."""
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        machine, "_library", lambda: SimpleNamespace(madvise=lambda *call: calls.append(call))
    )
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


def test_systems_without_advice_get_none(
    told: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_file_is_read_where_its_file_system_maps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int | None:
        ctypes.set_errno(number)
        return machine.FAILED

    (tmp_path / "file").write_bytes(b"abc")
    monkeypatch.setattr(machine, "_library", lambda: SimpleNamespace(mmap=refused))
    number = errno.ENODEV
    mapped = machine.map_file(tmp_path / "file")
    assert (mapped.tobytes(), mapped.flags.writeable) == (b"abc", False)
    number = errno.ENOMEM
    with pytest.raises(OSError, match="Cannot allocate memory"):
        machine.map_file(tmp_path / "file")
