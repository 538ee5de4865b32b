"""Values: the text of a value becomes a normal form, by which two texts of one value are known to be one."""

import re
import unicodedata

from kbq.system import normal_forms

_APOSTROPHES = re.compile("['`´‘’‛′‵ʹʻʼʽʾʿˈꞋꞌ＇]")


def normalised(text: str) -> str:
    """A text as values are compared: without case, diacritics, punctuation and superfluous blanks.

    Apostrophes are dropped, other punctuation counts as a blank; a text that is punctuation alone stays. Source of the
    rules: LM-KBC 2026.

    >>> normalised("O’Brien & Søn: “Café”, Łódź"), normalised("!!!")
    ('obrien søn cafe łodz', '!!!')
    """
    letters = normal_forms.normal_form("NFKD", _APOSTROPHES.sub("", text)).casefold()
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    words = "".join(" " if unicodedata.category(letter)[0] == "P" else letter for letter in letters).split()
    return " ".join(words) or text.casefold()
