"""Units: spans become the best phrases, sentences, paragraphs or pages. Source: arXiv 2109.08133, section 3.

The score of a unit is the maximum over its phrases. Of phrases, or sentences, that overlap, only the best is kept.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import NamedTuple, TypeAlias

import numpy as np

from kbq.answers import Answer, Unit
from kbq.array_types import Rows
from kbq.dump.shards import Shard
from kbq.search.spans import RangesTaken, Spans
from kbq.text.sentences import sentence_bounds

FIRST_GROUP = 16  # spans that are placed together; every later group is as large as all before it
WORD = re.compile(r"\S+")
TextOf: TypeAlias = Callable[[int, int], str]  # the number of a shard, and of a paragraph in it → its text


def shared_texts(shards: Sequence[Shard]) -> TextOf:
    """Read each paragraph once a search: all answers from it share its text."""
    return cache(lambda shard, paragraph: shards[shard].texts[paragraph])


@dataclass(frozen=True, slots=True)
class Units:
    """The best distinct units of one query, best first.

    No missing unit scores above `complete_above`; `is_complete`: there are all that were asked for.
    """

    hits: list[Answer]
    is_complete: bool
    complete_above: float


class _PlacedSpan(NamedTuple):
    """A span and its place; better spans compare as smaller. `characters` are [start, end) of its phrase."""

    negative_score: float
    shard: int
    start: int
    end: int
    paragraph: int
    characters: tuple[int, int]


def best_units(
    shards: Sequence[Shard],
    found: Sequence[Spans],
    unit: Unit,
    k: int,
    between: tuple[float, float] = (-np.inf, np.inf),
    text_of: TextOf | None = None,
) -> Units:
    """Find the k best distinct units in the spans of one query, given by shard, with scores `between` these.

    `text_of`: gives the paragraphs of a search that has several queries; None: this is the only one.
    """
    text_of = text_of or shared_texts(shards)
    least, most = between
    complete_above = max(spans.complete_above for spans in found)
    distinct = (
        _best_of_each(shards, found, unit, text_of)
        if unit in ("paragraph", "page")
        else _without_overlap(shards, found, unit, text_of)
    )
    hits: list[Answer] = []
    for span, bounds in distinct:
        score = -span.negative_score
        if score <= complete_above:
            return Units(hits, False, complete_above)
        if score < least:
            return Units(hits, True, complete_above)
        if score <= most:
            text = text_of(span.shard, span.paragraph)
            hits.append(shards[span.shard].answer(span.paragraph, score, span.characters, bounds, text))
        if len(hits) == k:
            break
    return Units(hits, len(hits) == k or complete_above == -np.inf, complete_above)


def _best_of_each(
    shards: Sequence[Shard], by_shard: Sequence[Spans], unit: Unit, text_of: TextOf
) -> Iterator[tuple[_PlacedSpan, tuple[int, int]]]:
    """Yield the best span of each paragraph or page, best first, with its whole paragraph as the unit."""
    order, shard_of, places = _merged(by_shard)
    paragraphs = np.concatenate([s.paragraphs_of(spans.starts) for s, spans in zip(shards, by_shard, strict=True)])
    keys = paragraphs
    if unit == "page":
        keys = np.concatenate(
            [shard.paragraph_pages[paragraphs[shard_of == number]] for number, shard in enumerate(shards)]
        )
    _, first = np.unique(np.stack([shard_of[order], keys[order]]), axis=1, return_index=True)
    for span in _placed(shards, by_shard, shard_of, places, order[np.sort(first)]):
        yield span, (0, len(text_of(span.shard, span.paragraph)))


def _without_overlap(
    shards: Sequence[Shard], by_shard: Sequence[Spans], unit: Unit, text_of: TextOf
) -> Iterator[tuple[_PlacedSpan, tuple[int, int]]]:
    """Spans whose phrases (or sentences) do not overlap, best first, chosen greedily from all legal spans.

    A span that runs into a better unit is shortened to end before that unit, and considered again by its new score.
    """
    order, shard_of, places = _merged(by_shard)
    in_order = _placed(shards, by_shard, shard_of, places, order)
    next_span = next(in_order, None)
    waiting: list[_PlacedSpan] = []  # a heap of shortened spans
    taken_in: defaultdict[tuple[int, int], RangesTaken] = defaultdict(RangesTaken)
    sentences = cache(lambda shard, paragraph: Sentences(text_of(shard, paragraph)))
    while next_span or waiting:
        if next_span and (not waiting or next_span <= waiting[0]):
            span, next_span = next_span, next(in_order, None)
        else:
            span = heapq.heappop(waiting)
        taken = taken_in[span.shard, span.paragraph]
        bounds = span.characters
        if unit == "sentence":
            bounds = sentences(span.shard, span.paragraph).around(*span.characters)
        limit = taken.first_within(*bounds)
        if limit is None:
            taken.add(*bounds)
            yield span, bounds
        elif (begin := span.characters[0]) < limit:
            shard = shards[span.shard]
            shorter = by_shard[span.shard].shortened(shard, span.start, span.end, limit)
            if shorter is not None:
                score, end = shorter
                characters = begin, int(shard.ends[end])
                heapq.heappush(waiting, _PlacedSpan(-score, span.shard, span.start, end, span.paragraph, characters))


def _merged(by_shard: Sequence[Spans]) -> tuple[Rows, Rows, Rows]:
    """Return the order of the spans of all shards, best first, and the shard of each span and its index there.

    Shapes: (spans,).
    """
    scores = np.concatenate([spans.scores for spans in by_shard])
    sizes = [len(spans.scores) for spans in by_shard]
    shard_of = np.repeat(np.arange(len(by_shard)), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    return np.argsort(-scores, kind="stable"), shard_of, places


def _placed(
    shards: Sequence[Shard], by_shard: Sequence[Spans], shard_of: Rows, places: Rows, order: Rows
) -> Iterator[_PlacedSpan]:
    """Yield the spans with their places, in this order. Shapes: (spans,)."""
    first, stop = 0, FIRST_GROUP
    while first < len(order):
        group = order[first:stop]
        first, stop = stop, 2 * stop
        spans_of: dict[int, Iterator[_PlacedSpan]] = {}
        for number in set(shard_of[group].tolist()):
            spans, in_shard = by_shard[number], places[group[shard_of[group] == number]]
            starts, ends = spans.starts[in_shard], spans.ends[in_shard]
            paragraphs = shards[number].paragraphs_of(starts)
            characters = zip(shards[number].starts[starts].tolist(), shards[number].ends[ends].tolist(), strict=True)
            columns = starts.tolist(), ends.tolist(), paragraphs.tolist(), characters
            spans_of[number] = map(_PlacedSpan._make, zip((-spans.scores[in_shard]).tolist(), repeat(number), *columns))
        if len(by_shard) == 1:
            yield from spans_of[0]
        else:
            yield from (next(spans_of[number]) for number in shard_of[group].tolist())


class Sentences:
    """The sentences of a text: a place is found in O(log n), as a long text has many of both."""

    def __init__(self, text: str) -> None:
        bounds = sentence_bounds(text)
        self._length = len(text)
        self._begins, self._stops = (sorted(side) for side in zip(*bounds, strict=True)) if bounds else ([], [])
        words = [word.span() for word in WORD.finditer(text)]
        self._word_begins, self._word_stops = [begin for begin, _ in words], [stop for _, stop in words]

    def around(self, start: int, end: int) -> tuple[int, int]:
        """Characters of the sentence (or sentences) that contain [start, end), without surrounding white space."""
        before, after = bisect_right(self._begins, start), bisect_left(self._stops, end)
        first = self._begins[before - 1] if before else 0
        last = self._stops[after] if after < len(self._stops) else self._length
        opening, closing = bisect_right(self._word_stops, first), bisect_left(self._word_begins, last) - 1
        if opening > closing:  # nothing but white space
            return last, first
        return max(self._word_begins[opening], first), min(self._word_stops[closing], last)
