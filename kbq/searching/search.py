"""Search: query vectors become the k best distinct units of all shards, best first."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from kbq.indexing.candidates import Floats, Index
from kbq.indexing.dump import Shard
from kbq.records import Hit
from kbq.searching.evidence import Evidence
from kbq.searching.spans import batch_spans
from kbq.searching.units import Unit, best_units

BATCH = 64  # queries searched together


def search(
    shards: Sequence[Shard],
    indexes: Sequence[Index],
    queries: Floats,
    k: int,
    unit: Unit,
    evidence: Sequence[Evidence] = (),
    length_penalty: float = 0.0,
) -> list[list[Hit]]:
    """The k best units for each query; fewer only where the shards hold fewer.

    Args:
        indexes: one for each shard.
        queries: start vector over end vector, in the units of the rows. Shape: (queries, 2, dim).
        evidence: of the same queries, from each source; all are added to the scores of phrases.
        length_penalty: what each token of a phrase after the first takes from its score.
    """
    hits: list[list[Hit]] = [[] for _ in queries]
    deepest = max((len(shard) for shard in shards), default=0)
    # The k best phrases open in the k best pieces; paragraphs and documents may hold several of these.
    first_depth = k if unit in ("phrase", "sentence") else 2 * k
    for first in range(0, len(queries), BATCH):
        depth = first_depth
        unsettled = list(range(first, min(first + BATCH, len(queries))))
        while unsettled:
            bonus = _bonus(evidence, unsettled) if evidence else [None] * len(shards)
            found = [
                batch_spans(shard, index, queries[unsettled], depth, extra, length_penalty)
                for shard, index, extra in zip(shards, indexes, bonus, strict=True)
            ]
            asked, unsettled = unsettled, []
            for query, spans in zip(asked, zip(*found, strict=True), strict=True):
                units = best_units(shards, spans, unit, k)
                hits[query] = units.hits
                if not units.is_complete and depth < deepest:
                    unsettled.append(query)
            depth *= 4
    return hits


def _bonus(evidence: Sequence[Evidence], queries: Sequence[int]) -> list[Floats]:
    """For each shard what all sources together add. Shapes: (queries, paragraphs)."""
    return [reduce(np.add, parts) for parts in zip(*(source.bonus(queries) for source in evidence), strict=True)]
