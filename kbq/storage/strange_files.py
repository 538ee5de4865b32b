"""Strange files: links, devices and pipes in a folder that came from elsewhere, refused by name.

A knowledge base or a model holds plain files and folders. A link among them would have kbq read something else.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kbq.errors import KbqError


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
