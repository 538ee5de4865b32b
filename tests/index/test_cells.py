"""Cells: their number, probes, k-means, and the errors of faiss."""

import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kbq.errors import KnowledgeBaseError
from kbq.index import cells
from kbq.index.cells import Cells, Clusters, build_cells, clusters_for, read_cells

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


@pytest.mark.parametrize(
    ("rows", "clusters"), [(0, 1), (38, 1), (900, 23), (10**6, 4000), (10**8, 40000)]
)
def test_clusters_grow_with_the_root_of_the_rows(rows: int, clusters: int) -> None:
    assert clusters_for(rows) == clusters


def test_with_all_cells_probed_it_finds_the_best(
    path: Path, vectors: np.ndarray, queries: np.ndarray
) -> None:
    true = queries @ vectors.T.astype(np.float32)
    scores = np.take_along_axis(true, Cells(read_cells(path), 10**6).search(queries, 7)[1], axis=1)
    # Queries are rounded to whole numbers.
    assert scores == pytest.approx(-np.sort(-true, axis=1)[:, :7], rel=0.01)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """First address, and the one after the last, of what is prefetched."""
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "kbq.index.cells.prefetch", lambda begin, size: ranges.append((begin, begin + size))
    )
    return ranges


def test_cells_that_are_probed_are_prefetched(
    path: Path, queries: np.ndarray, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "kbq.index.cells.expect_random_access", lambda begin, size: told.append((begin, size))
    )
    staying = Cells(read_cells(path), 3).search(queries, 7)
    assert not told
    cells = Cells(read_cells(path), 3, stay=False)
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
    cells = Cells(read_cells(path), 3, stay=False)
    mean = cells._prefetched.totsize / 23  # bytes of a cell
    monkeypatch.setattr("kbq.index.cells.PREFETCHED", int(room * mean) + 1)
    parts: list[tuple[int, int]] = []
    monkeypatch.setattr(cells, "_prefetch", lambda part, probes: parts.append((len(part), probes)))
    cells.search(queries, 7)
    assert parts == [(size, 3) for size in sizes]


def test_faiss_starts_no_threads_that_prefetch(path: Path) -> None:
    cells = Cells(read_cells(path), 3)
    assert cells._faiss.downcast_InvertedLists(cells._index.invlists).prefetch_nthread == 0


@pytest.mark.parametrize("stay", [True, False])
def test_a_query_that_is_no_number_does_no_harm(
    path: Path, queries: np.ndarray, stay: bool
) -> None:
    bad = queries.copy()
    bad[2] = np.nan
    with np.errstate(invalid="ignore"):
        _, rows = Cells(read_cells(path), 3, stay=stay).search(bad, 7)
    good = np.arange(len(queries)) != 2
    np.testing.assert_array_equal(
        rows[good], Cells(read_cells(path), 3).search(queries, 7)[1][good]
    )


def test_more_cells_find_more_of_the_best(
    path: Path, vectors: np.ndarray, queries: np.ndarray
) -> None:
    best = np.argsort(-(queries @ vectors.T.astype(np.float32)), axis=1)[:, :10]
    recall = {}
    for probes in (1, 6, 23):
        _, found = Cells(read_cells(path), probes).search(queries, 10)
        recall[probes] = np.mean(
            [np.isin(true, rows).mean() for true, rows in zip(best, found, strict=True)]
        )
    assert recall[1] < recall[6] < recall[23] == 1.0
    assert recall[6] > 0.4


def test_a_deeper_search_probes_more_cells(path: Path, queries: np.ndarray) -> None:
    for k in (100, 450, 900):
        _, found = Cells(read_cells(path), 1).search(queries, k)
        assert (found >= 0).sum(axis=1).min() >= k / 4
    assert np.sort(found, axis=1).tolist() == [list(range(900))] * 9


@pytest.mark.parametrize("content", [None, b"", b"no index"])
def test_a_missing_or_damaged_index_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.faiss").write_bytes(content)
    with pytest.raises(
        KnowledgeBaseError,
        match=r"a\.faiss is missing or damaged .*build it again with `kbq index vectors`",
    ):
        read_cells(tmp_path / "a.faiss")


def test_an_index_that_cannot_be_written_is_said(vectors: np.ndarray, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            KnowledgeBaseError, match=r"faiss cannot be written \(File too large\): free"
        ):
            build_cells(tmp_path / "cells.faiss", vectors, np.arange(900))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_without_faiss_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(KnowledgeBaseError, match=r"pip install faiss-cpu, or use exact search"):
        read_cells(tmp_path / "a.faiss")


def test_rows_are_added_whatever_the_chunk(
    vectors: np.ndarray,
    queries: np.ndarray,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.index.cells.CHUNK", 100)
    build_cells(tmp_path / "cells.faiss", vectors, np.arange(len(vectors)))
    _, found = Cells(read_cells(tmp_path / "cells.faiss"), 10**6).search(queries, 7)
    assert found.tolist() == Cells(read_cells(path), 10**6).search(queries, 7)[1].tolist()


CENTRES = np.random.default_rng(5).integers(-90, 91, (4, 24))


@pytest.fixture(params=["whole numbers", "float32"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compare, whatever this machine's is; the first needs `torch._int_mm` only, not
    speed.
    """
    monkeypatch.setattr(cells, "has_fast_int8", lambda device: request.param == "whole numbers")


@pytest.fixture
def groups() -> np.ndarray:
    found: np.ndarray = np.random.default_rng(1).integers(0, len(CENTRES), 600)
    return found


@pytest.fixture
def rows(groups: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(2).normal(0, 4, (len(groups), 24))
    found: np.ndarray = (CENTRES[groups] + noise).round().clip(-127, 127).astype(np.int8)
    return found


def distances(rows: np.ndarray, means: np.ndarray) -> np.ndarray:
    found: np.ndarray = ((rows[:, None].astype(float) - means[None].astype(float)) ** 2).sum(axis=2)
    return found


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_no_other_mean_is_clearly_nearer(dtype: type) -> None:
    random = np.random.default_rng(0)
    rows: np.ndarray = random.integers(-127, 128, (500, 24)).astype(dtype)
    means = random.normal(0, 40, (70, 24)).astype(np.float32)
    true = distances(rows, means)
    found = np.take_along_axis(true, Clusters(means).nearest(rows)[:, None], axis=1)[:, 0]
    assert (found <= 1.02 * true.min(axis=1)).all()
    assert (found == true.min(axis=1)).mean() > 0.97


@pytest.mark.parametrize("in_integers", [True, False])
def test_a_gpu_that_is_full_leaves_the_work_to_the_cpu(
    in_integers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = torch.device("meta")  # what lies there has no values: the CPU must have done it

    def refused(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def tried(device: torch.device) -> bool:
        return (in_integers or bool(refused())) if device == full else False

    monkeypatch.setattr(cells, "has_fast_int8", tried)
    monkeypatch.setattr(cells, "int8_products", refused)
    monkeypatch.setattr(
        Clusters, "_compared", lambda self, rows: refused() if self._device == full else rows[:, 0]
    )
    rows = np.array([[3, 1], [0, 2]], np.int8)
    assert Clusters(np.eye(2, dtype=np.float32), full).nearest(rows).tolist() == [3, 0]


@pytest.mark.usefixtures("way")
def test_small_values_are_compared_as_well_as_large_ones() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(0, 1e-3, (300, 24)).astype(np.float32)
    means = random.normal(0, 1e-3, (20, 24)).astype(np.float32)
    assert (Clusters(means).nearest(rows) == distances(rows, means).argmin(axis=1)).mean() > 0.97


@pytest.mark.usefixtures("way")
def test_groups_that_are_there_are_found(rows: np.ndarray, groups: np.ndarray) -> None:
    best = min(
        (
            Clusters.of(rows, len(CENTRES), seed) for seed in range(9)
        ),  # k-means may stop at a worse place
        key=lambda tried: distances(rows, tried.means).min(axis=1).sum(),
    )
    nearest = best.nearest(rows)
    for group in range(len(CENTRES)):
        assert len(set(nearest[groups == group])) == 1
    assert np.sort(best.means, axis=0) == pytest.approx(
        np.sort(CENTRES, axis=0).astype(float), abs=3
    )


def test_it_clusters_as_well_as_faiss(rows: np.ndarray) -> None:
    faiss = pytest.importorskip("faiss")
    theirs = faiss.Kmeans(24, 40, niter=cells.ROUNDS, seed=0, min_points_per_centroid=1)
    theirs.train(rows.astype(np.float32))
    ours = Clusters.of(rows, 40).means
    assert (
        distances(rows, ours).min(axis=1).sum()
        < 1.1 * distances(rows, theirs.centroids).min(axis=1).sum()
    )


def test_a_cluster_without_rows_gets_new_ones() -> None:
    rows = np.zeros((50, 8), np.int8)
    rows[0] = 100
    means = Clusters.of(rows, 4).means
    assert {0, 100} == set(means[:, 0].tolist())


def test_the_same_seed_gives_the_same_means(rows: np.ndarray) -> None:
    assert (
        Clusters.of(rows, 20, seed=3).means.tolist() == Clusters.of(rows, 20, seed=3).means.tolist()
    )
    assert (
        Clusters.of(rows, 20, seed=3).means.tolist() != Clusters.of(rows, 20, seed=4).means.tolist()
    )


def test_no_rows_have_no_mean() -> None:
    assert Clusters(CENTRES.astype(np.float32)).nearest(np.empty((0, 24), np.int8)).shape == (0,)
