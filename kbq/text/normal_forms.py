"""Normal forms: a text becomes one of Unicode's normal forms, in time that grows with its length alone.

Python puts the marks after a letter in order by insertion, which takes hours for a letter with a million marks. Such
runs are ordered before it sees them. Source: Unicode Standard Annex 15.
"""

import re
import unicodedata
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]
SHORT = 1000  # characters of a text that any order is quick for
MARKS = 32  # of a run that is ordered here: no language has so many


def normal_form(form: Form, text: str) -> str:
    """The same as `unicodedata.normalize`.

    >>> normal_form("NFC", "Cafe\\u0301")
    'Café'
    """
    return unicodedata.normalize(form, _in_order(form, text))


def is_normal(form: Form, text: str) -> bool:
    """The same as `unicodedata.is_normalized`."""
    return unicodedata.is_normalized(form, text) if len(text) < SHORT else text == normal_form(form, text)


def _in_order(form: Form, text: str) -> str:
    """A text of the same normal form, in which long runs of marks are decomposed and in order."""
    if len(text) < SHORT or text.isascii():
        return text
    decomposition: Form = "NFKD" if "K" in form else "NFD"
    parts = {letter: unicodedata.normalize(decomposition, letter) for letter in set(text)}
    marks = "".join(letter for letter, part in parts.items() if unicodedata.combining(part[0]))
    if not marks:
        return text

    def ordered(run: re.Match[str]) -> str:
        return "".join(sorted("".join(map(parts.__getitem__, run[0])), key=unicodedata.combining))

    return re.sub(f"[{re.escape(marks)}]{{{MARKS},}}", ordered, text)
