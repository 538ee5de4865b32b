"""Page ids: which ones are taken, among millions, kept in little memory."""

from collections.abc import Iterable

import numpy as np


class PageIds:
    """The page ids met so far.

    Keeps a 64-bit hash of each id: 8 bytes a page, twice that while they are sorted. The chance that two
    different ids are taken for one is pages² / 2^65: one in a million for 6 million pages.
    """

    max_recent = 2**17  # hashes that are not sorted yet

    def __init__(self, known_ids: Iterable[str] = ()) -> None:
        """`known_ids`: those that are taken already, each once."""
        self._recent: set[int] = set()
        self._sorted = np.sort(np.fromiter(map(hash, known_ids), np.int64))

    def __contains__(self, page_id: str) -> bool:
        key = hash(page_id)
        row = int(np.searchsorted(self._sorted, key))
        return key in self._recent or bool((self._sorted[row : row + 1] == key).any())

    def add(self, page_id: str) -> bool:
        """Remember an id; returns whether it was new."""
        if page_id in self:
            return False
        self._recent.add(hash(page_id))
        if len(self._recent) >= self.max_recent:
            self._sorted = np.concatenate([self._sorted, np.fromiter(self._recent, np.int64)])
            self._sorted.sort()
            self._recent.clear()
        return True
