"""Copies: the shards that a node searches lie on its own disk, too, in the layout of a knowledge base.

A copy is only read if its seals are those that the manifest of the knowledge base names, so none is ever out of date.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kbq.dump.damage import sentence
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shards import ShardEntry, deleted_file
from kbq.errors import KnowledgeBaseError
from kbq.storage.files import reading_from
from kbq.storage.folders import discard_folder, make_folder, remove_folder
from kbq.storage.locks import writing_alone
from kbq.storage.records import digest_of_bytes, read_record, write_record
from kbq.storage.seals import SEAL, Damage, FileSeal, all_damage, file_damage, first_damage, read_seal
from kbq.storage.writing import copy_file, move, writing_to

PLACED = "placed.json"  # in the folder of a knowledge base
FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where all nodes have their copies."""

    folder: str


def folder_of_copies(kb: Path) -> Path | None:
    """Return where nodes have copies of shards of a knowledge base; None: nowhere.

    Raises KnowledgeBaseError if the file that says so is damaged.
    """
    with reading_from(kb / PLACED, KnowledgeBaseError, "`kbq cluster place` writes it again"):
        try:
            return Path(read_record(kb / PLACED, _Placed, FORMAT).folder)
        except FileNotFoundError:
            return None


def remember_copies(kb: Path, folder: Path) -> None:
    """Have searches look for copies there. Raises KnowledgeBaseError if the knowledge base cannot be written."""
    with writing_to(kb / PLACED, KnowledgeBaseError):
        write_record(kb / PLACED, _Placed(str(folder)), FORMAT)


def own_folder(kb: Path, to: Path) -> Path:
    """Return the folder of one knowledge base in that of all copies."""
    return to / f"{kb.name}-{digest_of_bytes(os.fsencode(kb))[:8]}"


def parts_within(manifest: Manifest, *entries: IndexEntry) -> list[str]:
    """Return the folders of words and of these indexes that lie within those of the shards."""
    return [part for part in manifest.parts(*entries) if "/" in part]


def copied(folder: Path, manifest: Manifest, index: IndexEntry) -> tuple[ShardEntry, ...]:
    """Return the shards with copies of words and this index, too, as far as seals and sizes tell."""

    def is_copied(entry: ShardEntry) -> bool:
        one = replace(manifest, shards=(entry,))
        try:
            files = one.files(folder, [entry.name, *parts_within(one, index)])
        except KnowledgeBaseError:
            return False
        has_list = not entry.deleted or deleted_file(folder / entry.name, entry.deleted).is_file()
        return has_list and first_damage(files, at_most=0) is None

    return tuple(entry for entry in manifest.shards if is_copied(entry))


def forget_others(folder: Path, manifest: Manifest) -> None:
    """Remove copies of shards that the knowledge base no longer has: their pages may have been deleted."""
    seals = {entry.name: entry.seal for entry in manifest.shards}
    for copy in folder.glob("shard-*"):
        name = copy.name.removesuffix(".tmp")  # what was begun goes on, whatever it is: files are compared
        try:
            is_named = name in seals and (name != copy.name or read_seal(copy).digest == seals[name])
        except (OSError, ValueError):
            is_named = False
        if not is_named:
            discard_folder(copy)


def copy_shards(kb: Path, folder: Path, manifest: Manifest) -> int:
    """Copy shards with their words and indexes, and compare what is there already; return the bytes that were copied.

    Raises KnowledgeBaseError if a file of the knowledge base is missing or damaged, or the folder cannot be written.
    """
    parts = (*(entry.name for entry in manifest.shards), *parts_within(manifest, *manifest.entries))
    size = sum(_copy_part(kb, folder, manifest, part) for part in parts)
    for entry in manifest.shards:
        if entry.deleted:
            source, target = (deleted_file(place / entry.name, entry.deleted) for place in (kb, folder))
            with writing_to(target, KnowledgeBaseError, goes_on=True):
                copy_file(source, target)
    return size


def _copy_part(kb: Path, folder: Path, manifest: Manifest, part: str) -> int:
    """Copy the files of one folder under a temporary name; keep what a killed run has copied."""
    target, files = folder / part, manifest.files(kb, [part])
    _refuse(kb, first_damage(files, at_most=0))
    if _is_whole(target, manifest.named_seals[part], files):
        return 0
    partial, size = target.with_name(f"{target.name}.tmp"), 0
    with writing_to(target, KnowledgeBaseError, goes_on=True):
        make_folder(partial)
        with writing_alone(partial, target):
            for path, file in files.items():
                size += _copy_file(kb, path, partial / path.name, file)
            copy_file(kb / part / SEAL, partial / SEAL)
            remove_folder(target)  # of another index, or damaged
            move(partial, target)
    return size


def _is_whole(folder: Path, digest: str, files: dict[Path, FileSeal]) -> bool:
    try:
        is_same = read_seal(folder).digest == digest
    except (OSError, ValueError):
        return False
    return is_same and next(all_damage({folder / path.name: file for path, file in files.items()}), None) is None


def _copy_file(kb: Path, source: Path, target: Path, file: FileSeal) -> int:
    """Copy a file, if it is not there; return its size if it was copied."""
    if file_damage(target, file) is None:
        return 0
    copy_file(source, target)
    damage = file_damage(target, file)
    _refuse(kb, damage and Damage(source, damage.problem))
    return file.bytes


def _refuse(kb: Path, damage: Damage | None) -> None:
    """Raise KnowledgeBaseError if a file of the knowledge base is damaged."""
    if damage is not None:
        raise KnowledgeBaseError(sentence(kb, damage))
