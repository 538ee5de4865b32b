"""Page ids: a set of millions of ids in little memory, to find duplicates."""

from collections.abc import Iterable

import numpy as np


class PageIds:
    """A set of page ids.

    It keeps a 64-bit hash of each id: 8 bytes a page, twice that while they are sorted. The probability that two
    different ids collide is pages² / 2^65: one in a million for 6 million pages.
    """

    max_recent = 2**17  # hashes that are collected before they are sorted in

    def __init__(self, known_ids: Iterable[str] = ()) -> None:
        """`known_ids`: the ids to begin with, each once."""
        self._recent: set[int] = set()
        self._sorted = np.sort(np.fromiter(map(hash, known_ids), np.int64))

    def __contains__(self, page_id: str) -> bool:
        key = hash(page_id)
        row = int(np.searchsorted(self._sorted, key))
        return key in self._recent or bool((self._sorted[row : row + 1] == key).any())

    def add(self, page_id: str) -> bool:
        """Add an id; returns whether it was new."""
        if page_id in self:
            return False
        self._recent.add(hash(page_id))
        if len(self._recent) >= self.max_recent:
            self._sorted = np.concatenate([self._sorted, np.fromiter(self._recent, np.int64)])
            self._sorted.sort()
            self._recent.clear()
        return True
