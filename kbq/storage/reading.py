"""Reading: say why a file cannot be read, or is too large to be read as a whole."""

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbq.errors import KbqError, first_line
from kbq.storage.paths import pipe_name

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


def refuse_large(name: str, size: int, error: type[KbqError] = KbqError, most: int = 0) -> None:
    """Raise an error of this class for a size above `most`, by default LARGEST: the one limit of
    all that is read.
    """
    most = most or LARGEST
    if size > most:
        raise error(f"{name} has {size:,} bytes, {most:,} at most are read: divide it")


def unreadable(name: object, problem: OSError) -> str:
    """Say why a file that somebody has named cannot be read, and what to do.

    >>> unreadable("letters", IsADirectoryError())
    'letters is a folder: give a file'
    """
    if isinstance(problem, IsADirectoryError):
        return f"{name} is a folder: give a file"
    return f"{name}: cannot be read ({problem.strerror}): check its path and permissions"


def reading_problem(path: Path, error: Exception, otherwise: str) -> str:
    """Say why a file cannot be read, and what to do. `otherwise` is the advice if it is missing or
    damaged.
    """
    number = error.errno if isinstance(error, OSError) else None
    path = (
        Path(error.filename)
        if isinstance(error, OSError) and isinstance(error.filename, str)
        else path
    )
    if isinstance(error, MemoryError):
        return (
            f"{path} cannot be read, memory is short: end other programs, or use a machine with "
            "more"
        )

    if isinstance(error, OSError) and number in CANNOT_READ:
        return f"{path} cannot be read ({error.strerror}): {CANNOT_READ[number]}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{path} is missing: {otherwise}"

    return f"{path} is damaged ({first_line(error)}): {otherwise}"


@contextmanager
def reading_from(
    path: Path, error: type[KbqError], otherwise: str, what: str = ""
) -> Iterator[None]:
    """Turn errors in reading `path` into an error of kbq; see `reading_problem`. `what` stands
    before the path.
    """
    try:
        yield
    except (OSError, ValueError, MemoryError) as problem:
        raise error(what + reading_problem(path, problem, otherwise)) from None


def file_digest(path: Path) -> str:
    """Return the first 16 hexadecimal digits of a file's SHA-256. Raises KbqError for a pipe."""
    pipe = pipe_name(path)
    if pipe:
        raise KbqError(
            f"{pipe} can be read only once, but its digest is needed, too: give the name of a file"
        )
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
