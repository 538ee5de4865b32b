"""Windows: cut paragraphs into windows of tokens that fit the encoder. Source: arXiv 2012.12624, section 3.

A window is `[CLS] title [SEP] stretch of one paragraph [SEP]`. Neighbouring windows overlap, so that a token near a
cut still has context on both sides; every token is owned by exactly one window.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from kbq.array_types import Bools, Doubles, Rows
from kbq.model.tokenizer import encodings

Positions = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Lengths in tokens; `length` counts the whole window, special tokens included.

    `title_segment`: the segment that the title is marked with; the original code marks it as it marks the paragraph.
    """

    length: Annotated[int, Meta(le=2**20)] = 256
    overlap: int = 64
    max_title: Annotated[int, Meta(ge=0)] = 10
    title_segment: Annotated[int, Meta(ge=0, le=1)] = 0

    def __post_init__(self) -> None:
        room = self.length - self.max_title - 3  # [CLS] title [SEP] … [SEP]
        if not 0 <= self.overlap < room:
            raise ValueError(
                f"overlap is {self.overlap}, must be from 0 to {room - 1} in windows of {self.length} tokens "
                f"with {self.max_title} for the title"
            )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one paragraph. Arrays have shape (tokens,).

    `starts` and `ends` are the characters [start, end) of the word that a token belongs to, so that phrases never
    begin or end inside a word.
    """

    ids: list[int]
    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class Window:
    """The tokens that the encoder reads, `ids`; the window owns ids[first : first + count]."""

    ids: list[int]
    segments: list[int]  # 0 = title (or, in the windows of a reader, the question), 1 = paragraph
    first: int
    count: int
    position: int  # of the first token that it owns, within the paragraph


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[Tokens]:
    """Return the word pieces of each text, with the characters of their words."""
    found = encodings(tokenizer, texts)
    ids = [encoding.ids for encoding in found]
    bounds = np.cumsum([0, *map(len, ids)])
    numbers = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in found))
    offsets = np.fromiter(numbers, np.uint32, 2 * int(bounds[-1])).reshape(-1, 2)
    for text, (begin, stop) in zip(texts, pairwise(bounds), strict=True):
        if not text.isascii() and _has_marks(text):  # a tokenizer may strip combining marks, which belong to no piece
            own = offsets[begin:stop]
            limits = [*own[1:, 0].tolist(), len(text)]
            own[:, 1] = [_after_marks(text, *places) for places in zip(own[:, 1].tolist(), limits, strict=False)]
    words = np.array(list(chain.from_iterable(encoding.word_ids for encoding in found)), np.float64)  # NaN: none
    starts, ends = _of_whole_words(offsets, _continues(texts, bounds, offsets, words))
    return [
        Tokens(pieces, starts[begin:stop], ends[begin:stop])
        for pieces, (begin, stop) in zip(ids, pairwise(bounds), strict=True)
    ]


def _continues(texts: Sequence[str], bounds: Rows, offsets: Positions, words: Doubles) -> Bools:
    """Whether a piece goes on with the word of the piece before it, in the text, too. Shape: (tokens,)."""
    follows = np.zeros(len(offsets), bool)
    follows[1:] = (words[1:] == words[:-1]) & (offsets[1:, 0] == offsets[:-1, 1])
    follows[bounds[:-1][bounds[:-1] < len(follows)]] = False  # the first of a text
    places = np.flatnonzero(follows)
    text_of = (bounds.searchsorted(places, side="right") - 1).tolist()
    cuts = offsets[places, 0].tolist()
    follows[places] = [_inside_word(texts[number], cut) for number, cut in zip(text_of, cuts, strict=True)]
    return follows


def _of_whole_words(offsets: Positions, follows: Bools) -> tuple[Positions, Positions]:
    """Return the first and last character of each piece's word; `follows`: if it continues one. Shapes: (tokens,)."""
    places = np.arange(len(offsets))
    starts = offsets[np.maximum.accumulate(np.where(follows, 0, places)), 0]
    is_last = np.append(starts[1:] >= offsets[1:, 0], True)[: len(places)]  # the next piece begins where its word does
    last = np.minimum.accumulate(np.where(is_last, places, len(places))[::-1])[::-1]
    return starts, offsets[last, 1]


def _has_marks(text: str) -> bool:
    return any(unicodedata.category(letter)[0] == "M" for letter in set(text) if letter > "\x7f")


def _after_marks(text: str, end: int, limit: int) -> int:
    """Return the end of the letter before `end`, its combining marks included."""
    while end < limit and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def _inside_word(text: str, cut: int) -> bool:
    """Whether characters cut-1 and cut belong to one word; for some tokenizers, words include punctuation."""
    if not 0 < cut < len(text):
        return False
    both = text[cut - 1 : cut + 1]
    return both.isalnum() or all(unicodedata.category(letter)[0] in "LMN" for letter in both)


def token_span(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """Return the first and last token of the words that hold characters [start, end)."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, end, side="left")) - 1
    limit = len(tokens.ids) - 1
    return min(first, limit), min(max(last, first), limit)


def windows(tokenizer: Any, title: list[int], paragraph: Tokens, shape: WindowShape) -> list[Window]:
    """Cut a paragraph into windows; title tokens beyond `shape.max_title` are left out."""
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    return cut(head, paragraph.ids, tokenizer.sep_token_id, shape.length, shape.overlap, shape.title_segment)


def cut(
    head: list[int], paragraph: list[int], separator: int, length: int, overlap: int, head_segment: int = 0
) -> list[Window]:
    """Make windows of at most `length` tokens: `head`, a stretch of the paragraph, `separator`."""
    room = length - len(head) - 1
    cut_windows = []
    for begin, own_from, own_to in stretches(len(paragraph), room, overlap):
        body = [*paragraph[begin : begin + room], separator]
        segments = [head_segment] * len(head) + [1] * len(body)
        first = len(head) + own_from - begin
        cut_windows.append(Window(head + body, segments, first, own_to - own_from, own_from))
    return cut_windows


def stretches(tokens: int, room: int, overlap: int) -> list[tuple[int, int, int]]:
    """Return (first token read, first token owned, last token owned + 1) of each window; the last reads to the end.

    >>> stretches(10, room=6, overlap=2)
    [(0, 0, 5), (4, 5, 10)]
    """
    begins = [0]
    while begins[-1] + room < tokens:
        begins.append(min(begins[-1] + room - overlap, tokens - room))
    seams = [begin + (previous + room - begin) // 2 for previous, begin in pairwise(begins)]
    return list(zip(begins, [0, *seams], [*seams, tokens], strict=True)) if tokens else []
