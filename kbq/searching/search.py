"""Search: query vectors become the k best distinct units of all shards, best first."""

from collections.abc import Sequence

import numpy as np

from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.options import Unit
from kbq.records import Hit
from kbq.searching.lexical import LexicalScores, SummedBonus
from kbq.searching.spans import Searched, batch_spans
from kbq.searching.units import best_units

BATCH = 64  # queries searched together


def search(
    searched: Searched, queries: Floats, k: int, unit: Unit, lexical: Sequence[LexicalScores] = ()
) -> list[list[Hit]]:
    """The k best units for each query; fewer only where the shards hold fewer.

    Args:
        queries: start vector over end vector, in the units of the rows. Shape: (queries, 2, dim).
        lexical: of the same queries, from each source; all are added to the scores of phrases.
    """
    hits: list[list[Hit]] = [[] for _ in queries]
    shards = searched.shards
    deepest = sum(len(shard) for shard in shards)
    # The k best phrases open in the k best pieces; paragraphs and documents may hold several of these.
    first_depth = k if unit in ("phrase", "sentence") else 2 * k
    for first in range(0, len(queries), BATCH):
        depth = first_depth
        unsettled = list(range(first, min(first + BATCH, len(queries))))
        while unsettled:
            bonus = SummedBonus(lexical, unsettled) if lexical else None
            found = batch_spans(searched, queries[unsettled], depth, bonus, certain=True)
            asked, unsettled = unsettled, []
            for query, spans in zip(asked, found, strict=True):
                units = best_units(shards, spans, unit, k)
                hits[query] = units.hits
                if not units.is_complete and depth < deepest:
                    unsettled.append(query)
            depth *= 4
            if unsettled:  # perhaps there are not so many: that is not worth looking for at every depth
                k = min(k, _most(shards, unit))
    return hits


def _most(shards: Sequence[Shard], unit: Unit) -> int:
    """How many units could be found."""
    if unit not in ("paragraph", "document"):
        return sum(len(shard) for shard in shards)
    filled = [np.flatnonzero(np.diff(shard.paragraph_rows, prepend=0)) for shard in shards]
    if unit == "paragraph":
        return sum(map(len, filled))
    return sum(len(np.unique(s.paragraph_documents[own])) for s, own in zip(shards, filled, strict=True))
