"""Publishing: a new manifest takes the place of the old one; with it, a knowledge base has changed."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbq.dump.manifest import FORMAT, MANIFEST, STATE, Manifest, read_manifest
from kbq.errors import KnowledgeBaseError
from kbq.storage.files import reading_from
from kbq.storage.locks import writing_alone
from kbq.storage.records import read_object, write_record
from kbq.storage.seals import SEAL, read_seal
from kbq.storage.writing import remove_file, writing_to


def publish(folder: Path, manifest: Manifest) -> Manifest:
    """Make the folder the knowledge base that the manifest describes: the end of a build."""
    published = write_manifest(folder, manifest)
    remove_file(folder / STATE)
    return published


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Replace the manifest, and name the seals of new indexes; an unfinished build can still be resumed.

    Raises KnowledgeBaseError if a new index has no seal, or belongs to another shard.
    """
    seals = {}
    of_shards = {shard.name: shard.seal for shard in manifest.shards}
    for part in manifest.parts(*manifest.entries):
        if part in manifest.seals:
            seals[part] = manifest.seals[part]
            continue
        with reading_from(folder / part / SEAL, KnowledgeBaseError, "build this index again"):
            seal = read_seal(folder / part)
            if seal.of != of_shards.get(part.partition("/")[0], ""):
                raise ValueError("it was built from another shard")
            seals[part] = seal.digest
    manifest = dataclasses.replace(manifest, seals=seals)
    write_record(folder / MANIFEST, manifest, FORMAT)
    return manifest


@contextmanager
def changing(folder: Path) -> Iterator[Manifest]:
    """Lock a published knowledge base, and yield its manifest.

    Raises KnowledgeBaseError if there is none, or it cannot be written, KbqError if another process is writing to it.
    """
    read_manifest(folder)  # first, so that only a knowledge base is locked
    with writing_to(folder, KnowledgeBaseError, goes_on=True), writing_alone(folder):
        manifest = read_manifest(folder)
        _forget_published_build(folder, manifest)
        with manifest.damage_explained(folder):
            yield manifest


def _forget_published_build(folder: Path, manifest: Manifest) -> None:
    """Remove the state of a build that was killed when it had been published already."""
    with suppress(OSError, ValueError, TypeError, KeyError):  # a damaged one is reported by who resumes it
        if read_object(folder / STATE)["first_shard"] < manifest.next_shard:
            remove_file(folder / STATE)
