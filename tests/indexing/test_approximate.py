"""Approximate search: the scores of what it finds are exact, and with all cells probed it finds everything."""

import sys
from pathlib import Path

import numpy as np
import pytest

from kbq import kb as kb_module
from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError
from kbq.indexing import approximate, choice
from kbq.indexing.approximate import ApproximateIndex, build_approximate, clusters_for
from kbq.kb import Backend, KnowledgeBase
from kbq.records import Document

pytest.importorskip("faiss")

ONE_EACH = np.arange(1, 901)  # every row is a paragraph of its own


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (900, 16)).astype(np.int8)


@pytest.fixture(scope="module")
def path(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "approximate.faiss"
    build_approximate(vectors, path)
    return path


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(9, 16)).astype(np.float32)


@pytest.mark.parametrize(("rows", "clusters"), [(0, 1), (38, 1), (900, 23), (10**6, 4000), (10**8, 40000)])
def test_clusters_grow_with_the_root_of_the_rows(rows: int, clusters: int) -> None:
    assert clusters_for(rows) == clusters


def truth(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Float64 scores. Shape: (queries, rows)."""
    return queries.astype(np.float64) @ vectors.astype(np.float64).T


@pytest.mark.parametrize("k", [1, 7, 40])
def test_with_all_cells_probed_it_finds_the_best_starts_and_ends(
    k: int, path: Path, vectors: np.ndarray, queries: np.ndarray
) -> None:
    starts, ends = queries[:4], queries[4:8]
    opens, closes = truth(vectors, starts), truth(vectors, ends)
    found = ApproximateIndex(path, 10**6, ONE_EACH).candidates(starts, ends, k)
    for candidates, opening, closing in zip(found, opens, closes, strict=True):
        best_starts, best_ends = np.argsort(-opening)[:k], np.argsort(-closing)[:k]
        before_ends = {row for end in best_ends for row in range(max(0, end - 19), end + 1)}
        assert candidates.starts.tolist() == sorted({*best_starts, *before_ends})
        bound = opening[best_starts[-1]] + closing[best_ends[-1]]
        assert candidates.complete_above == pytest.approx(bound, abs=1e-3)


def test_at_full_depth_it_finds_every_row(path: Path, queries: np.ndarray) -> None:
    for candidates in ApproximateIndex(path, 10**6, ONE_EACH).candidates(queries, queries, 900):
        assert candidates.starts.tolist() == list(range(900))
        assert candidates.complete_above == -np.inf


@pytest.mark.parametrize("k", [1, 7])
def test_paragraphs_with_the_largest_bonus_are_candidates(k: int, path: Path, queries: np.ndarray) -> None:
    index = ApproximateIndex(path, 10**6, np.arange(10, 901, 10))  # ten rows a paragraph
    bonus = np.random.default_rng(2).normal(size=(1, 90)).astype(np.float32)
    (alone,) = index.candidates(queries[:1], queries[1:2], k)
    (found,) = index.candidates(queries[:1], queries[1:2], k, bonus)
    best = np.argsort(-bonus[0])
    rows = {10 * paragraph + row for paragraph in best[:k].tolist() for row in range(10)}
    assert found.starts.tolist() == sorted({*alone.starts.tolist(), *rows})
    assert found.complete_above == pytest.approx(alone.complete_above + bonus[0, best[k]])


def test_more_cells_find_more_of_the_best(path: Path, vectors: np.ndarray, queries: np.ndarray) -> None:
    best = np.argsort(-truth(vectors, queries), axis=1)[:, :10]
    recall = {}
    for probes in (1, 6, 23):
        found = ApproximateIndex(path, probes, ONE_EACH).candidates(queries, np.zeros_like(queries), 10)
        recall[probes] = np.mean([np.isin(rows, one.starts).mean() for rows, one in zip(best, found, strict=True)])
    assert recall[1] < recall[6] < recall[23] == 1.0
    assert recall[6] > 0.4


@pytest.mark.parametrize("content", [None, b"", b"no index"])
def test_a_missing_or_damaged_index_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.faiss").write_bytes(content)
    with pytest.raises(KnowledgeBaseError, match=r"a\.faiss is missing or damaged .*build it again"):
        ApproximateIndex(tmp_path / "a.faiss", 1, ONE_EACH)


def test_an_index_that_cannot_be_written_is_said(vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseError, match=r"faiss\.tmp cannot be written \(No such file or directory\): make"):
        build_approximate(vectors, tmp_path / "gone" / "approximate.faiss")


def test_without_faiss_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(KnowledgeBaseError, match=r'pip install "kbq\[cpu\]", or use --index exact'):
        ApproximateIndex(tmp_path / "a.faiss", 1, ONE_EACH)


@pytest.mark.parametrize(("limit", "kind"), [(10**6, "exact"), (10, "approximate")])
def test_auto_chooses_by_size(
    limit: int,
    kind: str,
    documents: list[Document],
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "EXACT_ROWS", limit)
    kb = KnowledgeBase.build(documents, tmp_path / "kb", model)
    assert kb.manifest.index.kind == kind


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
def test_an_approximate_knowledge_base_answers_like_an_exact_one(
    backend: Backend, documents: list[Document], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "clusters_for", lambda rows: 1)  # then every cell is probed
    monkeypatch.setattr(kb_module, "HITS", 3)
    texts = ["the river", "Marie Curie [SEP] place of birth"]
    exact, near = (
        KnowledgeBase.build(documents, tmp_path / kind, model, index=kind, sparse=True).search(
            texts, 5, backend=backend
        )
        for kind in ("exact", "approximate")
    )
    for one, other in zip(exact, near, strict=True):
        assert [hit.phrase for hit in one] == [hit.phrase for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-3)
