"""Excerpts: phrases that a search has found, in their surroundings, become windows with the query and the page's title.

Phrases of a paragraph that are close to each other share a window: `[CLS] query [SEP] title [SEP] text [SEP]`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from kbq.answers import Answer
from kbq.model.windows import Tokens, Window, token_span, tokenize
from kbq.text.markers import content_start

AROUND = 200  # characters read on either side of a phrase, some 40 word pieces
MOST = 1200  # characters of a window that phrases share
MAX_TITLE = 24  # tokens


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A window, which owns the tokens of its text, and the phrases in it."""

    window: Window
    text: Tokens  # those that the window owns; characters count from the beginning of the paragraph
    numbers: tuple[int, ...]  # of the phrases, among all phrases of their query
    spans: tuple[tuple[int, int], ...]  # of each phrase: first and last token of the text


def excerpts(tokenizer: Any, query: Sequence[int], phrases: Sequence[Answer], length: int) -> list[Excerpt]:
    """The windows of the phrases of one query, each phrase in one of them.

    Args:
        query: `[CLS] … [SEP]`.
        length: most tokens of a window.
    """
    stretches = list(_stretches(phrases))
    titles = tokenize(tokenizer, [phrases[numbers[0]].title for _, _, numbers in stretches])
    texts = tokenize(tokenizer, [phrases[numbers[0]].context[begin:stop] for begin, stop, numbers in stretches])
    found: list[Excerpt] = []
    for (begin, _, numbers), title, text in zip(stretches, titles, texts, strict=True):
        head = [*query, *title.ids[:MAX_TITLE], tokenizer.sep_token_id]
        shift = np.uint32(begin)
        text = replace(text, starts=text.starts + shift, ends=text.ends + shift)
        spans = [token_span(text, phrases[number].start, phrases[number].end) for number in numbers]
        room = length - len(head) - 1
        if len(text.ids) <= room:
            found.append(_excerpt(head, len(query), text, numbers, spans, tokenizer.sep_token_id))
            continue
        for number, (first, last) in zip(numbers, spans, strict=True):  # scripts with a token for each letter
            start = max(0, min((first + last + 1 - room) // 2, len(text.ids) - room))
            kept = slice(start, start + room)
            part = Tokens(text.ids[kept], text.starts[kept], text.ends[kept])
            span = max(0, first - start), min(last - start, room - 1)
            found.append(_excerpt(head, len(query), part, [number], [span], tokenizer.sep_token_id))
    return found


def _excerpt(
    head: list[int], question: int, text: Tokens, numbers: Sequence[int], spans: Sequence[tuple[int, int]], end: int
) -> Excerpt:
    ids = [*head, *text.ids, end]
    segments = [0] * question + [1] * (len(ids) - question)
    window = Window(ids, segments, len(head), len(text.ids), 0)
    return Excerpt(window, text, tuple(numbers), tuple(spans))


def _stretches(phrases: Sequence[Answer]) -> Iterator[tuple[int, int, list[int]]]:
    """Characters [begin, stop) of a paragraph, cut between words, and the numbers of the phrases in them."""
    order = sorted(range(len(phrases)), key=lambda number: phrases[number].place)
    for _, members in groupby(order, key=lambda number: phrases[number].place[:2]):
        begin = stop = -1
        inside: list[int] = []
        for number in members:
            first, last = _around(phrases[number])
            if inside and first <= stop and last - begin <= MOST:
                stop = max(stop, last)
            else:
                if inside:
                    yield begin, stop, inside
                begin, stop, inside = first, last, []
            inside.append(number)
        yield begin, stop, inside


def _around(phrase: Answer) -> tuple[int, int]:
    """The characters [begin, stop) of a phrase and its surroundings, cut between words where there are any."""
    text, begin, stop = phrase.context, phrase.start - AROUND, phrase.end + AROUND
    blank_before, blank_behind = text.find(" ", max(0, begin), phrase.start), text.rfind(" ", phrase.end, stop)
    begin = content_start(text) if begin <= 0 else begin if blank_before < 0 else blank_before
    return begin, len(text) if stop >= len(text) else stop if blank_behind < 0 else blank_behind
