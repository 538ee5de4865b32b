"""Units: phrases vote for sentences, paragraphs and documents. Source: arXiv 2109.08133, section 3.

A unit's score is the maximum over its phrases. Phrases that overlap are one unit: the best of them.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import sentencex

from kbq.indexing.candidates import Rows
from kbq.indexing.dump import Shard
from kbq.records import Hit, Phrase
from kbq.searching.spans import Spans

Unit = Literal["phrase", "sentence", "paragraph", "document"]


@dataclass(frozen=True, slots=True)
class Units:
    """The best distinct units of one query, best first; `is_complete`: no better one can be missing."""

    hits: list[Hit]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """A span: where it stands, and in which shard. `characters` are those of its phrase."""

    score: float
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
    hits: list[Hit] = []
    for span, characters in distinct:
        if span.score <= complete_above:
            return Units(hits, is_complete=False)
        hits.append(_hit(shards[span.shard], span, characters))
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
    for index in order[np.sort(first)]:
        number = int(of_shard[index])
        spans, row = found[number], int(place[index])
        span = _found(shards[number], number, float(spans.scores[row]), int(spans.starts[row]), int(spans.ends[row]))
        yield span, (0, len(shards[number].texts[span.paragraph]))


def _separate(shards: Sequence[Shard], found: Sequence[Spans], unit: Unit) -> Iterator[tuple[_Found, tuple[int, int]]]:
    """Spans whose phrases (or sentences) do not overlap, best first: greedy over all legal spans.

    A span that runs into a better unit is shortened to stop before it and waits for its turn.
    """
    order, of_shard, place = _merged(found)
    in_order = (
        (-float(found[n].scores[row]), n, int(found[n].starts[row]), int(found[n].ends[row]))
        for n, row in zip(of_shard[order].tolist(), place[order].tolist(), strict=True)
    )
    coming = next(in_order, None)
    waiting: list[tuple[float, int, int, int]] = []  # -score, shard, start row, end row: a heap
    taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
    while coming or waiting:
        if coming and (not waiting or coming <= waiting[0]):
            (negative, number, start, end), coming = coming, next(in_order, None)
        else:
            negative, number, start, end = heapq.heappop(waiting)
        shard = shards[number]
        span = _found(shard, number, -negative, start, end)
        units = taken.setdefault((number, span.paragraph), [])
        whole = span.characters
        if unit == "sentence":
            whole = sentence_around(shard.texts[span.paragraph], *span.characters)
        hindered = [begin for begin, stop in units if whole[0] < stop and begin < whole[1]]
        if not hindered:
            units.append(whole)
            yield span, whole
        elif (shorter := found[number].shortened(shard, start, end, min(hindered))) is not None:
            heapq.heappush(waiting, (-shorter[0], number, start, shorter[1]))


def _merged(found: Sequence[Spans]) -> tuple[Rows, Rows, Rows]:
    """The order of all shards' spans, best first; of each span its shard and its place there. Shapes: (spans,)."""
    scores = np.concatenate([spans.scores for spans in found])
    sizes = [len(spans.scores) for spans in found]
    of_shard = np.repeat(np.arange(len(found)), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    return np.argsort(-scores, kind="stable"), of_shard, place


def _found(shard: Shard, number: int, score: float, start: int, end: int) -> _Found:
    return _Found(
        score, number, start, end, shard.paragraph_of(start), (int(shard.starts[start]), int(shard.ends[end]))
    )


def _hit(shard: Shard, span: _Found, unit: tuple[int, int]) -> Hit:
    document = int(shard.paragraph_documents[span.paragraph])
    context = shard.texts[span.paragraph]
    number = int(shard.paragraph_numbers[span.paragraph])
    start, end = span.characters
    phrase = Phrase(context[start:end], shard.ids[document], shard.titles[document], number, start, end)
    return Hit(phrase, span.score, context, unit)


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Characters of the sentence (or sentences) that hold [start, end), without blanks around it."""
    bounds = [(item["start_index"], item["end_index"]) for item in sentencex.get_sentence_boundaries("en", text)]
    first = max((begin for begin, _ in bounds if begin <= start), default=0)
    behind = min((stop for _, stop in bounds if stop >= end), default=len(text))
    inside = text[first:behind]
    return first + len(inside) - len(inside.lstrip()), behind - (len(inside) - len(inside.rstrip()))
