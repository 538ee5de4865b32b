"""Index folder: the files of one index of one shard, and a seal that ties them to the rows they were made from."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kbq.errors import KnowledgeBaseError
from kbq.indexing.dump import Shard
from kbq.system.files import write_json

BuiltKind = Literal["approximate", "compact"]
SEAL = "index.json"  # written last; without it there is no index
CELLS = "cells.faiss"
ROTATION = "rotation.npy"


@contextmanager
def writing(shard: Shard, kind: BuiltKind, threshold: float | None) -> Iterator[Path]:
    """Gives an empty folder for the files of an index, and seals it where all went well.

    Another filter means another folder: the index that answers stays whole until the manifest names the new one.
    """
    folder = folder_of(shard.folder, kind, threshold)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    write_json(folder / SEAL, {"rows": shard.fingerprint(), "bytes": _sizes(folder)})


def folder_of(shard: Path, kind: str, threshold: float | None) -> Path:
    """Where the index of a kind and filter lies in the folder of a shard."""
    return shard / (kind if threshold is None else f"{kind}-above{threshold!r}")


def open_folder(shard: Shard, kind: BuiltKind, threshold: float | None) -> Path:
    """The folder of an index that is whole and of this shard.

    Raises:
        KnowledgeBaseError: it is missing, of another dump, or a file of it is missing or of another length.
    """
    folder = folder_of(shard.folder, kind, threshold)
    way_out = f"build it with `kbq index {shard.folder.parent} --index {kind}`, or use --index exact"
    try:
        seal = json.loads((folder / SEAL).read_text("utf-8"))
        rows, sizes = seal["rows"], seal["bytes"]
    except FileNotFoundError:
        raise KnowledgeBaseError(f"shard {shard.folder} has no whole {kind} index: {way_out}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KnowledgeBaseError(f"{folder / SEAL} is damaged ({error}): {way_out}") from None
    if rows != shard.fingerprint():
        raise KnowledgeBaseError(f"index {folder} belongs to other rows ({rows}, not {shard.fingerprint()}): {way_out}")
    if sizes != _sizes(folder):
        raise KnowledgeBaseError(
            f"index {folder} is not whole: its files hold {_sizes(folder)} bytes, not {sizes}: {way_out}"
        )
    return folder


def open_folders(shards: Sequence[Shard], kind: BuiltKind, threshold: float | None) -> dict[int, Path]:
    """The same of all shards that have rows, by their number."""
    return {number: open_folder(shard, kind, threshold) for number, shard in enumerate(shards) if len(shard)}


def has_index(shard: Shard, kind: BuiltKind, threshold: float | None) -> bool:
    """Whether a whole index of this shard is there, made with this filter."""
    try:
        open_folder(shard, kind, threshold)
    except KnowledgeBaseError:
        return False
    return True


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != SEAL}
