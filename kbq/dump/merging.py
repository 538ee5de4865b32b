"""Merging: knowledge bases of the same model become one, by linking their shards; nothing is encoded again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbq.corpus.pages import PageIds
from kbq.dump.manifest import IndexEntry, Manifest, read_manifest
from kbq.dump.publishing import publish
from kbq.dump.shards import Shard, shard_name
from kbq.errors import KnowledgeBaseError
from kbq.storage.folders import (
    copy_folder,
    discard_folder,
    make_folder,
    make_folders,
    remove_empty_folder,
    remove_folder,
)
from kbq.storage.locks import writing_alone
from kbq.storage.progress import Report, Stage, silent
from kbq.storage.writing import link_file, move, remove_file


def merge(out: Path, folders: Sequence[Path], report: Report = silent) -> Manifest:
    """Publish a knowledge base with the shards of all `folders`, in order; the folders are not changed.

    It uses exact search. Indexes of the shards are linked, too, except those made for particular queries, so that
    `kbq index vectors` only has to measure an index that all shards have. BM25 is kept if all folders have it. SPARTA
    indexes are left out, as their models may differ.

    Raises:
        KnowledgeBaseError: one of the folders is not a knowledge base, or of another model; a page is in two of them;
            or `out` is not empty or cannot be written.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.refuse_codes(folder)
    _refuse_other_models(folders, manifests)
    opened = [m.open_shards(folder) for folder, m in zip(folders, manifests, strict=True)]
    shards = [shard for of_kb in opened for shard in of_kb]
    _refuse_pages_in_two(shards, Stage(report, "pages compared, shards", len(shards)))
    entries = [entry for manifest in manifests for entry in manifest.shards]
    merged = replace(
        manifests[0],
        shards=tuple(replace(entry, name=shard_name(number)) for number, entry in enumerate(entries)),
        corpora=tuple(corpus for manifest in manifests for corpus in manifest.corpora),
        index=IndexEntry(),
        others=(),
        bm25=all(manifest.bm25 for manifest in manifests),
        sparta="",
        seals={},  # of indexes, which have other places now
    )
    partial = out.with_name(f"{out.name}.partial")
    try:
        make_folders(out.parent)
        make_folder(partial)
        with writing_alone(partial, out):
            if out.exists() and any(out.iterdir()):
                remove_empty_folder(partial)
                raise KnowledgeBaseError(f"{out} is not empty: delete it or choose another folder")
            try:
                _empty(partial)  # of what a killed merge has left
                stage = Stage(report, "linked, shards", len(shards))
                for number, shard in enumerate(shards):
                    copy_folder(shard.folder, partial / shard_name(number), link_file, _stays_behind)
                    stage.add(1)
                published = publish(partial, merged)
                move(partial, out)
            except OSError:
                discard_folder(partial)
                raise
    except OSError as error:
        raise KnowledgeBaseError(
            f"{out} cannot be written ({error.strerror}): free disk space or choose another folder"
        ) from None
    return published


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            remove_file(path)


def _stays_behind(name: str) -> bool:
    """Whether a file or an index of a shard is not linked: what was left by a killed run, for instance."""
    return name.startswith("sparta") or "-for-" in name or name.endswith(".tmp")


def _refuse_other_models(folders: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.model_fingerprint != first.model_fingerprint:
            raise KnowledgeBaseError(
                f"{folder} was built with the model {manifest.model} ({manifest.model_fingerprint}), {folders[0]} with "
                f"{first.model} ({first.model_fingerprint}): build one of them again with the other's model"
            )
        if manifest.phrases != first.phrases:
            raise KnowledgeBaseError(
                f"phrases have at most {manifest.phrases.rows} tokens in {folder}, {first.phrases.rows} in "
                f"{folders[0]}, as one was imported: ask them one by one"
            )


def _refuse_pages_in_two(shards: Sequence[Shard], stage: Stage) -> None:
    page_ids = PageIds()
    for number, shard in enumerate(shards):
        for _, page_id in shard.live_ids():
            if not page_ids.add(page_id):
                others = (one for one in shards[:number] if any(page_id == known for _, known in one.live_ids()))
                other = next(others, shard)
                raise KnowledgeBaseError(
                    f"page id {page_id!r} is in {other.folder.parent} and in {shard.folder.parent}: "
                    "delete it in one of them"
                )
        stage.add(1)
