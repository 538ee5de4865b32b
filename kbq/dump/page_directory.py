"""Pages: a page id becomes the place and the texts of the page, without opening an encoder or an index."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import xxhash

from kbq.array_types import Bools, Rows
from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard


class PagePlace(NamedTuple):
    """The place of a page: the number of its shard, and its number there."""

    shard: int
    page: int


class Pages:
    """The pages of a knowledge base, without deleted ones; the table of ids is made on first use."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """`shards`: of the knowledge base, all of them."""
        self._shards = shards

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Raises KnowledgeBaseError if the folder is not a complete knowledge base."""
        return cls(read_manifest(folder).open_shards(folder))

    def ids(self) -> Iterator[str]:
        """The ids of all pages, in the order of the corpus."""
        return (page_id for shard in self._shards for _, page_id in shard.live_ids())

    def names(self) -> Iterator[tuple[str, str]]:
        """The ids and titles of all pages, in the order of the corpus."""
        return ((page_id, shard.titles[page]) for shard in self._shards for page, page_id in shard.live_ids())

    def metadata(self) -> Iterator[Mapping[str, Any]]:
        """The metadata of all pages, in the order of the corpus."""
        return (shard.metadata_of(page) for shard in self._shards for page, _ in shard.live_ids())

    def place(self, page_id: str) -> PagePlace | None:
        """Where a page is; None if the knowledge base does not have it."""
        keys, shards, pages = self._table
        key = _key(page_id)
        row = int(np.searchsorted(keys, key))
        while row < len(keys) and keys[row] == key:  # nearly always once
            place = PagePlace(int(shards[row]), int(pages[row]))
            if self._shards[place.shard].ids[place.page] == page_id:
                return place
            row += 1
        return None

    def chosen(self, ids: Iterable[str]) -> tuple[list[Bools], list[str]]:
        """Whether each page of each shard is one of these, and the ids that the knowledge base does not have.

        Shapes: (pages,).
        """
        masks, unknown = [np.zeros(len(shard.ids), bool) for shard in self._shards], []
        for page_id in ids:
            place = self.place(page_id)
            if place is None:
                unknown.append(page_id)
            else:
                masks[place.shard][place.page] = True
        return masks, unknown

    @cached_property
    def _table(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], Rows, Rows]:
        """Keys of all ids, ascending, with the shard and the number of each page. Shapes: (pages,)."""
        pages = [np.fromiter((number for number, _ in shard.live_ids()), np.int64) for shard in self._shards]
        shards = np.repeat(np.arange(len(pages)), [len(numbers) for numbers in pages])
        keys = np.fromiter(map(_key, self.ids()), np.uint64, len(shards))
        order = np.argsort(keys, kind="stable")
        return keys[order], shards[order], np.concatenate([*pages, np.empty(0, np.int64)])[order]

    def is_known(self, page_id: str) -> bool:
        """Whether the knowledge base has the page."""
        return self.place(page_id) is not None

    def text_of(self, page_id: str, paragraph: int | None) -> str | None:
        """A paragraph by the corpus's number (None: the first of the page); None if there is no such paragraph."""
        place = self.place(page_id)
        if place is None:
            return None
        paragraphs = self._shards[place.shard].page(place.page).paragraphs
        if paragraph is None:
            return paragraphs[0].text if paragraphs else None
        return next((found.text for found in paragraphs if found.number == paragraph), None)


def _key(page_id: str) -> int:
    return xxhash.xxh3_64_intdigest(page_id.encode("utf-8", "surrogatepass"))
