"""Writing: the one place that creates, replaces, moves and removes files and folders, and locks them.

A file is written under a fresh random name, synchronised, and moved to its place: this follows no link, and a kill or
a power cut leaves the old file or the new one.

A knowledge base or a model holds plain files and folders. A link among them would have kbq read something else.
"""

import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from kbq.errors import KbqError, first_line

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
NOT_SYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}  # of folders: CIFS, FUSE, Windows


try:
    import fcntl
except ImportError:  # on Windows, folders cannot be locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def writing_alone(path: Path, what: Path | None = None) -> Iterator[None]:
    """Hold an exclusive, advisory lock on a folder or file; without effect where locks are not supported.

    `what`: what is written, for the message, if not `path`. Raises KbqError if another process holds the lock.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe of this name would be waited for
    try:
        if not lock(handle):
            raise KbqError(f"another kbq process is writing to {what or path}: wait until it is done")
        yield
    finally:
        os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file, or folder, for this process; False if another one has the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system does not support locks
    return True


class StrangeFileError(KbqError):
    """A link, a device, or a file with another name elsewhere, where kbq would use a file of its own."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file, whose content replaces `path` atomically: there is always the old file or the new one.

    Leftovers of killed runs are removed.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    with partial.open("xb") as file:
        lock(file.fileno())  # else another process may take it for one that was left
        try:
            _remove_left(path, partial)
            yield partial
            sync(partial)  # by its name, as a library may have put another file there
            move(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def is_left_of(name: str, of: str) -> bool:
    """Whether a name is one under which `replacing` makes a file; after a kill it stays."""
    return re.fullmatch(rf"{re.escape(of)}\.[0-9a-f]{{12}}\.tmp", name) is not None


def _remove_left(path: Path, own: Path) -> None:
    """Remove what killed runs have left of a file."""
    for left in [left for left in path.parent.iterdir() if left != own and is_left_of(left.name, path.name)]:
        with suppress(OSError):
            if left.is_symlink():
                left.unlink()
                continue
            handle = os.open(left, os.O_RDONLY | NOT_FOLLOWED)
            try:
                if lock(handle):
                    left.unlink()
            finally:
                os.close(handle)


def open_to_grow(path: Path) -> BinaryIO:
    """Open a file that is written bit by bit under its own name, to read and write; make it if there is none.

    Raises:
        StrangeFileError: it is a link, no file, or has another name, under which it would change, too.
        OSError: it cannot be opened.
    """
    advice = f"put a copy in its place, or remove {path.name}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | NOT_FOLLOWED, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StrangeFileError(f"{path} is a link, which kbq does not write into: {advice}") from None
        raise
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        what = "has another name, too" if stat.S_ISREG(facts.st_mode) else "is not a file"
        raise StrangeFileError(f"{path} {what}, and kbq would write into it: {advice}")
    return os.fdopen(handle, "r+b")


def remove_file(path: Path) -> None:
    """Remove a file, or a link, if there is one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a folder or file, which is on the disk; the new name is on the disk, too, when the call returns.

    A file of that name is replaced, a folder only if it is empty.
    """
    source.replace(target)
    for folder in dict.fromkeys([target.parent, source.parent]):
        sync_folder(folder)


def sync(path: Path) -> None:
    """Bring the content of a file to the disk."""
    _sync(path, (os.O_RDONLY if os.name == "posix" else os.O_RDWR) | NOT_FOLLOWED)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder, which may be reached by a link, to the disk, where its file system can do so."""
    try:
        _sync(path, os.O_RDONLY)
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
    """Give a file, which never changes, a second name, or copy it where that is impossible."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        copy_file(source, target)


def name_again(source: Path, target: Path) -> None:
    """Give a file, which must never be written to, a second name, or a link where that is impossible."""
    try:
        os.link(source.resolve(), target)  # it stays when the first name is removed
    except OSError:  # another disk, or a file of somebody else's
        target.symlink_to(source.resolve())


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
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


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


def refuse_strange_files(
    folder: Path, what: str, error: type[KbqError], may_stay: Callable[[Path], bool], deep: bool = True
) -> None:
    """Refuse what is neither a plain file nor a folder, anywhere below `folder`, which may be a link itself.

    Args:
        what: what the folder is, for the message: "a knowledge base".
        error: its class, raised if there is a link, a device or a pipe, or a folder that cannot be listed.
        may_stay: says of a link whether it may be there; it must lead to a plain file.
        deep: look into folders within, too.
    """

    def refuse_unlisted(problem: OSError) -> None:
        can_be_reached = isinstance(problem, PermissionError) and os.access(problem.filename, os.X_OK)
        if can_be_reached:  # by the names of its files
            advice = "ask for permission, or remove it"
            raise error(f"{problem.filename} cannot be listed ({problem.strerror}): {advice}") from None

    for place, folders, files in os.walk(folder, onerror=refuse_unlisted):
        for path in [Path(place, name) for name in sorted(folders + files)]:
            reason = ""
            with suppress(FileNotFoundError):  # it has been removed meanwhile
                reason = _strangeness(path.lstat().st_mode)
            if reason and not (reason == LINK and may_stay(path) and path.is_file()):
                raise error(f"{path} {reason}, and {what} has none: put a copy in its place, or remove it")
        if not deep:
            return


LINK = "is a link"


def _strangeness(mode: int) -> str:
    """Return why a file is not allowed, or an empty string."""
    if stat.S_ISLNK(mode):
        return LINK
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "is a device or a pipe"


def is_in_hub_cache(path: Path) -> bool:
    """Whether a link is one of the Hugging Face hub's cache: snapshots/REVISION/x to blobs/y."""
    snapshot, blob = path.parent.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and blob.parent == snapshot.parents[1] / "blobs"


def leads_within(folder: Path) -> Callable[[Path], bool]:
    """Return a function that says whether a link leads into the same folder, or is one of the hub's cache."""
    return lambda path: path.resolve().is_relative_to(folder.resolve()) or is_in_hub_cache(path)
