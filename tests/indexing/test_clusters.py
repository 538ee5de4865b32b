"""Clusters: rows find their nearest mean, and k-means finds groups that are there."""

import numpy as np
import pytest
import torch

from kbq.indexing import cells
from kbq.indexing.cells import Clusters

CENTRES = np.random.default_rng(5).integers(-90, 91, (4, 24))


@pytest.fixture(params=["whole numbers", "float32"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compare, whatever this machine's is; the first needs `torch._int_mm` only, not speed."""
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
def test_a_gpu_that_is_full_leaves_the_work_to_the_cpu(in_integers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.device("meta")  # what lies there has no values: the CPU must have done it

    def refused(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def tried(device: torch.device) -> bool:
        return (in_integers or bool(refused())) if device == full else False

    monkeypatch.setattr(cells, "has_fast_int8", tried)
    monkeypatch.setattr(cells, "int8_products", refused)
    monkeypatch.setattr(Clusters, "_compared", lambda self, rows: refused() if self._device == full else rows[:, 0])
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
        (Clusters.of(rows, len(CENTRES), seed) for seed in range(9)),  # k-means may stop at a worse place
        key=lambda tried: distances(rows, tried.means).min(axis=1).sum(),
    )
    nearest = best.nearest(rows)
    for group in range(len(CENTRES)):
        assert len(set(nearest[groups == group])) == 1
    assert np.sort(best.means, axis=0) == pytest.approx(np.sort(CENTRES, axis=0).astype(float), abs=3)


def test_it_clusters_as_well_as_faiss(rows: np.ndarray) -> None:
    faiss = pytest.importorskip("faiss")
    theirs = faiss.Kmeans(24, 40, niter=cells.ROUNDS, seed=0, min_points_per_centroid=1)
    theirs.train(rows.astype(np.float32))
    ours = Clusters.of(rows, 40).means
    assert distances(rows, ours).min(axis=1).sum() < 1.1 * distances(rows, theirs.centroids).min(axis=1).sum()


def test_a_cluster_without_rows_gets_new_ones() -> None:
    rows = np.zeros((50, 8), np.int8)
    rows[0] = 100
    means = Clusters.of(rows, 4).means
    assert {0, 100} == set(means[:, 0].tolist())


def test_the_same_seed_gives_the_same_means(rows: np.ndarray) -> None:
    assert Clusters.of(rows, 20, seed=3).means.tolist() == Clusters.of(rows, 20, seed=3).means.tolist()
    assert Clusters.of(rows, 20, seed=3).means.tolist() != Clusters.of(rows, 20, seed=4).means.tolist()


def test_no_rows_have_no_mean() -> None:
    assert Clusters(CENTRES.astype(np.float32)).nearest(np.empty((0, 24), np.int8)).shape == (0,)
