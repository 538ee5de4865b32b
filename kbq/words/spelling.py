"""Spelling: a word that does not occur becomes the similar word that was probably meant.

That is a word at a Damerau-Levenshtein distance of one: an edit omits, inserts or replaces a letter, or swaps two
neighbours. Four of five typing errors are a single such edit, and so is "ue" for "ü". Accents are no difference.
Source: Damerau, 1964, doi:10.1145/363958.363994.
"""

import string
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kbq.dump.shards import Shard
from kbq.text.letters import folded
from kbq.words.bm25 import WORD, stems_of
from kbq.words.postings import Postings

SHORTEST = 4  # letters: too many words are one edit away from a shorter one
LONGEST = 30  # letters: longer strings are hardly words
PARAGRAPHS = 20  # with a stem, in each shard, to search for a similar word: other words may have the same stem
NOWHERE = np.empty(0, np.int32)


def written_here(word: str, shards: Sequence[Shard], indexes: Sequence[Postings]) -> str | None:
    """Return the similar word that occurs in most paragraphs, as it is written there; None if there is no similar word.

    Words with the same first letter are preferred to all others. `indexes`: the BM25 index of each shard.
    """
    word = folded(word)
    wanted = edits(word)
    near, stems = stems_of(list(wanted))
    terms = sorted(set(stems))
    by_shard = [index.passages_of(terms) for index in indexes]  # few of thousands occur
    counts: dict[str, int] = {}
    for found in by_shard:
        for stem, numbers in found.items():
            counts[stem] = counts.get(stem, 0) + len(numbers)
    alike = {  # first letters are seldom mistyped
        stem for other, stem in zip(near, stems, strict=True) if stem in counts and other[0] == word[0]
    }
    for stem in sorted(counts, key=lambda stem: (stem in alike, counts[stem], stem), reverse=True):
        for form in _forms(shards, [found.get(stem, NOWHERE) for found in by_shard]):
            if folded(form) in wanted:
                return form
    return None


def common_word(word: str, numbers_of: Callable[[Sequence[str]], Sequence[int | None]]) -> str | None:
    """Return the most common word of a vocabulary that is one edit away; None if there is none.

    `numbers_of`: gives the numbers of words in the vocabulary, lower for common words; None for other words.
    """
    others = list(edits(word))
    numbers = {other: found for other, found in zip(others, numbers_of(others), strict=True) if found is not None}
    return min(numbers, key=lambda other: (numbers[other], other), default=None)


def _forms(shards: Sequence[Shard], paragraphs: Sequence[NDArray[np.int32]]) -> Iterator[str]:
    """Yield the words of the first few of these paragraphs, shard by shard."""
    for shard, numbers in zip(shards, paragraphs, strict=True):
        for number in numbers[:PARAGRAPHS]:
            for word in WORD.finditer(f"{shard.title_of(number)} {shard.texts[int(number)]}"):
                yield word[0]


def edits(word: str) -> set[str]:
    """Return all other strings one edit away from a word, in lower case; none if it is too short or too long.

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
