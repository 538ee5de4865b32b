"""Spelling: which word of the texts a word stands for that no text has: the most common one that is a slip away.

A slip leaves out a letter, adds one, writes another one, or swaps two neighbours: four of five typing errors are a
single one of these (Damerau, 1964, doi:10.1145/363958.363994).
"""

import string
from collections.abc import Callable, Iterator, Sequence

from kbq.indexing.dump import Shard
from kbq.sparse.bm25 import WORD, words_of
from kbq.sparse.impacts import ImpactIndex

SHORTEST = 4  # letters: of a shorter word too many others are a slip away
LOOKED_AT = 20  # passages of a stem in each shard, for a word that is near: stems of other words may be the same


def written_here(word: str, shards: Sequence[Shard], indexes: Sequence[ImpactIndex]) -> str | None:
    """What may have been meant, as a text writes it; None where nothing is near. `indexes`: BM25, one of each shard."""
    near = {one: one[0] == word[0].lower() for one in slips(word)}  # few slip in the first letter
    stems: dict[str, bool] = {}
    for one, found in zip(near, words_of(list(near)), strict=True):
        stems |= {stem: near[one] or stems.get(stem, False) for stem in found}
    often = {stem: sum(len(index.passages(stem)) for index in indexes) for stem in stems}
    for stem in sorted(stems, key=lambda stem: (stems[stem], often[stem], stem), reverse=True):
        for form in _forms(stem, shards, indexes):
            if form.lower() in near:
                return form
    return None


def common_word(word: str, number: Callable[[str], int | None]) -> str | None:
    """The most common word that is near, as a vocabulary has it.

    `number` gives a word's place in the vocabulary, the commonest first, and None for what is no word there.
    """
    places = {one: place for one in slips(word) if (place := number(one)) is not None}
    return min(places, key=places.__getitem__, default=None)


def _forms(stem: str, shards: Sequence[Shard], indexes: Sequence[ImpactIndex]) -> Iterator[str]:
    """The words of the first passages that have a stem."""
    for shard, index in zip(shards, indexes, strict=True):
        for passage in index.passages(stem)[:LOOKED_AT]:
            title = shard.titles[int(shard.paragraph_documents[passage])]
            yield from WORD.findall(f"{title} {shard.texts[int(passage)]}")


def slips(word: str) -> set[str]:
    """Every other word that one slip makes of this one, in small letters; none of a word that is too short to tell.

    >>> {"place", "plae", "plasse", "lpase"} <= slips("Plase"), "plase" in slips("plase"), slips("pla")
    (True, False, set())
    """
    word = word.lower()
    return set(_slips(word)) - {word} if len(word) >= SHORTEST else set()


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
