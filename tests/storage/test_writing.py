"""Writing: no link is followed, what is made is new, and what was left by killed runs goes away."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kbq.dump.shards import GrowingArray
from kbq.storage.folders import link_folder, new_folder, remove_folder
from kbq.storage.writing import (
    StrangeFileError,
    move,
    open_to_grow,
    remove_file,
    replacing,
    write_bytes,
    write_json,
    writing_alone,
)

TOKEN = "0123456789ab"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of somebody's own, elsewhere."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("mine")
    return tmp_path / "home" / "precious"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("name", ["a.json", "a.json.tmp", f"a.json.{TOKEN}.tmp"])
@pytest.mark.parametrize("is_hard", [False, True])
def test_what_replaces_a_file_writes_through_no_link(
    name: str, is_hard: bool, folder: Path, precious: Path
) -> None:
    (second_name if is_hard else symlinked)(folder / name, precious)
    write_json(folder / "a.json", {"a": 1})
    assert precious.read_text() == "mine"
    assert (folder / "a.json").read_text() == '{\n "a": 1\n}\n'
    assert not (folder / "a.json").is_symlink()
    left = {name} if name == "a.json.tmp" else set()  # not a name of ours
    assert {path.name for path in folder.iterdir()} == {"a.json"} | left


def test_a_dangling_link_makes_no_file_elsewhere(folder: Path, precious: Path) -> None:
    (folder / "a.json").symlink_to(precious.parent / "new")
    (folder / f"a.json.{TOKEN}.tmp").symlink_to(precious.parent / "new")
    write_bytes(folder / "a.json", b"a")
    assert [path.name for path in precious.parent.iterdir()] == ["precious"]


def test_of_two_writers_the_last_one_wins_and_neither_removes_what_the_other_writes(
    folder: Path,
) -> None:
    with replacing(folder / "a") as partial:
        partial.write_text("first")
        write_bytes(folder / "a", b"second")
    assert (folder / "a").read_text() == "first"
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_synchronise_folders_is_written_to(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    new_folder(folder / "a")
    write_bytes(folder / "a" / "file", b"x")
    link_folder(folder / "a", folder / "b", lambda name: False)
    move(folder / "b", folder / "c")
    assert (folder / "c" / "file").read_bytes() == b"x"


def test_an_error_leaves_the_old_file_and_nothing_else(folder: Path) -> None:
    (folder / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(folder / "a") as partial:
        partial.write_text(str(1 / 0))
    assert (folder / "a").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["a"]


def symlinked(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def dangling(path: Path, precious: Path) -> None:
    path.symlink_to(precious.parent / "new")


def second_name(path: Path, precious: Path) -> None:
    os.link(precious, path)


def pipe(path: Path, precious: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("leave", "message"),
    [
        (
            symlinked,
            "grown.npy is a link, which kbq does not write into: put a copy in its place, or "
            "remove grown.npy",
        ),
        (dangling, "grown.npy is a link"),
        (second_name, "grown.npy has another name, too, and kbq would write into it"),
        (pipe, "grown.npy is not a file"),
    ],
)
@pytest.mark.parametrize("open_it", [open_to_grow, lambda path: GrowingArray(path, "i4")])
def test_only_a_plain_file_grows(
    leave: Callable[[Path, Path], None],
    message: str,
    open_it: Callable[[Path], object],
    folder: Path,
    precious: Path,
) -> None:
    leave(folder / "grown.npy", precious)
    with pytest.raises(StrangeFileError, match=message):
        open_it(folder / "grown.npy")
    assert precious.read_text() == "mine"
    assert [path.name for path in precious.parent.iterdir()] == ["precious"]


def test_a_file_goes_on_where_it_was(folder: Path) -> None:
    for text in (b"one", b"two"):
        with open_to_grow(folder / "a") as file:
            file.seek(0, os.SEEK_END)
            file.write(text)
    assert (folder / "a").read_bytes() == b"onetwo"


@pytest.mark.parametrize("change", [new_folder, remove_folder])
def test_a_link_to_a_folder_is_refused(
    change: Callable[[Path], None], folder: Path, precious: Path
) -> None:
    (folder / "shard").symlink_to(precious.parent)
    with pytest.raises(
        StrangeFileError, match=r"shard is a link, where kbq would .*: remove the link"
    ):
        change(folder / "shard")
    assert precious.read_text() == "mine"


def test_a_new_folder_is_empty_and_what_links_in_the_old_one_lead_to_stays(
    folder: Path, precious: Path
) -> None:
    (folder / "shard" / "deep").mkdir(parents=True)
    (folder / "shard" / "deep" / "link").symlink_to(precious.parent)
    new_folder(folder / "shard")
    assert list((folder / "shard").iterdir()) == []
    assert precious.read_text() == "mine"


def test_a_link_that_is_removed_leaves_its_target(folder: Path, precious: Path) -> None:
    (folder / "link").symlink_to(precious)
    remove_file(folder / "link")
    remove_file(folder / "link")  # as one that is not there
    assert list(folder.iterdir()) == []
    assert precious.read_text() == "mine"


def test_a_folder_moves(folder: Path) -> None:
    new_folder(folder / "a")
    (folder / "a" / "file").write_text("x")
    move(folder / "a", folder / "b")
    assert (folder / "b" / "file").read_text() == "x"


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with writing_alone(folder / "pipe"):
        pass
