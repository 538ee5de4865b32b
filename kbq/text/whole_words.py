"""Whole words: find them in a text, whose script may have no blanks between words."""

import re

# Letters of scripts that do not separate words.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)


def whole_words(text: str, wanted: str, in_any_case: bool = False) -> list[int]:
    """Find where `wanted` occurs in a text as whole words: the first character of each occurrence.

    >>> whole_words("art and party, art", "art")
    [0, 15]
    >>> whole_words("Art and party, art", "ART", in_any_case=True)
    [0, 15]
    """
    letter = rf"[^\W{UNSPACED}]"
    pattern = rf"(?<!{letter}){re.escape(wanted)}(?!{letter})"
    return [
        match.start() for match in re.finditer(pattern, text, re.IGNORECASE if in_any_case else 0)
    ]
