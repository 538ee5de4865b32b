"""Folders: make, link, fill or remove them; links in those of others are refused."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbq.errors import KbqError
from kbq.storage.writing import StrangeFileError, move, sync, sync_folder


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def new_folder(path: Path) -> None:
    """Make an empty folder in place of one that a killed run may have left. Raises StrangeFileError
    for a link.
    """
    remove_folder(path)
    path.mkdir()
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it if needed. Raises StrangeFileError for a link, which might
    lead anywhere.
    """
    _refuse_link(path)
    make_folders(path)


def make_folders(path: Path) -> None:
    """Make a folder that the user has named, which may be a link, and those above it if needed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def remove_folder(path: Path) -> None:
    """Remove a folder, if there is one, without following links in it. Raises StrangeFileError for
    a link.
    """
    _refuse_link(path)
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def discard_folder(path: Path) -> None:
    """Remove as much as possible of a folder that nothing names any more."""
    with suppress(OSError):
        remove_folder(path)


def remove_empty_folder(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


def link_folder(source: Path, target: Path, leave_out: Callable[[str], bool]) -> None:
    """Give the files of a folder, which never change, second names in a new one, or copy them where
    that is impossible.

    `leave_out`: whether a file or folder of this name is left out.
    """
    new_folder(target)
    for path in sorted(source.iterdir()):
        second = target / path.name
        if leave_out(path.name):
            continue
        if path.is_dir():
            link_folder(path, second, leave_out)
            continue
        try:
            os.link(path, second, follow_symlinks=False)
        except OSError:
            shutil.copyfile(path, second)
            sync(second)

    sync_folder(target)


@contextmanager
def files_for(path: Path) -> Iterator[Path]:
    """Yield a new folder whose files are moved into `path` at the end, for libraries that write
    files by name.
    """
    make_folder(path)
    partial = path / f"{secrets.token_hex(6)}.tmp"
    new_folder(partial)
    try:
        yield partial
        for file in sorted(partial.iterdir()):
            sync(file)
            move(file, path / file.name)
    finally:
        discard_folder(partial)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StrangeFileError(
            f"{path} is a link, where kbq would make or remove a folder of its own: remove the link"
        )


def refuse_strange_files(
    folder: Path,
    what: str,
    error: type[KbqError],
    may_stay: Callable[[Path], bool],
    deep: bool = True,
) -> None:
    """Refuse anything but plain files and folders below `folder`, which may be a link itself.

    A link would have kbq read something else. A folder that can be entered but not listed is
    refused, too.

    Args:
        what: the folder is, for the message: "a knowledge base".
        may_stay: whether a link to a plain file is allowed.
        deep: look into folders within, too.
    """

    def refuse_unlisted(problem: OSError) -> None:
        if isinstance(problem, PermissionError) and os.access(problem.filename, os.X_OK):
            advice = "ask for permission, or remove it"
            raise error(
                f"{problem.filename} cannot be listed ({problem.strerror}): {advice}"
            ) from None

    for parent, folders, files in os.walk(folder, onerror=refuse_unlisted):
        for path in [Path(parent, name) for name in sorted(folders + files)]:
            with suppress(FileNotFoundError):  # it has been removed meanwhile
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    continue
                if may_stay(path) and path.is_file():
                    continue
                reason = "is a device or a pipe"
                if stat.S_ISLNK(mode):
                    reason = "is a link"
                raise error(
                    f"{path} {reason}, and {what} has none: put a copy in its place, or remove it"
                )
        if not deep:
            return


def is_in_hub_cache(path: Path) -> bool:
    """Return whether a link is one of the Hugging Face hub's cache: snapshots/REVISION/x to
    blobs/y.
    """
    snapshot = path.parent.resolve()
    blob = path.resolve()
    return snapshot.parent.name == "snapshots" and blob.parent == snapshot.parents[1] / "blobs"


def leads_within(folder: Path) -> Callable[[Path], bool]:
    """Return a function that tells whether a link leads into the same folder, or is one of the
    hub's cache.
    """
    return lambda path: path.resolve().is_relative_to(folder.resolve()) or is_in_hub_cache(path)
