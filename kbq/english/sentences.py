"""Sentences: where each sentence of a text begins."""

import re

GOES_ON = re.compile(r"\s*[\"'“‘(\[]*(?:[a-zà-öø-ÿα-ωа-я]|[0-9])")
# non-ASCII white space: sentencex fails on a full stop after it.
BLANK = re.compile(r"[^\S\x00-\x7f]")


def sentence_bounds(text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of each sentence, by the rules for English, which also end Chinese
    sentences.

    No sentence begins with a small letter or a number, so "Vol. 3" and "Panic! at" stay together.

    >>> sentence_bounds("Plan B\\u00a0. Then he left.")
    [(0, 9), (9, 22)]
    """
    import sentencex  # imported on demand: the help does not need it

    found = sentencex.get_sentence_boundaries("en", BLANK.sub(" ", text))
    bounds: list[tuple[int, int]] = []
    for item in found:
        start = item["start_index"]
        end = item["end_index"]
        if bounds and bounds[-1][1] == start and _goes_on(text, start):
            bounds[-1] = bounds[-1][0], end
        else:
            bounds.append((start, end))

    return bounds


def _goes_on(text: str, start: int) -> bool:
    """Return whether a sentence goes on at a character: with a small letter or a number, on the
    same line.
    """
    behind = GOES_ON.match(text, start)
    return behind is not None and "\n" not in text[max(0, start - 4) : behind.end()]
