"""Spelling: the word that was meant by one that no text has: the same with other accents, or one that is a slip away.

A slip leaves out a letter, adds one, writes another one, or swaps two neighbours: four of five typing errors are a
single one of these (Damerau, 1964, doi:10.1145/363958.363994).
"""

import string
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from kbq.dump.shards import Shard
from kbq.words.bm25 import WORD, words_of
from kbq.words.postings import ImpactIndex

SHORTEST = 4  # letters: of a shorter word too many others are a slip away
LONGEST = 30  # letters: longer ones are no words
MOST = 5000  # variants of a word with other accents that are looked for, one letter changed first
BARE = {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i"}  # strokes and dots that Unicode calls no accents
LOOKED_AT = 20  # passages of a stem in each shard, to find a near word in: other words may have the stem, too


def written_here(word: str, shards: Sequence[Shard], indexes: Sequence[ImpactIndex]) -> str | None:
    """The near word that most passages have, as a text writes it: one with other accents, or else one that is a slip
    away; words with the same first letter come before all others.

    None where nothing is near. `indexes`: BM25, one of each shard.
    """
    return _commonest(word, accented(word), shards, indexes) or _commonest(word, slips(word), shards, indexes)


def _commonest(
    word: str, others: Collection[str], shards: Sequence[Shard], indexes: Sequence[ImpactIndex]
) -> str | None:
    near = {other: bare(other[0]) == bare(word[0].lower()) for other in others}  # few slip in the first letter
    stems: dict[str, bool] = {}
    for other, other_stems in zip(near, words_of(list(near)), strict=True):
        stems |= {stem: near[other] or stems.get(stem, False) for stem in other_stems}
    passages = {stem: [index.passages(stem) for index in indexes] for stem in stems}
    counts = {stem: count for stem, lists in passages.items() if (count := sum(map(len, lists)))}
    for stem in sorted(counts, key=lambda stem: (stems[stem], counts[stem], stem), reverse=True):
        for form in _forms(shards, passages[stem]):
            if form.lower() in near:
                return form
    return None


def common_word(word: str, number: Callable[[str], int | None]) -> str | None:
    """The most common word that is near, as a vocabulary has it.

    `number` gives a word's place in the vocabulary, the commonest first, and None for what is no word there.
    """
    places = {slip: place for slip in slips(word) if (place := number(slip)) is not None}
    return min(places, key=places.__getitem__, default=None)


def _forms(shards: Sequence[Shard], passages: Sequence[NDArray[np.int32]]) -> Iterator[str]:
    """The words of the first few of these passages, shard after shard."""
    for shard, numbers in zip(shards, passages, strict=True):
        for passage in numbers[:LOOKED_AT]:
            yield from WORD.findall(f"{shard.title_of(passage)} {shard.texts[int(passage)]}")


def bare(letter: str) -> str:
    """A small letter without its accent.

    >>> [bare(letter) for letter in "éłñz"]
    ['e', 'l', 'n', 'z']
    """
    return BARE.get(letter) or unicodedata.normalize("NFD", letter)[0]


LETTERS: dict[str, str] = {}  # small Latin letters, by the letter that is left without their accents
for _letter in (*string.ascii_lowercase, *map(chr, range(0xDF, 0x180))):  # Latin-1, Latin Extended-A
    LETTERS[bare(_letter)] = LETTERS.get(bare(_letter), "") + _letter


def accented(word: str) -> list[str]:
    """The same word with other accents, or none, in small letters; those with fewer changes first.

    >>> "frédéric" in accented("Frederic"), "frederic" in accented("Fréderic")
    (True, True)
    """
    word = word.lower()
    if not SHORTEST <= len(word) <= LONGEST:
        return []
    others = {place: LETTERS.get(bare(letter), "").replace(letter, "") for place, letter in enumerate(word)}
    variants: list[str] = []
    for count in range(1, len(word) + 1):
        for places in combinations([place for place, letters in others.items() if letters], count):
            for letters in product(*(others[place] for place in places)):
                if len(variants) == MOST:
                    return variants
                changed = dict(zip(places, letters, strict=True))
                variants.append("".join(changed.get(place, letter) for place, letter in enumerate(word)))
    return variants


def slips(word: str) -> set[str]:
    """Every other word that one slip makes of this one, in small letters; none where it is too short or long to tell.

    >>> {"place", "plae", "plasse", "lpase"} <= slips("Plase"), "plase" in slips("plase"), slips("pla")
    (True, False, set())
    """
    word = word.lower()
    return set(_slips(word)) - {word} if SHORTEST <= len(word) <= LONGEST else set()


def _slips(word: str) -> Iterator[str]:
    letters = set(string.ascii_lowercase) | set(word)
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        yield from (f"{before}{letter}{after}" for letter in letters)
        if after:
            yield before + after[1:]
            yield from (f"{before}{letter}{after[1:]}" for letter in letters)
        if len(after) > 1:
            yield f"{before}{after[1]}{after[0]}{after[2:]}"
