"""Rotation: inner products stay, the fewer the queries' directions the better, and it survives the file."""

from pathlib import Path

import numpy as np
import pytest

from kbq.indexing.compact import Rotation


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (500, 8)).astype(np.int8)


@pytest.fixture
def flat_queries() -> np.ndarray:
    """They use the first four of eight dimensions, at different strengths."""
    drawn = np.random.default_rng(1).normal(size=(100, 8)) * [3, 1, 1, 0.5, 0, 0, 0, 0]
    return drawn.astype(np.float32)


def test_with_all_dimensions_kept_products_stay(vectors: np.ndarray, flat_queries: np.ndarray) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=8)
    rows = vectors.astype(np.float32)
    assert (rows @ rotation.rows) @ (flat_queries @ rotation.queries).T == pytest.approx(rows @ flat_queries.T, abs=0.1)


def test_directions_that_queries_ask_for_are_kept(vectors: np.ndarray, flat_queries: np.ndarray) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=4)
    assert rotation.rows.shape == rotation.queries.shape == (8, 4)
    rows = vectors.astype(np.float32)
    true, found = rows @ flat_queries.T, (rows @ rotation.rows) @ (flat_queries @ rotation.queries).T
    error = true - found
    assert error.std() < 0.02 * true.std()


def test_what_is_lost_has_no_mean_that_would_set_one_shard_apart() -> None:
    source = np.random.default_rng(2)
    vectors = source.normal([0, 0, 0, 0, 0, 0, 0, 60], [30, 30, 30, 2, 2, 2, 2, 2], (2000, 8)).round().astype(np.int8)
    queries = source.normal(size=(100, 8)).astype(np.float32)
    rotation = Rotation.fit(vectors, queries, kept=4)
    rows = vectors.astype(np.float32)
    error = rows @ queries.T - (rows @ rotation.rows) @ (queries @ rotation.queries).T
    assert np.abs(error.mean(axis=0)).max() < 1  # around their mean, the fourth direction would be another: up to 150


@pytest.mark.parametrize("queries", [np.zeros((3, 8), np.float32), np.ones((1, 8), np.float32)])
def test_queries_that_say_little(vectors: np.ndarray, queries: np.ndarray) -> None:
    rotation = Rotation.fit(vectors[:1], queries, kept=4)
    assert np.isfinite(rotation.rows).all()
    assert np.isfinite(rotation.queries).all()


def test_a_rotation_survives_the_file(vectors: np.ndarray, flat_queries: np.ndarray, tmp_path: Path) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=3)
    rotation.save(tmp_path / "rotation.npy")
    again = Rotation.open(tmp_path / "rotation.npy")
    assert (again.rows.tolist(), again.queries.tolist()) == (rotation.rows.tolist(), rotation.queries.tolist())
