"""Faults: a change that an error of the disk ends is said to be done or not as it is; where there
are no locks, too.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import kbq
from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest
from kbq.dump.shards import deleted_file
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.storage.folders import link_folder
from kbq.storage.writing import RESUMES

KILL = -1  # instead of the number of an error
PAGES = [Page(name, name, [f"Marie was born in the city {name}.", "The river."]) for name in "abcd"]
Change = Callable[[KnowledgeBase], Any]
CHANGES: dict[str, Change] = {
    "delete": lambda kb: kb.delete("b"),
    "update": lambda kb: kb.update([Page("a", "a", ["Paris."])]),
    "sync": lambda kb: kb.sync(PAGES[:2]),
    "compact": lambda kb: kb.compact(),
    "index bm25": lambda kb: kb.index_bm25(),
}


@pytest.fixture
def changing(model: Model, tmp_path: Path) -> KnowledgeBase:
    """A knowledge base with a list of deleted pages, which the next change replaces."""
    return KnowledgeBase.build(PAGES, tmp_path / "kb", model, bm25=False).delete("d")


@contextmanager
def failing(call: int, number: int) -> Iterator[list[str]]:
    """Let the n-th call that changes something on the disk fail, or `KILL`; yields the calls until
    then.
    """
    made: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*words: Any, **more: Any) -> Any:
            made.append(name)
            if len(made) == call:
                if number == KILL:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(number, os.strerror(number))
            return real(*words, **more)

        return maybe

    with pytest.MonkeyPatch.context() as patched:
        for name in ("replace", "unlink", "fsync", "rmdir"):
            patched.setattr(os, name, counted(name, getattr(os, name)))
        yield made


def left_over(folder: Path) -> list[Path]:
    """Lists of deleted pages and shards that nothing names."""
    manifest = read_manifest(folder)
    lists = {deleted_file(folder / entry.name, entry.deleted) for entry in manifest.shards}
    shards = {folder / entry.name for entry in manifest.shards}
    return [*({*folder.glob("shard-*/deleted-*")} - lists), *({*folder.glob("shard-*")} - shards)]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_a_disk_ends_is_done_or_resumes_as_it_says(
    name: str, changing: KnowledgeBase, tmp_path: Path
) -> None:
    change, folder = CHANGES[name], changing.folder
    tried = outcomes = 0
    while True:
        tried += 1
        number = (errno.EIO, errno.ENOSPC)[tried % 2]
        copy = tmp_path / f"kb{tried}"
        link_folder(folder, copy, lambda _: False)
        kb, before = KnowledgeBase.open(copy, changing.model), read_manifest(copy)
        said = ""
        with failing(tried, number) as made:
            try:
                change(kb)
            except KbqError as error:
                said = str(error)
        after = read_manifest(copy)
        if len(made) < tried:
            assert (said, left_over(copy)) == ("", [])
            break
        outcomes += bool(said)
        if said:
            # Which publishes shard by shard, and goes on.
            is_done = after != before and name != "compact"
            assert ("has been changed as asked" in said) == is_done, said
            assert (RESUMES in said) != is_done, said
            assert ("free disk space" in said) == (number == errno.ENOSPC and not is_done), said
            assert ("check the disk" in said) == (number == errno.EIO or is_done), said
        else:
            assert after != before
        assert kbq.verify(copy).problems == ()
        with suppress(KbqError):  # the page is gone
            change(KnowledgeBase.open(copy, changing.model))
        assert left_over(copy) == []
    assert outcomes > 3


def is_killed(call: int, change: Change, folder: Path, model: Model) -> bool:
    """Whether a process that makes a change came to its n-th call that changes something, which
    kills it.
    """

    def changed() -> None:
        with failing(call, KILL):
            change(KnowledgeBase.open(folder, model))

    process = get_context("fork").Process(target=changed)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def test_a_delete_that_is_killed_is_done_or_not_and_the_next_one_tidies_up(
    changing: KnowledgeBase, tmp_path: Path
) -> None:
    before, left_of_done, kills = read_manifest(changing.folder), 0, 0
    while True:
        kills += 1
        copy = tmp_path / f"kb{kills}"
        link_folder(changing.folder, copy, lambda _: False)
        if not is_killed(kills, CHANGES["delete"], copy, changing.model):
            break
        assert kbq.verify(copy).problems == ()
        is_done = read_manifest(copy) != before
        left_of_done += is_done and bool(left_over(copy))
        again = KnowledgeBase.open(copy, changing.model)
        (again if is_done else CHANGES["delete"](again)).delete("c")
        assert left_over(copy) == []
        assert kbq.verify(copy).problems == ()
    assert left_of_done > 0  # killed between the new manifest and the end of what the old one names
    assert kills > 3


def updated(folder: Path, model: str, number: int, said: Any) -> None:
    """Update a knowledge base on a file system without locks, and send what comes of it."""
    import fcntl

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = none
    try:
        kb = KnowledgeBase.open(folder, model, device="cpu")
        for turn in range(3):
            kb = kb.update([Page(f"{number} {turn}", "New", ["The river of Paris is long."] * 5)])
        said.send("")
    except KbqError as error:
        said.send(str(error))
    except Exception as error:
        said.send(f"failed: {type(error).__name__}: {error}")


def test_two_updates_without_locks_are_told_so(model_folder: Path, changing: KnowledgeBase) -> None:
    context, told = get_context("fork"), []
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    running = [
        context.Process(target=updated, args=(changing.folder, str(model_folder), number, pipe))
        for number, (_, pipe) in enumerate(pipes)
    ]
    for process in running:
        process.start()
    for process, (heard, _) in zip(running, pipes, strict=True):
        told.append(heard.recv())
        process.join()
    for said in filter(None, told):
        assert not said.startswith("failed")
        # The other may write between the end of an update and the opening of what it made.
        assert "its file system has no locks" in said or "restore it from a copy" in said
