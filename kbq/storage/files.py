"""Files: paths, digests, the limit of what is read as a whole; safe writing, folders, and one lock.

A file is written under a fresh random name, synchronised, and moved to its place. This follows no link, and a kill or
a power cut leaves the old file or the new one.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

from kbq.errors import KbqError, first_line

PACKAGE = Path(__file__).parents[1]
LARGEST = 2**28  # unpacked bytes of anything that is read as a whole
CHECK = "check the disk or the network"
CANNOT_READ = {  # advice on errors of files that may well be whole
    errno.EACCES: "ask for permission to read it",
    errno.EPERM: "ask for permission to read it",
    errno.EMFILE: "raise the limit (`ulimit -n`)",
    errno.ENFILE: "end other programs that hold files open",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
    errno.EIO: CHECK,
    errno.ESTALE: "check the network",
}

Report = Callable[[str, int, int], None]  # called with the name of a stage, the units done, and their total
Note = Callable[[str], None]  # called with a one-line message for the user

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
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# Errors of folders: CIFS, FUSE, Windows.
NOT_SYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}


def resource_path(name: str) -> Path:
    """Return a file or folder of kbq, which is inside the package when installed, and beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `$KBQ_CACHE` or the user's cache folder.

    Raises KbqError if the user has no home.
    """
    import platformdirs  # imported on demand: the help does not need it

    try:
        folder = Path(os.environ.get("KBQ_CACHE") or platformdirs.user_cache_dir("kbq"))
    except RuntimeError:
        folder = Path("~")
    if folder.parts[:1] == ("~",):
        raise KbqError("there is no folder for the cache, as there is no HOME: set KBQ_CACHE to a folder of yours")
    return folder


def as_iterable(things: object, error: type[KbqError], what: str, wanted: str) -> Any:
    """Return the argument of a Python call, or raise an error of this class if it is not a list of things."""
    if not isinstance(things, Iterable) or isinstance(things, str | bytes | Mapping):
        raise error(f"{what} {things!r:.60}: give {wanted}")
    return things


def as_path(name: object, what: str) -> Path:
    """Return a path or text as a path. Raises KbqError for anything else."""
    if (isinstance(name, str) and not name) or not isinstance(name, str | os.PathLike):
        raise KbqError(f"{what} is {name!r:.60}: give a path")
    return Path(name)


def refuse_large(name: str, size: int, error: type[KbqError] = KbqError, most: int = 0) -> None:
    """Raise an error of this class for a size above `most`, by default LARGEST: the one limit of all that is read."""
    most = most or LARGEST
    if size > most:
        raise error(f"{name} has {size:,} bytes, {most:,} at most are read: divide it")


def reading_problem(path: Path, error: Exception, otherwise: str) -> str:
    """Say why a file cannot be read, and what to do. `otherwise` is the advice if it is missing or damaged."""
    number = error.errno if isinstance(error, OSError) else None
    path = Path(error.filename) if isinstance(error, OSError) and isinstance(error.filename, str) else path
    if isinstance(error, MemoryError):
        return f"{path} cannot be read, memory is short: end other programs, or use a machine with more"
    if isinstance(error, OSError) and number in CANNOT_READ:
        return f"{path} cannot be read ({error.strerror}): {CANNOT_READ[number]}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{path} is missing: {otherwise}"
    return f"{path} is damaged ({first_line(error)}): {otherwise}"


@contextmanager
def reading_from(path: Path, error: type[KbqError], otherwise: str, what: str = "") -> Iterator[None]:
    """Turn errors in reading `path` into an error of kbq; see `reading_problem`. `what` stands before the path."""
    try:
        yield
    except (OSError, ValueError, MemoryError) as problem:
        raise error(what + reading_problem(path, problem, otherwise)) from None


def pipe_name(path: Path) -> str:
    """Return the name of standard input or another pipe, which can be read only once, or "" for any other file."""
    return "standard input" if str(path) == "-" else str(path) if path.is_fifo() else ""


def file_digest(path: Path) -> str:
    """Return the first 16 hexadecimal digits of a file's SHA-256. Raises KbqError for a pipe."""
    if pipe := pipe_name(path):
        raise KbqError(f"{pipe} can be read only once, but its digest is needed, too: give the name of a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_file(out: Path) -> Path:
    """Return the file beside the predictions `out` that describes the run that wrote them."""
    return out.with_name(f"{out.name}.run.json")


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress; a `Report`."""


def unheard(*what: object) -> None:
    """Ignore a call; any other callback."""


class Stage:
    """A stage of the work that counts and reports the units done."""

    def __init__(self, report: Report, name: str, total: int) -> None:
        self._report, self._name, self._total = report, name, total
        self._done = 0

    def add(self, done: int) -> None:
        self._done += done
        self._report(self._name, self._done, self._total)


try:
    import fcntl
except ImportError:  # Windows cannot lock folders
    fcntl = None  # type: ignore[assignment]


@contextmanager
def writing_alone(path: Path, what: Path | None = None) -> Iterator[None]:
    """Hold an exclusive, advisory lock on a folder or file, where the system supports locks.

    Raises KbqError, which names `what` or else `path`, if another process holds the lock. Without locks, an error of
    the work says so, as another process may be its cause.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe of this name would be waited for
    try:
        found = _lock(handle)
        if found == "taken":
            raise KbqError(f"another kbq process is writing to {what or path}: wait until it is done")
        yield
    except KbqError as error:
        if found == "impossible" and str(path) in error.args[0]:
            advice = "make sure that no other kbq process writes to it, and try again before anything else"
            error.args = (f"{error.args[0]}; but its file system has no locks: {advice}", *error.args[1:])
        raise
    finally:
        os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file or folder, and return False if another process has the lock."""
    return _lock(handle) != "taken"


def _lock(handle: int) -> Literal["held", "taken", "impossible"]:
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "taken"
        except OSError:  # the file system has no locks
            return "impossible"
    return "held"


class StrangeFileError(KbqError):
    """A link, a device, or a file with another name elsewhere, where kbq would use a file of its own."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file that atomically replaces `path` at the end; remove what killed runs have left of it."""
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
        StrangeFileError: it is a link, not a file, or has a second name under which it would change, too.
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
        number = problem.errno if isinstance(problem, OSError) else errno.ENOSPC  # a library's words for a full disk
        otherwise = "free disk space" if number in FULL else CHECK
        advice = advice or ADVICE.get(number or 0) or f"{otherwise}{f'; {RESUMES}' if goes_on else ''}"
        raise error(f"{path} cannot be written ({reason}): {advice}") from problem


def name_again(source: Path, target: Path) -> None:
    """Give a file that never changes a second name, or make a link to it where that is impossible."""
    try:
        os.link(source.resolve(), target)  # it stays when the first name is removed
    except OSError:  # another disk, or a file of somebody else's
        target.symlink_to(source.resolve())


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the whole lines of a file that grows line by line, and cut off the rest.

    A kill leaves an unfinished line at the end; a power cut leaves zeros in place of bytes that were not on the disk.
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
    """Put a file in its place as a whole, without waiting for the disk: whoever has sent it still has it."""
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


def new_folder(path: Path) -> None:
    """Make an empty folder in place of one that a killed run may have left. Raises StrangeFileError for a link."""
    remove_folder(path)
    path.mkdir()
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it if needed. Raises StrangeFileError for a link, which might lead anywhere."""
    _refuse_link(path)
    make_folders(path)


def make_folders(path: Path) -> None:
    """Make a folder that the user has named, which may be a link, and those above it if needed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def remove_folder(path: Path) -> None:
    """Remove a folder, if there is one, without following links in it. Raises StrangeFileError for a link."""
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
    """Give the files of a folder, which never change, second names in a new one, or copy them where that is impossible.

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
    """Yield a new folder whose files are moved into `path` at the end, for libraries that write files by name."""
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
    """Refuse anything but plain files and folders below `folder`, which may be a link itself.

    A link would have kbq read something else. A folder that can be entered but not listed is refused, too.

    Args:
        what: the folder is, for the message: "a knowledge base".
        may_stay: whether a link to a plain file is allowed.
        deep: look into folders within, too.
    """

    def refuse_unlisted(problem: OSError) -> None:
        if isinstance(problem, PermissionError) and os.access(problem.filename, os.X_OK):
            advice = "ask for permission, or remove it"
            raise error(f"{problem.filename} cannot be listed ({problem.strerror}): {advice}") from None

    for place, folders, files in os.walk(folder, onerror=refuse_unlisted):
        for path in [Path(place, name) for name in sorted(folders + files)]:
            with suppress(FileNotFoundError):  # it has been removed meanwhile
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (may_stay(path) and path.is_file()):
                    continue
                reason = "is a link" if stat.S_ISLNK(mode) else "is a device or a pipe"
                raise error(f"{path} {reason}, and {what} has none: put a copy in its place, or remove it")
        if not deep:
            return


def is_in_hub_cache(path: Path) -> bool:
    """Return whether a link is one of the Hugging Face hub's cache: snapshots/REVISION/x to blobs/y."""
    snapshot, blob = path.parent.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and blob.parent == snapshot.parents[1] / "blobs"


def leads_within(folder: Path) -> Callable[[Path], bool]:
    """Return a function that tells whether a link leads into the same folder, or is one of the hub's cache."""
    return lambda path: path.resolve().is_relative_to(folder.resolve()) or is_in_hub_cache(path)
