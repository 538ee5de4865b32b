"""Titles: the text of a value becomes the page of the knowledge base that alone has it for its title."""

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import xxhash

from kbq.array_types import Rows
from kbq.dump.shards import Shard
from kbq.text.comparing import normalised


class PageValue(msgspec.Struct, frozen=True, tag_field="type", tag="page"):
    """A value that is a page of the knowledge base."""

    page_id: str
    title: str


class Titles:
    """The titles of all pages that are not deleted, as values are compared; the table is made on first use."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """`shards`: of the knowledge base, all of them."""
        self._shards = shards

    def page(self, text: str) -> PageValue | None:
        """The page with this title; None if there is none, or more than one."""
        keys, shards, pages = self._table
        wanted = normalised(text)
        first, stop = np.searchsorted(keys, _key(wanted), "left"), np.searchsorted(keys, _key(wanted), "right")
        places = zip(shards[first:stop].tolist(), pages[first:stop].tolist(), strict=True)
        found = [
            PageValue(self._shards[shard].ids[page], title)
            for shard, page in places
            if normalised(title := self._shards[shard].titles[page]) == wanted
        ]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _table(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], Rows, Rows]:
        """Keys of all titles, ascending, with the shard and the number of each page. Shapes: (pages,)."""
        pages = [np.flatnonzero(shard.live_pages()) for shard in self._shards]
        shards = np.repeat(np.arange(len(pages)), [len(numbers) for numbers in pages])
        titles = (
            shard.titles[page] for shard, numbers in zip(self._shards, pages, strict=True) for page in numbers.tolist()
        )
        keys = np.fromiter((_key(normalised(title)) for title in titles), np.uint64, len(shards))
        order = np.argsort(keys, kind="stable")
        return keys[order], shards[order], np.concatenate([*pages, np.empty(0, np.int64)])[order]


def _key(text: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")))
