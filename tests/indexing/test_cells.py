"""Cells: how many there are, how many are probed, and what is said where faiss cannot do its work."""

import sys
from pathlib import Path

import numpy as np
import pytest

from kbq.errors import KnowledgeBaseError
from kbq.indexing.cells import FETCHED_FOR, Cells, build_cells, clusters_for

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


def test_what_is_fetched_is_what_is_mapped(path: Path, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("kbq.indexing.cells.fetch", lambda address, size: asked.append((address, size)))
    mapped, fetching = Cells(path, 3), Cells(path, 3, fetching=True)
    for mine, its in zip(fetching.search(queries, 7), mapped.search(queries, 7), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert len(queries) > FETCHED_FOR  # in two parts
    assert 3 * 2 <= len(asked) <= 3 * len(queries)
    assert sum(size for _, size in asked) < len(queries) * 900 * (16 + 8) / 4  # bytes of a row and its number

    asked.clear()
    fetching.search(queries[:1], 900)  # all rows: all cells
    assert sum(size for _, size in asked) == pytest.approx(900 * (16 + 8), rel=0.2)
    begin = min(address for address, _ in asked)
    assert max(address + size for address, size in asked) - begin < path.stat().st_size


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
    with pytest.raises(KnowledgeBaseError, match=r'pip install "kbq\[cpu\]", or use --index exact'):
        Cells(tmp_path / "a.faiss", 1)


def test_rows_are_added_whatever_the_chunk(
    vectors: np.ndarray, queries: np.ndarray, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.indexing.cells.CHUNK", 100)
    build_cells(tmp_path / "cells.faiss", vectors, np.arange(len(vectors)))
    _, found = Cells(tmp_path / "cells.faiss", 10**6).search(queries, 7)
    assert found.tolist() == Cells(path, 10**6).search(queries, 7)[1].tolist()
