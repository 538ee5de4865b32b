"""Locks: one process writes to a folder or a file, others fail with a clear error."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbq.errors import KbqError

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
