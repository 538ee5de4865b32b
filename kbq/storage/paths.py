"""Paths: kbq's own files (`cli.py` and `tasks/`, inside the package or beside it), and the cache folder."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from kbq.errors import KbqError

PACKAGE = Path(__file__).parents[1]


def own(name: str) -> Path:
    """Return a file or folder of kbq that is inside the package when installed, and beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$KBQ_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("KBQ_CACHE") or platformdirs.user_cache_dir("kbq"))


def given(things: object, error: type[KbqError], what: str, wanted: str) -> Any:
    """Return things that were given in Python. Raises an error of this class if they cannot be iterated over."""
    if not isinstance(things, Iterable) or isinstance(things, str | bytes | Mapping):
        raise error(f"{what} {things!r:.60}: give {wanted}")
    return things


def as_path(name: object, what: str) -> Path:
    """Return a path that may be given as text. Raises KbqError if it is neither."""
    if (isinstance(name, str) and not name) or not isinstance(name, str | os.PathLike):
        raise KbqError(f"{what} is {name!r:.60}: give a path")
    return Path(name)
