"""Index folder: the files of an index of one shard, with a seal that identifies the rows it was built from."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.system.files import write_json

SEAL = "index.json"  # written last, when the index is complete
CELLS = "cells.faiss"
ROTATION = "rotation.npy"


@contextmanager
def writing(shard: Shard, entry: IndexEntry) -> Iterator[Path]:
    """Yield an empty folder for the files of an index, and seal it unless there was an error.

    An index with another filter, or made for other queries, has another folder, so that the index in use stays intact
    until the manifest names the new one.
    """
    folder = folder_of(shard.folder, entry)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    write_json(folder / SEAL, {"rows": shard.fingerprint(), "bytes": _sizes(folder)})


def folder_of(shard: Path, entry: IndexEntry) -> Path:
    """The folder of an index within that of a shard; only disk indexes do not depend on queries."""
    above = "" if entry.filter is None else f"-above{entry.filter!r}"
    learned = f"-for-{entry.asked}" if entry.kind != "disk" and entry.asked else ""
    return shard / f"{entry.kind}{above}{learned}"


def open_folder(shard: Shard, entry: IndexEntry) -> Path:
    """The folder of an index, checked to be complete and of this shard.

    Raises:
        KnowledgeBaseError: it is missing or of other rows, or one of its files is missing or has another length.
    """
    folder, kind = folder_of(shard.folder, entry), entry.kind
    advice = f"build it with `kbq index vectors {shard.folder.parent} --kind {kind}`, or use --index exact"
    try:
        seal = json.loads((folder / SEAL).read_text("utf-8"))
        rows, sizes = seal["rows"], seal["bytes"]
    except FileNotFoundError:
        raise KnowledgeBaseError(f"shard {shard.folder} has no complete {kind} index: {advice}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KnowledgeBaseError(f"{folder / SEAL} is damaged ({error}): {advice}") from None
    if rows != shard.fingerprint():
        raise KnowledgeBaseError(f"index {folder} belongs to other rows ({rows}, not {shard.fingerprint()}): {advice}")
    if sizes != _sizes(folder):
        raise KnowledgeBaseError(
            f"index {folder} is incomplete: its files have {_sizes(folder)} bytes, not {sizes}: {advice}"
        )
    return folder


def open_folders(shards: Sequence[Shard], entry: IndexEntry) -> dict[int, Path]:
    """The folders of an index for all shards that have rows, by shard number; see `open_folder`."""
    return {number: open_folder(shard, entry) for number, shard in enumerate(shards) if len(shard)}


def cells_bytes(folders: Mapping[int, Path]) -> int:
    """The total size of the cells of all shards, in bytes."""
    return sum((folder / CELLS).stat().st_size for folder in folders.values())


def has_index(shard: Shard, entry: IndexEntry) -> bool:
    """Whether a shard has a complete index like this entry."""
    try:
        open_folder(shard, entry)
    except KnowledgeBaseError:
        return False
    return True


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != SEAL}
