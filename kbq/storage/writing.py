"""Writing: put files in their places so that a kill or a power cut leaves the old one or the new
one.

A file is written under a fresh random name, synchronised, and moved to its place, which follows no
link. One lock keeps other processes out.
"""

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Literal

from kbq.errors import KbqError, first_line
from kbq.storage.reading import CANNOT_READ, CHECK

RESUMES = "the same command resumes from there"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BAD_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
ADVICE = {  # advice by error; a full disk has its own
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that can be written to",
    errno.ENOENT: "choose an existing folder",
    **dict.fromkeys(_BAD_NAMES, "choose another name"),
    **{error: CANNOT_READ[error] for error in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)},
}
NOT_FOLLOWED = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
# Errors of folders: CIFS, FUSE, Windows.
NOT_SYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}

try:
    import fcntl
except ImportError:  # Windows cannot lock folders
    fcntl = None  # type: ignore[assignment]


@contextmanager
def writing_alone(path: Path, what: Path | None = None) -> Iterator[None]:
    """Hold an exclusive, advisory lock on a folder or file, where the system supports locks.

    Raises KbqError, which names `what` or else `path`, if another process holds the lock. Without
    locks, an error of the work says so, as another process may be its cause.
    """
    if fcntl is None:
        yield
        return

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe of this name would be waited for
    try:
        outcome = _lock(handle)
        if outcome == "taken":
            raise KbqError(
                f"another kbq process is writing to {what or path}: wait until it is done"
            )
        yield
    except KbqError as error:
        if outcome == "impossible" and str(path) in error.args[0]:
            advice = (
                "make sure that no other kbq process writes to it, and try again before anything "
                "else"
            )
            error.args = (
                f"{error.typed}; but its file system has no locks: {advice}",
                *error.args[1:],
            )
        raise
    except OSError as error:  # others put it into a sentence
        if outcome == "impossible" and error.strerror:
            error.strerror += (
                "; its file system has no locks, so another kbq process may be writing"
            )
        raise
    finally:
        os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file or folder, and return False if another process has the lock."""
    return _lock(handle) != "taken"


def _lock(handle: int) -> Literal["held", "taken", "impossible"]:
    """Lock an open file for this process."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "taken"
        except OSError:  # the file system has no locks
            return "impossible"
    return "held"


class StrangeFileError(KbqError):
    """A link, a device, or a file with another name elsewhere, where kbq would use a file of its
    own.
    """


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file that atomically replaces `path` at the end; remove what killed runs
    have left of it.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    with partial.open("xb") as file:
        lock(file.fileno())  # keeps other processes from taking it for a leftover
        try:
            for left in path.parent.iterdir():
                if left != partial and is_left_of(left.name, path.name):
                    _remove_left(left)
            yield partial
            sync(partial)  # synced by name, as a library may have put another file there
            move(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def is_left_of(name: str, of: str) -> bool:
    """Whether a name is one under which `replacing` makes a file; after a kill it stays."""
    return re.fullmatch(rf"{re.escape(of)}\.[0-9a-f]{{12}}\.tmp", name) is not None


def _remove_left(path: Path) -> None:
    with suppress(OSError, KbqError):  # another process still holds the lock of its file
        if path.is_symlink():
            path.unlink()
            return
        with writing_alone(path):
            path.unlink()


def open_to_grow(path: Path) -> BinaryIO:
    """Open a file to read and to append to under its own name, and create it if it does not exist.

    Raises:
        StrangeFileError: it is a link, not a file, or has a second name under which it would
            change, too.
    """
    advice = f"put a copy in its place, or remove {path.name}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | NOT_FOLLOWED, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StrangeFileError(
                f"{path} is a link, which kbq does not write into: {advice}"
            ) from None
        raise

    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        what = "is not a file"
        if stat.S_ISREG(facts.st_mode):
            what = "has another name, too"
        raise StrangeFileError(f"{path} {what}, and kbq would write into it: {advice}")

    return os.fdopen(handle, "r+b")


def remove_file(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a file or folder durably, replacing a file or an empty folder of the new name."""
    source.replace(target)
    for folder in dict.fromkeys([target.parent, source.parent]):
        sync_folder(folder)


def sync(path: Path) -> None:
    with path.open("rb" if os.name == "posix" else "r+b") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk, where its file system can do so."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in NOT_SYNCED:
            raise


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
        advice: on any error; by default it depends on the error.
        goes_on: say that the same command resumes once there is space.
        also: exceptions that a library raises when the disk is full.
    """
    errors: tuple[type[Exception], ...] = (OSError, *also)
    try:
        yield
    except errors as problem:
        reason = (isinstance(problem, OSError) and problem.strerror) or first_line(problem)
        # A library's words for a full disk.
        number = problem.errno if isinstance(problem, OSError) else errno.ENOSPC
        otherwise = "free disk space" if number in FULL else CHECK
        advice = (
            advice or ADVICE.get(number or 0) or f"{otherwise}{f'; {RESUMES}' if goes_on else ''}"
        )
        raise error(f"{path} cannot be written ({reason}): {advice}") from problem


def name_again(source: Path, target: Path) -> None:
    """Give a file that never changes a second name, or make a link to it where that is impossible."""
    try:
        os.link(source.resolve(), target)  # it stays when the first name is removed
    except OSError:  # another disk, or a file of somebody else's
        target.symlink_to(source.resolve())


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the whole lines of a file that grows line by line, and cut off the rest.

    A kill leaves an unfinished line at the end; a power cut leaves zeros in place of bytes that
    were not on the disk.
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
    file.flush()
    os.fsync(file.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_received(path: Path, content: bytes) -> None:
    """Put a file in its place as a whole, without waiting for the disk: whoever has sent it still
    has it.
    """
    partial = path.with_name(f".{secrets.token_hex(6)}.tmp")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically, in UTF-8, with lone surrogates escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
