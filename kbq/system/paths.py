"""Places: where kbq finds its own files: `cli.py` and `tasks/` inside the package or beside it, and the cache."""

import os
from pathlib import Path

import platformdirs

PACKAGE = Path(__file__).parents[1]


def own(name: str) -> Path:
    """A file or folder that stands inside the installed package, and beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def cache_folder() -> Path:
    """Where what can be made again is kept: `$KBQ_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("KBQ_CACHE") or platformdirs.user_cache_dir("kbq"))
