"""Update: new or changed pages of a corpus take the place of those they replace."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.dump.manifest import (
    STATE,
    changing,
    read_manifest,
    refuse_other_model,
    remove_unnamed_shards,
    write_manifest,
)
from kbq.dump.resumable_build import OtherCorpusError, build_shards
from kbq.index.factory import chosen_kind
from kbq.maintain.build import WITHOUT_IMPACTS, publish_with_words, read_pages
from kbq.maintain.changes import Changes, Comparison, with_pages_deleted
from kbq.maintain.indexes import IndexSpec, build_indexes, kept_queries
from kbq.model.model import Model
from kbq.storage.paths import pipe_name
from kbq.storage.reports import silent, unheard
from kbq.storage.writing import remove_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.page_encoder import StartEncoders
    from kbq.dump.shards import Counts
    from kbq.maintain.options import BuildOptions
    from kbq.storage.reports import Note, Report


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

    The model is opened only if there are pages to encode. The number returned is that of the bad
    lines left out.
    """
    published = read_manifest(folder)  # read before the corpus
    published.refuse_codes(folder)
    pages, bad_lines = read_pages(corpus, options, (), note)
    if dry_run:
        comparison = Comparison(published.open_shards(folder))
        for _ in comparison.to_encode(pages):
            pass
        return published, comparison.changes(delete_missing), bad_lines.count

    change = partial(
        _updated, folder, open_model, delete_missing, start_encoders, report, report_stage
    )
    try:
        manifest, changes = change(pages)
    except OtherCorpusError:
        if not isinstance(corpus, str | Path) or pipe_name(Path(corpus)):
            raise  # it cannot be read again
        note(f"an update of {folder} was stopped, and the corpus has changed since: it starts over")
        remove_file(folder / STATE)
        pages, bad_lines = read_pages(corpus, options, (), note)
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
            after = before.with_shards(
                *build_shards(new, model, folder, before.next_shard, report, start_encoders)
            )
            after = with_pages_deleted(after, shards, comparison.gone(delete_missing))
            spec = IndexSpec.as_before(folder, before, chosen_kind(after, "auto"))
            after = build_indexes(folder, after, model, spec, report_stage)
            manifest = publish_with_words(folder, after, before.bm25, report_stage)
        else:
            remove_file(folder / STATE)  # left by an update that was given up
            manifest = before
            if comparison.changes(delete_missing):
                manifest = write_manifest(
                    folder, with_pages_deleted(before, shards, comparison.gone(delete_missing))
                )

        remove_unnamed_shards(folder, manifest)

    return manifest, comparison.changes(delete_missing)
