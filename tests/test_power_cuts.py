"""Power cuts: wherever one comes, there is the old state or the new one, whole, and the same
command gives the same.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from power import Disk, Tree, recorded, write_tree

import kbq
from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.training.checkpoint import write_checkpoint
from kbq.training.output_folder import output_folder

NEW = [
    Page("P1", "Other", ["Marie was born in the city."]),
    Page("new", "New", ["The river is long.", "It is."]),
]
RECORDS = [
    {"id": str(number), "input": f"{word} [SEP] place"}
    for number, word in enumerate(("Marie", "Paris"))
]
Change = Callable[[KnowledgeBase], object]
CHANGES: dict[str, Change] = {
    "update": lambda kb: kb.update(NEW),
    "sync": lambda kb: kb.sync(NEW),
    "delete": lambda kb: kb.delete(["P2", "P3"]),
    "build --append": lambda kb: KnowledgeBase.build(NEW[1:], kb.folder, kb.model, append=True),
    "compact": lambda kb: kb.compact(),
    "index vectors": lambda kb: kb.index_vectors("disk", queries=["Marie [SEP] place"]),
    "index bm25": lambda kb: kb.index_bm25(),
}
# Of the states of an operation, which differ little.
MOST_CHECKED = 10**9 if os.environ.get("KBQ_ALL_CUTS") else 100
MOST_RESUMED = 5  # of these: the same command goes on from each


@pytest.fixture
def few(pages: list[Page]) -> list[Page]:
    return pages[1:4]


def state(folder: Path) -> tuple[object, ...]:
    """What there is to see of a knowledge base, whose files are all whole."""
    found = kbq.verify(folder)
    assert found.problems == ()
    manifest = read_manifest(folder)
    pages = [
        (page_id, shard.page_digests[number].tobytes())
        for shard in manifest.open_shards(folder)
        for number, page_id in shard.live_ids()
    ]
    kinds = sorted(entry.kind for entry in manifest.entries)
    return sorted(pages), manifest.counts, manifest.size, kinds, manifest.bm25, manifest.index.asked


def some(trees: Sequence[Tree], most: int) -> list[Tree]:
    """Every n-th of them, and the last one."""
    chosen = list(trees[:: -(-len(trees) // most)])
    return chosen if chosen[-1] is trees[-1] else [*chosen, trees[-1]]


def tell(disk: Disk, checked: Sequence[Tree]) -> None:
    """Print what was tried; none of it was lost, or the test has failed."""
    print(f"\n{disk.cuts} cut points, {len(disk.states)} states, {len(checked)} checked, 0 lost")  # noqa: T201


def test_a_build_resumes_wherever_the_power_was_cut(
    few: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.dump.resumable_build.BLOCK_CHARACTERS", 150)
    monkeypatch.setattr("kbq.dump.resumable_build.SHARD_ROWS", 10)
    (tmp_path / "kbs").mkdir()
    with recorded(tmp_path / "kbs") as disk:
        KnowledgeBase.build(few, tmp_path / "kbs" / "kb", model, index="disk")
    whole = state(tmp_path / "kbs" / "kb")
    checked = some(list(disk.states.values()), MOST_CHECKED)
    resumed = some(checked, MOST_RESUMED)
    for tree in checked:
        folder = write_tree(tree, tmp_path / "after") / "kb"
        if (folder / "manifest.json").exists():
            assert state(folder) == whole
        else:
            with pytest.raises(KnowledgeBaseError, match=r"is not a|does not exist"):
                read_manifest(folder)
            if tree in resumed:
                KnowledgeBase.build(few, folder, model, index="disk")
                assert state(folder) == whole
    tell(disk, checked)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_done_or_not_wherever_the_power_was_cut(
    name: str, few: list[Page], model: Model, tmp_path: Path
) -> None:
    folder, change = tmp_path / "kb", CHANGES[name]
    kb = KnowledgeBase.build(few, folder, model, bm25=name != "index bm25")
    if name == "compact":
        kb = kb.delete("P2")
    before = state(folder)
    with recorded(folder) as disk:
        change(kb)
    after = state(folder)
    assert before != after
    checked, found = some(list(disk.states.values()), MOST_CHECKED), set[str]()
    resumed = some(checked, MOST_RESUMED)
    for tree in checked:
        left = write_tree(tree, tmp_path / "after")
        found.add(str(state(left)))
        if tree in resumed and name not in (
            "delete",
            "build --append",
        ):  # which are refused when they are done
            change(KnowledgeBase.open(left, model))
            assert state(left) == after
    assert found == {str(before), str(after)}
    tell(disk, checked)


def test_a_model_is_there_or_not_wherever_the_power_was_cut(model: Model, tmp_path: Path) -> None:
    def train() -> None:
        with output_folder(tmp_path / "out" / "tuned") as folder:
            write_checkpoint(folder / "checkpoint.pt", {"step": 1})
            write_checkpoint(folder / "checkpoint.pt", {"step": 2})
            model.save(folder / "model")

    (tmp_path / "out").mkdir()
    with recorded(tmp_path / "out") as disk:
        train()
    checked = some(list(disk.states.values()), MOST_CHECKED)
    for tree in checked:
        folder = write_tree(tree, tmp_path / "after") / "tuned"
        assert not folder.exists() or kbq.verify(folder).problems == ()
        assert folder.exists() or not any(name.startswith("tuned/") for name in tree)
    shutil.rmtree(tmp_path / "after")
    tell(disk, checked)


@pytest.mark.parametrize("name", ["predict", "fill"])
def test_a_run_goes_on_to_the_same_bytes_wherever_the_power_was_cut(
    name: str, kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.asking.searcher.BATCH", 1)

    def write(folder: Path) -> None:
        if name == "predict":
            kb.predict(RECORDS, "trex", folder / "out.jsonl")
        else:
            kb.fill(
                [{"s": "Marie"}, {"s": "Paris"}],
                ["place"],
                folder / "out.csv",
                subject="s",
                min_probability=0,
            )

    (tmp_path / "out").mkdir()
    with recorded(tmp_path / "out") as disk:
        write(tmp_path / "out")
    out = "out.jsonl" if name == "predict" else "out.csv"
    whole = (tmp_path / "out" / out).read_bytes()
    checked = some(list(disk.states.values()), MOST_CHECKED)
    for tree in checked:
        write(write_tree(tree, tmp_path / "after"))
        assert (tmp_path / "after" / out).read_bytes() == whole
    tell(disk, checked)
