"""Retrieval: the phrases that the live query encoder finds in the knowledge base, with the vectors that found them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbq.array_types import Floats, Rows
from kbq.kb import KnowledgeBase
from kbq.searching.spans import Spans, batch_spans


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases of one query: shard, first row, last row, and the score of the search. Shapes: (phrases,)."""

    shards: Rows
    starts: Rows
    ends: Rows
    scores: Floats

    def __len__(self) -> int:
        return len(self.starts)


def phrases_of(places: Sequence[tuple[int, int, int]]) -> Phrases:
    """Phrases that were not searched for: (shard, first row, last row) each, without scores."""
    columns = np.array(places, np.int64).reshape(-1, 3).T
    return Phrases(columns[0], columns[1], columns[2], np.full(len(places), np.nan, np.float32))


def retrieve(kb: KnowledgeBase, starts: Floats, ends: Floats, k: int) -> list[Phrases]:
    """The k best phrases for each query: each start with its best end, overlaps included. Shapes: (queries, dim)."""
    span_lists = batch_spans(kb.searched, kb.model.in_row_units(starts, ends), k)
    return [_best([_phrases(number, spans, k) for number, spans in enumerate(shards)], k) for shards in span_lists]


def _phrases(shard: int, spans: Spans, k: int) -> Phrases:
    """The k best of a shard's spans."""
    starts, ends, scores = spans.starts[:k], spans.ends[:k], spans.scores[:k]
    return Phrases(np.full(len(starts), shard), starts, ends, scores)


def joined(found: Phrases, more: Phrases) -> Phrases:
    """All phrases of both, each once."""
    known = set(zip(found.shards.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True))
    places = zip(more.shards.tolist(), more.starts.tolist(), more.ends.tolist(), strict=True)
    new = phrases_of([place for place in places if place not in known])
    return _concatenated([found, new])


def vectors(kb: KnowledgeBase, phrases: Phrases) -> tuple[Floats, Floats]:
    """First and last token vectors as the search scores them: the dump's own rows, whatever the kind of the index.

    Shapes: (phrases, dim).
    """
    starts, ends = (np.empty((len(phrases), kb.model.dim), np.float32) for _ in range(2))
    for number in np.unique(phrases.shards):
        places = np.flatnonzero(phrases.shards == number)
        shard = kb.shards[number]
        starts[places], ends[places] = shard.vectors_of(phrases.starts[places]), shard.vectors_of(phrases.ends[places])
    return starts * kb.model.scale, ends * kb.model.scale


def penalties(kb: KnowledgeBase, phrases: Phrases) -> Floats:
    """What each phrase loses by its length, as in the search. Shape: (phrases,)."""
    tokens = np.zeros(len(phrases), np.float32)  # after the first one
    for number in np.unique(phrases.shards):
        places = np.flatnonzero(phrases.shards == number)
        positions = kb.shards[number].positions
        tokens[places] = positions[phrases.ends[places]] - positions[phrases.starts[places]]
    return kb.model.config.length_penalty * tokens


def _best(parts: Sequence[Phrases], k: int) -> Phrases:
    phrases = _concatenated(parts)
    order = np.argsort(-phrases.scores, kind="stable")[:k]
    return Phrases(phrases.shards[order], phrases.starts[order], phrases.ends[order], phrases.scores[order])


def _concatenated(parts: Sequence[Phrases]) -> Phrases:
    return Phrases(
        np.concatenate([part.shards for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )
