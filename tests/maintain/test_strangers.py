"""Strangers: a knowledge base that came from elsewhere, with links in it, has nothing outside it
written or removed.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kb_files import snapshot

import kbq
from kbq.corpus.pages import Page
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.maintain.delete import delete
from kbq.maintain.merge import merge
from kbq.model.model import Model
from kbq.words.bm25 import index_bm25

NEW = [Page("new", "New", ["The river is long."])]
PLACES = [  # that this version of kbq, or an earlier one, would write to, or make
    "manifest.json", "manifest.json.tmp", "manifest.json.0123456789ab.tmp", "building.json", "building.json.tmp",
    "building.json.0123456789ab.tmp", "queries-0123.json.tmp", "placed.json", "shard-00001", "shard-00001.tmp",
    "shard-00000/vectors.npy", "shard-00000/seal.json", "shard-00000/deleted-list.tmp", "shard-00000/bm25",
    "shard-00000/bm25.tmp", "shard-00000/bm25.old", "shard-00000/disk", "shard-00000/disk/cells.faiss.tmp",
    "sparta-01234567", "notes",
]  # fmt: skip
CHANGES: dict[str, Callable[[Path, Model], object]] = {
    "query": lambda folder, model: KnowledgeBase.open(folder, model),
    "delete": lambda folder, model: delete(folder, ["P1"]),
    "build --append": lambda folder, model: KnowledgeBase.build(NEW, folder, model, append=True),
    "build": lambda folder, model: KnowledgeBase.build(NEW, folder, model),
    "index bm25": lambda folder, model: index_bm25(folder),
    "merge": lambda folder, model: merge(folder.parent / "merged", [folder]),
    "verify": lambda folder, model: kbq.verify(folder, repair=True),
}
OPENED: dict[str, Callable[[KnowledgeBase], object]] = {  # where the links came after it was opened
    "update": lambda kb: kb.update(NEW),
    "sync": lambda kb: kb.sync(NEW),
    "compact": lambda kb: kb.compact(),
    "delete": lambda kb: kb.delete("P1"),
    "index bm25": lambda kb: kb.index_bm25(),
    "index vectors": lambda kb: kb.index_vectors("disk"),
}


@pytest.fixture
def elsewhere(kb_folder: Path, tmp_path: Path) -> Path:
    """What links lead to: a shard of somebody else's knowledge base, and a file of their own."""
    shutil.copytree(kb_folder, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "bashrc").write_text("alias ls='ls --color'\n")
    return tmp_path / "elsewhere"


def plant(folder: Path, place: str, elsewhere: Path) -> Path:
    """Put a link where kbq might write: to a folder where it would make one."""
    target = elsewhere / "bashrc" if "." in Path(place).name else elsewhere / "shard-00000"
    link = folder / place
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return link


@pytest.mark.parametrize("place", PLACES)
def test_no_command_writes_through_a_link_of_a_stranger(
    place: str, kb_folder: Path, model: Model, elsewhere: Path, tmp_path: Path
) -> None:
    shutil.copytree(kb_folder, tmp_path / "theirs")
    opened = KnowledgeBase.open(tmp_path / "theirs", model)
    link, before = plant(tmp_path / "theirs", place, elsewhere), snapshot(elsewhere)
    changes = [partial(change, tmp_path / "theirs", model) for change in CHANGES.values()]
    changes += [partial(change, opened) for change in OPENED.values()]
    for change in changes:
        with pytest.raises(KbqError) as refusal:
            change()
        assert str(refusal.value).startswith(
            f"{link} is a link, and a knowledge base has none"
        ) or ("already holds a knowledge base" in str(refusal.value))
        assert snapshot(elsewhere) == before


@pytest.mark.parametrize(
    "place", ["building.json.0123456789ab.tmp", "shard-00000", "shard-00000/texts.bin", "x"]
)
def test_a_build_that_a_stranger_began_writes_through_no_link(
    place: str, model: Model, elsewhere: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "building.json.ffffffffffff.tmp").write_text("{")
    link, before = plant(tmp_path / "theirs", place, elsewhere), snapshot(elsewhere)
    with pytest.raises(KbqError) as refusal:
        KnowledgeBase.build(NEW, tmp_path / "theirs", model)
    assert str(refusal.value).startswith(
        f"{link} is a link, and a knowledge base has none: put a copy in its place"
    )
    assert snapshot(elsewhere) == before


def test_a_pipe_or_a_device_in_a_knowledge_base_is_refused(
    kb_folder: Path, model: Model, tmp_path: Path
) -> None:
    shutil.copytree(kb_folder, tmp_path / "theirs")
    os.mkfifo(tmp_path / "theirs" / "shard-00000" / "pipe")
    with pytest.raises(
        KbqError, match=r"shard-00000/pipe is a device or a pipe, and a knowledge base has none"
    ):
        KnowledgeBase.open(tmp_path / "theirs", model)


def test_a_knowledge_base_may_be_reached_by_a_link(
    kb_folder: Path, model: Model, tmp_path: Path
) -> None:
    shutil.copytree(kb_folder, tmp_path / "mine")
    (tmp_path / "linked").symlink_to("mine")
    assert KnowledgeBase.open(tmp_path / "linked", model).delete("P1").counts.pages == 11
    assert KnowledgeBase.open(tmp_path / "mine", model).counts.pages == 11


def test_merged_knowledge_bases_share_files_and_can_be_changed(
    kb_folder: Path, model: Model, tmp_path: Path
) -> None:
    merge(tmp_path / "merged", [kb_folder])
    shared = (tmp_path / "merged" / "shard-00000" / "vectors.npy").stat()
    assert shared.st_nlink > 1
    before = snapshot(kb_folder)
    assert (
        KnowledgeBase.open(tmp_path / "merged", model)
        .delete("P1")
        .update(NEW)
        .compact()
        .counts.pages
        == 12
    )
    assert snapshot(kb_folder) == before
