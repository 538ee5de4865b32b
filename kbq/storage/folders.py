"""Folders: made, copied, removed and filled without following a link."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbq.storage.locks import lock
from kbq.storage.writing import NOT_FOLLOWED, StrangeFileError, copy_file, move, sync, sync_folder


def new_folder(path: Path) -> None:
    """Make an empty folder; remove first what a killed run has left there.

    Raises StrangeFileError for a link, OSError for a file or a folder that cannot be made.
    """
    remove_folder(path)
    path.mkdir()
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there.

    Raises StrangeFileError for a link, which might lead anywhere, OSError for a file or a folder that cannot be made.
    """
    _refuse_link(path)
    make_folders(path)


def make_folders(path: Path) -> None:
    """Make a folder, and those above it, unless it is there; the user has named it, and it may be a link."""
    path.mkdir(parents=True, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder and all in it, if there is one, but not what links in it lead to.

    Raises StrangeFileError for a link, OSError for a folder that cannot be removed.
    """
    _refuse_link(path)
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def discard_folder(path: Path) -> None:
    """Remove a folder that nothing names any more, as far as possible."""
    with suppress(OSError):
        remove_folder(path)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder, unless something is in it."""
    with suppress(OSError):
        path.rmdir()


def remove_left(path: Path) -> None:
    """Remove a folder whose process was killed, unless another one has the lock."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | NOT_FOLLOWED)
        try:
            if lock(handle):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def copy_folder(
    source: Path,
    target: Path,
    copy: Callable[[Path, Path], None] = copy_file,
    leave_out: Callable[[str], bool] = lambda name: False,
) -> None:
    """Make a new folder with the files of another one and of those below; it is on the disk when the call returns.

    Args:
        copy: makes the second file of the first one.
        leave_out: tells by name which files and folders are left out.
    """
    new_folder(target)
    for path in sorted(source.iterdir()):
        if leave_out(path.name):
            continue
        if path.is_dir():
            copy_folder(path, target / path.name, copy, leave_out)
        else:
            copy(path, target / path.name)
    sync_folder(target)


@contextmanager
def files_for(path: Path) -> Iterator[Path]:
    """Yield a new folder, and move its files into `path` at the end: for libraries that write files by name."""
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
        raise StrangeFileError(f"{path} is a link, where kbq would make or remove a folder of its own: remove the link")
