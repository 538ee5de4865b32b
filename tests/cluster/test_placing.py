"""Placing: nodes read copies of shards on their own disks, as long as these are what the knowledge base names."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import app
from kbq.answers import SearchOptions
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.manifest import read_manifest
from kbq.errors import ClusterError, KnowledgeBaseError
from kbq.kb import KnowledgeBase

from .conftest import HEAD, QUERIES, Nodes, snapshot

pytest.importorskip("ray", reason="Ray, which is optional, is not installed")
from kbq.cluster import copies
from kbq.cluster.nodes import check, place
from kbq.cluster.searcher import GroupSearch, divided


@pytest.fixture
def kb(folder: Path, tmp_path: Path) -> KnowledgeBase:
    """A knowledge base that may be changed."""
    shutil.copytree(folder, tmp_path / "kb")
    return KnowledgeBase.open(tmp_path / "kb", device="cpu")


@pytest.fixture
def copy(kb: KnowledgeBase, tmp_path: Path) -> Path:
    """All its shards on another disk, where searches look for them."""
    copies.copy_shards(kb.folder, tmp_path / "copy", kb.manifest)
    copies.remember_copies(kb.folder, tmp_path / "copy")
    return tmp_path / "copy"


def placed_again(kb: KnowledgeBase, copy: Path) -> int:
    """What a node does when shards are placed; returns the bytes that it copies."""
    copies.forget_others(copy, kb.manifest)
    return copies.copy_shards(kb.folder, copy, kb.manifest)


def read_there(kb: KnowledgeBase) -> int:
    """How many shards are read from the copy, after a look at the answers, which must be those without one."""
    (group,) = divided(kb.folder, kb.manifest, kb.index, kb.shards, 1, (), kb.model.config.length_penalty)
    search, queries = GroupSearch(group, 1), kb.model.in_row_units(*kb.model.encode_queries(QUERIES))
    for unit in ("phrase", "page"):
        assert search.search(queries, [(20, unit)], []) == [kb.search(QUERIES, SearchOptions(20, unit, "dense"))]
    return search.open()


def sizes(folder: Path) -> dict[str, int]:
    return {name: len(content) for name, content in snapshot(folder).items()}


def test_a_copy_holds_all_that_a_search_reads(kb: KnowledgeBase, copy: Path) -> None:
    whole = snapshot(kb.folder)
    named = {name for part in kb.manifest.parts(*kb.manifest.entries) for name in whole if name.startswith(f"{part}/")}
    named |= {name for name in whole if name.startswith("shard-") and name.count("/") == 1}
    assert snapshot(copy) == {name: whole[name] for name in named if "/" in name and name.startswith("shard-")}
    assert read_there(kb) == len(kb.shards)


def test_what_is_there_is_not_copied_again(kb: KnowledgeBase, copy: Path) -> None:
    assert placed_again(kb, copy) == 0
    vectors = copy / "shard-00002" / "vectors.npy"
    size = vectors.stat().st_size
    vectors.write_bytes(bytes(size))  # nothing but the digest tells
    in_shard = read_manifest(kb.folder).files(kb.folder, ["shard-00002", *copies_of_parts(kb, "shard-00002")])
    assert placed_again(kb, copy) == sum(file.bytes for file in in_shard.values())
    assert snapshot(copy / "shard-00002") == snapshot(kb.folder / "shard-00002")


def copies_of_parts(kb: KnowledgeBase, shard: str) -> list[str]:
    return [part for part in kb.manifest.parts(*kb.manifest.entries) if part.startswith(f"{shard}/")]


def test_what_a_killed_run_copied_is_kept(kb: KnowledgeBase, tmp_path: Path) -> None:
    source, partial = kb.folder / "shard-00001", tmp_path / "copy" / "shard-00001.tmp"
    partial.mkdir(parents=True)
    shutil.copyfile(source / "vectors.npy", partial / "vectors.npy")
    (partial / "texts.bin").write_bytes((source / "texts.bin").read_bytes()[:100])
    copied = placed_again(kb, tmp_path / "copy")
    parts = [*(entry.name for entry in kb.manifest.shards), *copies.parts_within(kb.manifest, *kb.manifest.entries)]
    everything = sum(file.bytes for file in kb.manifest.files(kb.folder, parts).values())
    assert copied == everything - (source / "vectors.npy").stat().st_size
    assert snapshot(tmp_path / "copy" / "shard-00001") == snapshot(source)


def test_pages_that_were_added_are_read_where_they_are(kb: KnowledgeBase, copy: Path) -> None:
    before = len(kb.shards)
    added = [Page(f"N{n}", "New", (Paragraph(0, f"Marie Curie was born in Warsaw {n}."),)) for n in range(20)]
    kb = kb.update(added)
    assert len(kb.shards) > before
    assert read_there(kb) == before
    assert placed_again(kb, copy) > 0
    assert read_there(kb) == len(kb.shards)


def test_pages_that_were_deleted_are_not_found(kb: KnowledgeBase, copy: Path) -> None:
    kb = kb.delete(["P3"])
    (changed,) = (entry.name for entry in kb.manifest.shards if entry.deleted)
    assert read_there(kb) == len(kb.shards) - 1
    assert placed_again(kb, copy) == 0  # but for the list of deleted pages
    assert read_there(kb) == len(kb.shards)
    kb = kb.compact()
    assert read_there(kb) == len(kb.shards) - 1
    placed_again(kb, copy)
    assert not (copy / changed).exists()  # which still has what the page said
    assert read_there(kb) == len(kb.shards)


def test_an_index_that_was_built_again_is_not_read_from_an_old_copy(kb: KnowledgeBase, copy: Path) -> None:
    part = copy / "shard-00000" / kb.index.part
    other = kb.folder / "shard-00001" / kb.index.part
    shutil.rmtree(part)
    shutil.copytree(other, part)
    assert read_there(kb) == len(kb.shards) - 1
    assert placed_again(kb, copy) == sum(
        file.bytes for file in kb.manifest.files(kb.folder, [f"shard-00000/{kb.index.part}"]).values()
    )
    assert read_there(kb) == len(kb.shards)


def test_a_damaged_copy_is_not_read(kb: KnowledgeBase, copy: Path) -> None:
    starts = copy / "shard-00000" / "starts.npy"
    starts.write_bytes(starts.read_bytes()[:-4] + b"\0\0\0\1")  # seen only when it is read
    assert read_there(kb) == 0
    starts.unlink()
    assert read_there(kb) == len(kb.shards) - 1


def test_a_copy_that_is_replaced_while_it_is_opened_is_not_read(
    kb: KnowledgeBase, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Iterator[int] = iter([4, 0])  # copies that are there before and after

    def copied(folder: Path, *which: object) -> tuple[object, ...]:
        return kb.manifest.shards[: next(looks)]

    monkeypatch.setattr("kbq.cluster.searcher.copied", copied)
    assert read_there(kb) == 0


def test_a_damaged_record_is_said(kb: KnowledgeBase, copy: Path) -> None:
    (kb.folder / copies.PLACED).write_text("{}")
    with pytest.raises(KnowledgeBaseError, match=r"placed.json is damaged .*: `kbq cluster place` writes it again"):
        divided(kb.folder, kb.manifest, kb.index, kb.shards, 1)


def test_a_damaged_knowledge_base_is_not_copied(kb: KnowledgeBase, tmp_path: Path) -> None:
    vectors = kb.folder / "shard-00000" / "vectors.npy"
    vectors.write_bytes(bytes(vectors.stat().st_size))
    with pytest.raises(KnowledgeBaseError, match=r"shard-00000/vectors.npy is damaged \(its content has changed\)"):
        copies.copy_shards(kb.folder, tmp_path / "copy", kb.manifest)
    assert not (tmp_path / "copy" / "shard-00000").exists()


def test_nodes_read_their_own_copies(
    kb: KnowledgeBase, near: KnowledgeBase, three_nodes: Nodes, tmp_path: Path
) -> None:
    printed = CliRunner().invoke(
        app, ["cluster", "place", str(kb.folder), "--ray", three_nodes.address, "--to", str(tmp_path / "disk")]
    )
    assert printed.exit_code == 0, printed.output
    (own,) = (tmp_path / "disk").iterdir()
    assert f"shard-00000 to shard-00001 on node 127.0.0.{HEAD}: " in printed.output
    assert f"bytes copied to {own}" in printed.output
    groups = check(three_nodes.address, kb.folder).groups
    assert [(group.copies, group.problem) for group in groups] == [(group.count, "") for group in groups]
    far = KnowledgeBase.open(kb.folder, device="cpu", ray=three_nodes.address)
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)


def test_what_cannot_be_written_is_said_with_node_and_shards(
    kb: KnowledgeBase, near: KnowledgeBase, three_nodes: Nodes, tmp_path: Path
) -> None:
    own = copies.own_folder(kb.folder, tmp_path / "disk")
    (own / "shard-00003.tmp" / "vectors.npy").mkdir(parents=True)  # where a file is to be
    said = (
        rf"^1 of 3 groups of shards were not copied: shard-00002 to shard-00004, node 127.0.0.{HEAD + 1}: "
        rf"{own}/shard-00003 cannot be written \(Is a directory\): choose another name"
    )
    with pytest.raises(ClusterError, match=said):
        place(three_nodes.address, kb.folder, tmp_path / "disk")
    assert not (kb.folder / copies.PLACED).exists()
    (own / "shard-00003.tmp" / "vectors.npy").rmdir()
    groups = place(three_nodes.address, kb.folder, tmp_path / "disk")
    assert [group.bytes > 0 for group in groups] == [False, True, False]
