"""Shards: vectors that do not stay in memory are prefetched in runs of pages, and are the same vectors."""

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbq.dump import shards
from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard

PER_PAGE = mmap.PAGESIZE // 16  # rows of 16 bytes


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Address and size of what is prefetched."""
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(shards, "prefetch", lambda begin, size: ranges.append((begin, size)))
    return ranges


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Address and size of what is read here and there."""
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(shards, "expect_random_access", lambda begin, size: ranges.append((begin, size)))
    return ranges


@pytest.fixture
def shard(random_shard: Callable[..., Shard], told: list[tuple[int, int]]) -> Shard:
    """5,120 rows of 16 bytes: 20 pages."""
    return Shard(random_shard(5 * 1024).folder, stays=False)


def test_neighbours_are_prefetched_together(
    shard: Shard, told: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    ((begin, size),) = told
    assert size == shard.vectors.nbytes
    rows = np.array([4 * PER_PAGE, 9, 10, 10, 9 + PER_PAGE, 5119])
    found = shard.vectors_for(rows)
    assert found.ctypes.data == begin != shard.vectors.ctypes.data
    np.testing.assert_array_equal(found[rows], shard.vectors[rows])
    assert asked == [
        (begin + 9 * 16, (PER_PAGE + 1) * 16),
        (begin + 4 * PER_PAGE * 16, 16),
        (begin + 5119 * 16, 16),
    ]


def test_most_rows_are_read_from_end_to_end(
    shard: Shard, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "PREFETCHED", 3)
    assert shard.vectors_for(np.arange(3)) is not shard.vectors
    assert len(asked) == 1
    assert shard.vectors_for(np.arange(4)) is shard.vectors
    assert shard.vectors_for(np.arange(0)) is shard.vectors
    assert len(asked) == 1


def test_vectors_that_stay_are_not_prefetched(
    shard: Shard, asked: list[tuple[int, int]], told: list[tuple[int, int]]
) -> None:
    told.clear()
    staying = Shard(shard.folder)
    assert staying.vectors_for(np.array([7])) is staying.vectors
    assert staying.fingerprint() == shard.fingerprint()
    assert not told


@pytest.mark.parametrize("free", [0.9, 1.1])
def test_all_vectors_together_must_stay(
    kb_folder: Path, free: float, told: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(kb_folder)
    size = manifest.counts.rows * manifest.dim
    monkeypatch.setattr("kbq.system.mapping.available_memory", lambda: 2 * free * size)
    assert sum(len(shard) for shard in manifest.open_shards(kb_folder)) == manifest.counts.rows
    assert len(told) == (len(manifest.shards) if free < 1 else 0)
