"""Page list: the pages of a knowledge base in the order of their titles, to look through, sorted by their metadata."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbq.dump.facets import Facets
from kbq.errors import KbqError
from kbq.serve.titles import Title, TitlePrefixes

FIELDS, VALUES = 6, 12  # of metadata that are shown beside a list


@dataclass(frozen=True, slots=True)
class Facet:
    """A field of metadata: its values, those of most pages first, with how many of the pages have them."""

    field: str
    values: list[tuple[str, int]]
    more: int  # values that are not shown


@dataclass(frozen=True, slots=True)
class PageList:
    """Some of the pages that were found, and what all of them have."""

    pages: list[Title]
    first: int  # the number of the first of them, from 0
    count: int  # of all that were found
    facets: list[Facet]


def listed(
    titles: TitlePrefixes, facets: Facets | None, prefix: str, where: Sequence[str], first: int, count: int
) -> PageList:
    """Pages whose titles begin with a prefix and that have some metadata, each `field=value`.

    Raises:
        KbqError: no page has such a field, or there are no facets.
    """
    rows = titles.rows_of(prefix)
    if facets is None:
        if where:
            raise KbqError("has too many pages to sort them here: use kbq pages --where", is_usage=True)
        return PageList([titles.title(row) for row in rows[first : first + count]], first, len(rows), [])
    having = facets.having(where)
    found = (
        np.arange(rows.start, rows.stop) if having is None else having[(having >= rows.start) & (having < rows.stop)]
    )
    is_everything = len(found) == len(titles)
    shown = []
    for field in facets.shared()[:FIELDS]:
        values = facets.counts(field, None if is_everything else found)
        if values:
            shown.append(Facet(field, values[:VALUES], max(0, len(values) - VALUES)))
    return PageList([titles.title(row) for row in found[first : first + count].tolist()], first, len(found), shown)
