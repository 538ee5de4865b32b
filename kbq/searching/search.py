"""Search: query vectors become the k best distinct units of all shards, best first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbq.answers import Answer, Unit
from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.indexing.base import Bonus, Index
from kbq.searching.hybrid import LexicalScores, SummedBonus
from kbq.searching.spans import Spans, find_spans
from kbq.searching.texts import shared_texts
from kbq.searching.units import best_units

BATCH = 64  # queries searched together


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What a search reads: all shards, the index that finds candidates in them, and the length penalty of phrases."""

    shards: Sequence[Shard]
    index: Index
    length_penalty: float = 0.0


def search(
    context: SearchContext, queries: Floats, k: int, unit: Unit, lexical: Sequence[LexicalScores] = ()
) -> list[list[Answer]]:
    """The k best units for each query; fewer only where the shards hold fewer.

    Args:
        queries: start vector over end vector, in the units of the rows. Shape: (queries, 2, dim).
        lexical: scores of the same queries, one item for each source; all are added to the scores of phrases.
    """
    hits: list[list[Answer]] = [[] for _ in queries]
    shards = context.shards
    deepest = sum(len(shard) for shard in shards)
    k = min(k, max(1, deepest))  # a unit has at least a row
    # The k best phrases open in the k best pieces (see exact.py); paragraphs and pages may hold several of these.
    first_depth = k if unit in ("phrase", "sentence") else 2 * k
    for first in range(0, len(queries), BATCH):
        depth = first_depth
        unsettled = list(range(first, min(first + BATCH, len(queries))))
        text_of = shared_texts(shards)
        while unsettled:
            bonus = SummedBonus(lexical, unsettled) if lexical else None
            batch = batch_spans(context, queries[unsettled], depth, bonus, certain=True)
            current, unsettled = unsettled, []
            for query, spans in zip(current, batch, strict=True):
                units = best_units(shards, spans, unit, k, text_of)
                hits[query] = units.hits
                if not units.is_complete and depth < deepest:
                    unsettled.append(query)
            depth *= 4
            if unsettled:  # there may be fewer units than k: a search for more would go on to the last depth
                k = min(k, _most(shards, unit))
    return hits


def batch_spans(
    context: SearchContext, queries: Floats, depth: int, bonus: Bonus | None = None, certain: bool = False
) -> Iterator[list[Spans]]:
    """Yield, for each query, the spans that open at the index's candidates at this depth, one item per shard.

    Shape of `queries`: (queries, 2, dim); see `find_spans`.
    """
    candidates = context.index.candidates(queries[:, 0], queries[:, 1], depth, bonus)
    penalty = context.length_penalty
    for query in range(len(queries)):
        yield [
            find_spans(shard, of_queries[query], queries[query], length_penalty=penalty, certain=certain)
            for shard, of_queries in zip(context.shards, candidates, strict=True)
        ]


def _most(shards: Sequence[Shard], unit: Unit) -> int:
    """How many units there may be in all shards."""
    if unit not in ("paragraph", "page"):
        return sum(len(shard) for shard in shards)
    filled = [np.flatnonzero(np.diff(shard.paragraph_rows, prepend=0)) for shard in shards]
    if unit == "paragraph":
        return sum(map(len, filled))
    return sum(len(np.unique(s.paragraph_pages[numbers])) for s, numbers in zip(shards, filled, strict=True))
