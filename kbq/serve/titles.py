"""Titles: the pages in the order of their titles: those that begin with some letters, and all to look through."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kbq.dump.shards import Shard
from kbq.text.letters import normalised


class Title(NamedTuple):
    """A page by its title."""

    page_id: str
    title: str


class TitlePrefixes:
    """The titles of all pages that are not deleted, in order, without case and accents: 8 bytes for each in memory."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """`shards`: of the knowledge base, all of them."""
        self._shards = shards
        places = [
            (shard, page) for shard, one in enumerate(shards) for page in np.flatnonzero(one.live_pages()).tolist()
        ]
        places.sort(key=lambda place: normalised(shards[place[0]].titles[place[1]]))
        self._places = np.array(places, np.int32).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._places)

    def beginning_with(self, prefix: str, limit: int) -> list[Title]:
        """The first titles, in the order of the alphabet, that begin with a prefix."""
        return [self.title(row) for row in self.rows_of(prefix)[:limit]]

    def rows_of(self, prefix: str) -> range:
        """The rows of this table whose titles begin with a prefix, whatever its case and accents."""
        wanted, rows = normalised(prefix) if prefix.strip() else "", range(len(self._places))

        def beginning(row: int) -> str:
            return normalised(self.title(row).title)[: len(wanted)]

        return range(bisect_left(rows, wanted, key=beginning), bisect_right(rows, wanted, key=beginning))

    def spread(self, count: int) -> list[Title]:
        """As many titles from all over the alphabet, or all, where there are fewer."""
        most = len(self._places)
        return [
            self.title(row)
            for row in dict.fromkeys(np.linspace(0, max(0, most - 1), min(count, most)).astype(int).tolist())
        ]

    def title(self, row: int) -> Title:
        """The page of a row."""
        shard, page = self._places[row]
        return Title(self._shards[shard].ids[int(page)], self._shards[shard].titles[int(page)])

    def metadata(self) -> Iterator[Mapping[str, Any]]:
        """The metadata of all pages, row by row."""
        return (self._shards[shard].metadata_of(page) for shard, page in self._places.tolist())
