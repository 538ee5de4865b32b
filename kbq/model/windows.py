"""Windows: paragraphs become windows of tokens that fit the encoder. Source: arXiv 2012.12624, section 3.

A window is `[CLS] title [SEP] stretch of one paragraph [SEP]`. Neighbouring windows overlap, so that a token near a
cut still has context on both sides; every token is owned by exactly one window.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from kbq.model.tokenizer import encodings

Positions = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Lengths in tokens; `length` is that of the whole window, special tokens included.

    `title_segment`: the segment that the title is marked with; DensePhrases marks it as it marks the paragraph.
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
    """The word pieces of each text, with the characters of their words."""
    return [_with_whole_words(part, text) for part, text in zip(encodings(tokenizer, texts), texts, strict=True)]


def _with_whole_words(encoding: Any, text: str) -> Tokens:
    offsets = np.array(encoding.offsets, np.uint32).reshape(-1, 2)
    if not text.isascii():  # a tokenizer may strip combining marks, which then belong to no piece
        limits = [*offsets[1:, 0].tolist(), len(text)]
        offsets[:, 1] = [_after_marks(text, *bounds) for bounds in zip(offsets[:, 1].tolist(), limits, strict=False)]
    starts, ends = offsets[:, 0].copy(), offsets[:, 1].copy()
    words = encoding.word_ids
    for i in range(1, len(words)):  # a piece continues a word: the word's first character is its start
        if words[i] == words[i - 1] and starts[i] == offsets[i - 1, 1] and _inside_word(text, int(starts[i])):
            starts[i] = starts[i - 1]
    for i in range(len(words) - 2, -1, -1):
        if starts[i + 1] < offsets[i + 1, 0]:
            ends[i] = ends[i + 1]
    return Tokens(encoding.ids, starts, ends)


def _after_marks(text: str, end: int, limit: int) -> int:
    """The end of the letter before `end`, its combining marks included."""
    while end < limit and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def _inside_word(text: str, cut: int) -> bool:
    """Whether characters cut-1 and cut belong to one word; for some tokenizers, words include punctuation."""
    return 0 < cut < len(text) and all(unicodedata.category(letter)[0] in "LMN" for letter in text[cut - 1 : cut + 1])


def token_span(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """First and last token of the words that hold characters [start, end)."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, end, side="left")) - 1
    limit = len(tokens.ids) - 1
    return min(first, limit), min(max(last, first), limit)


def windows(tokenizer: Any, title: list[int], paragraph: Tokens, shape: WindowShape) -> list[Window]:
    """The windows of a paragraph; title tokens beyond `shape.max_title` are left out."""
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    return cut(head, paragraph.ids, tokenizer.sep_token_id, shape.length, shape.overlap, shape.title_segment)


def cut(
    head: list[int], paragraph: list[int], separator: int, length: int, overlap: int, head_segment: int = 0
) -> list[Window]:
    """Windows of at most `length` tokens: `head`, a stretch of the paragraph, `separator`."""
    room = length - len(head) - 1
    cut_windows = []
    for begin, own_from, own_to in stretches(len(paragraph), room, overlap):
        body = [*paragraph[begin : begin + room], separator]
        segments = [head_segment] * len(head) + [1] * len(body)
        first = len(head) + own_from - begin
        cut_windows.append(Window(head + body, segments, first, own_to - own_from, own_from))
    return cut_windows


def stretches(tokens: int, room: int, overlap: int) -> list[tuple[int, int, int]]:
    """(first token read, first token owned, last token owned + 1) of each window; the last reads to the end.

    >>> stretches(10, room=6, overlap=2)
    [(0, 0, 5), (4, 5, 10)]
    """
    begins = [0]
    while begins[-1] + room < tokens:
        begins.append(min(begins[-1] + room - overlap, tokens - room))
    seams = [begin + (previous + room - begin) // 2 for previous, begin in pairwise(begins)]
    return list(zip(begins, [0, *seams], [*seams, tokens], strict=True)) if tokens else []
