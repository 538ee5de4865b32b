"""Strange files: links, devices, pipes and other people's files in a folder that came from elsewhere, refused by name.

A knowledge base or a model holds plain files and folders. A link among them would have kbq write, or read, somewhere
else; a second name of a file of somebody else's would, too.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kbq.errors import KbqError


def no_link(path: Path) -> bool:
    """Links that may stay: none."""
    return False


def refuse_strange_files(
    folder: Path, what: str, error: type[KbqError], may_stay: Callable[[Path], bool] = no_link
) -> None:
    """Refuse what is neither a plain file nor a folder, anywhere below `folder`, which may be a link itself.

    Args:
        what: what the folder is, for the message: "a knowledge base".
        error: its class, raised if there is a link, a device or a pipe, a file with a second name that belongs to
            somebody else than its folder, the user, and root, or a folder that cannot be listed.
        may_stay: says of a link whether it may be there; it must lead to a plain file.
    """
    if not folder.is_dir():
        return
    try:
        owners = _owners(folder)
        for path, facts in _below(folder):
            reason = _strangeness(path, facts, owners, may_stay)
            if reason:
                raise error(f"{path} {reason}, and {what} has none: put a copy in its place, or remove it")
    except OSError as problem:
        raise error(
            f"{problem.filename} cannot be listed ({problem.strerror}): ask for the right to, or remove it"
        ) from None


def _owners(folder: Path) -> set[int]:
    """Whose files may have second names: by merging, say, or as a package's."""
    return {folder.stat().st_uid, 0} | ({os.geteuid()} if hasattr(os, "geteuid") else set())


def _below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All that lies in a folder and those below, by path, as it is; links are not followed. Raises OSError."""
    folders = [str(folder)]
    while folders:
        for entry in _entries(folders.pop()):
            with suppress(FileNotFoundError):  # it has been removed meanwhile
                yield Path(entry.path), entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
        return []
    except PermissionError:
        if os.access(folder, os.X_OK):  # what cannot be listed could be reached by its name
            raise
        return []


def _strangeness(path: Path, facts: os.stat_result, owners: set[int], may_stay: Callable[[Path], bool]) -> str:
    """What is strange about a file, in words; empty: nothing."""
    if stat.S_ISLNK(facts.st_mode):
        return "" if may_stay(path) and path.is_file() else "is a link"
    if stat.S_ISDIR(facts.st_mode):
        return ""
    if not stat.S_ISREG(facts.st_mode):
        return "is a device or a pipe"
    return "is a second name of somebody else's file" if facts.st_nlink > 1 and facts.st_uid not in owners else ""
