"""Titles: find the pages of a served knowledge base by what their titles say.

Names are compared by their words, without case, accents and punctuation; rare words count more. A
word that no title has is read as the words one typing error away.
"""

from __future__ import annotations

import re
import string
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from kbq.answers import PageName
from kbq.array_types import Rows
from kbq.dump.page_directory import PagePlace, Pages
from kbq.dump.shards import Shard
from kbq.text.normal_forms import is_abbreviated, normalised

# Likeness of a page; with other words, SIMILAR at most.
IDENTICAL = 1.0
SAME_TITLE = 0.99
SAME_WORDS = 0.95
SIMILAR = 0.9
ABBREVIATED = 0.92  # likeness of the only page whose title the name abbreviates: "L. Meitner"
# Likeness of a page whose id, a plain number, is the name: it may as well be a year, or a film.
BY_NUMBER = 0.94
MISTYPED = 0.9  # factor of the weight of a word that is one typing error away
# Words of a name that are looked up, and of these, also with typing errors.
MOST_WORDS = 32
MOST_MISTYPED = 8
# Letters of a word that may be mistyped: too many words are one edit away from a shorter one.
SHORTEST_WORD = 4
LONGEST_WORD = 30
LONGEST = 4096  # characters of a name: no title has more
COMPARED = 64  # least number of titles that are compared as a whole
# Tell C# from C: such names are candidates of one another, and no match.
SIGNS = re.compile(r"[#*%@‰+]+")
_NO_PAGES: Rows = np.empty(0, np.int64)


class PageTitles:
    """The titles of all pages that are not deleted, ordered without case and accents; 8 bytes each
    in memory.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        places = [
            (number, page)
            for number, shard in enumerate(shards)
            for page in np.flatnonzero(shard.live_pages()).tolist()
        ]
        places.sort(key=lambda place: normalised(shards[place[0]].titles[place[1]]))
        self._places = np.array(places, np.int32).reshape(-1, 2)

    def spread(self, count: int) -> list[PageName]:
        """Return `count` titles from all over the alphabet, always the same ones; all of them if
        there are fewer.
        """
        most = len(self._places)
        return self._titles(
            dict.fromkeys(np.linspace(0, max(0, most - 1), min(count, most)).astype(int).tolist())
        )

    def listed(self, prefix: str, first: int, count: int) -> tuple[list[PageName], int]:
        """Return pages whose titles begin with a prefix, whatever its case and accents, and count
        all of them.
        """
        letters = normalised(prefix) if prefix.strip() else ""
        rows = range(len(self._places))

        def beginning(row: int) -> str:
            return normalised(self._title(row).title)[: len(letters)]

        rows = range(
            bisect_left(rows, letters, key=beginning), bisect_right(rows, letters, key=beginning)
        )
        return self._titles(rows[first : first + count]), len(rows)

    def _titles(self, rows: Iterable[int]) -> list[PageName]:
        return [self._title(row) for row in rows]

    def _title(self, row: int) -> PageName:
        number, page = self._places[row].tolist()
        shard = self._shards[number]
        return PageName(shard.ids[page], shard.titles[page])


@dataclass(frozen=True, slots=True)
class NamedPage:
    """A page with a title like a name."""

    page_id: str
    title: str
    likeness: float  # a share, from 0 to 1

    @property
    def has_name(self) -> bool:
        """Whether the title has the words of the name and no others, in any order."""
        return self.likeness >= SAME_WORDS


class TitleWords:
    """The words of the titles of all pages that are not deleted; the table is made on first use."""

    def __init__(self, shards: Sequence[Shard], pages: Pages) -> None:
        self._shards = shards
        self._ids = pages

    def pages(self, name: str, limit: int) -> list[NamedPage]:
        """Return at most `limit` pages, the most alike first; among equals, in the order of the
        corpus.

        The id of a page is as good as its title, unless it is a plain number.
        """
        if len(name) > LONGEST:
            return []
        by_id = self._ids.place(name)
        if by_id is None:
            alike = {}
        else:
            kind = IDENTICAL
            if name.isdigit():
                kind = BY_NUMBER
            alike = {by_id: kind}
        words = words_of(name)
        for place, shared in self._table.most_alike(with_bare(words), max(limit, COMPARED)):
            alike[place] = max(alike.get(place, 0.0), self._likeness(name, words, place, shared))
        fitting = [place for place in alike if is_abbreviated(words, words_of(self._title(place)))]
        if len(fitting) == 1 and max(alike.values()) < SAME_WORDS:
            alike[fitting[0]] = ABBREVIATED
        ranked = sorted(alike.items(), key=lambda pair: -pair[1])[:limit]

        return [
            NamedPage(
                self._shards[place.shard].ids[place.page], self._title(place), round(likeness, 4)
            )
            for place, likeness in ranked
        ]

    def having(self, text: str) -> list[NamedPage]:
        """Return the pages whose titles have every word of a text, in the order of their titles."""
        words = dict.fromkeys(words_of(text)[:MOST_WORDS])
        named = [
            NamedPage(self._shards[place.shard].ids[place.page], self._title(place), SIMILAR)
            for place in self._table.with_all(words)
        ]
        return sorted(named, key=lambda page: normalised(page.title))

    def _title(self, place: PagePlace) -> str:
        return self._shards[place.shard].titles[place.page]

    def _likeness(self, name: str, words: list[str], place: PagePlace, shared: float) -> float:
        """Return how like a title is to a name, from 0 to 1."""
        title = self._title(place)
        if title == name:
            return IDENTICAL
        theirs = words_of(title)
        if theirs == words:
            return SAME_TITLE
        if sorted(theirs) == sorted(words):
            return SAME_WORDS
        return SIMILAR * shared

    @cached_property
    def _table(self) -> _Table:
        return _Table(self._shards)


class _Table:
    """The pages of each word in titles, and its weight, the inverse frequency of BM25."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        numbers = [np.flatnonzero(shard.live_pages()) for shard in shards]
        # Shard of each page.
        self._shards = np.repeat(np.arange(len(numbers)), [len(each) for each in numbers])
        self._numbers = np.concatenate([*numbers, _NO_PAGES])  # number of each page in its shard
        keys = array("Q")
        pages = array("q")

        for page, (shard, number) in enumerate(
            zip(self._shards.tolist(), self._numbers.tolist(), strict=True)
        ):
            for word in dict.fromkeys(with_bare(words_of(shards[shard].titles[number]))):
                keys.append(_key(word))
                pages.append(page)

        order = np.argsort(np.frombuffer(keys, np.uint64), kind="stable")
        self._keys = np.frombuffer(keys, np.uint64)[order]
        self._pages = np.frombuffer(pages, np.int64)[order]
        _, which, counts = np.unique(self._keys, return_inverse=True, return_counts=True)
        self._totals = np.bincount(self._pages, self._weight(counts)[which], len(self._numbers))

    def most_alike(self, words: Sequence[str], limit: int) -> Iterator[tuple[PagePlace, float]]:
        """Yield pages that share a word, with the weighted share of words in common (Dice)."""
        looked_up = enumerate(dict.fromkeys(words[:MOST_WORDS]))
        postings = [self._pages_with(word, number < MOST_MISTYPED) for number, word in looked_up]
        pages_of_words = [pages for pages, _ in postings]
        weights_of_words = [weights for _, weights in postings]
        unseen = float(self._weight(np.zeros(1))[0])
        total = sum(float(weights.max(initial=0.0)) or unseen for weights in weights_of_words)
        every_page = np.concatenate([*pages_of_words, _NO_PAGES])
        every_weight = np.concatenate([*weights_of_words, np.empty(0)])
        pages, which = np.unique(every_page, return_inverse=True)
        shared = np.bincount(which, every_weight, len(pages))
        alike = np.minimum(1.0, 2 * shared / (self._totals[pages] + total))
        for best in np.argsort(-alike, kind="stable")[:limit].tolist():
            page = pages[best]
            place = PagePlace(int(self._shards[page]), int(self._numbers[page]))
            yield place, float(alike[best])

    def with_all(self, words: Collection[str]) -> Iterator[PagePlace]:
        """Yield the pages that have all of these words, at least one."""
        common: Rows | None = None
        for word in words:
            pages, _ = self._postings([word])
            if common is None:
                common = np.unique(pages)
            else:
                common = np.intersect1d(common, pages)
        if common is None:
            return
        for page in common.tolist():
            yield PagePlace(int(self._shards[page]), int(self._numbers[page]))

    def _pages_with(self, word: str, may_be_mistyped: bool) -> tuple[Rows, NDArray[np.float64]]:
        """Return the pages with a word or, if none has it, with a word one edit away, and its
        weight.
        """
        pages, weight = self._postings([word])
        # One digit more is another number.
        if may_be_mistyped and not len(pages) and word.isalpha():
            pages, weight = self._postings(edits(word))
            weight = MISTYPED * weight
        pages, which = np.unique(pages, return_inverse=True)
        best = np.zeros(len(pages))
        np.maximum.at(best, which, weight)
        return pages, best

    def _postings(self, words: Collection[str]) -> tuple[Rows, NDArray[np.float64]]:
        """Return the pages with one of these words, and its weight. Shapes: (postings,)."""
        keys = np.fromiter(map(_key, words), np.uint64, len(words))
        bounds = np.stack(
            [np.searchsorted(self._keys, keys, side) for side in ("left", "right")], axis=1
        )
        counts = np.diff(bounds)[:, 0]
        runs = [self._pages[begin:end] for begin, end in bounds[counts > 0].tolist()]
        return np.concatenate([*runs, _NO_PAGES]), np.repeat(self._weight(counts), counts)

    def _weight(self, counts: NDArray[Any]) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.log1p(
            (len(self._numbers) - counts + 0.5) / (counts + 0.5)
        )
        return weights


def words_of(name: str) -> list[str]:
    """Return the words of a name in their compared form.

    >>> words_of("Skłodowska-Curie, Marie")
    ['sklodowska', 'curie', 'marie']
    """
    return normalised(name).split()


def edits(word: str) -> set[str]:
    """Return all strings one edit away from a word, or none if it is too short or too long.

    Four of five typing errors have this Damerau-Levenshtein distance. Source:
    doi:10.1145/363958.363994.

    >>> {"place", "plae", "plasse", "lpase"} <= edits("plase"), "plase" in edits("plase"), edits("pla")
    (True, False, set())
    """
    if not SHORTEST_WORD <= len(word) <= LONGEST_WORD:
        return set()
    letters = set(string.ascii_lowercase) | set(word)
    edited = set[str]()
    for cut in range(len(word) + 1):
        before = word[:cut]
        after = word[cut:]
        for letter in letters:
            edited |= {f"{before}{letter}{after}", f"{before}{letter}{after[1:]}"}
        edited |= {before + after[1:], f"{before}{after[1:2]}{after[:1]}{after[2:]}"}
    return edited - {word}


def with_bare(words: Sequence[str]) -> list[str]:
    """Return the words, and those with signs also without them.

    >>> with_bare(["c#", "language"])
    ['c#', 'c', 'language']
    """
    forms = []
    for word in words:
        bare = SIGNS.sub("", word)
        for form in dict.fromkeys((word, bare)):
            if form:
                forms.append(form)
    return forms


def _key(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
