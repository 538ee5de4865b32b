"""Index folder: the files of one index of one shard, and a seal that ties them to the rows they were made from."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.system.files import write_json

SEAL = "index.json"  # written last; without it there is no index
CELLS = "cells.faiss"
ROTATION = "rotation.npy"


@contextmanager
def writing(shard: Shard, entry: IndexEntry) -> Iterator[Path]:
    """Gives an empty folder for the files of an index, and seals it where all went well.

    Another filter, or other queries to learn from, means another folder: the index that answers stays whole until the
    manifest names the new one.
    """
    folder = folder_of(shard.folder, entry)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    write_json(folder / SEAL, {"rows": shard.fingerprint(), "bytes": _sizes(folder)})


def folder_of(shard: Path, entry: IndexEntry) -> Path:
    """Where an index lies in the folder of a shard; all but disk ones learn from queries."""
    above = "" if entry.filter is None else f"-above{entry.filter!r}"
    learned = f"-for-{entry.asked}" if entry.kind != "disk" and entry.asked else ""
    return shard / f"{entry.kind}{above}{learned}"


def open_folder(shard: Shard, entry: IndexEntry) -> Path:
    """The folder of an index that is whole and of this shard.

    Raises:
        KnowledgeBaseError: it is missing, of another dump, or a file of it is missing or of another length.
    """
    folder, kind = folder_of(shard.folder, entry), entry.kind
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


def open_folders(shards: Sequence[Shard], entry: IndexEntry) -> dict[int, Path]:
    """The folders of all shards that have rows, by shard number; see `open_folder`."""
    return {number: open_folder(shard, entry) for number, shard in enumerate(shards) if len(shard)}


def cells_bytes(folders: Mapping[int, Path]) -> int:
    """Bytes of the cells of all shards together."""
    return sum((folder / CELLS).stat().st_size for folder in folders.values())


def has_index(shard: Shard, entry: IndexEntry) -> bool:
    """Whether a whole index of this shard is there, made with this filter and for these queries."""
    try:
        open_folder(shard, entry)
    except KnowledgeBaseError:
        return False
    return True


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != SEAL}
