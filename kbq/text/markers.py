"""Markers and sentences: the markers in queries and in KILT's lists, and the sentences of a text (by sentencex)."""

import re

MARKERS = re.compile(r"\[(?:SEP|START_ENT|END_ENT)\]", re.IGNORECASE)
START = re.compile(r"\[START_ENT\]", re.IGNORECASE)
MENTION = re.compile(START.pattern + r"(.*?)\[END_ENT\]", re.DOTALL | re.IGNORECASE)
SEPARATOR = re.compile(r"\[SEP\]", re.IGNORECASE)
KILT_MARKER = re.compile(r"\s*(Section::::[^\n]*|BULLET::::((-|\d+\.)(\s|$))?)\s*")
EMPTY = ("NA", "N/A", "#N/A", "<NA>", "NaN", "null", "None", "-", "–", "—", "?")  # what cells without a value hold

GOES_ON = re.compile(r"\s*[\"'“‘(\[]*(?:[a-zà-öø-ÿα-ωа-я]|[0-9])")
BLANK = re.compile(r"[^\S\x00-\x7f]")  # non-ASCII white space: sentencex fails on a full stop after it

# Letters of scripts that do not separate words.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def mention_in(text: str) -> re.Match[str] | None:
    """Return the first marked mention, without its markers in group 1.

    Only the first `[START_ENT]` is tried, so that a text of many is read once: if nothing ends it, nothing ends a later
    one.

    >>> mention_in("the [START_ENT] Nile [END_ENT] flows")[1], mention_in("[START_ENT]" * 3)
    (' Nile ', None)
    """
    first = START.search(text)
    return first and MENTION.match(text, first.start())


def relation_key(relation: str) -> str:
    """Return the same text for all ways to write a relation: in lower case, without a final question mark.

    >>> relation_key("Place of birth ?")
    'place of birth'
    """
    return relation.strip().removesuffix("?").strip().casefold()


def slot_of(text: str) -> tuple[str, str] | None:
    """Return subject and relation of a slot query, or None for any other query.

    >>> slot_of("Nile [sep] length"), slot_of("how long is the Nile?")
    (('Nile', 'length'), None)
    """
    sides = SEPARATOR.split(text)
    return ("[SEP]".join(sides[:-1]).strip(), sides[-1].strip()) if len(sides) > 1 else None


def content_start(text: str) -> int:
    """Return where a paragraph's content begins, after the list marker that a KILT knowledge source may have."""
    marker = KILT_MARKER.match(text)
    return marker.end() if marker else 0


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

    No sentence begins with a small letter or a number, so "Vol. 3" and "Panic! at" stay together.

    >>> sentence_bounds("Plan B\\u00a0. Then he left.")
    [(0, 9), (9, 22)]
    """
    import sentencex  # on demand: the help does without

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
    """Return whether a sentence goes on at a character: with a small letter or a number, on the same line."""
    behind = GOES_ON.match(text, start)
    return behind is not None and "\n" not in text[max(0, start - 4) : behind.end()]
