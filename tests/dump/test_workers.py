"""Workers: the files do not depend on their number, nor on what stops them."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from kb_files import snapshot

from kbq.corpus.pages import Page
from kbq.dump import page_encoder
from kbq.dump.manifest import STATE
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.worker_pool import device_of

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import this file."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def test_the_number_of_workers_does_not_matter(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
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


def dies_once(pickled: bytes, device: str) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    encode, mark = page_encoder.encoder(pickled, device), Path(os.environ["KBQ_TEST_MARK"])

    def encode_or_die(pages: Sequence[Page]) -> EncodedParagraphs:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(pages)

    return encode_or_die


def test_a_worker_that_dies_ends_the_build_which_resumes(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KnowledgeBase.build(pages, tmp_path / "whole", model)
    monkeypatch.setenv("KBQ_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(page_encoder, "encoder", dies_once)
    said = r"^a worker died, perhaps for lack of memory: use fewer workers=…; the same command resumes from there$"
    with pytest.raises(KnowledgeBaseError, match=said):
        KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert multiprocessing.active_children() == []
    KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")
    assert multiprocessing.active_children() == []


def refusing(pickled: bytes, device: str) -> Callable[[Sequence[Page]], object]:
    raise MemoryError("no room for the model")


def test_an_error_in_a_worker_is_the_parents(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_encoder, "encoder", refusing)
    with pytest.raises(MemoryError, match="no room for the model"):
        KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)
    assert multiprocessing.active_children() == []


def test_a_process_that_cannot_be_started_is_said(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(process: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("kbq.worker_pool._Process.start", start)
    with pytest.raises(
        KnowledgeBaseError,
        match=r"no worker can be started \(Resource temporarily unavailable\): use",
    ):
        KnowledgeBase.build(pages, tmp_path / "kb", model, workers=2)


ORPHANS = """
import sys
from kbq.model.model import Model
from kbq.dump.page_encoder import encode_blocks, processes
from kbq.corpus.pages import Page, Paragraph

def blocks():
    while True:
        yield [Page("1", "Title", (Paragraph(0, "the city"),))]

print("runs", flush=True)  # there is no main guard
for block, encoded in encode_blocks(Model.open(sys.argv[1], "cpu"), blocks(), list, processes(2)):
    print("encoded", flush=True)
"""


@pytest.mark.parametrize("name", ["orphans.py", "-"])
def test_a_parent_that_is_killed_leaves_no_workers_which_do_not_run_its_script(
    name: str, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "orphans.py").write_text(ORPHANS)
    with (tmp_path / "orphans.py").open() as script:
        parent = subprocess.Popen(
            [sys.executable, name, model_folder],
            stdin=script,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert parent.stdout is not None
    assert [parent.stdout.readline() for _ in range(2)] == ["runs\n", "encoded\n"]
    parent.kill()
    # Returns when the last process that holds the output has ended.
    rest, _ = parent.communicate(timeout=300)
    assert "runs" not in rest


@pytest.mark.parametrize(
    ("device", "gpus", "places"),
    [
        ("cpu", 0, ["cpu"] * 3),
        ("cuda:0", 1, ["cuda:0"] * 3),
        ("cuda:1", 2, ["cuda:1", "cuda:0", "cuda:1"]),
    ],
)
def test_workers_take_the_gpus_by_turns(device: str, gpus: int, places: list[str]) -> None:
    assert [device_of(number, torch.device(device), gpus) for number in range(3)] == places
