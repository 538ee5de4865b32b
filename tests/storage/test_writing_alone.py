"""Files: one process at a time writes to a folder, and no change is lost."""

import errno
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from kbq.corpus.pages import Page, Paragraph
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.storage.paths import cache_folder
from kbq.storage.writing import replacing, writing_alone, writing_to
from kbq.training.output_folder import output_folder
from kbq.words.bm25 import index_bm25

BUSY = "another kbq process is writing to .*: wait until it is done"
MORE = [Page("new", "New", (Paragraph(0, "A river runs through the new city."),))]


@pytest.fixture
def folder(kb_folder: Path, tmp_path: Path) -> Path:
    """A knowledge base to write into."""
    return Path(shutil.copytree(kb_folder, tmp_path / "kb"))


def test_one_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):  # the first lock has ended
        with writing_alone(tmp_path), pytest.raises(KbqError, match=BUSY), writing_alone(tmp_path):
            pytest.fail("two write at once")
    with pytest.raises(ZeroDivisionError), writing_alone(tmp_path):
        1 / 0  # noqa: B018
    with writing_alone(tmp_path):
        assert [*tmp_path.iterdir()] == []  # a lock leaves nothing behind


def test_a_file_is_replaced_by_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with replacing(out) as partial:
        partial.write_text("half")
        with partial.open("a") as file:
            file.write(" and half")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out": "half and half"}
    with pytest.raises(ZeroDivisionError), replacing(out) as partial:  # noqa: PT012
        partial.write_text("half")
        1 / 0  # noqa: B018
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out": "half and half"}


def hold(folder: Path, held: Event) -> None:
    with writing_alone(folder):
        held.set()
        signal.pause()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=hold, args=(tmp_path, held))
    holder.start()
    assert held.wait(60)
    with pytest.raises(KbqError, match=BUSY), writing_alone(tmp_path):
        pytest.fail("two write at once")
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with writing_alone(tmp_path):
        pass


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, model: KnowledgeBase.build(MORE, folder, model, append=True),
        lambda folder, model: KnowledgeBase.open(folder, device="cpu").index_vectors("exact"),
        lambda folder, model: index_bm25(folder),
    ],
)
def test_a_knowledge_base_is_written_by_one(
    write: Callable[[Path, Model], object], folder: Path, model: Model
) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with writing_alone(folder), pytest.raises(KbqError, match=BUSY):
        write(folder, model)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    write(folder, model)
    assert KnowledgeBase.open(folder, device="cpu").query(["the river"], 1)[0]


def test_a_build_and_a_training_are_of_one(model: Model, tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    with writing_alone(tmp_path / "kb"), pytest.raises(KbqError, match=BUSY):
        KnowledgeBase.build(MORE, tmp_path / "kb", model)
    with output_folder(tmp_path / "out") as place:
        with pytest.raises(KbqError, match=BUSY), output_folder(tmp_path / "out"):
            pytest.fail("two train at once")
        (place / "model").mkdir()


def test_what_was_appended_meanwhile_stays(folder: Path, model: Model) -> None:
    opened = KnowledgeBase.open(folder, device="cpu")
    KnowledgeBase.build(MORE, folder, model, append=True)
    indexed = opened.index_vectors("exact")
    assert indexed.counts.pages == opened.counts.pages + 1
    again = KnowledgeBase.open(folder, device="cpu")
    assert "new" in {hit.page_id for hit in again.query(["the river"], 99, "page")[0]}


def test_a_user_without_a_home_is_told_where_a_cache_may_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nobody(*_: object) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_CACHE_HOME", "KBQ_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(KbqError, match="no HOME: set KBQ_CACHE to a folder of yours"):
        cache_folder()
    monkeypatch.setenv("KBQ_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_without_locks_an_error_of_the_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("kbq.storage.writing.fcntl.flock", none)
    with (
        pytest.raises(KbqError, match="not empty; its file system has no locks"),
        writing_to(tmp_path, KbqError),
        writing_alone(tmp_path),
    ):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(tmp_path))
