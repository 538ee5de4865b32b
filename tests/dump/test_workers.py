"""Workers: the files do not depend on their number, nor on what stops them."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from kbq.corpus.pages import Page
from kbq.dump import workers
from kbq.dump.manifest import STATE
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model

from .conftest import snapshot

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import this file."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def test_the_number_of_workers_does_not_matter(pages: list[Page], model: Model, tmp_path: Path) -> None:
    KnowledgeBase.build(pages[:8], tmp_path / "one", model)
    KnowledgeBase.build(pages[8:], tmp_path / "one", model, append=True)
    KnowledgeBase.build(pages[:8], tmp_path / "two", model)
    KnowledgeBase.build(pages[8:], tmp_path / "two", model, append=True, workers=2)
    assert snapshot(tmp_path / "two") == snapshot(tmp_path / "one")


def test_another_number_of_workers_goes_on(pages: list[Page], model: Model, tmp_path: Path) -> None:
    def bad() -> Iterator[Page]:
        yield from pages[:9]
        raise CorpusError("corpus:10: bad")

    KnowledgeBase.build(pages, tmp_path / "whole", model)
    with pytest.raises(CorpusError, match="corpus:10: bad"):
        KnowledgeBase.build(bad(), tmp_path / "kb", model)
    assert (tmp_path / "kb" / STATE).exists()
    KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")


def dies(pickled: bytes, device: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_die_again_and_again_are_said(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "encoder", dies)
    with pytest.raises(
        KnowledgeBaseError, match=r"workers died 3 times, .* fewer --workers; the same command resumes from there"
    ):
        KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert multiprocessing.active_children() == []
    monkeypatch.undo()
    assert KnowledgeBase.build(pages, tmp_path / "kb", model).counts.pages == 12


def dies_twice(pickled: bytes, device: str) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    encode = workers.encoder(pickled, device)

    def encode_or_die(pages: Sequence[Page]) -> EncodedParagraphs:
        encoded = encode(pages)
        for mark in ("first", "second"):
            with contextlib.suppress(FileExistsError):
                Path(os.environ["KBQ_TEST_MARKS"], mark).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return encoded

    return encode_or_die


def test_two_deaths_are_survived_with_the_same_bytes(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KnowledgeBase.build(pages, tmp_path / "whole", model)
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("KBQ_TEST_MARKS", str(tmp_path / "marks"))
    monkeypatch.setattr(workers, "encoder", dies_twice)
    KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert sorted(path.name for path in (tmp_path / "marks").iterdir()) == ["first", "second"]
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")
    assert multiprocessing.active_children() == []


ORPHANS = """
import sys
from kbq.model.model import Model
from kbq.dump.workers import encode_blocks, processes
from kbq.corpus.pages import Page, Paragraph

def blocks():
    while True:
        yield [Page("1", "Title", (Paragraph(0, "the city"),))]

if __name__ == "__main__":
    for block, encoded in encode_blocks(Model.open(sys.argv[1], "cpu"), blocks(), list, processes(2)):
        print("encoded", flush=True)
"""


def test_a_parent_that_is_killed_leaves_no_workers(model_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, script, model_folder], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "encoded\n"
    parent.kill()
    parent.communicate(timeout=60)  # returns when the last process that holds the output has ended


@pytest.mark.parametrize(
    ("device", "gpus", "places"),
    [("cpu", 0, ["cpu"] * 3), ("cuda:0", 1, ["cuda:0"] * 3), ("cuda:1", 2, ["cuda:1", "cuda:0", "cuda:1"])],
)
def test_workers_take_the_gpus_by_turns(device: str, gpus: int, places: list[str]) -> None:
    assert [workers.device_of(number, torch.device(device), gpus) for number in range(3)] == places
