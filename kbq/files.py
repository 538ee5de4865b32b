"""Files: replaced in one step, known by a digest, and how much room they take."""

import hashlib
import json
import os
from pathlib import Path

from kbq.errors import KbqError


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step: a kill leaves the old one or the new one, never half of it."""
    partial = path.with_name(path.name + ".tmp")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def file_digest(path: Path) -> str:
    """The first 16 digits of a file's SHA-256.

    Raises:
        KbqError: it is standard input, which cannot be read once more.
    """
    if str(path) == "-":
        raise KbqError("standard input can be read only once, and its digest is wanted, too: give the name of a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
