"""Names: find the pages that name a subject exactly, by the postings of its words.

The paragraphs that have all words of a name are few, and are read. A page is more likely to be
about a subject the earlier it names it, and the more often; a name that many pages have says less
of each. Nothing is stored: a knowledge base without a word index names nothing.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np

from kbq.array_types import Floats, Rows
from kbq.dump.shards import Shard
from kbq.text.normal_forms import folded, joined, place_before
from kbq.text.whole_words import UNSPACED
from kbq.words.bm25 import STOP_WORDS, BM25Index, words_of

MOST_READ = 2000  # paragraphs that may have a name; of more, those with the highest BM25
LONGEST = 200  # characters of a name
CACHED = 64  # names: a table asks for many relations of one subject
NAMED = 8.0  # points of BM25 that a page gains by the name alone
LEAD = 100  # bytes at the beginning of a page, which says there what it is about
SELDOM = 100  # pages: a name that this many have counts half
LETTER = re.compile(rf"[^\W{UNSPACED}]")
BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")  # end of a title: "Georgia (country)"
INITIALS = re.compile(r"\b\w\.|\b[A-Z]{2,4}\b")  # J. R. R. Tolkien, AC Milan
# Words within a person's name.
PARTICLES = {
    "al", "bin", "da", "de", "del", "der", "di", "du", "el", "ibn", "la", "le", "van", "von",
}  # fmt: skip
MOST_NAMES = 4  # words of a person's name, without particles
ACRONYM = re.compile(r" \((\w[\w.&-]{1,8})\)")  # text after a name


@dataclass(frozen=True, slots=True)
class PageNaming:
    """How a page names a subject."""

    mentions: int  # mentions in its text
    first: int  # bytes of its text before the first one; 0 if the name is its title
    acronym: str = ""  # capitals in brackets after the name

    @property
    def points(self) -> float:
        """What the page gains, in points of BM25, if no other page has the name."""
        return max(0.0, NAMED + math.log1p(self.mentions) - math.log1p(self.first / LEAD))


class NamedParagraphs(NamedTuple):
    """What a name adds to the BM25 of the paragraphs of a shard. Shapes: (paragraphs,)."""

    paragraphs: Rows
    points: Floats


@dataclass(frozen=True, slots=True)
class Naming:
    """The pages of a knowledge base that name a subject."""

    pages: Mapping[str, PageNaming] = field(default_factory=dict)  # key: id
    # key: name of a shard's folder.
    of_shards: Mapping[str, NamedParagraphs] = field(default_factory=dict)


NOWHERE = Naming()


class Mention(NamedTuple):
    """A name in a text; the character is that of the folded text."""

    start: int
    acronym: str  # capitals in brackets after it, or nothing


class SubjectName:
    """A subject's name, for which texts are searched."""

    def __init__(self, subject: str) -> None:
        bare = BRACKETS.sub("", subject).strip() or subject.strip()
        self._titles = {_as_title(subject), _as_title(bare)}
        self._bare = bare if len(bare) <= LONGEST else ""
        self._has_initials = INITIALS.search(self._bare) is not None
        self._pattern = _pattern(folded(self._bare))
        self._joined = _pattern(folded(joined(self._bare)))
        self._initials = [word[0] for word in folded(self._bare).split() if word not in STOP_WORDS]
        (words,) = words_of([self._bare])
        self.words = list(dict.fromkeys(words))  # stems that every text with the name has

    @property
    def family_name(self) -> str:
        """The last word of what may be a person's name, or nothing.

        >>> [SubjectName(text).family_name for text in ("Rick Astley", "Ludwig van Beethoven", "Battle of Hastings")]
        ['Astley', 'Beethoven', '']
        """
        words = [word for word in self._bare.split() if word not in PARTICLES]
        may_be_person = 2 <= len(words) <= MOST_NAMES and all(word[0].isupper() for word in words)
        if may_be_person and words[-1].isalpha() and len(words[-1]) > 2:
            return words[-1]
        return ""

    def mentions(self, text: str) -> list[Mention]:
        """Find the name in any case and spelling of letters, between the bounds of words.

        A name of stop words or of one letter, which has no stem, is found nowhere.

        >>> SubjectName("Art (film)").mentions("party, ART"), SubjectName("?").mentions("What?")
        ([Mention(start=7, acronym='')], [])
        >>> SubjectName("Łódź").mentions("in Lodz"), SubjectName("AC Milan").mentions("A.C. Milan (ACM)")
        ([Mention(start=3, acronym='')], [Mention(start=0, acronym='')])
        >>> SubjectName("Bank of Ireland").mentions("the Bank of Ireland (BI)")
        [Mention(start=4, acronym='BI')]
        """
        return self._mentions(text)[1]

    def places(self, text: str) -> list[int]:
        """Return the characters of a text itself, which is short, at which mentions begin.

        >>> SubjectName("Ann Lee").places("Œuvre of Ann Lee"), SubjectName("AC Milan").places("A.S. of A.C. Milan")
        ([9], [8])
        """
        change, mentions = self._mentions(text)
        return [place_before(change, text, mention.start) for mention in mentions]

    def _mentions(self, text: str) -> tuple[Callable[[str], str], list[Mention]]:
        """Return the change of the text in which the name is found, too."""
        mentions = self._found(self._pattern, folded(text))
        if mentions or not self._has_initials:
            return folded, mentions
        return _folded_and_joined, self._found(self._joined, _folded_and_joined(text))

    def is_title(self, title: str) -> bool:
        """Whether a page's title is the name, with or without what stands in brackets behind
        either.
        """
        return not self._titles.isdisjoint((_as_title(title), _as_title(BRACKETS.sub("", title))))

    def _found(self, pattern: re.Pattern[str], letters: str) -> list[Mention]:
        matches = []
        if self.words:
            matches = [match.span() for match in pattern.finditer(letters)]
        return [
            Mention(start, self._acronym(letters, end))
            for start, end in matches
            if is_whole(letters, start, end)
        ]

    def _acronym(self, letters: str, end: int) -> str:
        """Return the initials of the name that stand in brackets behind it."""
        behind = ACRONYM.match(letters, end)
        short = ""
        if behind:
            short = behind[1].replace(".", "")
        if len(short) > 1 and list(short) == self._initials:
            return short.upper()
        return ""


class Names:
    """Looks up names in the word indexes of all shards."""

    def __init__(self, shards: Sequence[Shard], indexes: Sequence[BM25Index]) -> None:
        self._shards = shards
        self._indexes = indexes
        self.of = lru_cache(CACHED)(self._of)  # the pages that name a subject

    def _of(self, subject: str) -> Naming:
        name = SubjectName(subject)
        if not (name.words and self._indexes):
            return NOWHERE
        having = [_with_all(index, name.words) for index in self._indexes]
        count = sum(map(len, having))
        if count <= MOST_READ:
            read = having
        else:
            read = self._best(having, name.words)
        named = [_read(shard, name, own) for shard, own in zip(self._shards, read, strict=True)]
        pages: dict[str, PageNaming] = {}
        for of_shard in named:
            pages |= of_shard.by_id()
        unread = max(0, count - MOST_READ)  # paragraphs that may have the name, too
        share = 1 / (1 + (len(pages) + unread) / SELDOM)
        return Naming(
            pages, {each.shard.folder.name: each.points(share) for each in named if each.pages}
        )

    def _best(self, having: Sequence[Rows], words: Sequence[str]) -> list[Rows]:
        """Keep the paragraphs with the highest BM25, the first of equal ones."""
        scores = []
        for index, rows in zip(self._indexes, having, strict=True):
            scores.append(index.scores(words)[rows])
        ranked = np.argsort(-np.concatenate(scores), kind="stable")
        is_best = np.zeros(sum(map(len, having)), np.bool_)
        is_best[ranked[:MOST_READ]] = True
        bounds = np.cumsum([len(rows) for rows in having])[:-1]
        parts = np.split(is_best, bounds)
        return [rows[kept] for rows, kept in zip(having, parts, strict=True)]


@dataclass(frozen=True, slots=True)
class _NamedPages:
    """The pages of one shard that name a subject."""

    shard: Shard
    pages: Mapping[int, PageNaming]

    def by_id(self) -> dict[str, PageNaming]:
        """Return how the pages name a subject, by their ids."""
        return {self.shard.ids[page]: naming for page, naming in self.pages.items()}

    def points(self, share: float) -> NamedParagraphs:
        """Return what all paragraphs of these pages gain, with the name or with "she".

        `share`: what is left of it where many pages have the name.
        """
        numbers = np.array(list(self.pages))
        firsts, stops = np.searchsorted(self.shard.paragraph_pages, [numbers, numbers + 1])
        paragraphs = np.concatenate(list(map(np.arange, firsts.tolist(), stops.tolist())))
        points = np.repeat(
            [share * naming.points for naming in self.pages.values()], stops - firsts
        )
        return NamedParagraphs(paragraphs, points.astype(np.float32))


def _read(shard: Shard, name: SubjectName, having: Rows) -> _NamedPages:
    """Read the paragraphs of a shard that have all words of a name, in order."""
    pages: dict[int, PageNaming] = {}
    for page, members in groupby(
        having.tolist(), key=lambda paragraph: int(shard.paragraph_pages[paragraph])
    ):
        is_title = name.is_title(shard.titles[page])
        mentions = {paragraph: name.mentions(shard.texts[paragraph]) for paragraph in members}
        named = [paragraph for paragraph, mentions_in in mentions.items() if mentions_in]
        if not (named or is_title):
            continue
        first = 0
        if not is_title:
            begin = int(np.searchsorted(shard.paragraph_pages, page))
            first = shard.texts.bytes_between(begin, named[0]) + mentions[named[0]][0].start

        every = list(chain.from_iterable(mentions.values()))
        acronym = next((mention.acronym for mention in every if mention.acronym), "")
        pages[page] = PageNaming(len(every), first, acronym)

    return _NamedPages(shard, pages)


def _with_all(index: BM25Index, words: Sequence[str]) -> Rows:
    """Return the paragraphs of a shard that have all words, ascending."""
    rarest, *others = sorted((index.of(word)[0] for word in words), key=len)
    kept = np.asarray(rarest, np.int64)
    for paragraphs in others:
        places = np.searchsorted(paragraphs, kept)
        places[places == len(paragraphs)] = 0
        if len(paragraphs):
            kept = kept[paragraphs[places] == kept]
        else:
            kept = kept[:0]
    return kept


def _folded_and_joined(text: str) -> str:
    return folded(joined(text))


def _pattern(letters: str) -> re.Pattern[str]:
    """Return the pattern of a name, whose words any white space divides."""
    return re.compile(r"\s+".join(map(re.escape, letters.split())))


def _as_title(text: str) -> str:
    return " ".join(folded(text).split())


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether characters [start, end) stand between the bounds of words."""
    before = text[max(0, start - 1) : start]
    behind = text[end : end + 1]
    return not (LETTER.match(before) or LETTER.match(behind))
