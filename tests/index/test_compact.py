"""Compact and tiny: rotations keep inner products, and codes are small and good enough to select
rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kbq.answers import BuiltKind
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard, save_array
from kbq.index.base import Candidates
from kbq.index.factory import CELLS, CODES, Rotation, build_missing, open_cells, open_index

faiss = pytest.importorskip("faiss")
KINDS: tuple[BuiltKind, ...] = ("compact", "tiny")
K = 5


@pytest.mark.parametrize(
    ("kind", "dim", "kept", "size"),
    [
        ("compact", 2, 1, 1),
        ("compact", 16, 5, 3),
        ("compact", 384, 128, 64),
        ("compact", 768, 256, 128),
        ("tiny", 2, 2, 1),
        ("tiny", 16, 4, 1),
        ("tiny", 384, 128, 32),
        ("tiny", 768, 256, 64),
    ],
)
def test_bytes_of_a_code(
    kind: BuiltKind, dim: int, kept: int, size: int, random_shard: Callable[..., Shard]
) -> None:
    assert CODES[kind].kept(dim) == kept
    shard = random_shard(20, dim=dim)
    build_missing([shard], IndexEntry(kind), np.eye(dim, dtype=np.float32))
    index = faiss.read_index(str(shard.folder / kind / CELLS))
    assert (index.d, index.code_size) == (kept, size)


@pytest.fixture
def queries() -> np.ndarray:
    """They ask for 12 directions of 48, as real ones ask for few. Shape: (start and end, 20, 48)."""
    random = np.random.default_rng(1)
    return (random.normal(size=(2, 20, 12)) @ random.normal(size=(12, 48))).astype(np.float32)


@pytest.fixture
def shard(random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch) -> Shard:
    """3,200 rows in paragraphs of eight, of which few are scored again."""
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    return random_shard(*[8] * 400, dim=48)


def share_of_best_starts(shard: Shard, starts: np.ndarray, found: Sequence[Candidates]) -> float:
    best = np.argsort(-starts @ shard.vectors.T.astype(np.float32), axis=1)[:, :K]
    return float(
        np.mean([np.isin(rows, one.starts).mean() for rows, one in zip(best, found, strict=True)])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_scoring_again_makes_up_for_rough_codes(
    kind: BuiltKind, shard: Shard, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = IndexEntry(kind, probes=10**6)
    build_missing([shard], entry, np.concatenate(list(queries)))
    (found,) = open_index([shard], entry, torch.device("cpu")).candidates(queries[0], queries[1], K)
    monkeypatch.setitem(CODES, kind, replace(CODES[kind], overfetch=1))
    (rough,) = open_index([shard], entry, torch.device("cpu")).candidates(queries[0], queries[1], K)
    assert share_of_best_starts(shard, queries[0], found) > 0.95
    assert share_of_best_starts(shard, queries[0], rough) < 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_queries_may_be_asked_in_parts(
    kind: BuiltKind, shard: Shard, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = IndexEntry(kind, probes=3)
    build_missing([shard], entry, np.concatenate(list(queries)))
    index = open_index([shard], entry, torch.device("cpu"))
    (together,) = index.candidates(queries[0], queries[1], K)
    for most in (0, 7 * CODES[kind].overfetch * K):
        monkeypatch.setattr("kbq.index.cells.MOST_HITS", most)
        (parts,) = index.candidates(queries[0], queries[1], K)
        for one, other in zip(together, parts, strict=True):
            assert one.starts.tolist() == other.starts.tolist()
            assert one.complete_above == other.complete_above


@pytest.mark.parametrize("kind", KINDS)
def test_what_codes_stand_for_has_the_scores_by_codes(
    kind: BuiltKind, shard: Shard, queries: np.ndarray
) -> None:
    """faiss rounds them to steps, of which 255 span the widest table."""
    entry = IndexEntry(kind, probes=10**6, filter=1.0)
    build_missing([shard], entry, np.concatenate(list(queries)))
    (cells,) = open_cells([shard], entry)
    assert cells is not None
    scores, rows = cells.search(queries[0], 300)
    left_out = np.setdiff1d(np.arange(len(shard)), shard.rows_above(1.0))
    assert np.isnan(cells.reconstructed(np.append(left_out, 10**6))).all()
    for query, own, found in zip(queries[0].astype(np.float64), scores, rows, strict=True):
        products = cells.reconstructed(found[found >= 0]).astype(np.float64) @ query
        error = np.abs(products - own[found >= 0])
        assert error.max() < 0.02 * np.ptp(products)
        assert error.mean() < 0.01 * np.ptp(products)


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (500, 8)).astype(np.int8)


@pytest.fixture
def flat_queries() -> np.ndarray:
    """They use the first four of eight dimensions, at different strengths."""
    drawn = np.random.default_rng(1).normal(size=(100, 8)) * [3, 1, 1, 0.5, 0, 0, 0, 0]
    return drawn.astype(np.float32)


def test_with_all_dimensions_kept_products_stay(
    vectors: np.ndarray, flat_queries: np.ndarray
) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=8)
    rows = vectors.astype(np.float32)
    assert (rows @ rotation.rows) @ (flat_queries @ rotation.queries).T == pytest.approx(
        rows @ flat_queries.T, abs=0.1
    )


def test_directions_that_queries_ask_for_are_kept(
    vectors: np.ndarray, flat_queries: np.ndarray
) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=4)
    assert rotation.rows.shape == rotation.queries.shape == (8, 4)
    rows = vectors.astype(np.float32)
    true, found = (
        rows @ flat_queries.T,
        (rows @ rotation.rows) @ (flat_queries @ rotation.queries).T,
    )
    error = true - found
    assert error.std() < 0.02 * true.std()


def test_what_is_lost_has_no_mean_that_would_set_one_shard_apart() -> None:
    source = np.random.default_rng(2)
    vectors = (
        source.normal([0, 0, 0, 0, 0, 0, 0, 60], [30, 30, 30, 2, 2, 2, 2, 2], (2000, 8))
        .round()
        .astype(np.int8)
    )
    queries = source.normal(size=(100, 8)).astype(np.float32)
    rotation = Rotation.fit(vectors, queries, kept=4)
    rows = vectors.astype(np.float32)
    error = rows @ queries.T - (rows @ rotation.rows) @ (queries @ rotation.queries).T
    # Around their mean, the fourth direction would be another: up to 150.
    assert np.abs(error.mean(axis=0)).max() < 1


@pytest.mark.parametrize("queries", [np.zeros((3, 8), np.float32), np.ones((1, 8), np.float32)])
def test_queries_that_say_little(vectors: np.ndarray, queries: np.ndarray) -> None:
    rotation = Rotation.fit(vectors[:1], queries, kept=4)
    assert np.isfinite(rotation.rows).all()
    assert np.isfinite(rotation.queries).all()


def test_a_rotation_survives_the_file(
    vectors: np.ndarray, flat_queries: np.ndarray, tmp_path: Path
) -> None:
    rotation = Rotation.fit(vectors, flat_queries, kept=3)
    save_array(tmp_path / "rotation.npy", np.stack([rotation.rows, rotation.queries]))
    again = Rotation.open(tmp_path / "rotation.npy")
    assert (again.rows.tolist(), again.queries.tolist()) == (
        rotation.rows.tolist(),
        rotation.queries.tolist(),
    )
