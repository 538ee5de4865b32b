"""Cells: how many there are, how many are probed, and what is said where faiss cannot do its work."""

import sys
from pathlib import Path

import numpy as np
import pytest

from kbq.errors import KnowledgeBaseError
from kbq.indexing.cells import Cells, build_cells, clusters_for

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (900, 16), np.int8)


@pytest.fixture(scope="module")
def path(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "cells.faiss"
    build_cells(path, vectors, np.arange(len(vectors)))
    return path


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(9, 16)).astype(np.float32)


@pytest.mark.parametrize(("rows", "clusters"), [(0, 1), (38, 1), (900, 23), (10**6, 4000), (10**8, 40000)])
def test_clusters_grow_with_the_root_of_the_rows(rows: int, clusters: int) -> None:
    assert clusters_for(rows) == clusters


def test_with_all_cells_probed_it_finds_the_best(path: Path, vectors: np.ndarray, queries: np.ndarray) -> None:
    true = queries @ vectors.T.astype(np.float32)
    scores = np.take_along_axis(true, Cells(path, 10**6).search(queries, 7)[1], axis=1)
    assert scores == pytest.approx(-np.sort(-true, axis=1)[:, :7], rel=0.01)  # queries are rounded to whole numbers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """First address, and the one after the last, of what is prefetched."""
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr("kbq.indexing.cells.prefetch", lambda begin, size: ranges.append((begin, begin + size)))
    return ranges


def test_cells_that_are_probed_are_prefetched(
    path: Path, queries: np.ndarray, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("kbq.indexing.cells.expect_random_access", lambda begin, size: told.append((begin, size)))
    staying = Cells(path, 3).search(queries, 7)
    assert not told
    cells = Cells(path, 3, stay=False)
    for mine, its in zip(cells.search(queries, 7), staying, strict=True):
        np.testing.assert_array_equal(mine, its)
    (mapped,) = told
    assert len(asked) > 6
    assert min(begin for begin, _ in asked) >= mapped[0]
    assert max(stop for _, stop in asked) <= sum(mapped)

    asked.clear()
    cells.search(queries[:1], 900)  # all rows: all cells, which lie side by side
    in_order = sorted(asked)
    assert [stop for _, stop in in_order[:-1]] == [begin for begin, _ in in_order[1:]]
    assert in_order[-1][1] - in_order[0][0] == 900 * (16 + 8)  # a row, and its number


@pytest.mark.parametrize(("room", "sizes"), [(10**9, [9]), (2 * 3, [2, 2, 2, 2, 1]), (0, [1] * 9)])
def test_no_more_cells_are_prefetched_than_there_is_room_for(
    path: Path, queries: np.ndarray, room: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = Cells(path, 3, stay=False)
    mean = cells._prefetched.totsize / 23  # bytes of a cell
    monkeypatch.setattr("kbq.indexing.cells.PREFETCHED", int(room * mean) + 1)
    parts: list[tuple[int, int]] = []
    monkeypatch.setattr(cells, "_prefetch", lambda part, probes: parts.append((len(part), probes)))
    cells.search(queries, 7)
    assert parts == [(size, 3) for size in sizes]


def test_faiss_starts_no_threads_that_prefetch(path: Path) -> None:
    cells = Cells(path, 3)
    assert cells._faiss.downcast_InvertedLists(cells._index.invlists).prefetch_nthread == 0


@pytest.mark.parametrize("stay", [True, False])
def test_a_query_that_is_no_number_does_no_harm(path: Path, queries: np.ndarray, stay: bool) -> None:
    bad = queries.copy()
    bad[2] = np.nan
    with np.errstate(invalid="ignore"):
        _, rows = Cells(path, 3, stay=stay).search(bad, 7)
    good = np.arange(len(queries)) != 2
    np.testing.assert_array_equal(rows[good], Cells(path, 3).search(queries, 7)[1][good])


def test_more_cells_find_more_of_the_best(path: Path, vectors: np.ndarray, queries: np.ndarray) -> None:
    best = np.argsort(-(queries @ vectors.T.astype(np.float32)), axis=1)[:, :10]
    recall = {}
    for probes in (1, 6, 23):
        _, found = Cells(path, probes).search(queries, 10)
        recall[probes] = np.mean([np.isin(true, rows).mean() for true, rows in zip(best, found, strict=True)])
    assert recall[1] < recall[6] < recall[23] == 1.0
    assert recall[6] > 0.4


def test_a_deeper_search_probes_more_cells(path: Path, queries: np.ndarray) -> None:
    for k in (100, 450, 900):
        _, found = Cells(path, 1).search(queries, k)
        assert (found >= 0).sum(axis=1).min() >= k / 4
    assert np.sort(found, axis=1).tolist() == [list(range(900))] * 9


@pytest.mark.parametrize("content", [None, b"", b"no index"])
def test_a_missing_or_damaged_index_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.faiss").write_bytes(content)
    with pytest.raises(KnowledgeBaseError, match=r"a\.faiss is missing or damaged .*build it again with `kbq index`"):
        Cells(tmp_path / "a.faiss", 1)


def test_an_index_that_cannot_be_written_is_said(vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseError, match=r"faiss cannot be written \(No such file or directory\): make"):
        build_cells(tmp_path / "gone" / "cells.faiss", vectors, np.arange(900))


def test_without_faiss_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(KnowledgeBaseError, match=r'pip install "kbq\[cpu\]"; exact search needs none'):
        Cells(tmp_path / "a.faiss", 1)


def test_rows_are_added_whatever_the_chunk(
    vectors: np.ndarray, queries: np.ndarray, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.indexing.cells.CHUNK", 100)
    build_cells(tmp_path / "cells.faiss", vectors, np.arange(len(vectors)))
    _, found = Cells(tmp_path / "cells.faiss", 10**6).search(queries, 7)
    assert found.tolist() == Cells(path, 10**6).search(queries, 7)[1].tolist()
