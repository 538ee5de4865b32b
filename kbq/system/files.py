"""Files: replaced in one step, known by a digest, and how much room they take."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbq.errors import KbqError, first_line

GO_ON = "the same command goes on where it stopped"
WAYS_OUT = {  # where the disk is not full
    errno.EACCES: "choose a place that you may write to",
    errno.EPERM: "choose a place that you may write to",
    errno.EROFS: "choose a place that can be written to",
    errno.EEXIST: "choose another name",
    errno.ENOTDIR: "choose another name",
    errno.EISDIR: "choose another name",
    errno.ENOENT: "choose a place that is there",
    errno.ENAMETOOLONG: "choose another name",
    errno.ELOOP: "choose another name",
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of `path` in one step: a kill leaves the old file or the new one whole."""
    partial = path.with_name(path.name + ".tmp")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def writing_to(
    place: Path,
    error: type[KbqError],
    way_out: str = "",
    *,
    goes_on: bool = False,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """What the disk refuses becomes an error of kbq.

    Args:
        way_out: what to do, where it is always the same.
        goes_on: whether the same command goes on once there is room.
        also: what a library raises on a full disk.
    """
    try:
        yield
    except Exception as problem:
        if not isinstance(problem, (OSError, *also)):
            raise
        reason = (isinstance(problem, OSError) and problem.strerror) or first_line(problem)
        number = problem.errno if isinstance(problem, OSError) else None
        way_out = way_out or WAYS_OUT.get(number or 0) or (f"make room; {GO_ON}" if goes_on else "make room")
        raise error(f"{place} cannot be written ({reason}): {way_out}") from problem


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step. Half a surrogate pair is no UTF-8, so it is escaped."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8", "backslashreplace")


def pipe_name(path: Path) -> str:
    """What to call standard input or another pipe, which can be read only once; empty where it is none."""
    return "standard input" if str(path) == "-" else str(path) if path.is_fifo() else ""


def file_digest(path: Path) -> str:
    """The first 16 digits of a file's SHA-256.

    Raises:
        KbqError: it is standard input or another pipe, which cannot be read twice.
    """
    if pipe := pipe_name(path):
        raise KbqError(f"{pipe} can be read only once, and its digest is wanted, too: give the name of a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def digest_of(path: Path) -> str:
    """The digest of a file, or of all files below a folder and their names."""
    if not path.is_dir():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "\n".join(f"{file.relative_to(path)} {file_digest(file)}" for file in files)
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_file(out: Path) -> Path:
    """The file beside `out` that says which run wrote these predictions."""
    return out.with_name(f"{out.name}.run.json")


try:
    import fcntl
except ImportError:  # Windows cannot lock folders
    fcntl = None  # type: ignore[assignment]


@contextmanager
def writing_alone(place: Path) -> Iterator[None]:
    """Keep others who call this from writing into a folder or file meanwhile. Without locks, nobody is kept out.

    Raises:
        KbqError: somebody else writes into it already.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        _lock(handle, place)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, place: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise KbqError(f"another kbq is writing into {place}: wait until it is done") from None
    except OSError:
        return  # a file system without locks
