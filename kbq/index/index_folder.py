"""Index folder: the files of an index of one shard, with a seal that names the shard it was built from."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.storage.files import reading_problem
from kbq.storage.folders import new_folder
from kbq.storage.seals import SEAL, first_damage, head_damage, read_seal, seal_folder

CELLS = "cells.faiss"
ROTATION = "rotation.npy"


@contextmanager
def writing(shard: Shard, entry: IndexEntry) -> Iterator[Path]:
    """Yield an empty folder for the files of an index, and seal it unless there was an error."""
    folder = shard.folder / entry.part
    new_folder(folder)
    yield folder
    seal_folder(folder, of=shard.seal)


def open_folder(shard: Shard, entry: IndexEntry) -> Path:
    """The folder of an index, which is complete and of this shard.

    Raises:
        KnowledgeBaseError: it is missing or of another shard, or one of its files is missing or has another length.
    """
    folder, kind = shard.folder / entry.part, entry.kind
    advice = f"build it with `kbq index vectors {shard.folder.parent} --kind {kind}`, or use --index exact"
    if not folder.is_dir():
        raise KnowledgeBaseError(f"shard {shard.folder} has no complete {kind} index: {advice}")
    try:
        seal = read_seal(folder)
    except (OSError, ValueError) as error:
        raise KnowledgeBaseError(f"index {reading_problem(folder / SEAL, error, advice)}") from None
    files = {folder / name: file for name, file in seal.files.items()}
    # What is read into memory is compared as a whole; of what is mapped, the part that says what lies where.
    if kind in ("disk", "official"):
        damage = next(filter(None, (head_damage(path, file) for path, file in files.items())), None)
    else:
        damage = first_damage(files, at_most=sys.maxsize)
    if damage is not None:
        raise KnowledgeBaseError(f"index {reading_problem(damage.path, damage.problem, advice)}")
    if seal.of != shard.seal:
        raise KnowledgeBaseError(f"index {folder} was built from another shard: {advice}")
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
