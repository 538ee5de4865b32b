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


def pipe_name(path: Path) -> str:
    """What to call standard input or another pipe, which can be read only once; empty where it is none."""
    return "standard input" if str(path) == "-" else str(path) if path.is_fifo() else ""


def file_digest(path: Path) -> str:
    """The first 16 digits of a file's SHA-256.

    Raises:
        KbqError: it is standard input or another pipe, which cannot be read once more.
    """
    if pipe := pipe_name(path):
        raise KbqError(f"{pipe} can be read only once, and its digest is wanted, too: give the name of a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def digest_of(path: Path) -> str:
    """Of a file, or of all files below a folder and their names."""
    if not path.is_dir():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "\n".join(f"{file.relative_to(path)} {file_digest(file)}" for file in files)
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
