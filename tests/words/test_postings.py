"""Postings: sums that can be checked by eye, and that equal those of scipy's sparse matrices."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from kbq.errors import KnowledgeBaseError
from kbq.storage.writing import move
from kbq.words.postings import Entries, Postings, write_postings


def write(folder: Path, vocabulary: list[str], *entries: tuple[int, int, float]) -> None:
    """Impacts of (passage, term, weight)."""
    passages, terms, weights = zip(*entries, strict=True) if entries else ((), (), ())
    found = Entries(
        np.array(passages, np.int32), np.array(terms, np.int32), np.array(weights, np.float32)
    )
    write_postings(folder, vocabulary, found, "weights", of="")


def opened(folder: Path, count: int) -> Postings:
    postings = Postings(folder, "weights")
    postings.expect(count)
    return postings


@pytest.fixture
def index(tmp_path: Path) -> Postings:
    """Four passages: 0 has b, 1 has a and b, 2 has é, 3 nothing."""
    write(tmp_path / "i", ["b", "é", "a"], (0, 0, 0.5), (1, 2, 1.0), (1, 0, 0.25), (2, 1, 4.0))
    return opened(tmp_path / "i", 4)


@pytest.mark.parametrize(
    ("terms", "scores"),
    [
        (["a"], [0, 1, 0, 0]),
        (["b", "a"], [0.5, 1.25, 0, 0]),
        (["b", "b"], [1, 0.5, 0, 0]),
        (["é", "unknown", "", "z", "A"], [0, 0, 4, 0]),
        (["unknown"], [0, 0, 0, 0]),
        ([], [0, 0, 0, 0]),
    ],
)
def test_scores_are_sums_of_impacts(
    terms: Sequence[str], scores: list[float], index: Postings
) -> None:
    assert index.scores(terms).tolist() == scores


def test_scores_equal_those_of_a_sparse_matrix(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    dense = source.random((300, 40)) * (source.random((300, 40)) < 0.1)
    dense[:, 7] = 0  # a term that no passage has
    matrix = scipy.sparse.csc_matrix(dense.astype(np.float32))
    passages, terms = dense.nonzero()
    weights = dense[passages, terms].astype(np.float32)
    vocabulary = [f"t{place}" for place in range(40)]  # t10 sorts before t2
    write_postings(
        tmp_path / "i",
        vocabulary,
        Entries(passages.astype(np.int32), terms.astype(np.int32), weights),
        "weights",
        "",
    )
    index = opened(tmp_path / "i", 300)
    for _ in range(50):
        query = source.integers(0, 40, 6)  # with repetitions
        expected = np.asarray(matrix[:, query].sum(axis=1)).ravel()
        assert index.scores([vocabulary[term] for term in query]) == pytest.approx(
            expected, abs=1e-6
        )


@pytest.mark.parametrize("vocabulary", [[], ["a"]])
def test_an_index_without_entries_scores_zero(vocabulary: list[str], tmp_path: Path) -> None:
    write(tmp_path / "i", vocabulary)
    assert opened(tmp_path / "i", 2).scores(["a"]).tolist() == [0, 0]
    assert opened(tmp_path / "i", 0).scores(["a"]).tolist() == []


def test_an_index_is_replaced_whole(index: Postings, tmp_path: Path) -> None:
    (tmp_path / "i.tmp").mkdir()  # of a run that was killed
    write(tmp_path / "i", ["c"], (0, 0, 3.0))
    assert opened(tmp_path / "i", 1).scores(["c", "a"]).tolist() == [3]
    assert index.scores(["a"]).tolist() == [0, 1, 0, 0]  # who has it open keeps it
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


@pytest.mark.parametrize("renamed", [0, 1])
def test_one_that_is_killed_while_it_replaces_another_leaves_that(
    renamed: int, index: Postings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0

    def rename(path: Path, target: Path) -> None:
        nonlocal done
        if done == renamed:
            raise KeyboardInterrupt
        done += 1
        move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr("kbq.words.postings.move", rename)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "i", ["c"], (0, 0, 3.0))
    assert opened(tmp_path / "i", 4).scores(["a"]).tolist() == index.scores(["a"]).tolist()
    write(tmp_path / "i", ["c"], (0, 0, 3.0))
    assert opened(tmp_path / "i", 1).scores(["c"]).tolist() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("name", ["weights.npy", "begins.npy", "terms.npy", "passages.npy"])
@pytest.mark.parametrize("how", ["missing", "empty", "of other length"])
def test_a_damaged_index_is_refused(name: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / "i" / name
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    else:
        np.save(path, np.zeros(1, np.int64))
    with pytest.raises(
        KnowledgeBaseError, match=r"word index .*i.* is (missing|damaged .*): build it again"
    ):
        opened(tmp_path / "i", 4)


def test_more_terms_than_16_bits_count(tmp_path: Path) -> None:
    count = 2**16 + 5
    vocabulary = [f"{term:06}" for term in range(count)]
    write(tmp_path / "i", vocabulary, (0, 3, 1.0), (1, count - 2, 2.0))
    index = opened(tmp_path / "i", 2)
    assert index.scores([vocabulary[3]]).tolist() == [1, 0]
    assert index.scores([vocabulary[-2]]).tolist() == [0, 2]
