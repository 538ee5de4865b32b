"""Sentences: a text becomes the character ranges of its sentences (by sentencex), or of whole words."""

import re

import sentencex

GOES_ON = re.compile(r"\s*[\"'“‘(\[]*(?:[a-zà-öø-ÿα-ωа-я]|[0-9])")
BLANK = re.compile(r"[^\S\x00-\x7f]")  # non-ASCII white space: sentencex fails on a full stop after it

# Letters of scripts that do not separate words.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def whole_words(text: str, wanted: str, in_any_case: bool = False) -> list[int]:
    """Find where `wanted` occurs in a text as whole words: the first character of each occurrence.

    >>> whole_words("art and party, art", "art")
    [0, 15]
    >>> whole_words("Art and party, art", "ART", in_any_case=True)
    [0, 15]
    """
    letter = rf"[^\W{UNSPACED}]"
    pattern = rf"(?<!{letter}){re.escape(wanted)}(?!{letter})"
    return [match.start() for match in re.finditer(pattern, text, re.IGNORECASE if in_any_case else 0)]


def sentence_bounds(text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of each sentence, by the rules for English, which also end Chinese sentences.

    None begins with a small letter or a number, as what stands behind "Vol." and "Panic!" does.

    >>> sentence_bounds("Plan B\\u00a0. Then he left.")
    [(0, 9), (9, 22)]
    """
    found = sentencex.get_sentence_boundaries("en", BLANK.sub(" ", text))
    bounds: list[tuple[int, int]] = []
    for item in found:
        start, end = item["start_index"], item["end_index"]
        if bounds and bounds[-1][1] == start and _goes_on(text, start):
            bounds[-1] = bounds[-1][0], end
        else:
            bounds.append((start, end))
    return bounds


def _goes_on(text: str, start: int) -> bool:
    """Return whether what begins at a character is the rest of the sentence before: small, or a number, on its line."""
    behind = GOES_ON.match(text, start)
    return behind is not None and "\n" not in text[max(0, start - 4) : behind.end()]
