"""Comparing: texts that say the same become equal, without case, diacritics and punctuation."""

import re
import unicodedata
from functools import lru_cache

from kbq.text.letters import folded

_PUNCTUATION_KEPT = "#*%@‰"  # it tells names and numbers apart: C#, A*, 5 %
_MINUS, _POINT = "\ue000", "\ue001"  # of numbers, while punctuation is looked for: of private use
_NEGATIVE = re.compile(r"(?<![\w.,)])-(?=[0-9])|(?<=^[^\W\d_])-$|(?<=^[^\W\d_]{2})-$")  # -5; the blood groups O-, AB-
_DECIMAL = re.compile(r"(?<![0-9.,])([0-9]+)(?:\.([0-9]+)|,([0-9]{1,2}))(?![0-9.,]?[0-9])")
_INITIALS = re.compile(r"(?<!\w)[^\W\d_](?:\. ?[^\W\d_])+\.?(?!\w)")


@lru_cache(2**14)  # the relations of a subject have the same values proposed, from the same pages
def normalised(text: str) -> str:
    """A text as values are compared: without case, diacritics, punctuation and superfluous blanks; see `letters`.

    Apostrophes and the points of initials are dropped, other punctuation counts as a blank, except `#*%@‰`, the sign of
    a number, and its decimal point; a text that is punctuation alone stays. Source of the rules: LM-KBC 2026.

    >>> normalised("O’Brien & Søn: “Café”, Łódź"), normalised("!!!"), normalised("C#")
    ('obrien son cafe lodz', '!!!', 'c#')
    >>> normalised("Washington, D. C."), normalised("J.R.R. Tolkien"), normalised("-3,5"), normalised("3/5")
    ('washington dc', 'jrr tolkien', '-3.5', '3 5')
    """
    letters = folded(text)
    marked = _NEGATIVE.sub(_MINUS, letters.replace("'", ""))
    marked = _DECIMAL.sub(lambda number: f"{number[1]}{_POINT}{number[2] or number[3]}", marked)
    marked = _INITIALS.sub(lambda initials: re.sub("[. ]", "", initials[0]), marked)
    words = "".join(map(_of_word, marked)).replace(_MINUS, "-").replace(_POINT, ".").split()
    return " ".join(words) if any(map(_is_word, words)) else " ".join(letters.split())


def _is_word(text: str) -> bool:
    return any(map(str.isalnum, text))


@lru_cache(2**12)
def _of_word(letter: str) -> str:
    return letter if letter in _PUNCTUATION_KEPT or unicodedata.category(letter)[0] != "P" else " "
