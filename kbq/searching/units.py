"""Units: phrases vote for sentences, paragraphs and documents. Source: arXiv 2109.08133, section 3.

A unit's score is the maximum over its phrases. Phrases that overlap are one unit: the best of them.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import NamedTuple

import numpy as np

from kbq.array_types import Rows
from kbq.dump.shards import Located, Shard
from kbq.options import Unit
from kbq.records import Hit
from kbq.searching.spans import Spans
from kbq.text.boundaries import sentence_bounds

TOGETHER = 16  # spans whose places are looked up together at first; then as many as before, all in all


@dataclass(frozen=True, slots=True)
class Units:
    """The best distinct units of one query, best first; `is_complete`: no better one can be missing."""

    hits: list[Hit]
    is_complete: bool


class _Found(NamedTuple):
    """A span: where it stands, and in which shard. Better ones are smaller; `characters` are those of its phrase."""

    negative_score: float
    shard: int
    start: int
    end: int
    paragraph: int
    characters: tuple[int, int]


def best_units(shards: Sequence[Shard], found: Sequence[Spans], unit: Unit, k: int) -> Units:
    """Merge the spans of all shards into the k best distinct units.

    `found` holds the spans of one query, one item per shard.
    """
    complete_above = max(spans.complete_above for spans in found)
    distinct = (
        _best_of_each(shards, found, unit) if unit in ("paragraph", "document") else _separate(shards, found, unit)
    )
    located = cache(lambda shard, paragraph: shards[shard].located(paragraph))  # many hits may lie in one paragraph
    hits: list[Hit] = []
    for span, characters in distinct:
        if -span.negative_score <= complete_above:
            return Units(hits, is_complete=False)
        hits.append(_hit(span, located(span.shard, span.paragraph), characters))
        if len(hits) == k:
            break
    return Units(hits, is_complete=len(hits) == k or complete_above == -np.inf)


def _best_of_each(
    shards: Sequence[Shard], found: Sequence[Spans], unit: Unit
) -> Iterator[tuple[_Found, tuple[int, int]]]:
    """The best span of each paragraph or document, best first, with the whole paragraph as its unit."""
    order, of_shard, place = _merged(found)
    paragraphs = np.concatenate([s.paragraphs_of(spans.starts) for s, spans in zip(shards, found, strict=True)])
    keys = paragraphs
    if unit == "document":
        keys = np.concatenate(
            [shard.paragraph_documents[paragraphs[of_shard == number]] for number, shard in enumerate(shards)]
        )
    _, first = np.unique(np.stack([of_shard[order], keys[order]]), axis=1, return_index=True)
    for span in _described(shards, found, of_shard, place, order[np.sort(first)]):
        yield span, (0, len(shards[span.shard].texts[span.paragraph]))


def _separate(shards: Sequence[Shard], found: Sequence[Spans], unit: Unit) -> Iterator[tuple[_Found, tuple[int, int]]]:
    """Spans whose phrases (or sentences) do not overlap, best first: greedy over all legal spans.

    A span that runs into a better unit is shortened to stop before it and waits for its turn.
    """
    order, of_shard, place = _merged(found)
    in_order = _described(shards, found, of_shard, place, order)
    coming = next(in_order, None)
    waiting: list[_Found] = []  # a heap
    taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
    sentences = cache(lambda shard, paragraph: Sentences(shards[shard].texts[paragraph]))
    while coming or waiting:
        if coming and (not waiting or coming <= waiting[0]):
            span, coming = coming, next(in_order, None)
        else:
            span = heapq.heappop(waiting)
        units = taken.setdefault((span.shard, span.paragraph), [])
        whole = span.characters
        if unit == "sentence":
            whole = sentences(span.shard, span.paragraph).around(*span.characters)
        hindered = [begin for begin, stop in units if whole[0] < stop and begin < whole[1]]
        if not hindered:
            units.append(whole)
            yield span, whole
        elif (begin := span.characters[0]) < (limit := min(hindered)):
            shard = shards[span.shard]
            shorter = found[span.shard].shortened(shard, span.start, span.end, limit)
            if shorter is not None:
                score, end = shorter
                characters = begin, int(shard.ends[end])
                heapq.heappush(waiting, _Found(-score, span.shard, span.start, end, span.paragraph, characters))


def _merged(found: Sequence[Spans]) -> tuple[Rows, Rows, Rows]:
    """The order of all shards' spans, best first; of each span its shard and its place there. Shapes: (spans,)."""
    scores = np.concatenate([spans.scores for spans in found])
    sizes = [len(spans.scores) for spans in found]
    of_shard = np.repeat(np.arange(len(found)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    return np.argsort(-scores, kind="stable"), of_shard, place


def _described(
    shards: Sequence[Shard], found: Sequence[Spans], of_shard: Rows, place: Rows, order: Rows
) -> Iterator[_Found]:
    """Where these spans stand, in this order. Shapes: (spans,)."""
    first, stop = 0, TOGETHER
    while first < len(order):
        some = order[first:stop]
        first, stop = stop, 2 * stop
        described: dict[int, Iterator[_Found]] = {}
        for number in set(of_shard[some].tolist()):
            spans, own = found[number], place[some[of_shard[some] == number]]
            starts, ends = spans.starts[own], spans.ends[own]
            paragraphs = shards[number].paragraphs_of(starts)
            characters = zip(shards[number].starts[starts].tolist(), shards[number].ends[ends].tolist(), strict=True)
            columns = starts.tolist(), ends.tolist(), paragraphs.tolist(), characters
            described[number] = map(_Found._make, zip((-spans.scores[own]).tolist(), repeat(number), *columns))
        if len(found) == 1:
            yield from described[0]
        else:
            yield from (next(described[number]) for number in of_shard[some].tolist())


def _hit(span: _Found, located: Located, unit: tuple[int, int]) -> Hit:
    return Hit(located.phrase(*span.characters), -span.negative_score, located.text, unit)


class Sentences:
    """The sentences of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bounds = sentence_bounds(text)

    def around(self, start: int, end: int) -> tuple[int, int]:
        """Characters of the sentence (or sentences) that hold [start, end), without blanks around it."""
        first = max((begin for begin, _ in self._bounds if begin <= start), default=0)
        last = min((stop for _, stop in self._bounds if stop >= end), default=len(self._text))
        inside = self._text[first:last]
        return first + len(inside) - len(inside.lstrip()), last - (len(inside) - len(inside.rstrip()))
