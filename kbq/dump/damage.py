"""Damage: what is wrong with the files of a knowledge base, as far as their digests tell."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbq.dump.advice import sentence
from kbq.dump.shards import deleted_file, deleted_pages
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.storage.seals import SEAL, Damage, all_damage, read_seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kbq.dump.manifest import Manifest
    from kbq.storage.seals import FileSeal


def sealed_files(folder: Path, manifest: Manifest) -> tuple[dict[Path, FileSeal], list[Damage]]:
    """All sealed files of a knowledge base, and what is wrong with the seals and with lists of deleted pages."""
    files: dict[Path, FileSeal] = {}
    damages = []
    for part in [*(shard.name for shard in manifest.shards), *manifest.parts(*manifest.entries)]:
        try:
            seal = read_seal(folder / part)
            if seal.digest != manifest.named_seals.get(part):
                raise ValueError("it is of another knowledge base or build")
            files |= {folder / part / name: file for name, file in seal.files.items()}
        except (OSError, ValueError) as error:
            damages.append(Damage(folder / part / SEAL, error))
    for shard in manifest.shards:
        try:
            deleted_pages(folder / shard.name, shard.deleted)
        except (OSError, ValueError) as error:
            damages.append(Damage(deleted_file(folder / shard.name, shard.deleted), error))
    return files, damages


@contextmanager
def damage_explained(folder: Path, manifest: Manifest) -> Iterator[None]:
    """Where reading a knowledge base fails unexpectedly, look for a damaged file, and name it.

    Raises:
        KnowledgeBaseError: there is one. Any other error is a fault of kbq, and stays what it is.
    """
    try:
        yield
    except (KbqError, MemoryError, OSError):
        raise
    except Exception as error:
        files, damages = sealed_files(folder, manifest)
        damage = next(iter(damages), None) or next(all_damage(files, lambda read: None), None)
        if damage is not None:
            raise KnowledgeBaseError(sentence(folder, damage)) from error
        raise
