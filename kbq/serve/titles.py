"""Titles: the pages in the order of their titles: those that begin with some letters, or have some metadata."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kbq.dump.facets import Facets
from kbq.dump.shards import Shard
from kbq.errors import KbqError
from kbq.text.letters import normalised

MOST_FACETED = 200_000  # pages whose metadata are kept in memory, to sort them by
FIELDS, VALUES = 6, 12  # of metadata that are shown beside a list


class Title(NamedTuple):
    """A page by its title."""

    page_id: str
    title: str


@dataclass(frozen=True, slots=True)
class Facet:
    """A field of metadata: its values, those of most pages first, with how many of the pages have them."""

    field: str
    values: list[tuple[str, int]]
    more: int  # values that are not shown


@dataclass(frozen=True, slots=True)
class PageList:
    """Some of the pages that were found, and the metadata of all of them."""

    pages: list[Title]
    first: int  # the number of the first of them, from 0
    count: int  # of all that were found
    facets: list[Facet]


class PageTitles:
    """The titles of all pages that are not deleted, in order, without case and accents: 8 bytes for each in memory."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """`shards`: of the knowledge base, all of them."""
        self._shards = shards
        places = [
            (shard, page) for shard, one in enumerate(shards) for page in np.flatnonzero(one.live_pages()).tolist()
        ]
        places.sort(key=lambda place: normalised(shards[place[0]].titles[place[1]]))
        self._places = np.array(places, np.int32).reshape(-1, 2)

    def beginning_with(self, prefix: str, limit: int = 10) -> list[Title]:
        """Return the first titles that begin with a prefix, whatever its case and accents."""
        return self._titles(self._rows_of(prefix)[:limit])

    def spread(self, count: int) -> list[Title]:
        """Return as many titles from all over the alphabet, always the same ones; all, where there are fewer."""
        most = len(self._places)
        return self._titles(dict.fromkeys(np.linspace(0, max(0, most - 1), min(count, most)).astype(int).tolist()))

    def listed(self, prefix: str, where: Sequence[str], first: int, count: int) -> PageList:
        """Return pages whose titles begin with a prefix and that have some metadata, each `field=value`.

        It takes seconds where the metadata of many pages are asked for the first time.

        Raises:
            KbqError: no page has such a field, or there are too many pages to sort.
        """
        rows = self._rows_of(prefix)
        if len(self._places) > MOST_FACETED:
            if where:
                raise KbqError(
                    f"{len(self._places):,} pages are too many to sort here: use kbq pages --where", is_usage=True
                )
            return PageList(self._titles(rows[first : first + count]), first, len(rows), [])
        having = self._facets.having(where)
        found = np.arange(rows.start, rows.stop)
        found = found if having is None else having[(having >= rows.start) & (having < rows.stop)]
        counted = None if len(found) == len(self._places) else found
        facets = []
        for field in self._facets.shared()[:FIELDS]:
            if values := self._facets.counts(field, counted):
                facets.append(Facet(field, values[:VALUES], max(0, len(values) - VALUES)))
        return PageList(self._titles(found[first : first + count].tolist()), first, len(found), facets)

    @cached_property
    def _facets(self) -> Facets:
        """The metadata of the pages, row by row."""
        return Facets(self._shards[shard].metadata_of(page) for shard, page in self._places.tolist())

    def _rows_of(self, prefix: str) -> range:
        """Find the rows of this table whose titles begin with a prefix."""
        wanted, rows = normalised(prefix) if prefix.strip() else "", range(len(self._places))

        def beginning(row: int) -> str:
            return normalised(self._title(row).title)[: len(wanted)]

        return range(bisect_left(rows, wanted, key=beginning), bisect_right(rows, wanted, key=beginning))

    def _titles(self, rows: Iterable[int]) -> list[Title]:
        return [self._title(row) for row in rows]

    def _title(self, row: int) -> Title:
        shard, page = self._places[row]
        return Title(self._shards[shard].ids[int(page)], self._shards[shard].titles[int(page)])
