"""Strange files: links, devices, pipes and other people's files in a folder that came from elsewhere, refused by name.

A knowledge base or a model holds plain files and folders. A link among them would have kbq write, or read, somewhere
else; a second name of a file of somebody else's would, too.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kbq.errors import KbqError

DEEPEST = 20  # folders within one another: those of kbq have four at most


def refuse_strange_files(
    folder: Path, what: str, error: type[KbqError], may_stay: Callable[[Path], bool], deep: bool = True
) -> None:
    """Refuse what is neither a plain file nor a folder, anywhere below `folder`, which may be a link itself.

    Args:
        what: what the folder is, for the message: "a knowledge base".
        error: its class, raised if there is a link, a device or a pipe, a file with a second name that belongs to
            somebody else than its folder, the user, and root, or a folder that cannot be listed.
        may_stay: says of a link, or of a second name, whether it may be there; it must lead to a plain file.
        deep: look into folders within, too.
    """
    if not folder.is_dir():
        return
    try:
        owners = _owners(folder)
        for path, facts in _below(folder, deep):
            reason = _strangeness(path, facts, owners, may_stay)
            if reason:
                raise error(f"{path} {reason}, and {what} has none: put a copy in its place, or remove it")
    except OSError as problem:
        raise error(
            f"{problem.filename} cannot be listed ({problem.strerror}): ask for permission, or remove it"
        ) from None


def is_in_hub_cache(path: Path) -> bool:
    """Whether a link is one of the Hugging Face hub's cache: snapshots/REVISION/x to blobs/y."""
    snapshot, blob = path.parent.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and blob.parent == snapshot.parents[1] / "blobs"


def leads_within(folder: Path) -> Callable[[Path], bool]:
    """Return a function that says whether a link leads into the same folder, or is one of the hub's cache."""
    return lambda path: path.resolve().is_relative_to(folder.resolve()) or is_in_hub_cache(path)


def _owners(folder: Path) -> set[int]:
    """Return whose files may have second names: by merging, say, or as a package's."""
    return {folder.stat().st_uid, 0} | ({os.geteuid()} if hasattr(os, "geteuid") else set())


def _below(folder: Path, deep: bool) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all that lies in a folder and those below, by path; links are not followed. Raises OSError."""
    folders = [(str(folder), 0)]
    while folders:
        place, depth = folders.pop()
        if depth > DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"more than {DEEPEST} folders within one another", place)
        for entry in _entries(place):
            with suppress(FileNotFoundError):  # it has been removed meanwhile
                yield Path(entry.path), entry.stat(follow_symlinks=False)
                if deep and entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
        return []
    except PermissionError:
        if os.access(folder, os.X_OK):  # what cannot be listed could be reached by its name
            raise
        return []


def _strangeness(path: Path, facts: os.stat_result, owners: set[int], may_stay: Callable[[Path], bool]) -> str:
    """Say what is strange about a file; empty: nothing."""
    if stat.S_ISDIR(facts.st_mode):
        return ""
    if stat.S_ISLNK(facts.st_mode):
        reason = "is a link"
    elif not stat.S_ISREG(facts.st_mode):
        return "is a device or a pipe"
    elif facts.st_nlink > 1 and facts.st_uid not in owners:
        reason = "is a second name of somebody else's file"
    else:
        return ""
    return "" if may_stay(path) and path.is_file() else reason
