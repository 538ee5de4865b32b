"""Kills: whatever kbq writes, a run that is killed at a random moment and done again ends with the
same bytes.

`KBQ_KILLS=20` kills each command as often.
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from kbq.corpus.pages import Page
from kbq.dump.manifest import is_knowledge_base
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import ModelConfig
from kbq.model.tokenizer import WindowShape
from kbq.storage.folders import link_folder
from kbq.training.encoders import train_encoders
from kbq.training.settings import TrainingSettings

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("KBQ_KILLS", "1"))
Work = Callable[[Path], object]
QUERIES = [f"{word} {number} [SEP] {name}" for word in ("Marie", "Paris", "Warsaw") for number in range(5)
           for name in ("place", "birth")]  # fmt: skip


def started(work: Work, folder: Path) -> ForkProcess:
    process = get_context("fork").Process(target=work, args=(folder,))
    process.start()
    return process


def done(work: Work, folder: Path) -> float:
    """Do all of the work, in a process of its own; the seconds that it took."""
    begun = time.monotonic()
    process = started(work, folder)
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - begun


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those with times in them, and what may be left: unnamed files that killed runs
    were writing.
    """
    names = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith((".run.json", ".tmp"))
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def refuse_other_ends(work: Work, tmp_path: Path, has_ended: Callable[[Path], bool]) -> None:
    """Kill the work at random moments, and do it again; all files must be those of an undisturbed
    run.
    """
    whole, moments = tmp_path / "whole", random.Random(0)
    whole.mkdir()
    seconds = done(work, whole)
    truth = contents(whole)
    kills = late = 0
    while kills < KILLS:
        victim = tmp_path / "killed"
        victim.mkdir()
        process = started(work, victim)
        time.sleep(moments.uniform(0, seconds))
        process.kill()
        process.join()
        if has_ended(victim) and late < 3 * KILLS:
            late += 1
        else:
            kills += 1
        done(work, victim)
        assert contents(victim) == truth
        shutil.rmtree(victim)
        print("k", end="", flush=True)  # noqa: T201
    print(f"\n{kills} kills, {late} after the end: all with the same bytes")  # noqa: T201


@pytest.fixture
def built(model: Model, pages: list[Page], tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    KnowledgeBase.build(pages, folder, model)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbq.dump.resumable_build.BLOCK_CHARACTERS", 150)
    monkeypatch.setattr("kbq.dump.resumable_build.SHARD_ROWS", 60)
    monkeypatch.setattr("kbq.asking.searcher.BATCH", 1)
    monkeypatch.setattr("kbq.training.engine.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("kbq.tuning.finetune.ENOUGH", 1)
    monkeypatch.setattr("kbq.tuning.finetune.WATCHED", 10)


def copied(source: Path, folder: Path) -> Path:
    """The knowledge base in a folder: a copy of another one, which is there as a whole or not at
    all.
    """
    if not (folder / "kb").exists():
        link_folder(source, folder / "copy.tmp", lambda _: False)
        (folder / "copy.tmp").rename(folder / "kb")
    return folder / "kb"


def test_build(model: Model, pages: list[Page], tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        if not is_knowledge_base(folder / "kb"):
            KnowledgeBase.build(pages, folder / "kb", model, index="compact")

    refuse_other_ends(build, tmp_path, lambda folder: is_knowledge_base(folder / "kb"))


def test_sync(model: Model, pages: list[Page], built: Path, tmp_path: Path) -> None:
    new = [
        *pages[2:],
        *(Page(f"N{number}", "New", ["The river of Paris is long."]) for number in range(3)),
    ]

    def sync(folder: Path) -> None:
        KnowledgeBase.open(copied(built, folder), model).sync(new)

    refuse_other_ends(sync, tmp_path, lambda folder: has_page(folder / "kb", "N2"))


def has_page(folder: Path, page_id: str) -> bool:
    return is_knowledge_base(folder) and page_id in {
        one.page_id for one in KnowledgeBase.open(folder).pages()
    }


def test_index_vectors(model: Model, built: Path, tmp_path: Path) -> None:
    def index(folder: Path) -> None:
        KnowledgeBase.open(copied(built, folder), model).index_vectors("disk", recall=0.0)

    refuse_other_ends(
        index, tmp_path, lambda folder: len(list(folder.glob("kb/shard-*/disk*"))) > 3
    )


def triples(
    folder: Path, model: Model, built: Path, write: Callable[..., Path], wrong: bool = False
) -> Path:
    found = KnowledgeBase.open(built, model).query(QUERIES, 1)
    rows = []
    for number, (query, (best, *_)) in enumerate(zip(QUERIES, found, strict=True)):
        subject, _, relation = query.partition(" [SEP] ")
        value = "nothing like it" if wrong and number % 2 else best.text
        rows.append(
            {"subject": subject, "relation": relation, "object": value, "page": best.page_id}
        )
    return write("triples.jsonl", *rows)


def test_finetune_also_of_one_seed(
    model: Model, built: Path, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    path = triples(tmp_path, model, built, write_json_lines)
    settings: dict[str, Any] = {
        "k": 10,
        "epochs": 3,
        "batch": 5,
        "learning_rate": 1e-3,
        "patience": 99,
        "dev": path,
    }

    def finetune(folder: Path) -> None:
        if not (folder / "out").exists():
            KnowledgeBase.open(built, model).finetune(
                path, folder / "out", **settings, note=lambda _: None
            )

    refuse_other_ends(finetune, tmp_path, lambda folder: (folder / "out").exists())


def test_calibrate(
    judging_kb: KnowledgeBase, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    path = triples(tmp_path, judging_kb.model, judging_kb.folder, write_json_lines, wrong=True)

    def calibrate(folder: Path) -> None:
        judging_kb.calibrate(path, folder / "c.json", hidden=0.0)

    refuse_other_ends(calibrate, tmp_path, lambda folder: (folder / "c.json").exists())


def test_train(checkpoint: Path, examples_file: Path, tmp_path: Path) -> None:
    config = ModelConfig(window=WindowShape(24, 6, 10), max_query_tokens=32)
    settings = TrainingSettings(epochs=3, batch_tokens=100, learning_rate=1e-3)

    def train(folder: Path) -> None:
        if not (folder / "out").exists():
            train_encoders(
                examples_file, folder / "out", init=checkpoint, settings=settings, config=config
            )

    refuse_other_ends(train, tmp_path, lambda folder: (folder / "out").exists())


def test_fill(kb: KnowledgeBase, tmp_path: Path) -> None:
    rows = [{"s": f"Marie {number}"} for number in range(8)]

    def fill(folder: Path) -> None:
        kb.fill(rows, ["place", "birth"], folder / "out.csv", subject="s", min_probability=0)

    refuse_other_ends(fill, tmp_path, lambda folder: (folder / "out.csv").exists())


def test_predict(kb: KnowledgeBase, tmp_path: Path) -> None:
    records = [{"id": str(number), "input": query} for number, query in enumerate(QUERIES)]

    def predict(folder: Path) -> None:
        kb.predict(records, "trex", folder / "out.jsonl")

    refuse_other_ends(predict, tmp_path, lambda folder: (folder / "out.jsonl").exists())
