"""Facets: the metadata of pages become the values of each field, with the pages that have them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kbq.array_types import Rows
from kbq.errors import KbqError

LONGEST = 200  # characters of a value that pages are sorted by: what is longer is a text
NAMED = 20  # fields in a message


class Facets:
    """The values of every field of some pages, which are numbered as they come."""

    def __init__(self, metadata: Iterable[Mapping[str, Any]]) -> None:
        """`metadata`: of each page."""
        self._pages: dict[str, dict[str, list[int]]] = {}
        for number, fields in enumerate(metadata):
            for name, value in fields.items():
                for text in values_of(value):
                    self._pages.setdefault(name, {}).setdefault(text, []).append(number)

    def having(self, wanted: Iterable[str]) -> Rows | None:
        """Return the pages that have all of some values, each `field=value`, ascending; None: no value is wanted.

        Raises KbqError if no page has such a field.
        """
        chosen: Rows | None = None
        for text in wanted:
            name, _, value = text.partition("=")
            pages = np.array(self._values(name).get(value, ()), np.int64)
            chosen = pages if chosen is None else np.intersect1d(chosen, pages, assume_unique=True)
        return chosen

    def counts(self, name: str, among: Rows | None = None) -> list[tuple[str, int]]:
        """Return the values of a field with how many of some pages have them, the most frequent first.

        Raises KbqError if no page has such a field.
        """
        counted = [
            (value, len(pages) if among is None else len(np.intersect1d(among, pages, assume_unique=True)))
            for value, pages in self._values(name).items()
        ]
        return sorted((pair for pair in counted if pair[1]), key=lambda pair: (-pair[1], pair[0]))

    def shared(self) -> list[str]:
        """Return the fields that sort pages: most of their values are shared by several pages; fewest values first."""
        sorting = [name for name, values in self._pages.items() if 2 * len(values) <= sum(map(len, values.values()))]
        return sorted(sorting, key=lambda name: len(self._pages[name]))

    def _values(self, name: str) -> Mapping[str, Sequence[int]]:
        if name not in self._pages:
            known = ", ".join(list(self._pages)[:NAMED])
            advice = f"the fields are {known}" if known else "no page has any, see the guide to your own text"
            raise KbqError(f"no page has metadata {name!r:.80}: {advice}", is_usage=True)
        return self._pages[name]


def values_of(value: object) -> list[str]:
    """Return the values of a field: one, or those of a list; none of longer texts and of objects.

    >>> values_of(["de", "fr", "de"]), values_of(3), values_of(True), values_of({"a": 1})
    (['de', 'fr'], ['3'], ['true'], [])
    """
    several = value if isinstance(value, list) else [value]
    texts = [
        str(one).lower() if isinstance(one, bool) else str(one) for one in several if isinstance(one, str | int | float)
    ]
    return list(dict.fromkeys(text for text in texts if 0 < len(text) <= LONGEST))
