"""Files: replaced atomically, locked against other writers, identified by a digest, and how much space they take."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbq.errors import KbqError, first_line

try:
    import fcntl
except ImportError:  # on Windows, folders cannot be locked
    fcntl = None  # type: ignore[assignment]

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
CANNOT_READ = {  # what to do where a file may well be whole
    errno.EACCES: "ask for the right to read it",
    errno.EPERM: "ask for the right to read it",
    errno.EMFILE: "raise the limit (`ulimit -n`)",
    errno.ENFILE: "end other programs that hold files open",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
    errno.EIO: "check the disk or the network",
    errno.ESTALE: "check the network",
}


def reading_problem(path: Path, error: Exception, otherwise: str) -> str:
    """What keeps a file from being read, and what to do about it: a missing right, a limit of the moment, or damage.

    Args:
        otherwise: what to do about a missing or damaged file.
    """
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
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` atomically: after a kill, the old file or the new one is intact.

    Raises:
        KbqError: another process is replacing it.
    """
    partial = path.with_name(path.name + ".tmp")
    partial.touch()
    with writing_alone(partial, path):
        try:
            partial.write_bytes(b"")  # a run that was killed may have left a part
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
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
    try:
        yield
    except Exception as problem:
        if not isinstance(problem, (OSError, *also)):
            raise
        reason = (isinstance(problem, OSError) and problem.strerror) or first_line(problem)
        number = problem.errno if isinstance(problem, OSError) else None
        advice = advice or ADVICE.get(number or 0) or f"free disk space{f'; {RESUMES}' if goes_on else ''}"
        raise error(f"{path} cannot be written ({reason}): {advice}") from problem


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8", "backslashreplace")


def pipe_name(path: Path) -> str:
    """The name of standard input or another pipe, which can be read only once; empty for any other file."""
    return "standard input" if str(path) == "-" else str(path) if path.is_fifo() else ""


def file_digest(path: Path) -> str:
    """The first 16 hexadecimal digits of a file's SHA-256.

    Raises:
        KbqError: it is standard input or another pipe, which cannot be read twice.
    """
    if pipe := pipe_name(path):
        raise KbqError(f"{pipe} can be read only once, but its digest is needed, too: give the name of a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def digest_of(path: Path) -> str:
    """The digest of a file, or of the names and contents of all files below a folder."""
    if not path.is_dir():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "\n".join(f"{file.relative_to(path)} {file_digest(file)}" for file in files)
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    """The total size of all files below a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_file(out: Path) -> Path:
    """The file beside the predictions `out` that describes the run that wrote them."""
    return out.with_name(f"{out.name}.run.json")


@contextmanager
def writing_alone(path: Path, what: Path | None = None) -> Iterator[None]:
    """Hold an exclusive, advisory lock on a folder or file; without effect where locks are not supported.

    `what`: what is written, for the message, if that is not `path`.

    Raises:
        KbqError: another process holds the lock.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        if not _is_locked(handle, path):
            raise KbqError(f"another kbq process is writing to {what or path}: wait until it is done")
        yield
    finally:
        os.close(handle)


def _is_locked(handle: int, path: Path) -> bool:
    """Lock a file, or a folder, for this process; False if another one has the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system does not support locks
    try:
        # Whoever had the lock until now may have removed or replaced what was opened.
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def remove_left(folder: Path) -> None:
    """Remove a folder whose process was killed: unless another one has the lock, or there are no locks to tell by."""
    if fcntl is None:
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
