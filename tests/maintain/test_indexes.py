"""Indexes: several coexist over one dump, and each can be chosen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from kbq.answers import BuiltKind
from kbq.asking.searcher import SearchTarget
from kbq.corpus.pages import Page
from kbq.description import index_facts
from kbq.dump.manifest import STATE, IndexEntry, read_manifest
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.index import cells, factory
from kbq.index.cells import Clusters
from kbq.index.factory import ROTATION
from kbq.kb import KnowledgeBase
from kbq.maintain import indexes
from kbq.maintain.indexes import IndexSpec, add_index
from kbq.model.model import Model
from kbq.search.options import Backend, SearchOptions, Unit
from kbq.text.queries import Query
from kbq.words.bm25 import index_bm25

pytest.importorskip("faiss")
KINDS: tuple[BuiltKind, ...] = get_args(BuiltKind)
BUILT: tuple[BuiltKind, ...] = ("compact", "tiny", "disk")
TEXTS = ["the river", "Marie Curie [SEP] place of birth"]


@pytest.fixture
def folder(kb_folder: Path, tmp_path: Path) -> Path:
    """A knowledge base to build indexes in."""
    shutil.copytree(kb_folder, tmp_path / "kb")
    return tmp_path / "kb"


@pytest.mark.usefixtures("codes_do_not_err")
@pytest.mark.parametrize("backend", ["dense", "hybrid"])
@pytest.mark.parametrize("kind", BUILT)
def test_every_kind_answers_like_exact_search(
    kind: BuiltKind, backend: Backend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "clusters_for", lambda rows: 1)  # then every cell is probed
    if backend == "hybrid":  # then few paragraphs come by their hits, the others by their words
        monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 3)
    index_bm25(folder)
    exact = KnowledgeBase.open(folder, device="cpu")
    near = exact.index_vectors(kind, recall=1.0)
    assert near.index == IndexEntry(kind, probes=1, target=1.0, recall=1.0, queries=15)
    for unit in get_args(Unit):
        for k in (5, 1000):
            truth, found = (kb.query(TEXTS, k, unit, backend) for kb in (exact, near))
            for one, other in zip(truth, found, strict=True):
                assert [hit.place for hit in one] == [hit.place for hit in other]
                assert [hit.score for hit in one] == pytest.approx(
                    [hit.score for hit in other], abs=1e-3
                )


@pytest.mark.parametrize("kind", BUILT)
def test_an_index_is_built_on_the_device_of_the_model(
    kind: BuiltKind, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "cpu:0" is the CPU, but no default.
    first, devices, of = (
        torch.device("cpu", 0),
        [],
        Clusters.of,
    )

    def seen(*args: Any, device: torch.device, **more: Any) -> Clusters:
        devices.append(device)
        return of(*args, **more)

    kb = KnowledgeBase.open(folder, device="cpu")
    monkeypatch.setattr(Clusters, "of", seen)
    monkeypatch.setattr(type(kb.model), "device", first)
    kb.index_vectors(kind, recall=0.5)
    assert devices == [first]


def test_indexes_live_side_by_side(folder: Path) -> None:
    kb = KnowledgeBase.open(folder, device="cpu")
    for kind in BUILT:
        kb = kb.index_vectors(kind, recall=0.5)
    assert [entry.kind for entry in read_manifest(folder).entries] == ["disk", "tiny", "compact"]
    assert all(entry.recall >= 0.5 for entry in kb.manifest.entries)
    assert kb.index.kind == KnowledgeBase.open(folder, device="cpu").index.kind == "disk"
    for asked in KINDS:
        opened = KnowledgeBase.open(folder, device="cpu", index=asked)
        assert opened.index.kind == asked
        assert [len(hits) for hits in opened.query(TEXTS, 10)] == [10, 10]
    back = kb.index_vectors("exact")
    assert [entry.kind for entry in back.manifest.entries] == ["exact", "disk", "tiny", "compact"]
    assert back.manifest.others == kb.manifest.entries


def test_an_index_that_was_not_built_is_refused(folder: Path) -> None:
    message = (
        "has no compact index, only exact: build it with `kbq index vectors .* --kind compact`"
    )
    with pytest.raises(KnowledgeBaseError, match=message):
        KnowledgeBase.open(folder, device="cpu", index="compact")


def test_what_is_there_is_not_built_again(folder: Path) -> None:
    kb = KnowledgeBase.open(folder, device="cpu").index_vectors("compact", recall=0.5)
    file = folder / "shard-00000" / "compact" / "cells.faiss"
    before = file.stat().st_mtime_ns
    kb = kb.index_vectors("compact", recall=1.0)
    assert file.stat().st_mtime_ns == before
    assert kb.index.target == 1.0
    file.write_bytes(b"")
    with pytest.raises(KnowledgeBaseError, match=r"cells\.faiss is damaged .it has 0 of"):
        KnowledgeBase.open(folder, device="cpu")
    kb = KnowledgeBase.open(folder, device="cpu", index="exact").index_vectors(
        "compact", recall=0.5
    )
    assert len(kb.query(TEXTS, 10)[0]) == 10


def test_bm25_stays_beside_every_index(folder: Path) -> None:
    index_bm25(folder)
    kb = KnowledgeBase.open(folder, device="cpu").index_vectors("compact", recall=0.5)
    assert kb.manifest.bm25
    assert index_bm25(folder) > 0
    assert read_manifest(folder) == kb.manifest
    for asked in ("exact", "compact"):
        opened = KnowledgeBase.open(folder, device="cpu", index=asked)
        assert [len(hits) for hits in opened.query(TEXTS, 10, backend="hybrid")] == [10, 10]


def test_only_what_sees_every_row_calls_itself_exact(folder: Path) -> None:
    index_bm25(folder)
    kb = KnowledgeBase.open(folder, device="cpu")
    backends: list[Backend] = ["auto", "dense", "hybrid", "bm25"]
    options = [SearchOptions(backend=backend) for backend in backends]
    assert [next(kb.searcher.results([Query.of(TEXTS[0])], one)).is_exact for one in options] == [
        True
    ] * 4
    kb = kb.index_vectors("compact", recall=0.5)
    assert [next(kb.searcher.results([Query.of(TEXTS[0])], one)).is_exact for one in options] == [
        False,
        False,
        False,
        True,
    ]


def test_an_index_leaves_a_stopped_append_alone(folder: Path) -> None:
    (folder / STATE).write_text("{}")
    KnowledgeBase.open(folder, device="cpu").index_vectors("compact", recall=0.5)
    assert (folder / STATE).exists()


def test_queries_may_be_given(folder: Path) -> None:
    kb = KnowledgeBase.open(folder, device="cpu")
    asked = ("the river", "Paris", "Marie Curie")
    # The rotation is learned from the third.
    assert kb.index_vectors("disk", 0.5, asked).index.queries == 2
    assert kb.index_vectors("disk", 0.5, ("the river",)).index.queries == 1


@pytest.mark.parametrize("kind", ["compact", "tiny"])
def test_other_queries_teach_another_rotation_and_an_append_asks_them_again(
    kind: BuiltKind, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    folder, asked = tmp_path / "kb", ("the river", "Marie Curie [SEP] place of birth")
    usual = KnowledgeBase.build(pages[:3], folder, model, index=kind)
    first = np.load(folder / "shard-00000" / kind / ROTATION)
    kb = usual.index_vectors(kind, recall=0.9, queries=asked)
    (learned,) = (folder / "shard-00000").glob(f"{kind}*")  # the other one answers no more
    assert learned.name == f"{kind}-for-{kb.index.asked}"
    assert not np.allclose(np.load(learned / ROTATION), first)
    appended = KnowledgeBase.build(pages[3:], folder, model, append=True)
    assert (appended.index.asked, appended.index.target, appended.index.queries) == (
        kb.index.asked,
        0.9,
        1,
    )
    assert json.loads((folder / f"queries-{kb.index.asked}.json").read_text())["queries"] == list(
        asked
    )
    assert len(list(folder.glob(f"*/{kind}-for-*"))) == 2
    (folder / f"queries-{kb.index.asked}.json").write_text("5")
    with pytest.raises(
        KnowledgeBaseError, match=r"is damaged \(it does not hold a JSON object\): delete it"
    ):
        KnowledgeBase.build(pages[:1], folder, model, append=True)
    assert appended.index_vectors(kind).index.asked == ""
    assert not list(folder.glob("queries-*"))


def test_an_append_makes_the_index_of_a_tuned_encoder_anew(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    folder, config = tmp_path / "kb", model.config
    usual = KnowledgeBase.build(pages[:3], folder, model)
    try:
        model.config = replace(config, base="default", query_fingerprint="of a tuned one")
        tuned = usual.index_vectors("compact", recall=0.9)
    finally:
        model.config = config
    assert tuned.index.asked
    appended = KnowledgeBase.build(pages[3:], folder, model, append=True)
    assert (appended.index.kind, appended.index.asked, appended.index.target) == (
        "compact",
        "",
        0.9,
    )
    assert sorted(path.name for path in folder.glob("*/compact*")) == ["compact", "compact"]


def test_append_completes_every_index(pages: list[Page], model: Model, tmp_path: Path) -> None:
    kb = KnowledgeBase.build(pages[:6], tmp_path / "kb", model)
    for kind in BUILT:
        kb = kb.index_vectors(kind, recall=0.75)
    kb = KnowledgeBase.build(pages[6:], tmp_path / "kb", model, append=True)
    targets = [(entry.kind, entry.target) for entry in kb.manifest.entries]
    assert targets == [("disk", 0.75), ("tiny", 0.75), ("compact", 0.75)]
    for kind in BUILT:
        opened = KnowledgeBase(tmp_path / "kb", kb.manifest, model, SearchTarget(kind))
        assert {hit.page_id for hit in opened.query(["Paris"], 1000, "page")[0]} == {
            page.page_id for page in pages if page.paragraphs
        }


@pytest.mark.parametrize("kind", BUILT)
def test_what_takes_long_is_told_to_its_end(
    kind: BuiltKind, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    KnowledgeBase.build(pages[:6], tmp_path / "kb", model)
    kb = KnowledgeBase.build(pages[6:], tmp_path / "kb", model, append=True)
    told: dict[str, list[tuple[int, int]]] = {}

    def report(stage: str, done: int, total: int) -> None:
        told.setdefault(stage, []).append((done, total))

    kb.index_vectors(kind, recall=0.5, report=report)
    index_bm25(tmp_path / "kb", report)
    shards = [f"{kind} index, shard {number} of 2, rows compared with cells" for number in (1, 2)]
    searched = [
        f"recall of the {kind} index, queries searched {way}" for way in ("exactly", "with 1 probe")
    ]
    assert {*shards, *searched, "words indexed, paragraphs"} <= told.keys()
    for steps in told.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize("kind", BUILT)
def test_a_filtered_index_is_smaller_and_stays_filtered(
    kind: BuiltKind, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    folder = tmp_path / "kb"
    whole = KnowledgeBase.build(pages[:9], folder, model).index_vectors(kind, recall=0.5)
    before = index_facts(folder, whole.manifest, whole.index).bytes_per_vector
    kb = whole.index_vectors(kind, recall=0.5, filter=1.5)
    assert kb.index.filter == 1.5
    assert 0 < index_facts(folder, kb.manifest, kb.index).bytes_per_vector < before
    assert not (folder / "shard-00000" / kind).exists()  # nobody asks for it any more
    true = {hit.place: hit.score for hit in whole.query(TEXTS[:1], 10**6)[0]}
    for hit in kb.query(TEXTS[:1], 5)[0]:
        assert hit.score == pytest.approx(true[hit.place], abs=1e-3)
    kb = KnowledgeBase.build(pages[9:], folder, model, append=True)
    assert kb.index.filter == 1.5
    assert kb.index_vectors(kind, recall=0.5).index.filter is None


@pytest.mark.parametrize("kind", BUILT)
def test_until_another_filter_is_measured_the_index_answers_as_before(
    kind: BuiltKind, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = KnowledgeBase.open(folder, device="cpu").index_vectors(kind, recall=1.0)
    found = whole.query(TEXTS, 50)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(indexes, "tune_probes", killed)
    with pytest.raises(KeyboardInterrupt):
        whole.index_vectors(kind, recall=1.0, filter=1.5)
    again = KnowledgeBase.open(folder, device="cpu")
    assert again.index == whole.index
    assert again.query(TEXTS, 50) == found


def test_exact_search_takes_no_filter(folder: Path) -> None:
    message = (
        r"exact search scores every row of .*, filter=0\.5 is for other indexes: add kind=compact"
    )
    with pytest.raises(KnowledgeBaseError, match=message):
        KnowledgeBase.open(folder, device="cpu").index_vectors("exact", filter=0.5)


@pytest.mark.parametrize(("limit", "kind"), [(10**6, "exact"), (10, "compact")])
def test_auto_chooses_by_size(
    limit: int,
    kind: str,
    pages: list[Page],
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(factory, "EXACT_ROWS", limit)
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert kb.index.kind == kind


@pytest.mark.parametrize("kind", BUILT)
def test_a_knowledge_base_without_any_token(kind: BuiltKind, model: Model, tmp_path: Path) -> None:
    kb = KnowledgeBase.build([Page("1", "Title", ())], tmp_path / "kb", model, index=kind)
    assert kb.query(TEXTS) == [[], []]


@pytest.mark.parametrize("threshold", [float("nan"), float("inf")])
def test_a_filter_is_a_number(threshold: float) -> None:
    with pytest.raises(KnowledgeBaseError, match=rf"filter=… is {threshold}, must be a number"):
        IndexSpec("compact", filter=threshold)


def test_an_index_learns_from_the_model_of_the_knowledge_base(
    folder: Path, other_folder: Path
) -> None:
    with pytest.raises(
        ModelError, match=r"was built with the model .*, not .*/other .*: use model="
    ):
        add_index(folder, Model.open(other_folder, "cpu"), IndexSpec("compact", 0.5))
    assert [entry.kind for entry in read_manifest(folder).entries] == ["exact"]


def test_a_damaged_index_can_be_built_again(folder: Path) -> None:
    model, spec = Model.open(read_manifest(folder).model, "cpu"), IndexSpec("compact", 0.5)
    add_index(folder, model, spec)
    (cells_file,) = folder.glob("*/compact/cells.faiss")
    cells_file.write_bytes(b"")
    with pytest.raises(KnowledgeBaseError):
        KnowledgeBase.open(folder, device="cpu")
    assert add_index(folder, model, spec).index.recall >= 0.5
    assert KnowledgeBase.open(folder, device="cpu").index.kind == "compact"
