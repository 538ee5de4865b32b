"""Every kind of index passes the same tests; with all cells probed, it agrees with exact search."""

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from brute_force import best_spans
from paragraphs import EncodedParagraph

from kbq.answers import BuiltKind
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.errors import KnowledgeBaseError
from kbq.index.base import Index
from kbq.index.factory import build_missing, is_built, open_index
from kbq.search.spans import find_spans
from kbq.storage.seals import seal_folder

pytest.importorskip("faiss")
CPU = torch.device("cpu")
KINDS = get_args(BuiltKind)
BUILT = ("disk", "compact", "tiny")
SIZES = ((1,), (5, 0, 3), (30, 1, 0, 0, 25, 12), (0, 60, 7), tuple(range(18)))  # up to 153 rows
ALL = 10**6  # probes


def random_queries(dim: int = 16, count: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Start and end vectors of very different sizes. Shapes: (queries, dim)."""
    source = np.random.default_rng(1)
    starts, ends = (
        source.normal(size=(2, count, dim)) * 10.0 ** source.integers(-2, 2, (2, count, 1))
    ).astype(np.float32)
    return starts, ends


def opened(shard: Shard, kind: BuiltKind, probes: int = ALL) -> Index:
    build_missing([shard], IndexEntry(kind), np.concatenate(random_queries(shard.vectors.shape[1])))
    return open_index([shard], IndexEntry(kind, probes), CPU)


@pytest.mark.usefixtures("codes_do_not_err")
@pytest.mark.parametrize("with_bonus", [False, True])
@pytest.mark.parametrize("k", [1, 60, 1000])
@pytest.mark.parametrize("kept", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_better_span_is_missed_and_the_scores_are_exact(
    kind: BuiltKind,
    kept: tuple[int, ...],
    k: int,
    with_bonus: bool,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if with_bonus and kind != "exact":  # then there are more paragraphs than hits
        monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    shard = random_shard(*kept)
    starts, ends = random_queries()
    random_bonus = (1000 * np.random.default_rng(2).normal(size=(7, len(kept)))).astype(np.float32)
    (found_of_each,) = opened(shard, kind).candidates(
        starts, ends, k, [random_bonus] if with_bonus else None
    )
    for query, found in enumerate(found_of_each):
        true = best_spans(shard, starts[query], ends[query])
        true += with_bonus * random_bonus[query, shard.paragraphs_of(np.arange(len(shard)))]
        error = 1e-5 * np.abs(true[np.isfinite(true)]).max(initial=0)
        assert (np.diff(found.starts) > 0).all()
        assert np.delete(true, found.starts).max(initial=-np.inf) <= found.complete_above + error
        assert np.float32(found.complete_above) == found.complete_above  # rounded as scores are
        (spans,) = find_spans(shard, [found], np.stack([starts[query], ends[query]])[None])
        assert spans.scores == pytest.approx(true[spans.starts], abs=error)
        if k >= len(shard):
            assert found.starts.tolist() == list(range(len(shard)))
            assert found.complete_above == -np.inf


@pytest.mark.usefixtures("codes_do_not_err")
@pytest.mark.parametrize("with_bonus", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_searched_as_if_they_were_one(
    kind: BuiltKind,
    with_bonus: bool,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    shards = [random_shard(*[30] * 6), random_shard(*[25] * 8, seed=1), random_shard(3, seed=2)]
    shards[1:1] = [random_shard(0), random_shard()]  # without rows, and without paragraphs
    starts, ends = random_queries()
    source = np.random.default_rng(2)
    random_bonus = [
        1000 * source.normal(size=(7, len(shard.paragraph_rows))).astype(np.float32)
        for shard in shards
    ]
    build_missing(shards, IndexEntry(kind), np.concatenate([starts, ends]))
    index = open_index(shards, IndexEntry(kind, ALL), CPU)
    found = index.candidates(starts, ends, 2, random_bonus if with_bonus else None)
    for query in range(len(starts)):
        true = []
        for shard, bonus in zip(shards, random_bonus, strict=True):
            own = bonus[query][shard.paragraphs_of(np.arange(len(shard)))]
            true.append(best_spans(shard, starts[query], ends[query]) + with_bonus * own)
        of_each = [of_shard[query] for of_shard in found]
        (bound,) = {candidates.complete_above for candidates in of_each}
        missed = [np.delete(scores, one.starts) for scores, one in zip(true, of_each, strict=True)]
        everywhere = np.concatenate(true)
        error = 1e-5 * np.abs(everywhere[np.isfinite(everywhere)]).max()
        assert np.concatenate(missed).max() <= bound + error
        # Of 383: two paragraphs for each reason.
        assert sum(len(candidates.starts) for candidates in of_each) <= 180


@pytest.mark.parametrize("kind", KINDS)
def test_no_query_has_no_candidates(kind: BuiltKind, random_shard: Callable[..., Shard]) -> None:
    none = np.empty((0, 16), np.float32)
    assert opened(random_shard(30, 5), kind).candidates(none, none, 1) == [[]]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("compact", "build one half as large .`kbq index vectors .* --kind tiny`., or "),
        ("tiny", ""),
    ],
)
def test_an_index_that_does_not_fit_in_memory_is_said(
    kind: BuiltKind,
    advice: str,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.index.factory.available_memory", lambda: 100.0)
    message = rf"the {kind} index needs 0\.0 GB of memory, .* free: {advice}use index=disk"
    with pytest.raises(KnowledgeBaseError, match=message):
        opened(random_shard(30, 5), kind)


def test_cells_that_do_not_stay_in_memory_are_prefetched(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    monkeypatch.setattr("kbq.index.cells.prefetch", lambda address, size: fetched.append(size))
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    shard, (starts, ends) = random_shard(*range(20, 60, 2)), random_queries(count=20)
    roomy = opened(shard, "disk").candidates(starts, ends, 5)
    assert not fetched
    size = (
        sum(path.stat().st_size for path in shard.folder.rglob("cells.faiss"))
        + shard.vectors.nbytes
    )
    monkeypatch.setattr("kbq.index.factory.stays_in_memory", lambda asked: asked != size)
    tight = opened(shard, "disk").candidates(starts, ends, 5)
    assert fetched
    for one, other in zip(roomy[0], tight[0], strict=True):
        assert one.starts.tolist() == other.starts.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_spans_of_a_larger_shard_are_found(
    kind: BuiltKind, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(*range(20, 60, 2))  # 780 rows
    starts, ends = random_queries(count=20)
    found_of_ten = []
    (found_of_each,) = opened(shard, kind).candidates(starts, ends, 50)
    for query, found in enumerate(found_of_each):
        true = best_spans(shard, starts[query], ends[query])
        found_of_ten.append(np.isin(np.argsort(-true)[:10], found.starts).mean())
    # A third of 16 random dimensions hold a third of what a query asks for: a hard case for codes.
    assert np.mean(found_of_ten) >= {"exact": 1.0, "disk": 1.0, "compact": 0.95, "tiny": 0.95}[kind]


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_a_query_does_not_matter(
    kind: BuiltKind, size: float, random_shard: Callable[..., Shard]
) -> None:
    # Wide vectors take other paths through faiss than narrow ones.
    shard = random_shard(*range(20, 60, 2), dim=384)
    source = np.random.default_rng(3)
    starts, ends = shard.vectors[
        source.choice(np.flatnonzero(shard.edges == OPENS | CLOSES), (2, 20))
    ].astype(np.float32)
    (found,) = opened(shard, kind).candidates(size * starts / 127, size * ends / 127, 5)
    best = [(shard.vectors.astype(np.float64) @ side.T).argmax(axis=0) for side in (starts, ends)]
    assert all(
        set(pair) <= set(one.starts.tolist())
        for pair, one in zip(zip(*best, strict=True), found, strict=True)
    )


@pytest.mark.usefixtures("codes_do_not_err")
@pytest.mark.parametrize("kind", BUILT)
def test_candidates_that_can_be_checked_by_eye(
    kind: BuiltKind,
    encoded: Callable[..., EncodedParagraph],
    make_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    # Best starts: row 3 (9), then row 0 (5). Best ends: row 5 (8), then row 2 (7).
    rows = [[5, 0], [0, 1], [1, 7], [9, 0], [0, 1], [0, 8]]
    shard = make_shard([encoded(rows[:3]), encoded(rows[3:])])
    starts, ends = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    ((found,),) = opened(shard, kind).candidates(starts, ends, 1)
    assert found.starts.tolist() == [3, 4, 5]
    assert found.complete_above == pytest.approx(17)
    ((found,),) = opened(shard, kind).candidates(starts, ends, 2)
    assert found.starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.complete_above == pytest.approx(12)


class OneAtATime:
    """Hands out each shard's table once, and only when none is held any more."""

    def __init__(self, tables: list[np.ndarray]) -> None:
        self._tables = dict(enumerate(tables))
        self._held: weakref.ref[np.ndarray] = weakref.ref(np.empty(0))

    def __getitem__(self, shard: int, /) -> np.ndarray:
        assert self._held() is None
        table = self._tables.pop(shard)
        self._held = weakref.ref(table)
        return table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 1000])
def test_the_bonuses_of_one_shard_are_held_at_a_time(
    k: int, kind: BuiltKind, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    shards = [random_shard(*[10] * 9, seed=seed) for seed in range(3)]
    starts, ends = random_queries()
    tables = [
        np.random.default_rng(seed).normal(size=(7, 9)).astype(np.float32) for seed in range(3)
    ]
    build_missing(shards, IndexEntry(kind), np.concatenate([starts, ends]))
    index = open_index(shards, IndexEntry(kind, ALL), CPU)
    for shard, of_shard in enumerate(
        index.candidates(starts, ends, k, OneAtATime([table.copy() for table in tables]))
    ):
        for query, found in enumerate(of_shard):
            assert found.bonus is not None
            assert (
                found.bonus.tolist()
                == tables[shard][query, shards[shard].paragraphs_of(found.starts)].tolist()
            )


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("k", [1, 7])
def test_paragraphs_with_the_largest_bonus_are_candidates(
    k: int, kind: BuiltKind, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    shard = random_shard(*[10] * 90)
    index = opened(shard, kind)
    starts, ends = random_queries(count=1)
    bonus = np.random.default_rng(2).normal(size=(1, 90)).astype(np.float32)
    ((alone,),) = index.candidates(starts, ends, k)
    ((found,),) = index.candidates(starts, ends, k, [bonus])
    best = np.argsort(-bonus[0])
    rows = {10 * paragraph + row for paragraph in best[:k].tolist() for row in range(10)}
    assert found.starts.tolist() == sorted({*alone.starts.tolist(), *rows})
    assert found.complete_above == pytest.approx(alone.complete_above + bonus[0, best[k]])


@pytest.mark.parametrize("kind", BUILT)
def test_with_as_many_bonuses_as_paragraphs_all_rows_are_candidates(
    kind: BuiltKind, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(60, 0, 60)
    bonus = np.ones((1, 3), np.float32)
    ((found,),) = opened(shard, kind).candidates(*random_queries(count=1), 3, [bonus])
    assert (found.starts.tolist(), found.complete_above) == (list(range(120)), -np.inf)


@pytest.mark.parametrize(
    ("threshold", "rows"),
    [
        (None, list(range(8))),
        (-1.0, list(range(8))),
        (0.5, [3, 4, 5, 7]),
        (0.6, [3, 4, 5, 7]),
        (9.0, [5, 7]),
    ],
)
def test_a_filter_keeps_what_is_above_it_and_the_best_of_each_paragraph(
    threshold: float | None,
    rows: list[int],
    encoded: Callable[..., EncodedParagraph],
    make_shard: Callable[..., Shard],
) -> None:
    # Logits 0, 1/4, 1/2 ….
    shard = make_shard([encoded([[1, 1]] * 6), encoded([])], [encoded([[1, 1]] * 2)])
    assert shard.rows_above(threshold).tolist() == rows


@pytest.mark.parametrize("kind", BUILT)
def test_what_a_filtered_index_finds_is_named_right(
    kind: BuiltKind, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(*range(20, 40, 2))  # 290 rows
    kept = shard.rows_above(6.0)
    assert 10 < len(kept) < 100
    entry = IndexEntry(kind, ALL, filter=6.0)
    starts = ends = shard.vectors[kept[:6]].astype(np.float32)  # each row is its own best hit
    build_missing([shard], entry, starts)
    assert is_built([shard], entry)
    assert not is_built([shard], IndexEntry(kind))
    (found_of_each,) = open_index([shard], entry, CPU).candidates(starts, ends, 5)
    for query, found in enumerate(found_of_each):
        (spans,) = find_spans(shard, [found], np.stack([starts[query], ends[query]])[None])
        assert kept[query] in found.starts
        true = best_spans(shard, starts[query], ends[query])
        assert spans.scores == pytest.approx(true[spans.starts], abs=1e-5 * np.abs(true).max())


def without_logits(folder: Path) -> None:
    (folder / "logits.npy").unlink()


def half_of_the_logits(folder: Path) -> None:
    np.save(folder / "logits.npy", np.load(folder / "logits.npy")[:5])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_logits, r"logits\.npy is missing: restore it from a copy"),
        (
            half_of_the_logits,
            r"is damaged \(its files differ in length\): restore it from a copy",
        ),
    ],
)
def test_a_shard_needs_the_logits(
    damage: Callable[[Path], None], message: str, random_shard: Callable[..., Shard]
) -> None:
    folder = random_shard(40).folder
    damage(folder)
    with pytest.raises(KnowledgeBaseError, match=message):
        Shard(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_without_rows(kind: BuiltKind, make_shard: Callable[..., Shard]) -> None:
    shard = make_shard()
    ((found,),) = opened(shard, kind).candidates(
        np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), 5
    )
    assert (found.starts.tolist(), found.complete_above) == ([], -np.inf)
    assert is_built([shard], IndexEntry(kind))


@pytest.mark.parametrize("kind", BUILT)
def test_the_same_rows_give_the_same_bytes(
    kind: BuiltKind, random_shard: Callable[..., Shard]
) -> None:
    shard = random_shard(90, 10)
    contents = []
    for _ in range(2):
        opened(shard, kind)
        contents.append({path.name: path.read_bytes() for path in (shard.folder / kind).iterdir()})
        shutil.rmtree(shard.folder / kind)
    assert contents[0] == contents[1]


def cut(folder: Path) -> None:
    path = folder / "cells.faiss"
    path.write_bytes(path.read_bytes()[:-1])


def of_other_rows(folder: Path) -> None:
    rows = np.load(folder.parent / "vectors.npy")
    rows[0, 0] += 1
    np.save(folder.parent / "vectors.npy", rows)
    seal_folder(folder.parent)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, r"has no complete \w+ index"),
        (lambda folder: (folder / "seal.json").unlink(), "seal.json is missing"),
        (lambda folder: (folder / "seal.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "seal.json").write_text("[]"), "is damaged"),
        (lambda folder: (folder / "cells.faiss").unlink(), "cells.faiss is missing"),
        (cut, r"is damaged \(it has [0-9,]+ of [0-9,]+ bytes\)"),
        (of_other_rows, "was built from another shard"),
    ],
)
@pytest.mark.parametrize("kind", BUILT)
def test_an_index_that_is_not_whole_or_of_other_rows_is_refused_and_built_again(
    kind: BuiltKind,
    damage: Callable[[Path], None],
    message: str,
    random_shard: Callable[..., Shard],
) -> None:
    shard = random_shard(40)
    opened(shard, kind)
    damage(shard.folder / kind)
    shard = Shard(shard.folder)
    assert not is_built([shard], IndexEntry(kind))
    advice = rf"build it with `kbq index vectors .* --kind {kind}`, or use index=exact"
    with pytest.raises(KnowledgeBaseError, match=f"{message}.*: {advice}"):
        open_index([shard], IndexEntry(kind), CPU)
    assert opened(shard, kind).candidates(*random_queries(), 100)[0][0].starts.tolist() == list(
        range(40)
    )
