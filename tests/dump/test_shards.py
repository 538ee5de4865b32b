"""Shards: vectors that do not stay in memory are prefetched in runs, and are the same vectors."""

import errno
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbq.dump import shards
from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard, open_array
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase

PAGE = mmap.PAGESIZE // 16  # rows of 16 bytes


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
    monkeypatch.setattr(
        shards, "expect_random_access", lambda begin, size: ranges.append((begin, size))
    )
    return ranges


@pytest.fixture
def folder(random_shard: Callable[..., Shard]) -> Path:
    """20 pages of rows."""
    return random_shard(20 * PAGE).folder


def test_neighbours_are_prefetched_together(
    folder: Path, told: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    shard = Shard(folder, stay=False)
    ((begin, size),) = told
    assert size == shard.vectors.nbytes
    assert begin != shard.vectors.ctypes.data  # which is read from end to end
    last = 20 * PAGE - 1
    rows = np.array([4 * PAGE, 9, 10, 10, 9 + PAGE, 11 + 2 * PAGE, last])
    np.testing.assert_array_equal(shard.vectors_of(rows), shard.vectors[rows])
    runs = [
        (9, 10 + PAGE),
        (11 + 2 * PAGE, 12 + 2 * PAGE),
        (4 * PAGE, 4 * PAGE + 1),
        (last, last + 1),
    ]
    assert asked == [(begin + first * 16, (stop - first) * 16) for first, stop in runs]
    assert shard.vectors_of(np.arange(0)).shape == (0, 16)


def test_vectors_that_stay_are_not_prefetched(folder: Path, asked: list[tuple[int, int]]) -> None:
    staying = Shard(folder)
    rows = np.array([7, 3])
    np.testing.assert_array_equal(staying.vectors_of(rows), staying.vectors[rows])
    assert not asked


def test_a_file_that_vanishes_meanwhile_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def vanishing(path: Path, *kind: Any) -> np.ndarray:
        calls.append(path)
        if calls.count(path) == 2:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return open_array(path, *kind)

    monkeypatch.setattr(shards, "open_array", vanishing)
    with pytest.raises(KnowledgeBaseError, match=r"vectors\.npy is missing"):
        Shard(folder)


@pytest.mark.parametrize("free", [0.9, 1.1])
def test_all_vectors_together_must_stay(
    kb_folder: Path, free: float, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(kb_folder)
    monkeypatch.setattr(
        "kbq.storage.machine.available_memory", lambda: 2 * free * manifest.size.rows * manifest.dim
    )
    (shard,) = manifest.open_shards(kb_folder)
    shard.vectors_of(np.array([0]))
    assert len(asked) == (free < 1)


@pytest.mark.parametrize("characters", [(2**31, 30), (5, 4), (0, 10**6)])
def test_a_phrase_outside_of_its_paragraph_is_damage(
    kb: KnowledgeBase, characters: tuple[int, int]
) -> None:
    with pytest.raises(
        KnowledgeBaseError,
        match=r"characters .* of page '.*' are not in its paragraph, in .*shard-00000",
    ):
        kb.searcher.shards[0].answer(0, 1.0, characters)
