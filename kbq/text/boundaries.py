"""Boundaries: where the sentences of a text begin and end. sentencex finds them."""

import re

import sentencex

BLANK = re.compile(r"[^\S\x00-\x7f]")  # any but ASCII's: a full stop after one makes sentencex fail


def sentence_bounds(text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of each sentence. Rules are those for English, which end Chinese sentences, too.

    >>> sentence_bounds("Plan B\\u00a0. Then he left.")
    [(0, 9), (9, 22)]
    """
    found = sentencex.get_sentence_boundaries("en", BLANK.sub(" ", text))
    return [(item["start_index"], item["end_index"]) for item in found]
