"""Spelling: a word that does not occur becomes the similar word that was probably meant.

That is the same word with other accents or, failing that, a word at a Damerau-Levenshtein distance of one: an edit
omits, inserts or replaces a letter, or swaps two neighbours. Four of five typing errors are a single such edit.
Source: Damerau, 1964, doi:10.1145/363958.363994.
"""

import string
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from kbq.dump.shards import Shard
from kbq.words.bm25 import WORD, stems_of
from kbq.words.postings import ImpactIndex

SHORTEST = 4  # letters: too many words are one edit away from a shorter one
LONGEST = 30  # letters: longer strings are hardly words
MOST = 5000  # variants of a word with other accents to look up, those with fewest changes first
PARAGRAPHS = 20  # with a stem, in each shard, to search for a similar word: other words may have the same stem
NOWHERE = np.empty(0, np.int32)
BARE = {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i"}  # strokes and dots that Unicode calls no accents


def written_here(word: str, shards: Sequence[Shard], indexes: Sequence[ImpactIndex]) -> str | None:
    """The similar word that occurs in most paragraphs, as it is written there; None if there is no similar word.

    Words with other accents are preferred to words one edit away, and words with the same first letter to all others.
    `indexes`: the BM25 index of each shard.
    """
    return _commonest(word, accented(word), shards, indexes) or _commonest(word, edits(word), shards, indexes)


def common_word(word: str, numbers_of: Callable[[Sequence[str]], Sequence[int | None]]) -> str | None:
    """The most common word of a vocabulary that is one edit away; None if there is none.

    `numbers_of`: gives the numbers of words in the vocabulary, lower for common words; None for other words.
    """
    others = list(edits(word))
    numbers = {other: found for other, found in zip(others, numbers_of(others), strict=True) if found is not None}
    return min(numbers, key=lambda other: (numbers[other], other), default=None)


def _commonest(
    word: str, others: Collection[str], shards: Sequence[Shard], indexes: Sequence[ImpactIndex]
) -> str | None:
    near, stems = stems_of(list(others))
    terms = sorted(set(stems))
    by_shard = [index.passages_of(terms) for index in indexes]  # few of thousands occur
    counts: dict[str, int] = {}
    for found in by_shard:
        for stem, numbers in found.items():
            counts[stem] = counts.get(stem, 0) + len(numbers)
    alike = {  # first letters are seldom mistyped
        stem
        for other, stem in zip(near, stems, strict=True)
        if stem in counts and bare(other[0]) == bare(word[0].lower())
    }
    wanted = set(others)
    for stem in sorted(counts, key=lambda stem: (stem in alike, counts[stem], stem), reverse=True):
        for form in _forms(shards, [found.get(stem, NOWHERE) for found in by_shard]):
            if form.lower() in wanted:
                return form
    return None


def _forms(shards: Sequence[Shard], paragraphs: Sequence[NDArray[np.int32]]) -> Iterator[str]:
    """The words of the first few of these paragraphs, shard by shard."""
    for shard, numbers in zip(shards, paragraphs, strict=True):
        for number in numbers[:PARAGRAPHS]:
            for word in WORD.finditer(f"{shard.title_of(number)} {shard.texts[int(number)]}"):
                yield word[0]


def accented(word: str) -> list[str]:
    """The same word with other accents, or none, in lower case; those with fewest changes first.

    >>> "frédéric" in accented("Frederic"), "frederic" in accented("Fréderic")
    (True, True)
    """
    word = word.lower()
    if not SHORTEST <= len(word) <= LONGEST:
        return []
    return list(islice(_accented(word), MOST))


def _accented(word: str) -> Iterator[str]:
    others = {place: LETTERS.get(bare(letter), "").replace(letter, "") for place, letter in enumerate(word)}
    changeable = [place for place, letters in others.items() if letters]
    for count in range(1, len(changeable) + 1):
        for places in combinations(changeable, count):
            begins, stops = [0, *(place + 1 for place in places)], [*places, len(word)]
            unchanged = [word[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
            parts = chain.from_iterable(([part], others[place]) for part, place in zip(unchanged, places, strict=False))
            yield from map("".join, product(*parts, unchanged[-1:]))


@lru_cache(2**12)
def bare(letter: str) -> str:
    """A lower-case letter without its accent.

    >>> [bare(letter) for letter in "éłñz"]
    ['e', 'l', 'n', 'z']
    """
    return BARE.get(letter) or unicodedata.normalize("NFD", letter)[0]


LETTERS: dict[str, str] = {}  # lower-case Latin letters by their base letter
for _letter in (*string.ascii_lowercase, *map(chr, range(0xDF, 0x180))):  # Latin-1, Latin Extended-A
    LETTERS[bare(_letter)] = LETTERS.get(bare(_letter), "") + _letter


def edits(word: str) -> set[str]:
    """All other strings one edit away from a word, in lower case; none if it is too short or too long.

    >>> {"place", "plae", "plasse", "lpase"} <= edits("Plase"), "plase" in edits("plase"), edits("pla")
    (True, False, set())
    """
    word = word.lower()
    return set(_edits(word)) - {word} if SHORTEST <= len(word) <= LONGEST else set()


def _edits(word: str) -> Iterator[str]:
    letters = set(string.ascii_lowercase) | set(word)
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        yield from (f"{before}{letter}{after}" for letter in letters)
        if after:
            yield before + after[1:]
            yield from (f"{before}{letter}{after[1:]}" for letter in letters)
        if len(after) > 1:
            yield f"{before}{after[1]}{after[0]}{after[2:]}"
