"""Sentences: a paragraph becomes token windows, one around each of its sentences. Source: arXiv 2009.13013."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import sentencex

from kbq.encoding.windows import Tokens, WindowShape, tokenize


@dataclass(frozen=True, slots=True)
class SentenceWindow:
    """`[CLS] title [SEP] stretch of one paragraph [SEP]` as token ids; segment 1 marks the sentence in it."""

    ids: list[int]
    segments: list[int]
    start: int  # characters [start, end) of the sentence in its paragraph
    end: int


def sentence_windows(tokenizer: Any, title: list[int], text: str, shape: WindowShape) -> list[SentenceWindow]:
    """A window for each sentence with as much of the paragraph around it, evenly, as fits.

    A sentence that is longer than the window becomes several.
    """
    (tokens,) = tokenize(tokenizer, [text])
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    room = shape.length - len(head) - 1
    found = []
    for first, behind in _sentences(text, tokens, room):
        begin, stop = around(first, behind, len(tokens.ids), room)
        ids = [*head, *tokens.ids[begin:stop], tokenizer.sep_token_id]
        before, inside = len(head) + first - begin, behind - first
        segments = [0] * before + [1] * inside + [0] * (len(ids) - before - inside)
        found.append(SentenceWindow(ids, segments, int(tokens.starts[first]), int(tokens.ends[behind - 1])))
    return found


def around(first: int, behind: int, tokens: int, room: int) -> tuple[int, int]:
    """The stretch of `room` of these tokens that holds [first, behind) in its middle, as far as the ends allow.

    >>> around(4, 6, tokens=100, room=6), around(1, 3, tokens=100, room=6), around(4, 6, tokens=7, room=6)
    ((2, 8), (0, 6), (1, 7))
    """
    begin = max(0, first - (room - (behind - first)) // 2)
    stop = min(tokens, begin + room)
    return max(0, stop - room), stop


def _sentences(text: str, tokens: Tokens, room: int) -> Iterator[tuple[int, int]]:
    """(first token, token behind) of each sentence that has tokens, or of its parts that fit."""
    for item in sentencex.get_sentence_boundaries("en", text):
        first, behind = np.searchsorted(tokens.starts, [item["start_index"], item["end_index"]]).tolist()
        for begin in range(first, behind, room):
            yield begin, min(begin + room, behind)
