"""Compacting: shards are written again without deleted pages, and small ones together; nothing is encoded again.

Pages keep their order, so that a compacted shard has the bytes that a build from the remaining pages gives it.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from kbq.array_types import Bools, Rows
from kbq.dump.building import SHARD_ROWS
from kbq.dump.manifest import Manifest
from kbq.dump.shard_writer import Progress, ShardWriter
from kbq.dump.shards import Shard, ShardEntry, shard_name

CHUNK = 2**16  # rows, or texts, copied at a time


def groups_to_compact(manifest: Manifest, threshold: float) -> list[list[ShardEntry]]:
    """Return the neighbouring shards that are to be written again together.

    Args:
        threshold: share of a shard's pages; with more deleted pages, it is written again. Small neighbours are joined.
    """

    def is_due(entry: ShardEntry) -> bool:
        return bool(entry.deleted) and entry.live.pages < (1 - threshold) * entry.size.pages

    runs = groupby(manifest.shards, lambda entry: is_due(entry) or 2 * entry.live.rows < SHARD_ROWS)
    groups = [list(run) for is_candidate, run in runs if is_candidate]
    return [group for group in groups if len(group) > 1 or is_due(group[0])]


def write_compacted(
    folder: Path, group: Sequence[ShardEntry], shards: Sequence[Shard], first: int, report: Callable[[int], None]
) -> list[ShardEntry]:
    """Write the remaining pages of some shards into new shards, in order.

    Args:
        first: number of the first new shard; leftovers of a killed run under these names are replaced.
        report: called with the number of rows that have been copied.
    """
    left = [np.flatnonzero(shard.live_pages()) for shard in shards]
    targets = _targets(
        np.concatenate([shard.rows_of_pages()[pages] for shard, pages in zip(shards, left, strict=True)])
    )
    of_shards = np.split(targets, np.cumsum([len(pages) for pages in left])[:-1])
    written = []
    for target in range(int(targets.max(initial=0)) + 1):  # one without pages where none are left
        writer = ShardWriter(folder / shard_name(first + target), shards[0].shape[1], Progress())
        try:
            for shard, pages, of_pages in zip(shards, left, of_shards, strict=True):
                chosen = np.zeros(len(shard.ids), bool)
                chosen[pages[of_pages == target]] = True
                if chosen.any():
                    copy_pages(shard, chosen, writer, report)
            written.append(writer.close())
        finally:
            writer.abandon()
    return written


def _targets(rows: Rows) -> Rows:
    """Return the new shard of each page, from 0, given the rows of each: a page that fills a shard is its last."""
    sums, targets, first = np.cumsum(rows), np.zeros(len(rows), np.int64), 0
    while first < len(rows):
        before = sums[first - 1] if first else 0
        first = int(np.searchsorted(sums, before + SHARD_ROWS)) + 1
        targets[first:] += 1
    return targets


def copy_pages(shard: Shard, pages: Bools, writer: ShardWriter, report: Callable[[int], None]) -> None:
    """Append some pages of a shard to another. Shape of `pages`: (pages,)."""
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
        copied = np.flatnonzero(paragraphs if name == "texts" else pages)
        for first in range(0, len(copied), CHUNK):
            texts.append([getattr(shard, name)[number] for number in copied[first : first + CHUNK].tolist()])
    writer.counts += shard.counts_of(pages)
