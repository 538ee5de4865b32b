"""Paths: the files that a caller names, or that come with kbq."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kbq.errors import KbqError

PACKAGE = Path(__file__).parents[1]


def resource_path(name: str) -> Path:
    """Return a file or folder of kbq, which is inside the package when installed, and beside it in
    a checkout.
    """
    inside = PACKAGE / name
    if inside.exists():
        return inside
    return PACKAGE.parent / name


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `$KBQ_CACHE` or the user's cache folder.

    Raises KbqError if the user has no home.
    """
    import platformdirs  # imported on demand: the help does not need it

    try:
        folder = Path(os.environ.get("KBQ_CACHE") or platformdirs.user_cache_dir("kbq"))
    except RuntimeError:
        folder = Path("~")

    if folder.parts[:1] == ("~",):
        raise KbqError(
            "there is no folder for the cache, as there is no HOME: set KBQ_CACHE to a folder of "
            "yours"
        )

    return folder


def as_iterable(things: object, error: type[KbqError], what: str, wanted: str) -> Any:
    """Return the argument of a Python call, or raise an error of this class if it is not a list of
    things.
    """
    if not isinstance(things, Iterable) or isinstance(things, str | bytes | Mapping):
        raise error(f"{what} {things!r:.60}: give {wanted}")
    return things


def as_path(name: object, what: str) -> Path:
    """Return a path or text as a path. Raises KbqError for anything else."""
    if (isinstance(name, str) and not name) or not isinstance(name, str | os.PathLike):
        raise KbqError(f"{what} is {name!r:.60}: give a path")
    return Path(name)


def pipe_name(path: Path) -> str:
    """Return the name of standard input or another pipe, which can be read only once, or "" for any
    other file.
    """
    if str(path) == "-":
        return "standard input"
    if path.is_fifo():
        return str(path)
    return ""


def run_file(out: Path) -> Path:
    """Return the file beside the predictions `out` that describes the run that wrote them."""
    return out.with_name(f"{out.name}.run.json")
