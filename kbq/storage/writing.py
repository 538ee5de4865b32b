"""Writing: the one place where files of kbq are made, replaced, moved and removed; `folders.py` does it with folders.

Nothing here follows a link. Files are made anew: kbq never writes into a link, a device or a file of that name, which
somebody may have left in a folder that came from elsewhere. Names are taken relative to a handle of their folder. A
file that replaces another has a name that cannot be guessed until then, and is on the disk, with its name, before
anything names it: after a power cut there is the old file or the new one.
"""

import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from kbq.errors import KbqError, first_line
from kbq.storage.locks import being_written, lock

RESUMES = "the same command resumes from there"
ADVICE = {  # what to do about an error; about any other, the disk being full, say: free disk space
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that can be written to",
    errno.EEXIST: "choose another name",
    errno.ENOTDIR: "choose another name",
    errno.EISDIR: "choose another name",
    errno.ENOENT: "choose an existing folder",
    errno.ENAMETOOLONG: "choose another name",
    errno.ELOOP: "choose another name",
}
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
HAS_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")  # not on Windows


class StrangeFileError(KbqError):
    """A link, a device, or a file with another name elsewhere, where kbq would use a file of its own."""


@contextmanager
def at(path: Path) -> Iterator[tuple[str, int | None]]:
    """Yield the name of a file within its folder, and a handle of the folder."""
    if not HAS_HANDLES:
        yield str(path), None
        return
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield path.name, handle
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file, whose content replaces `path` atomically: there is always the old file or the new one.

    Leftovers of killed runs are removed. Raises KbqError if another process is replacing the file.
    """
    with at(path) as (name, folder):
        partial = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
        own = partial.name if HAS_HANDLES else str(partial)
        handle = os.open(own, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOT_FOLLOWED, 0o666, dir_fd=folder)
        try:
            if not lock(handle):  # another process takes it for one that was left
                raise being_written(path)
            _refuse_or_remove_others(path, own, folder)
            yield partial
            _sync(own, folder)  # by its name, as a library may have put another file there
            os.replace(own, name, src_dir_fd=folder, dst_dir_fd=folder)
            sync_handle(folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(own, dir_fd=folder)
            raise
        finally:
            os.close(handle)


def is_left_of(name: str, of: str) -> bool:
    """Whether a name is one under which `replacing` makes a file; after a kill it stays."""
    return re.fullmatch(rf"{re.escape(of)}\.[0-9a-f]{{12}}\.tmp", name) is not None


def _refuse_or_remove_others(path: Path, own: str, folder: int | None) -> None:
    """Remove what killed runs have left of a file. Raises KbqError if another one is at work."""
    names = {name for name in os.listdir(path.parent if folder is None else folder) if is_left_of(name, path.name)}  # noqa: PTH208
    if Path(own).name not in names:  # another process took it for one that was left
        raise being_written(path)
    for name in names - {Path(own).name}:
        left = name if folder is not None else str(path.with_name(name))
        try:
            handle = os.open(left, os.O_RDONLY | NOT_FOLLOWED, dir_fd=folder)
        except OSError:  # a link, or it has just been moved to its place
            handle = None
        try:
            if handle is not None and not lock(handle):
                raise being_written(path)
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
        finally:
            if handle is not None:
                os.close(handle)


def open_to_grow(path: Path) -> BinaryIO:
    """Open a file that is written bit by bit under its own name, to read and write; make it if there is none.

    Raises:
        StrangeFileError: it is a link, no file, or has another name, under which it would change, too.
        OSError: it cannot be opened.
    """
    with at(path) as (name, folder):
        try:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | NOT_FOLLOWED, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StrangeFileError(f"{path} is a link, which kbq does not write into: {_put_away(path)}") from None
            raise
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        what = "has another name, too" if stat.S_ISREG(facts.st_mode) else "is not a file"
        raise StrangeFileError(f"{path} {what}, and kbq would write into it: {_put_away(path)}")
    return os.fdopen(handle, "r+b")


def _put_away(path: Path) -> str:
    return f"put a copy in its place, or remove {path.name}"


def remove_file(path: Path) -> None:
    """Remove a file, or a link, if there is one."""
    with suppress(FileNotFoundError, NotADirectoryError), at(path) as (name, folder):
        os.unlink(name, dir_fd=folder)


def move(source: Path, target: Path) -> None:
    """Rename a folder or file, which is on the disk; the new name is on the disk, too, when the call returns.

    A file of that name is replaced, a folder only if it is empty.
    """
    with at(source) as (old, old_folder), at(target) as (new, new_folder):
        os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
        sync_handle(new_folder)
        sync_handle(old_folder)


def sync(path: Path) -> None:
    """Bring the content of a file, or the names in a folder, to the disk."""
    with at(path) as (name, folder):
        _sync(name, folder)


def _sync(name: str, folder: int | None) -> None:
    handle = os.open(name, (os.O_RDONLY if HAS_HANDLES else os.O_RDWR) | NOT_FOLLOWED, dir_fd=folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_handle(folder: int | None) -> None:
    if folder is not None:
        with suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(folder)


@contextmanager
def writing_to(
    path: Path,
    error: type[KbqError],
    advice: str = "",
    *,
    goes_on: bool = False,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn errors in writing to `path` into an error of kbq.

    Args:
        error: its class.
        advice: what to do, whatever the error; by default it depends on the error.
        goes_on: whether the same command resumes once there is space.
        also: exceptions that a library raises when the disk is full.
    """
    errors: tuple[type[Exception], ...] = (OSError, *also)
    try:
        yield
    except errors as problem:
        reason = (isinstance(problem, OSError) and problem.strerror) or first_line(problem)
        number = problem.errno if isinstance(problem, OSError) else None
        advice = advice or ADVICE.get(number or 0) or f"free disk space{f'; {RESUMES}' if goes_on else ''}"
        raise error(f"{path} cannot be written ({reason}): {advice}") from problem


def copy_file(source: Path, target: Path) -> None:
    """Replace a file by a copy of another one."""
    with replacing(target) as partial:
        shutil.copyfile(source, partial)


def link_file(source: Path, target: Path) -> None:
    """Give a file of one's own, which never changes, a second name; copy somebody else's file, or one far away."""
    try:
        if hasattr(os, "geteuid") and source.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "somebody else's file", str(source))
        with at(target) as (name, folder):
            os.link(source, name, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        copy_file(source, target)


def name_again(source: Path, target: Path) -> None:
    """Give a file, which must never be written to, a second name, or a link where that is impossible."""
    with at(target) as (name, folder):
        try:
            os.link(source.resolve(), name, dst_dir_fd=folder)  # it stays when the first name is removed
        except OSError:  # another disk, or a file of somebody else's
            os.symlink(source.resolve(), name, dir_fd=folder)


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that grows line by line, and cut off what comes after the whole ones.

    A kill leaves an unfinished line at the end, a power cut zeros in place of what had not come to the disk.
    """
    end = file.seek(0)
    for line in file:
        if not line.endswith(b"\n") or b"\0" in line:
            break
        yield line
        end += len(line)
    file.seek(end)
    file.truncate()


def sync_open(file: BinaryIO) -> None:
    """Bring the content of an open file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically, in UTF-8, which cannot hold lone surrogates: they are escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
