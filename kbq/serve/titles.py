"""Titles: the pages whose title begins with some letters, for those who are still typing."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from kbq.dump.shards import Shard
from kbq.text.comparing import normalised


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

    def beginning_with(self, prefix: str, limit: int) -> list[Title]:
        """The first titles, in the order of the alphabet, that begin with a prefix."""
        wanted = normalised(prefix) if prefix.strip() else ""
        first = bisect_left(range(len(self._places)), wanted, key=lambda row: normalised(self._title(row).title))
        rows = map(self._title, range(first, min(first + limit, len(self._places))))
        return list(takewhile(lambda found: normalised(found.title).startswith(wanted), rows))

    def spread(self, count: int) -> list[Title]:
        """As many titles from all over the alphabet, or all, where there are fewer."""
        most = len(self._places)
        return [
            self._title(row)
            for row in dict.fromkeys(np.linspace(0, max(0, most - 1), min(count, most)).astype(int).tolist())
        ]

    def _title(self, row: int) -> Title:
        shard, page = self._places[row]
        return Title(self._shards[shard].ids[int(page)], self._shards[shard].titles[int(page)])
