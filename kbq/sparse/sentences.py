"""Sentences: a paragraph becomes token windows in which its sentences stand whole. Source: arXiv 2009.13013."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbq.encoding.windows import Tokens, WindowShape, tokenize
from kbq.text.boundaries import sentence_bounds


@dataclass(frozen=True, slots=True)
class Sentence:
    """Where a sentence stands: tokens [first, stop) of its window, characters [start, end) of its paragraph."""

    first: int
    stop: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SentenceWindow:
    """`[CLS] title [SEP] stretch of one paragraph [SEP]` as token ids, and the sentences that are read from it.

    The sentences stand side by side; the rest of the stretch is their context.
    """

    ids: list[int]
    sentences: tuple[Sentence, ...]

    @property
    def segments(self) -> list[int]:
        """1 marks its sentences, 0 everything else."""
        before, stop = self.sentences[0].first, self.sentences[-1].stop
        return [0] * before + [1] * (stop - before) + [0] * (len(self.ids) - stop)


def sentence_windows(
    tokenizer: Any, title: list[int], text: str, shape: WindowShape, marked: bool
) -> list[SentenceWindow]:
    """Windows with as much of the paragraph around their sentences, evenly, as fits.

    A sentence that is longer than the window becomes several. `marked`: a window for each sentence, as in the paper;
    else as many sentences share a window as fit.
    """
    (tokens,) = tokenize(tokenizer, [text])
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    room = shape.length - len(head) - 1
    windows = []
    for members in _together(list(_sentences(text, tokens, room)), 0 if marked else room):
        begin, stop = around(members[0][0], members[-1][1], len(tokens.ids), room)
        ids = [*head, *tokens.ids[begin:stop], tokenizer.sep_token_id]
        shift = len(head) - begin
        sentences = tuple(
            Sentence(first + shift, stop + shift, int(tokens.starts[first]), int(tokens.ends[stop - 1]))
            for first, stop in members
        )
        windows.append(SentenceWindow(ids, sentences))
    return windows


def around(first: int, stop: int, tokens: int, room: int) -> tuple[int, int]:
    """The stretch of at most `room` tokens that holds [first, stop) in its middle, as far as the ends allow.

    >>> around(4, 6, tokens=100, room=6), around(1, 3, tokens=100, room=6), around(4, 6, tokens=7, room=6)
    ((2, 8), (0, 6), (1, 7))
    """
    begin = max(0, first - (room - (stop - first)) // 2)
    stop = min(tokens, begin + room)
    return max(0, stop - room), stop


def _sentences(text: str, tokens: Tokens, room: int) -> Iterator[tuple[int, int]]:
    """(first token, token after the last) of each sentence that has tokens, or of its parts that fit."""
    for bounds in sentence_bounds(text):
        first, stop = np.searchsorted(tokens.starts, bounds).tolist()
        for begin in range(first, stop, room):
            yield begin, min(begin + room, stop)


def _together(sentences: Sequence[tuple[int, int]], room: int) -> list[list[tuple[int, int]]]:
    """Groups of neighbours that span at most `room` tokens; one that fits with no other is a group of its own."""
    groups: list[list[tuple[int, int]]] = []
    for first, stop in sentences:
        if groups and stop - groups[-1][0][0] <= room:
            groups[-1].append((first, stop))
        else:
            groups.append([(first, stop)])
    return groups
