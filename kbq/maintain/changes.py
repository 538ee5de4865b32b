"""Changes: compare a corpus with a knowledge base, page by page.

The files of a shard never change: a deleted page is named in a list beside them until a new shard
is written without it.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kbq.array_types import Bools
from kbq.corpus.pages import Page
from kbq.dump.manifest import Manifest
from kbq.dump.page_directory import Pages
from kbq.dump.shard_writer import page_digest
from kbq.dump.shards import Shard, deleted_file
from kbq.storage.records import digest_of_bytes
from kbq.storage.writing import write_bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """How many pages a change has added, replaced, deleted and left unchanged."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.deleted)

    def __str__(self) -> str:
        return f"+{self.added:,} ~{self.replaced:,} −{self.deleted:,} ={self.unchanged:,}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call has done that builds or changes a knowledge base."""

    changes: Changes = Changes()
    bad_lines: int = 0  # lines of the corpus that were skipped
    index_bytes: int = 0  # size of the index of words that was added


NOTHING_DONE = Outcome()


class Comparison:
    """Compares the pages of a corpus, one by one, with those of a knowledge base."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._pages = Pages(shards)
        self._seen = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._replaced = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._added = 0

    def to_encode(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield the pages that are new or differ from those of the knowledge base."""
        for page in pages:
            place = self._pages.place(page.page_id)
            if place is None:
                self._added += 1
                yield page
                continue
            self._seen[place.shard][place.page] = True
            if self._shards[place.shard].page_digests[place.page].tobytes() != page_digest(page):
                self._replaced[place.shard][place.page] = True
                yield page

    def gone(self, also_missing: bool) -> list[Bools]:
        """Whether each page of each shard is replaced or, if `also_missing`, not in the corpus.
        Shapes: (pages,).
        """
        if not also_missing:
            return self._replaced
        seen = zip(self._shards, self._seen, self._replaced, strict=True)
        return [(shard.live_pages() & ~was_seen) | replaced for shard, was_seen, replaced in seen]

    def changes(self, also_missing: bool) -> Changes:
        """Return the changes, once all pages of the corpus have been compared."""
        gone = sum(int(pages.sum()) for pages in self.gone(also_missing))
        replaced = sum(int(pages.sum()) for pages in self._replaced)
        had = sum(int(shard.live_pages().sum()) for shard in self._shards)
        return Changes(self._added, replaced, gone - replaced, had - gone)


def with_pages_deleted(
    manifest: Manifest, shards: Sequence[Shard], gone: Sequence[Bools]
) -> Manifest:
    """Write lists of deleted pages for the first shards, and return the manifest that names them."""
    entries = list(manifest.shards)
    for number, (shard, pages) in enumerate(zip(shards, gone, strict=True)):
        if pages.any():
            left = shard.live_pages() & ~pages
            content = io.BytesIO()
            np.lib.format.write_array(
                content, np.flatnonzero(~left).astype(np.uint32), version=(1, 0)
            )
            # Part of the list's name, so that an earlier list stays.
            digest = digest_of_bytes(content.getvalue())
            write_bytes(deleted_file(shard.folder, digest), content.getvalue())
            entries[number] = replace(entries[number], deleted=digest, live=shard.counts_of(left))

    return replace(manifest, shards=tuple(entries))
