"""Knowledge bases: the served ones by name, reopened after a change.

Names are compared by their words, without case, accents and punctuation; rare words count more. A
word that no title has is read as the words one typing error away.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import string
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import xxhash
from numpy.typing import NDArray

from kbq.answers import IndexKind, PageName
from kbq.array_types import Rows
from kbq.corpus.pages import Page, has_value
from kbq.dump.manifest import MANIFEST, read_manifest
from kbq.dump.page_directory import PagePlace, Pages
from kbq.dump.shards import Shard
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.maintain.verify import verify
from kbq.model.bert import keep_packed
from kbq.serve.problems import Metrics, RefusedError, without_paths
from kbq.storage.machine import give_memory_back
from kbq.tables.relations import USUAL, preset
from kbq.text.normal_forms import normalised

# likeness; with other words, SIMILAR at most.
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
# letters: too many words are one edit away from a shorter one.
SHORTEST_WORD = 4
LONGEST_WORD = 30
LONGEST = 4096  # characters of a name: no title has more
COMPARED = 64  # least number of titles that are compared as a whole
# Tell C# from C: such names are candidates of one another, and no match.
SIGNS = re.compile(r"[#*%@‰+]+")
_NO_PAGES: Rows = np.empty(0, np.int64)

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
# Characters that `encodeURI` does not leave in an address.
UNSAFE = re.compile(r"[^\w /.,:;@!$'()*=-]+|(?<![^/])\.{1,2}(?![^/])")
ESCAPED = re.compile("(?:~[0-9A-F]{2})+")
PARTS = 4  # parts of a knowledge base that stay open
EVERY = 1.0  # seconds between two looks at a folder
TRIMS = 10  # looks after which freed memory is given back
# Seconds until a refused folder is read again: ever more, up to ten minutes.
AGAIN = 10.0
MOST_AGAIN = 600.0
FIRST = "kbq"  # the query that is asked before a knowledge base counts as open
Call = Callable[..., Awaitable[Any]]  # `Batcher.call`
log = logging.getLogger("kbq.serve")


class PageTitles:
    """The titles of all pages that are not deleted, ordered without case and accents; 8 bytes each
    in memory.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        places = [
            (shard, page)
            for shard, one in enumerate(shards)
            for page in np.flatnonzero(one.live_pages()).tolist()
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
        wanted = normalised(prefix) if prefix.strip() else ""
        rows = range(len(self._places))

        def beginning(row: int) -> str:
            return normalised(self._title(row).title)[: len(wanted)]

        rows = range(
            bisect_left(rows, wanted, key=beginning), bisect_right(rows, wanted, key=beginning)
        )
        return self._titles(rows[first : first + count]), len(rows)

    def has(self, title: str) -> bool:
        """Whether a page has this title, whatever its case and accents."""
        found, _ = self.listed(title, 0, 1)  # the shortest that begins so
        return bool(found) and normalised(found[0].title) == normalised(title)

    def _titles(self, rows: Iterable[int]) -> list[PageName]:
        return [self._title(row) for row in rows]

    def _title(self, row: int) -> PageName:
        shard, page = self._places[row].tolist()
        return PageName(self._shards[shard].ids[page], self._shards[shard].titles[page])


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
        found = {} if by_id is None else {by_id: BY_NUMBER if name.isdigit() else IDENTICAL}
        words = words_of(name)
        for place, shared in self._table.most_alike(with_bare(words), max(limit, COMPARED)):
            found[place] = max(found.get(place, 0.0), self._likeness(name, words, place, shared))
        fitting = [place for place in found if _is_abbreviated(words, words_of(self._title(place)))]
        if len(fitting) == 1 and max(found.values()) < SAME_WORDS:
            found[fitting[0]] = ABBREVIATED
        ranked = sorted(found.items(), key=lambda one: -one[1])[:limit]
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
        title = self._title(place)
        if title == name:
            return IDENTICAL
        theirs = words_of(title)
        return (
            SAME_TITLE
            if theirs == words
            else SAME_WORDS
            if sorted(theirs) == sorted(words)
            else SIMILAR * shared
        )

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
        found = [self._pages_with(word, number < MOST_MISTYPED) for number, word in looked_up]
        unseen = float(self._weight(np.zeros(1))[0])
        total = sum(float(weights.max(initial=0.0)) or unseen for _, weights in found)
        pages, which = np.unique(
            np.concatenate([*(pages for pages, _ in found), _NO_PAGES]), return_inverse=True
        )
        shared = np.bincount(
            which, np.concatenate([*(weights for _, weights in found), np.empty(0)]), len(pages)
        )
        alike = np.minimum(1.0, 2 * shared / (self._totals[pages] + total))
        for best in np.argsort(-alike, kind="stable")[:limit].tolist():
            page = pages[best]
            yield PagePlace(int(self._shards[page]), int(self._numbers[page])), float(alike[best])

    def with_all(self, words: Collection[str]) -> Iterator[PagePlace]:
        """Yield the pages that have all of these words, at least one."""
        found: Rows | None = None
        for word in words:
            pages, _ = self._postings([word])
            found = np.unique(pages) if found is None else np.intersect1d(found, pages)
        for page in () if found is None else found.tolist():
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
        found = [self._pages[begin:end] for begin, end in bounds[counts > 0].tolist()]
        return np.concatenate([*found, _NO_PAGES]), np.repeat(self._weight(counts), counts)

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
    found = set[str]()
    for place in range(len(word) + 1):
        before = word[:place]
        after = word[place:]
        found |= {f"{before}{letter}{rest}" for letter in letters for rest in (after, after[1:])}
        found |= {before + after[1:], f"{before}{after[1:2]}{after[:1]}{after[2:]}"}
    return found - {word}


def _is_abbreviated(words: Sequence[str], title: Sequence[str]) -> bool:
    """Whether words are a title's, some of the first ones shortened to initials.

    >>> _is_abbreviated(["l", "meitner"], ["lise", "meitner"]), _is_abbreviated(["l", "m"], ["lise", "meitner"])
    (True, False)
    """
    pairs = list(zip(words, title, strict=False))
    fits = all(word == full or (len(word) == 1 and full.startswith(word)) for word, full in pairs)
    return len(words) == len(title) > 1 and fits and words[-1] == title[-1] and len(words[-1]) > 1


def with_bare(words: Sequence[str]) -> list[str]:
    """Return the words, and those with signs also without them.

    >>> with_bare(["c#", "language"])
    ['c#', 'c', 'language']
    """
    return [form for word in words for form in dict.fromkeys((word, SIGNS.sub("", word))) if form]


def _key(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a knowledge base lies, and how to open it."""

    path: Path
    model: str = ""  # a query encoder tuned for it; empty: its own
    index: IndexKind | None = None
    device: str = "auto"
    ray: str | None = None  # the address of a Ray cluster that searches it

    def opened(self, others: Iterable[ServedKb]) -> KnowledgeBase:
        """Open the knowledge base as it is now, sharing encoders with another one that has the
        same.
        """
        manifest = read_manifest(self.path)
        wanted = self.model or manifest.model, manifest.model_fingerprint
        models = (other.kb.model for other in others)
        shared = next(
            (
                opened
                for opened in models
                if (opened.source, opened.config.phrase_fingerprint) == wanted
            ),
            None,
        )
        model = shared or self.model or None
        return KnowledgeBase.open(
            self.path, model, index=self.index, ray=self.ray, device=self.device
        )

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Facts that a change of the knowledge base changes."""
        try:
            facts = (self.path / MANIFEST).stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size


def escaped_id(page_id: str) -> str:
    """Return an id that stays the same in an address, however often a client encodes it; OpenRefine
    encodes half.

    >>> escaped_id("report.pdf#page=1"), escaped_id("a/../C# & Ü"), escaped_id("S001")
    ('report.pdf~23page=1', 'a/~2E~2E/C~23 ~26 Ü', 'S001')
    """
    return UNSAFE.sub(
        lambda found: "".join(f"~{byte:02X}" for byte in found[0].encode("utf-8", "replace")),
        page_id,
    )


def unescaped_id(escaped: str) -> str:
    """Return the id that an escaped one stands for, even if a client has encoded it once too often.

    >>> unescaped_id("C~23 and F~23.md"), unescaped_id("C~23%20and%20F~23.md"), unescaped_id("S001")
    ('C# and F#.md', 'C# and F#.md', 'S001')
    """
    plain = unquote(escaped)  # escaped ids have no %
    return ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("~", "")).decode("utf-8", "replace"), plain
    )


class OpenedKb:
    """A knowledge base as it was opened, with the tables of its pages and titles: what one request
    is answered from.
    """

    def __init__(self, name: str, kb: KnowledgeBase) -> None:
        shards = kb.searcher.shards
        self.name = name
        self.kb = kb
        self.titles = PageTitles(shards)
        self._pages = Pages(shards)
        self._pages.is_known("")  # makes the table
        self.words = TitleWords(shards, self._pages)  # words of its titles, for matching names
        # Some pages of it, by what they were chosen by.
        self._parts: dict[object, KnowledgeBase] = {}

    def listed(self, text: str, first: int, count: int) -> tuple[list[PageName], int]:
        """Return pages whose titles begin with a text, and then those that have its words
        elsewhere; count all.
        """
        found, beginning = self.titles.listed(text, first, count)
        start = normalised(text)
        others = [
            PageName(page.page_id, page.title)
            for page in (self.words.having(text) if start else ())
            if not normalised(page.title).startswith(start)
        ]
        behind = max(0, first - beginning)
        return [*found, *others[behind : behind + count - len(found)]], beginning + len(others)

    @property
    def relations(self) -> list[str]:
        """Relations to suggest: those its query encoder was tuned on, or usual ones."""
        return self.kb.model.config.tuned_relations or [relation.name for relation in preset(USUAL)]

    def page(self, page_id: str) -> Page:
        """Return the page with this id. Raises RefusedError if there is none."""
        page = self._pages.page(page_id) or self._pages.page(unescaped_id(page_id))
        if page is None:
            raise RefusedError(404, f"{self.name} has no page {page_id!r:.80}")
        return page

    def has_page(self, page_id: str) -> bool:
        """Whether there is a page with this id, plain or escaped."""
        return self._pages.is_known(page_id) or self._pages.is_known(unescaped_id(page_id))

    def part(self, pages: Sequence[str], where: Mapping[str, str]) -> KnowledgeBase:
        """Return the knowledge base with only the pages that have these ids, if any, and these
        values as metadata.

        The last few stay open for the next requests. Raises RefusedError if there is no page.
        """
        wanted = tuple(pages), tuple(where.items())
        if not any(wanted):
            return self.kb
        if wanted not in self._parts:
            chosen = {self.page(page).page_id for page in pages} or set(self._pages.ids())
            if where:
                found = zip(self._pages.ids(), self._pages.metadata(), strict=True)
                chosen &= {
                    page_id
                    for page_id, fields in found
                    if all(has_value(fields, *pair) for pair in wanted[1])
                }
            if not chosen:
                raise RefusedError(
                    422, f"{self.name} has no page with these metadata: see `kbq pages`"
                )
            while len(self._parts) >= PARTS:
                del self._parts[next(iter(self._parts))]
            self._parts[wanted] = self.kb.with_pages(sorted(chosen))
        return self._parts[wanted]


def make_ready(kb: KnowledgeBase) -> None:
    """Have a knowledge base answer, and drop the weights that only training needs."""
    kb.query(FIRST, 1)
    keep_packed(kb.model.queries, kb.model.queries.start.get_input_embeddings())
    give_memory_back()


class ServedKb:
    """A named knowledge base, opened again when its folder has changed."""

    def __init__(self, name: str, folder: Folder, others: Iterable[ServedKb] = ()) -> None:
        self.name = name
        self.problem = ""  # why the present content of the folder is not served
        self._folder = folder
        self._seen = folder.stamp
        self._next = 0.0  # when a refused folder is tried again
        self._pause = AGAIN  # seconds until the time after that
        self._opened = OpenedKb(name, folder.opened(others))

    @property
    def now(self) -> OpenedKb:
        """The one that is open now; requests that have it go on with it when it is replaced."""
        return self._opened

    @property
    def kb(self) -> KnowledgeBase:
        return self._opened.kb

    def hidden(self, text: str) -> str:
        """Return a text with the name of this knowledge base in place of its folder, and no path."""
        for place in (self._folder.path.absolute(), self.kb.folder, self._folder.path):
            text = text.replace(str(place), self.name)
        return without_paths(text)

    async def reopen(self, call: Call, metrics: Metrics) -> None:
        """Open the folder again if it has changed and every file is whole."""
        stamp = self._folder.stamp
        now = time.monotonic()
        if stamp != self._seen:
            self._seen = stamp
            self._pause = AGAIN
        elif not self.problem or now < self._next:
            return
        self._next, self._pause = now + self._pause, min(2 * self._pause, MOST_AGAIN)
        try:
            opened = await asyncio.to_thread(self._checked)
            await call(lambda: make_ready(opened.kb), deadline=math.inf)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also a tokenizer's panic
            self.problem = self.hidden(str(error) or type(error).__name__)
            metrics.reopened.labels(self.name, "refused").inc()
            log.error(
                "a changed knowledge base is refused",
                extra={"kb": self.name, "problem": str(error)},
            )
            return
        self._opened = opened
        self.problem = ""
        metrics.reopened.labels(self.name, "opened").inc()
        log.info(
            "a changed knowledge base is open",
            extra={"kb": self.name, "pages": opened.kb.counts.pages},
        )

    def _checked(self) -> OpenedKb:
        found = verify(self._folder.path)
        if not found:
            raise KbqError(found.problems[0])
        return OpenedKb(self.name, self._folder.opened([self]))


class KnowledgeBases:
    """The knowledge bases of a service; requests that name none get the first."""

    def __init__(self, served: Iterable[ServedKb]) -> None:
        self._by_name = {served_kb.name: served_kb for served_kb in served}

    def __iter__(self) -> Iterator[ServedKb]:
        return iter(list(self._by_name.values()))  # others may come meanwhile

    def add(self, served: ServedKb) -> None:
        """Serve one more."""
        self._by_name[served.name] = served

    def named(self, name: str | None = None) -> OpenedKb:
        """Return the knowledge base of a name as it is now, by default the first.

        A request takes it once, so that its answer is of one state. Raises RefusedError if there is
        none.
        """
        found = self._by_name.get(name) if name else next(iter(self))
        if found is None:
            names = ", ".join(self._by_name)
            raise RefusedError(404, f"there is no knowledge base {name!r:.80}: choose from {names}")
        return found.now

    def problem_of(self, name: str) -> str:
        """Say why the present folder of the one with this name is not served; "" if it is."""
        return self._by_name[name].problem

    def hidden(self, text: str) -> str:
        """Return a text without the places on this machine."""
        for served in self:
            text = served.hidden(text)
        return text

    async def watch(self, call: Call, metrics: Metrics) -> None:
        """Reopen changed folders, and give freed memory back to the system now and then, for ever."""
        for looks in count():
            for served in self:
                await served.reopen(call, metrics)
            if looks % TRIMS == 0:
                await asyncio.to_thread(give_memory_back)
            await asyncio.sleep(EVERY)


def open_knowledge_bases(folders: Mapping[str, Folder]) -> KnowledgeBases:
    """Open knowledge bases by name; they share encoders if these are the same.

    Raises KbqError if one cannot be opened, or a name cannot be part of an address.
    """
    served: list[ServedKb] = []
    for name, folder in folders.items():
        if not NAME.fullmatch(name):
            advice = f"write NAME={folder.path}, with letters, digits, dots and hyphens"
            raise KbqError(
                f"{name!r} cannot be the name of a knowledge base: {advice}", is_usage=True
            )
        served.append(ServedKb(name, folder, served))
    return KnowledgeBases(served)
