"""Merging: the result is searched like a knowledge base built in one go; incompatible folders are
refused.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kbq.answers import BuiltKind
from kbq.corpus.pages import Page
from kbq.dump.manifest import IndexEntry, read_manifest
from kbq.dump.page_directory import Pages
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.maintain.merge import merge
from kbq.maintain.options import TERMS
from kbq.model.model import Model
from kbq.model.tokenizer import WindowShape
from kbq.storage.writing import writing_alone
from kbq.words.bm25 import index_bm25
from kbq.words.impacts import index_sparta
from kbq.words.sparta import SpartaConfig, SpartaModel

TEXTS = ["the river", "Marie Curie [SEP] place of birth"]


@pytest.fixture
def parts(pages: list[Page], model: Model, tmp_path: Path) -> list[Path]:
    """Two knowledge bases of five and seven pages, the second of two shards, and one of a page
    without text.
    """
    folders = [tmp_path / name for name in ("a", "b", "none")]
    KnowledgeBase.build(pages[:5], folders[0], model)
    KnowledgeBase.build(pages[5:8], folders[1], model)
    KnowledgeBase.build(pages[8:], folders[1], model, append=True)
    KnowledgeBase.build([Page("none", "", ())], folders[2], model)
    return folders


def answers(kb: KnowledgeBase) -> list[list[tuple[object, float]]]:
    return [
        [(hit.place, round(hit.score, 3)) for hit in hits]
        for hits in kb.query(TEXTS, 20, backend="dense")
    ]


@pytest.mark.parametrize("linked", [True, False])
def test_it_answers_like_one_build(
    linked: bool,
    parts: list[Path],
    kb: KnowledgeBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(source: str, target: str, **_: object) -> None:
        raise OSError("another disk")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    manifest = merge(tmp_path / "whole", parts)
    assert manifest == read_manifest(tmp_path / "whole")
    assert manifest.counts == replace(kb.counts, pages=13)
    assert len(manifest.shards) == 4
    assert len(manifest.corpora) == 4
    assert list(Pages.open(tmp_path / "whole").ids()) == [
        *(f"P{number}" for number in range(12)),
        "none",
    ]
    assert answers(KnowledgeBase.open(tmp_path / "whole", device="cpu")) == answers(kb)
    vectors = tmp_path / "whole" / "shard-00000" / "vectors.npy"
    assert vectors.samefile(parts[0] / "shard-00000" / "vectors.npy") == linked


@pytest.mark.parametrize("kind", ["disk", "compact", "tiny"])
def test_indexes_of_shards_come_along(
    kind: BuiltKind, parts: list[Path], kb: KnowledgeBase, tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    for folder in parts:
        KnowledgeBase.open(folder, device="cpu").index_vectors(kind, 0.5)
    assert merge(tmp_path / "whole", parts).entries == (IndexEntry(),)
    whole = KnowledgeBase.open(tmp_path / "whole", device="cpu").index_vectors(kind, 1.0)
    assert whole.index.recall == 1.0
    cells = tmp_path / "whole" / "shard-00000" / kind / "cells.faiss"
    assert cells.samefile(parts[0] / "shard-00000" / kind / "cells.faiss")


def test_an_index_that_learned_from_queries_stays_behind(parts: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    for folder in parts[:2]:
        KnowledgeBase.open(folder, device="cpu").index_vectors("compact", 0.5, tuple(TEXTS))
    assert [path.name[:12] for path in parts[0].glob("*/*-for-*")] == ["compact-for-"]
    merge(tmp_path / "whole", parts)
    assert not list((tmp_path / "whole").glob("*/*compact*"))


def test_learned_impacts_stay_behind(
    parts: list[Path], kb: KnowledgeBase, checkpoint: Path, tmp_path: Path
) -> None:
    sparta = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=32, overlap=0)))
    sparta.network.bias.data.fill_(-3.0)
    sparta.save(tmp_path / "sparta")
    for folder in parts:
        index_sparta(folder, tmp_path / "sparta", TERMS, "cpu")
    assert not merge(tmp_path / "whole", parts).sparta
    assert list((tmp_path / "whole").rglob("sparta*")) == []
    index_sparta(tmp_path / "whole", tmp_path / "sparta", TERMS, "cpu")
    assert len(list((parts[0] / "shard-00000").glob("sparta-*"))) == 1
    shutil.copytree(kb.folder, tmp_path / "one")
    index_sparta(tmp_path / "one", tmp_path / "sparta", TERMS, "cpu")
    found, true = (
        KnowledgeBase.open(tmp_path / name, device="cpu").query(TEXTS, 5, "paragraph", "sparta")
        for name in ("whole", "one")
    )
    for one, other in zip(found, true, strict=True):
        # Batched differently.
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=0.05)
        assert one[0].score > 0


@pytest.mark.parametrize("later", [False, True])
def test_words_are_weighed_in_the_whole(
    later: bool,
    parts: list[Path],
    pages: list[Page],
    kb: KnowledgeBase,
    model: Model,
    tmp_path: Path,
) -> None:
    if later:
        shutil.rmtree(parts[0])
        KnowledgeBase.build(pages[:5], parts[0], model, bm25=False)
    assert merge(tmp_path / "whole", parts).bm25 is not later
    if later:
        index_bm25(tmp_path / "whole")
    shutil.copytree(kb.folder, tmp_path / "one")
    index_bm25(tmp_path / "one")
    found, true = (
        KnowledgeBase.open(tmp_path / name, device="cpu").query(TEXTS, 5, "paragraph", "bm25")
        for name in ("whole", "one")
    )
    for one, other in zip(found, true, strict=True):
        assert [hit.place for hit in one] == [hit.place for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other])


def test_more_pages_may_be_appended(
    parts: list[Path], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    merge(tmp_path / "whole", parts[:1])
    before = read_manifest(parts[0])
    KnowledgeBase.build(pages[5:], tmp_path / "whole", model, append=True)
    assert (
        KnowledgeBase(tmp_path / "whole", read_manifest(tmp_path / "whole"), model).counts.pages
        == 12
    )
    assert read_manifest(parts[0]) == before


def test_a_page_in_two_is_refused(
    parts: list[Path], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    KnowledgeBase.build(pages[11:], tmp_path / "c", model)
    with pytest.raises(
        KnowledgeBaseError, match=r"page id 'P11' is in .*/b and in .*/c: delete it in one of them"
    ):
        merge(tmp_path / "whole", [*parts, tmp_path / "c"])
    assert not (tmp_path / "whole").exists()


def test_another_model_is_refused(parts: list[Path], other_folder: Path, tmp_path: Path) -> None:
    KnowledgeBase.build([Page("c", "", ())], tmp_path / "c", Model.open(other_folder, "cpu"))
    with pytest.raises(
        KnowledgeBaseError, match=r"c was built with the model .*/other .*, .*/a with .*: build one"
    ):
        merge(tmp_path / "whole", [*parts, tmp_path / "c"])


def test_a_merge_that_fails_leaves_nothing(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(
        KnowledgeBaseError,
        match=r"whole cannot be written \(No space left on device\): free disk space",
    ):
        merge(tmp_path / "whole", parts)
    assert not (tmp_path / "whole").exists()


def test_a_file_is_no_place_for_a_merge(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "whole").write_text("mine")
    with pytest.raises(KnowledgeBaseError, match="whole cannot be written"):
        merge(tmp_path / "whole", parts)
    assert (tmp_path / "whole").read_text() == "mine"


def test_one_merge_at_a_time_makes_a_folder(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()  # an empty folder may be there
    (tmp_path / "whole.partial" / "shard-00009").mkdir(parents=True)  # a killed merge has left it
    (tmp_path / "whole.partial" / "manifest.json.0123456789ab.tmp").touch()
    with (
        writing_alone(tmp_path / "whole.partial"),
        pytest.raises(KbqError, match=r"another kbq process is wr.*whole"),
    ):
        merge(tmp_path / "whole", parts)
    merged = merge(tmp_path / "whole", parts)
    assert not (tmp_path / "whole" / "shard-00009").exists()
    assert list((tmp_path / "whole").glob("*.tmp")) == []
    with pytest.raises(
        KnowledgeBaseError, match="whole is a knowledge base; the new folder comes first"
    ):
        merge(tmp_path / "whole", parts)
    assert read_manifest(tmp_path / "whole") == merged
    assert not (tmp_path / "whole.partial").exists()


def test_what_was_merged_from_read_only_folders_can_be_written(
    parts: list[Path], tmp_path: Path
) -> None:
    for shard in parts[0].iterdir():
        if shard.is_dir():
            shard.chmod(0o555)
    merge(tmp_path / "whole", parts)
    assert all(
        path.stat().st_mode & 0o200 for path in (tmp_path / "whole").rglob("*") if path.is_dir()
    )
