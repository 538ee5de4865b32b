"""Verifying: every file of a knowledge base or a model is compared with its digest; indexes can be built again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbq.dump.damage import IMPORTED, reason, sentence
from kbq.dump.manifest import Manifest, is_knowledge_base, read_manifest
from kbq.dump.publishing import changing, write_manifest
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.model.model import model_of
from kbq.model.model_folder import is_model, local_folder, model_damage, model_files, remedy
from kbq.search.building_indexes import IndexSpec, build_indexes, kept_queries, queries_file, remove_unnamed
from kbq.storage.files import as_path, reading_problem
from kbq.storage.folders import remove_folder
from kbq.storage.progress import Stage, silent
from kbq.storage.seals import SEAL, Damage, all_damage
from kbq.words.bm25 import add_bm25, bm25_folder, is_older

if TYPE_CHECKING:
    from pathlib import Path

    from kbq.storage.progress import Report


OLDER = "its words are of an older form: they are found as they are written, with their accents, alone"


@dataclass(frozen=True, slots=True)
class Verification:
    """The files compared, the problems (a sentence for each file), and the damaged folders that were built again."""

    folder: Path
    files: int
    bytes: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    unread: int = 0  # of the problems: files that cannot be read, and may be whole

    def __bool__(self) -> bool:
        """Return whether everything is as it was written."""
        return not self.problems


def verify(
    folder: str | Path, repair: bool = False, *, model: str | None = None, device: str = "auto", report: Report = silent
) -> Verification:
    """Compare every file of a knowledge base, a model or another network that kbq wrote with its digest.

    Args:
        repair: build damaged indexes and words of a knowledge base again; its shards cannot be.
        model: that of the knowledge base, if it has moved; it is opened only to build indexes of vectors again.
        report: called with the bytes that have been compared.

    Raises:
        KbqError: the folder is neither, its manifest is damaged, or it is of another format version.

    >>> import kbq
    >>> bool(kbq.verify("default"))
    True
    """
    folder = as_path(folder, "a folder")
    if not is_knowledge_base(folder):
        return _verified_model(folder, repair, report)
    manifest = read_manifest(folder)
    files, damages = manifest.all_files(folder)
    for entry in manifest.entries:
        try:
            kept_queries(folder, entry)
        except KnowledgeBaseError as error:
            damages.append(Damage(queries_file(folder, entry.asked), ValueError(reason(error))))
    stage = Stage(report, "bytes compared", sum(file.bytes for file in files.values()))
    damages += all_damage(files, stage.add)
    damages += [Damage(place / SEAL, ValueError(OLDER)) for place in _older_words(folder, manifest)]
    if damages and read_manifest(folder) != manifest:  # it has been changed meanwhile
        return verify(folder, repair, model=model, device=device, report=report)
    repaired = _repaired(folder, damages, model, device, report) if repair and damages else ()
    parts = tuple(folder / part for part in repaired)
    left = [one for one in damages if not any(one.path.is_relative_to(part) for part in parts)]
    problems, unread = tuple(sentence(folder, one) for one in left), sum(one.is_unread for one in left)
    return Verification(folder, len(files), sum(file.bytes for file in files.values()), problems, repaired, unread)


def _older_words(folder: Path, manifest: Manifest) -> list[Path]:
    places = [bm25_folder(shard) for shard in manifest.shard_folders(folder)] if manifest.bm25 else []
    return [place for place in places if is_older(place)]


def _verified_model(folder: Path, repair: bool, report: Report) -> Verification:
    folder = folder if folder.exists() else local_folder(folder)
    if not is_model(folder):
        raise KbqError(f"{folder} is neither a knowledge base nor a model: name the folder of one")
    if repair:
        raise KbqError(f"{folder} is a model, which cannot be repaired: {remedy(folder)}", is_usage=True)
    try:
        sizes = [file.bytes for file in model_files(folder).values()]
    except (OSError, ValueError):  # the record is damaged, which is found again below
        sizes = []
    stage = Stage(report, "bytes compared", sum(sizes))
    damages = list(model_damage(folder, stage.add))
    problems = tuple(reading_problem(one.path, one.problem, remedy(folder)) for one in damages)
    return Verification(folder, len(sizes), sum(sizes), problems, unread=sum(one.is_unread for one in damages))


def _repaired(folder: Path, damages: list[Damage], model: str | None, device: str, report: Report) -> tuple[str, ...]:
    """Build again the indexes that are damaged, if all shards are whole; returns their folders."""
    with changing(folder) as manifest:
        built = [part for part in manifest.parts(*manifest.entries) if "sparta" not in part and IMPORTED not in part]
        parts = {part: folder / part for part in built}
        damaged = tuple(part for part, place in parts.items() if any(one.path.is_relative_to(place) for one in damages))
        in_parts = [one for one in damages if any(one.path.is_relative_to(parts[part]) for part in damaged)]
        shards = [folder / shard.name for shard in manifest.shards]
        if any(one not in in_parts and one.path.parent in shards for one in damages) or not damaged:
            return ()
        needs_model = any(not part.endswith("/bm25") for part in damaged)
        opened = model_of(folder, manifest.model, model, device) if needs_model else None  # before anything is removed
        for part in damaged:
            remove_folder(parts[part])
        after = manifest.without_seals(damaged)
        if opened is not None:
            spec = IndexSpec.as_before(folder, manifest, manifest.index.kind)
            after = build_indexes(folder, after, opened, spec, report)
        if manifest.bm25:
            after = add_bm25(folder, after, report)
        remove_unnamed(folder, write_manifest(folder, after))
    return damaged
