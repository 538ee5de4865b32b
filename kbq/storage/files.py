"""Files: what keeps one from being read, the digest that identifies it, and how much space it takes."""

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbq.errors import KbqError, first_line

CANNOT_READ = {  # what to do where a file may well be whole
    errno.EACCES: "ask for permission to read it",
    errno.EPERM: "ask for permission to read it",
    errno.EMFILE: "raise the limit (`ulimit -n`)",
    errno.ENFILE: "end other programs that hold files open",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
    errno.EIO: "check the disk or the network",
    errno.ESTALE: "check the network",
}


def reading_problem(path: Path, error: Exception, otherwise: str) -> str:
    """Say what keeps a file from being read, and what to do: a missing right, a limit of the moment, or damage.

    `otherwise`: what to do about a missing or damaged file.
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
def reading_from(path: Path, error: type[KbqError], otherwise: str, what: str = "") -> Iterator[None]:
    """Turn errors in reading `path` into an error of kbq; see `reading_problem`. `what`: words before the path."""
    try:
        yield
    except (OSError, ValueError, MemoryError) as problem:
        raise error(what + reading_problem(path, problem, otherwise)) from None


def pipe_name(path: Path) -> str:
    """Return the name of standard input or another pipe, which can be read only once; empty for any other file."""
    return "standard input" if str(path) == "-" else str(path) if path.is_fifo() else ""


def file_digest(path: Path) -> str:
    """Return the first 16 hexadecimal digits of a file's SHA-256.

    Raises KbqError for standard input or another pipe, which cannot be read twice.
    """
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
    """Return the total size of all files below a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_file(out: Path) -> Path:
    """Return the file beside the predictions `out` that describes the run that wrote them."""
    return out.with_name(f"{out.name}.run.json")
