"""Search: query vectors become the k best distinct units of all shards, best first."""

from collections.abc import Sequence

import numpy as np

from kbq.indexing.candidates import Floats, Index
from kbq.indexing.dump import Shard
from kbq.records import Hit
from kbq.searching.spans import find_spans
from kbq.searching.units import Unit, best_units

SEARCH_DEPTH = 5  # what an index looks at beyond k; deeper where that does not settle the answer
BATCH = 64  # queries searched together


def search(
    shards: Sequence[Shard], indexes: Sequence[Index], starts: Floats, ends: Floats, k: int, unit: Unit
) -> list[list[Hit]]:
    """The k best units for each query; fewer only where the shards hold fewer.

    Args:
        indexes: one for each shard.
        starts, ends: query vectors in the units of the rows. Shapes: (queries, dim).
    """
    hits: list[list[Hit]] = [[] for _ in starts]
    deepest = max((len(shard) for shard in shards), default=0)
    for first in range(0, len(starts), BATCH):
        depth = SEARCH_DEPTH + (2 * k if unit == "document" else k)  # the k best paragraphs hold the k best phrases
        unsettled = list(range(first, min(first + BATCH, len(starts))))
        while unsettled:
            found = [index.candidates(starts[unsettled], ends[unsettled], depth) for index in indexes]
            asked, unsettled = unsettled, []
            for place, query in enumerate(asked):
                vectors = np.stack([starts[query], ends[query]])
                spans = [find_spans(s, candidates[place], vectors) for s, candidates in zip(shards, found, strict=True)]
                units = best_units(shards, spans, unit, k)
                hits[query] = units.hits
                if not units.is_complete and depth < deepest:
                    unsettled.append(query)
            depth *= 4
    return hits
