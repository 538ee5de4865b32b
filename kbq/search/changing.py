"""Changing: build or change a knowledge base; its new manifest, written last, makes the change.

Pages are encoded before indexes and words. A kill leaves the knowledge base as it was, and the same command resumes.
Open knowledge bases stay as they were opened.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.corpus.readers import BadLines, checked_pages, noting_language, read_corpus
from kbq.dump.building import OtherCorpusError, build_shards, manifest_before
from kbq.dump.changes import Changes, Comparison, groups_to_compact, with_pages_deleted, write_compacted
from kbq.dump.manifest import (
    STATE,
    changing,
    is_knowledge_base,
    publish,
    read_manifest,
    refuse_other_model,
    refuse_strange_parts,
    remove_unnamed_shards,
    sentence,
    write_manifest,
)
from kbq.dump.page_directory import Pages
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.index.cells import load_faiss
from kbq.index.factory import chosen_kind
from kbq.model.model import Model, model_of
from kbq.search.building_indexes import IndexSpec, build_indexes, kept_queries, remove_unnamed
from kbq.storage.files import (
    Stage,
    as_iterable,
    as_path,
    make_folders,
    pipe_name,
    remove_file,
    silent,
    unheard,
    writing_alone,
    writing_to,
)
from kbq.storage.records import all_damage
from kbq.words.bm25 import add_bm25
from kbq.words.sparta import SpartaModel, compact_sparta, index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.options import BuildOptions
    from kbq.dump.page_encoder import StartEncoders
    from kbq.dump.shard_writer import EncodedParagraphs
    from kbq.dump.shards import Counts, PhraseLimit
    from kbq.storage.files import Note, Report


def build(
    corpus: str | Path | Iterable[Page],
    folder: Path,
    model: str | Path | Model | None,
    options: BuildOptions,
    *,
    start_encoders: StartEncoders | None = None,
    device: str = "auto",
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> tuple[Manifest, Model, int]:
    """Publish a knowledge base; see `KnowledgeBase.build`. The number returned is that of the bad lines left out."""
    sparta, append = options.sparta, options.append
    if sparta is not None:
        SpartaModel.open(as_path(sparta, "a SPARTA model"), "cpu")
        if not append and is_knowledge_base(folder):  # perhaps a kill came while impacts were added
            command = f"kbq index sparta {folder} {sparta}"
            raise KnowledgeBaseError(f"{folder} is built: add the impacts with `{command}`")
    published = read_manifest(folder) if append else None
    if published is not None:
        published.refuse_codes(folder)
    if not isinstance(model, Model):
        name = None if model is None else str(as_path(model, "a model"))
        model = model_of(folder, published.model, name, device) if published else Model.open(name or "default", device)
    known_ids = () if published is None else Pages.open(folder).ids()
    pages, bad_lines = _pages(corpus, options, known_ids, note)
    pages = noting_language(pages, note)
    with writing_to(folder, KnowledgeBaseError, goes_on=True):
        # A missing faiss, and damaged queries below, are reported before hours of encoding.
        kinds = {options.index} | ({entry.kind for entry in published.entries} if published else set())
        if kinds - {"auto", "exact"}:
            load_faiss()
        make_folders(folder)
        with writing_alone(folder):
            before = manifest_before(folder, model, append)
            refuse_strange_parts(folder)
            for entry in before.entries:
                kept_queries(folder, entry)
            shards, digest = build_shards(pages, model, folder, before.next_shard, report, start_encoders)
            after = before.with_shards(shards, digest)
            spec = IndexSpec.as_before(folder, before, chosen_kind(after, options.index))
            after = build_indexes(folder, after, model, spec, report_stage)
            manifest = _publish(folder, after, before.bm25 if append else options.bm25, report_stage)
    if sparta is not None:
        index_sparta(folder, sparta, options.terms, device, report_stage)
        manifest = read_manifest(folder)
    elif published is not None and published.sparta:
        note(WITHOUT_IMPACTS.format(kb=folder))
    return manifest, model, bad_lines.count


def publish_encoded(
    pages: Iterable[Page],
    encode: Callable[[Sequence[Any]], EncodedParagraphs],
    folder: Path,
    model: Model,
    *,
    phrases: PhraseLimit,
    bm25: bool,
    report: Callable[[Counts], None],
    report_stage: Report,
    index: Callable[[Manifest], Manifest] | None = None,
) -> Manifest:
    """Publish a new knowledge base of pages that the model has encoded elsewhere; a killed run resumes.

    `encode` returns the paragraphs of a block of pages. `index` adds an index that was built elsewhere to the manifest,
    instead of vectors.
    """
    if is_knowledge_base(folder):
        raise KnowledgeBaseError(f"{folder} already holds a knowledge base: choose another folder")
    with writing_to(folder, KnowledgeBaseError, goes_on=True):
        make_folders(folder)
        with writing_alone(folder):
            before = replace(manifest_before(folder, model, append=False), phrases=phrases)
            refuse_strange_parts(folder)
            built = build_shards(pages, model, folder, 0, report, encode=encode, with_vectors=index is None)
            after = before.with_shards(*built)
            if index is not None:
                after = index(after)
            else:
                after = build_indexes(folder, after, model, IndexSpec(chosen_kind(after, "auto")), report_stage)
            return _publish(folder, after, bm25, report_stage)


WITHOUT_IMPACTS = "the new pages have no learned impacts, so none are used: add them with `kbq index sparta {kb} MODEL`"


def update(
    corpus: str | Path | Iterable[Page],
    folder: Path,
    open_model: Callable[[], Model],
    options: BuildOptions,
    *,
    delete_missing: bool,
    dry_run: bool = False,
    start_encoders: StartEncoders | None = None,
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> tuple[Manifest, Changes, int]:
    """Change a knowledge base to what a corpus says; see `KnowledgeBase.update` and `sync`.

    The model is opened only if there are pages to encode. The number returned is that of the bad lines left out.
    """
    published = read_manifest(folder)  # read before the corpus
    published.refuse_codes(folder)
    pages, bad_lines = _pages(corpus, options, (), note)
    if dry_run:
        comparison = Comparison(published.open_shards(folder))
        for _ in comparison.to_encode(pages):
            pass
        return published, comparison.changes(delete_missing), bad_lines.count
    change = partial(_updated, folder, open_model, delete_missing, start_encoders, report, report_stage)
    try:
        manifest, changes = change(pages)
    except OtherCorpusError:
        if not isinstance(corpus, str | Path) or pipe_name(Path(corpus)):
            raise  # it cannot be read again
        note(f"an update of {folder} was stopped, and the corpus has changed since: it starts over")
        remove_file(folder / STATE)
        pages, bad_lines = _pages(corpus, options, (), note)
        manifest, changes = change(pages)
    if published.sparta and not manifest.sparta:
        note(WITHOUT_IMPACTS.format(kb=folder))
    return manifest, changes, bad_lines.count


def _updated(
    folder: Path,
    open_model: Callable[[], Model],
    delete_missing: bool,
    start_encoders: StartEncoders | None,
    report: Callable[[Counts], None],
    report_stage: Report,
    pages: Iterator[Page],
) -> tuple[Manifest, Changes]:
    """Encode new and changed pages, and publish them without those that they replace."""
    with changing(folder) as before:
        comparison = Comparison(shards := before.open_shards(folder))
        to_encode = comparison.to_encode(pages)
        first = next(to_encode, None)
        if first is not None:
            model = open_model()
            refuse_other_model(folder, before, model)
            for entry in before.entries:
                kept_queries(folder, entry)
            new = itertools.chain([first], to_encode)
            after = before.with_shards(*build_shards(new, model, folder, before.next_shard, report, start_encoders))
            after = with_pages_deleted(after, shards, comparison.gone(delete_missing))
            spec = IndexSpec.as_before(folder, before, chosen_kind(after, "auto"))
            after = build_indexes(folder, after, model, spec, report_stage)
            manifest = _publish(folder, after, before.bm25, report_stage)
        else:
            remove_file(folder / STATE)  # left by an update that was given up
            manifest = before
            if comparison.changes(delete_missing):
                manifest = write_manifest(folder, with_pages_deleted(before, shards, comparison.gone(delete_missing)))
        remove_unnamed_shards(folder, manifest)
    return manifest, comparison.changes(delete_missing)


def compact(folder: Path, open_model: Callable[[], Model], threshold: float = 0.0, report: Report = silent) -> Manifest:
    """Write shards again without their deleted pages; see `KnowledgeBase.compact`.

    `open_model` is called only if there are indexes that need it.
    """
    if not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise KnowledgeBaseError(f"threshold is {threshold!r}, must be from 0 to 1", is_usage=True)
    with changing(folder, in_parts=True) as manifest:
        manifest.refuse_codes(folder)
        if (folder / STATE).exists():
            raise KnowledgeBaseError(
                f"{folder} has an unfinished update: run the same command again, or delete {folder / STATE}"
            )
        groups = groups_to_compact(manifest, threshold)
        stage = Stage(report, "rows copied", sum(entry.live.rows for group in groups for entry in group))
        for group in groups:
            names = [entry.name for entry in group]
            damage = next(all_damage(manifest.files(folder, names)), None)
            if damage is not None:  # its copy would be sealed
                raise KnowledgeBaseError(sentence(folder, damage))
            old = [shard for shard in manifest.open_shards(folder) if shard.folder.name in names]
            new = write_compacted(folder, group, old, manifest.next_shard, stage.add)
            place = manifest.shards.index(group[0])
            entries = (*manifest.shards[:place], *new, *manifest.shards[place + len(group) :])
            after = replace(manifest, shards=entries)
            if manifest.sparta:
                compact_sparta(folder, after, new, old)
            if any(entry.kind != "exact" for entry in manifest.entries):
                spec = IndexSpec.as_before(folder, manifest, manifest.index.kind)
                after = build_indexes(folder, after, open_model(), spec, report)
            after = add_bm25(folder, after) if manifest.bm25 else after
            manifest = write_manifest(folder, after)
            remove_unnamed_shards(folder, manifest)
            remove_unnamed(folder, manifest)
    return manifest


def _pages(
    corpus: str | Path | Iterable[Page], options: BuildOptions, known_ids: Iterable[str], note: Note
) -> tuple[Iterator[Page], BadLines]:
    """Read the pages of a file or folder, or check pages from Python, and count the bad lines."""
    bad_lines = BadLines(corpus, options.skip_bad_lines, note)
    if isinstance(corpus, str | Path):
        pages = read_corpus(corpus, options.format, bad_lines.add, known_ids, options.columns, note, options.documents)
        return bad_lines.all_or_none(pages), bad_lines
    made = as_iterable(corpus, CorpusError, "a corpus is", "a path, or a list of pages")
    return checked_pages(made, known_ids), bad_lines


def _publish(folder: Path, manifest: Manifest, bm25: bool, report_stage: Report) -> Manifest:
    manifest = publish(folder, add_bm25(folder, manifest, report_stage) if bm25 else manifest)
    remove_unnamed(folder, manifest)
    return manifest
