"""Merge: make one knowledge base of several, whose files are linked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbq.corpus.pages import PageIds
from kbq.dump.manifest import IndexEntry, Manifest, is_knowledge_base, publish, read_manifest
from kbq.dump.shards import Shard, shard_name
from kbq.errors import KnowledgeBaseError
from kbq.storage.folders import (
    discard_folder,
    link_folder,
    make_folder,
    make_folders,
    remove_folder,
)
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.writing import move, remove_file, writing_alone, writing_to


def merge(out: Path, folders: Sequence[Path], report: Report = silent) -> Manifest:
    """Publish a knowledge base with the shards of all `folders`, in order, without changing the
    folders.

    It uses exact search. Indexes of vectors are linked, too, except those made for particular
    queries, so that `kbq index vectors` only has to measure an index that all shards have. BM25
    stays if all folders have it. SPARTA indexes are left out, as their models may differ.

    Raises:
        KnowledgeBaseError: a folder is not a knowledge base or has another model, a page is in two
            folders, or `out`
            is not empty or cannot be written.
    """
    if is_knowledge_base(out):
        raise KnowledgeBaseError(
            f"{out} is a knowledge base; the new folder comes first: `kbq merge-kb OUT KB KB`"
        )
    _refuse_twice(folders)
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.refuse_codes(folder)
    _refuse_other_models(folders, manifests)
    opened = [m.open_shards(folder) for folder, m in zip(folders, manifests, strict=True)]
    shards = [shard for of_kb in opened for shard in of_kb]
    _refuse_pages_in_two(shards, Stage(report, "pages compared, shards", len(shards)))
    entries = [entry for manifest in manifests for entry in manifest.shards]
    renamed = [replace(entry, name=shard_name(number)) for number, entry in enumerate(entries)]
    corpora = [corpus for manifest in manifests for corpus in manifest.corpora]
    merged = replace(
        manifests[0],
        shards=tuple(renamed),
        corpora=tuple(corpora),
        index=IndexEntry(),
        others=(),
        bm25=all(manifest.bm25 for manifest in manifests),
        sparta="",
        seals={},  # they name the places of indexes
    )
    partial = out.with_name(f"{out.name}.partial")

    with writing_to(out, KnowledgeBaseError, "free disk space or choose another folder"):
        if out.exists() and any(out.iterdir()):
            raise KnowledgeBaseError(f"{out} is not empty: name a new folder, which comes first")
        make_folders(out.parent)
        make_folder(partial)
        with writing_alone(partial, out):
            try:
                for left in partial.iterdir():  # left by a killed merge
                    remove_file(left) if left.is_symlink() or left.is_file() else remove_folder(
                        left
                    )
                stage = Stage(report, "linked, shards", len(shards))
                for number, shard in enumerate(shards):
                    link_folder(shard.folder, partial / shard_name(number), _stays_behind)
                    stage.add(1)
                published = publish(partial, merged)
                move(partial, out)
            except OSError:
                discard_folder(partial)
                raise

    return published


def _stays_behind(name: str) -> bool:
    return name.startswith("sparta") or "-for-" in name or name.endswith(".tmp")


def _refuse_twice(folders: Sequence[Path]) -> None:
    known: set[Path] = set()
    for folder in folders:
        if (place := folder.resolve()) in known:
            raise KnowledgeBaseError(f"{folder} is given twice: give each knowledge base once")
        known.add(place)


def _refuse_other_models(folders: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.model_fingerprint != first.model_fingerprint:
            raise KnowledgeBaseError(
                f"{folder} was built with the model {manifest.model} "
                f"({manifest.model_fingerprint}), {folders[0]} with {first.model} "
                f"({first.model_fingerprint}): build one of them again with the other's model"
            )
        if manifest.phrases != first.phrases:
            raise KnowledgeBaseError(
                f"phrases have at most {manifest.phrases.rows} tokens in {folder}, "
                f"{first.phrases.rows} in {folders[0]}, as one was imported: ask them one by one"
            )


def _refuse_pages_in_two(shards: Sequence[Shard], stage: Stage) -> None:
    page_ids = PageIds()
    for number, shard in enumerate(shards):
        for _, page_id in shard.live_ids():
            if not page_ids.add(page_id):
                others = (
                    one
                    for one in shards[:number]
                    if any(page_id == known for _, known in one.live_ids())
                )
                other = next(others, shard)
                raise KnowledgeBaseError(
                    f"page id {page_id!r} is in {other.folder.parent} and in "
                    f"{shard.folder.parent}: delete it in one of them"
                )

        stage.add(1)
