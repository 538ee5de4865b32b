"""Verify: compare every file of a knowledge base or a network with its digest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kbq.dump.manifest import (
    IMPORTED,
    NEITHER,
    changing,
    is_knowledge_base,
    read_manifest,
    sentence,
    write_manifest,
)
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.maintain.indexes import (
    IndexSpec,
    build_indexes,
    kept_queries,
    queries_file,
    remove_unnamed,
)
from kbq.model.model import model_of
from kbq.model.model_folder import local_folder, model_damage, model_files, record_name, remedy
from kbq.storage.folders import remove_folder
from kbq.storage.paths import as_path
from kbq.storage.reading import reading_problem
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.seals import SEAL, Damage, all_damage
from kbq.words.bm25 import UNFOLDED, add_bm25, bm25_folder, is_folded


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of files compared, a sentence for each problem, and the damaged folders that were
    rebuilt.
    """

    folder: Path
    files: int
    bytes: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    unread: int = 0  # problems with files that cannot be read but may be whole

    def __bool__(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems


def verify(
    folder: str | Path,
    repair: bool = False,
    *,
    model: str | None = None,
    device: str = "auto",
    report: Report = silent,
) -> Verification:
    """Compare every file of a knowledge base, a model or another network that kbq wrote with its
    digest.

    Args:
        repair: rebuild damaged indexes of vectors and words; shards cannot be rebuilt.
        model: that of the knowledge base, if it has moved. It is opened only to rebuild indexes of
            vectors.
        report: called with the bytes that have been compared.

    Raises:
        KbqError: the folder is neither, its manifest is damaged, or it has another format version.

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
            damages.append(
                Damage(queries_file(folder, entry.asked), ValueError(str(error).partition(": ")[0]))
            )

    stage = Stage(report, "bytes compared", sum(file.bytes for file in files.values()))
    damages += all_damage(files, stage.add)
    words = (
        [bm25_folder(shard) for shard in manifest.shard_folders(folder)] if manifest.bm25 else []
    )
    damages += [
        Damage(place / SEAL, ValueError(UNFOLDED))
        for place in words
        if place.exists() and not is_folded(place)
    ]
    if damages and read_manifest(folder) != manifest:  # it has been changed meanwhile
        return verify(folder, repair, model=model, device=device, report=report)
    repaired: tuple[str, ...] = ()
    if repair and damages:
        repaired = _repaired(folder, damages, model, device, report)
    parts = tuple(folder / part for part in repaired)
    left = [
        damage for damage in damages if not any(damage.path.is_relative_to(part) for part in parts)
    ]
    problems = tuple(sentence(folder, damage) for damage in left)
    unread = sum(damage.is_unread for damage in left)

    return Verification(
        folder, len(files), sum(file.bytes for file in files.values()), problems, repaired, unread
    )


def _verified_model(folder: Path, repair: bool, report: Report) -> Verification:
    folder = folder if folder.exists() else local_folder(folder)
    if record_name(folder) is None:
        raise KbqError(NEITHER.format(folder=folder))
    if repair:
        raise KbqError(
            f"{folder} is a model, which cannot be repaired: {remedy(folder)}", is_usage=True
        )

    try:
        sizes = [file.bytes for file in model_files(folder).values()]
    except (OSError, ValueError):  # the record is damaged, which is found again below
        sizes = []

    stage = Stage(report, "bytes compared", sum(sizes))
    damages = list(model_damage(folder, stage.add))
    problems = tuple(
        reading_problem(damage.path, damage.problem, remedy(folder)) for damage in damages
    )

    return Verification(
        folder, len(sizes), sum(sizes), problems, unread=sum(damage.is_unread for damage in damages)
    )


def _repaired(
    folder: Path, damages: list[Damage], model: str | None, device: str, report: Report
) -> tuple[str, ...]:
    """Rebuild the damaged indexes, if all shards are whole, and return their folders."""
    with changing(folder) as manifest:
        built = [
            part
            for part in manifest.parts(*manifest.entries)
            if "sparta" not in part and IMPORTED not in part
        ]
        damaged = tuple(
            part
            for part in built
            if any(damage.path.is_relative_to(folder / part) for damage in damages)
        )
        shards = manifest.shard_folders(folder)
        if any(damage.path.parent in shards for damage in damages):
            return ()
        if not damaged:
            return ()
        needs_model = any(not part.endswith("/bm25") for part in damaged)
        # Opened before anything is removed.
        opened = None
        if needs_model:
            opened = model_of(folder, manifest.model, model, device)
        for part in damaged:
            remove_folder(folder / part)
        after = manifest.without_seals(damaged)
        if opened is not None:
            spec = IndexSpec.as_before(folder, manifest, manifest.index.kind)
            after = build_indexes(folder, after, opened, spec, report)
        if manifest.bm25:
            after = add_bm25(folder, after, report)
        remove_unnamed(folder, write_manifest(folder, after))

    return damaged
