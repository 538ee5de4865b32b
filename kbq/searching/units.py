"""Units: phrases vote for sentences, paragraphs and documents. Source: arXiv 2109.08133, section 3.

A unit's score is the maximum over its phrases. Phrases that overlap are one unit: the best of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import sentencex
from numpy.typing import NDArray

from kbq.indexing.dump import Shard
from kbq.records import Hit, Phrase
from kbq.searching.spans import Spans

Unit = Literal["phrase", "sentence", "paragraph", "document"]


@dataclass(frozen=True, slots=True)
class Units:
    """The best distinct units of one query, best first; `is_complete`: no better one can be missing."""

    hits: list[Hit]
    is_complete: bool


def best_units(shards: Sequence[Shard], found: Sequence[Spans], unit: Unit, k: int) -> Units:
    """Merge the spans of all shards into the k best distinct units.

    `found` holds the spans of one query, one item per shard.
    """
    complete_above = max(spans.complete_above for spans in found)
    scores = np.concatenate([spans.scores for spans in found])
    of_shard = np.repeat(np.arange(len(found)), [len(spans.scores) for spans in found])
    paragraphs = np.concatenate([s.paragraphs_of(spans.starts) for s, spans in zip(shards, found, strict=True)])
    order = np.argsort(-scores, kind="stable")
    hits: list[Hit] = []
    for place in _distinct(order, of_shard, paragraphs, shards, unit):
        number = int(of_shard[place])
        row = int(place) - int(np.searchsorted(of_shard, number))
        hit = _hit(shards[number], found[number], row, int(paragraphs[place]), unit)
        if unit in ("phrase", "sentence") and any(_same_unit(hit, other) for other in hits):
            continue
        if hit.score <= complete_above:
            return Units(hits, is_complete=False)
        hits.append(hit)
        if len(hits) == k:
            break
    return Units(hits, is_complete=len(hits) == k or complete_above == -np.inf)


def _distinct(
    order: NDArray[np.int64],
    of_shard: NDArray[np.int64],
    paragraphs: NDArray[np.int64],
    shards: Sequence[Shard],
    unit: Unit,
) -> Iterator[np.int64]:
    """Places of spans, best first; for paragraphs and documents the best span of each only."""
    if unit in ("phrase", "sentence"):
        yield from order
        return
    keys = paragraphs
    if unit == "document":
        keys = np.concatenate(
            [shard.paragraph_documents[paragraphs[of_shard == number]] for number, shard in enumerate(shards)]
        )
    _, first = np.unique(np.stack([of_shard[order], keys[order]]), axis=1, return_index=True)
    yield from order[np.sort(first)]


def _hit(shard: Shard, spans: Spans, span: int, paragraph: int, unit: Unit) -> Hit:
    start, end = int(shard.starts[spans.starts[span]]), int(shard.ends[spans.ends[span]])
    document = int(shard.paragraph_documents[paragraph])
    context = shard.texts[paragraph]
    number = int(shard.paragraph_numbers[paragraph])
    phrase = Phrase(context[start:end], shard.ids[document], shard.titles[document], number, start, end)
    whole = {"phrase": (start, end), "sentence": None}.get(unit, (0, len(context)))
    return Hit(phrase, float(spans.scores[span]), context, whole or sentence_around(context, start, end))


def _same_unit(hit: Hit, other: Hit) -> bool:
    """Whether two phrases or sentences of one paragraph overlap."""
    if (hit.phrase.document_id, hit.phrase.paragraph) != (other.phrase.document_id, other.phrase.paragraph):
        return False
    return hit.unit[0] < other.unit[1] and other.unit[0] < hit.unit[1]


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Characters of the sentence (or sentences) that hold [start, end), without blanks around it."""
    bounds = [(item["start_index"], item["end_index"]) for item in sentencex.get_sentence_boundaries("en", text)]
    first = max((begin for begin, _ in bounds if begin <= start), default=0)
    behind = min((stop for _, stop in bounds if stop >= end), default=len(text))
    inside = text[first:behind]
    return first + len(inside) - len(inside.lstrip()), behind - (len(inside) - len(inside.rstrip()))
