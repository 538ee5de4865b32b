"""Comparing: texts that say the same become equal, without case, diacritics and punctuation."""

import unicodedata
from functools import lru_cache

from kbq.text.letters import folded

_PUNCTUATION_KEPT = "#*%@‰"  # it tells names and numbers apart: C#, A*, 5 %


@lru_cache(2**14)  # the relations of a subject have the same values proposed, from the same pages
def normalised(text: str) -> str:
    """A text as values are compared: without case, diacritics, punctuation and superfluous blanks; see `letters`.

    Apostrophes are dropped, other punctuation counts as a blank, except `#*%@‰`; a text that is punctuation alone
    stays. Source of the rules: LM-KBC 2026.

    >>> normalised("O’Brien & Søn: “Café”, Łódź"), normalised("!!!"), normalised("C#")
    ('obrien son cafe lodz', '!!!', 'c#')
    """
    letters = folded(text)
    words = "".join(map(_of_word, letters.replace("'", ""))).split()
    return " ".join(words) if any(map(str.isalnum, words)) else " ".join(letters.split())


@lru_cache(2**12)
def _of_word(letter: str) -> str:
    return letter if letter in _PUNCTUATION_KEPT or unicodedata.category(letter)[0] != "P" else " "
