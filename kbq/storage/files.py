"""Files: paths, digests and sizes, the limit of what is read as a whole, and callbacks that report progress."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbq.errors import KbqError, first_line

PACKAGE = Path(__file__).parents[1]
LARGEST = 2**28  # unpacked bytes of anything that is read as a whole
CANNOT_READ = {  # advice on errors of files that may well be whole
    errno.EACCES: "ask for permission to read it",
    errno.EPERM: "ask for permission to read it",
    errno.EMFILE: "raise the limit (`ulimit -n`)",
    errno.ENFILE: "end other programs that hold files open",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
    errno.EIO: "check the disk or the network",
    errno.ESTALE: "check the network",
}

Report = Callable[[str, int, int], None]  # called with the name of a stage, the units done, and their total
Note = Callable[[str], None]  # called with a one-line message for the user


def own(name: str) -> Path:
    """Return a file or folder of kbq, which is inside the package when installed, and beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `$KBQ_CACHE` or the user's cache folder.

    Raises KbqError if the user has no home.
    """
    import platformdirs  # on demand: the help does without

    try:
        folder = Path(os.environ.get("KBQ_CACHE") or platformdirs.user_cache_dir("kbq"))
    except RuntimeError:
        folder = Path("~")
    if folder.parts[:1] == ("~",):
        raise KbqError("there is no folder for the cache, as there is no HOME: set KBQ_CACHE to a folder of yours")
    return folder


def given(things: object, error: type[KbqError], what: str, wanted: str) -> Any:
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


def digest_of(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of all files below a folder."""
    if not path.is_dir():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "\n".join(f"{file.relative_to(path)} {file_digest(file)}" for file in files)
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]


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
