"""Locks: one process at a time writes into a folder or file; the lock ends with the process, however that ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbq.errors import KbqError

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
