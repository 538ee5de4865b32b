"""Compact: write shards again without their deleted pages.

Pages keep their order, so a compacted shard has the bytes that a build from the remaining pages
would give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbq.array_types import Bools, Rows
from kbq.dump.manifest import STATE, changing, remove_unnamed_shards, sentence, write_manifest
from kbq.dump.resumable_build import SHARD_ROWS
from kbq.dump.shard_writer import Progress, ShardWriter
from kbq.dump.shards import Shard, ShardEntry, shard_name
from kbq.errors import KnowledgeBaseError
from kbq.maintain.indexes import IndexSpec, build_indexes, remove_unnamed
from kbq.model.model import Model
from kbq.storage.reports import Stage, silent
from kbq.storage.seals import all_damage
from kbq.words.bm25 import add_bm25
from kbq.words.impacts import compact_sparta

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbq.dump.manifest import Manifest
    from kbq.storage.reports import Report

CHUNK = 2**16  # rows, or texts, copied at a time


def compact(
    folder: Path, open_model: Callable[[], Model], threshold: float = 0.0, report: Report = silent
) -> Manifest:
    """Write shards again without their deleted pages; see `KnowledgeBase.compact`.

    `open_model` is called only if there are indexes that need it.
    """
    if not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise KnowledgeBaseError(f"threshold is {threshold!r}, must be from 0 to 1", is_usage=True)
    with changing(folder, in_parts=True) as manifest:
        manifest.refuse_codes(folder)
        if (folder / STATE).exists():
            raise KnowledgeBaseError(
                f"{folder} has an unfinished update: run the same command again, or delete "
                f"{folder / STATE}"
            )

        groups = groups_to_compact(manifest, threshold)
        stage = Stage(
            report, "rows copied", sum(entry.live.rows for group in groups for entry in group)
        )
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


def groups_to_compact(manifest: Manifest, threshold: float) -> list[list[ShardEntry]]:
    """Return the neighbouring shards to rewrite together; small neighbours are joined.

    Args:
        threshold: share of a shard's pages; a shard with more deleted pages is rewritten.
    """

    def is_due(entry: ShardEntry) -> bool:
        return bool(entry.deleted) and entry.live.pages < (1 - threshold) * entry.size.pages

    runs = groupby(manifest.shards, lambda entry: is_due(entry) or 2 * entry.live.rows < SHARD_ROWS)
    groups = [list(run) for is_candidate, run in runs if is_candidate]
    return [group for group in groups if len(group) > 1 or is_due(group[0])]


def write_compacted(
    folder: Path,
    group: Sequence[ShardEntry],
    shards: Sequence[Shard],
    first: int,
    report: Callable[[int], None],
) -> list[ShardEntry]:
    """Copy the remaining pages of some shards, in order, to new shards, the first of which has the
    number `first`.

    `report` is called with each number of rows copied.
    """
    left = [np.flatnonzero(shard.live_pages()) for shard in shards]
    sizes = [
        np.bincount(s.paragraph_pages, s.paragraph_sizes(), len(s.ids)).astype(np.int64)
        for s in shards
    ]
    targets = _targets(
        np.concatenate([rows[pages] for rows, pages in zip(sizes, left, strict=True)])
    )
    of_shards = np.split(targets, np.cumsum([len(pages) for pages in left])[:-1])
    written = []

    for target in range(int(targets.max(initial=0)) + 1):  # a single, empty one if no page is left
        writer = ShardWriter(folder / shard_name(first + target), shards[0].shape[1], Progress())
        try:
            for shard, pages, of_pages in zip(shards, left, of_shards, strict=True):
                chosen = np.zeros(len(shard.ids), bool)
                chosen[pages[of_pages == target]] = True
                if chosen.any():
                    _copy_pages(shard, chosen, writer, report)
            written.append(writer.close())
        finally:
            writer.abandon()

    return written


def _targets(rows: Rows) -> Rows:
    """Return the number of each page's new shard, from 0, given its rows. A page that fills a shard
    is its last.
    """
    sums = np.cumsum(rows)
    targets = np.zeros(len(rows), np.int64)
    first = 0
    while first < len(rows):
        before = sums[first - 1] if first else 0
        first = int(np.searchsorted(sums, before + SHARD_ROWS)) + 1
        targets[first:] += 1
    return targets


def _copy_pages(
    shard: Shard, pages: Bools, writer: ShardWriter, report: Callable[[int], None]
) -> None:
    """Append chosen pages of a shard to another. Shape of `pages`: (pages,)."""
    paragraphs = pages[shard.paragraph_pages]
    sizes = shard.paragraph_sizes()
    rows = np.flatnonzero(np.repeat(paragraphs, sizes))
    for first in range(0, len(rows), CHUNK):
        part = rows[first : first + CHUNK]
        for name, array in writer.per_row.items():
            array.append(getattr(shard, name)[part])
        report(len(part))

    new_numbers = np.cumsum(pages) - 1 + writer.counts.pages
    writer.per_paragraph["rows"].append(np.cumsum(sizes[paragraphs]) + writer.counts.rows)
    writer.per_paragraph["numbers"].append(shard.paragraph_numbers[paragraphs])
    writer.per_paragraph["pages"].append(new_numbers[shard.paragraph_pages[paragraphs]])
    writer.per_paragraph["tokens"].append(shard.paragraph_tokens[paragraphs])
    writer.page_digests.append(shard.page_digests[pages])

    for name, texts in writer.texts.items():
        kept = pages
        if name == "texts":
            kept = paragraphs
        copied = np.flatnonzero(kept)
        for first in range(0, len(copied), CHUNK):
            texts.append(
                [getattr(shard, name)[number] for number in copied[first : first + CHUNK].tolist()]
            )

    writer.counts += shard.counts_of(pages)
