"""Search: query vectors become the k best distinct units of all shards, best first.

The answers to a query are the same whatever is asked beside it. They are also the same if some `groups` of shards (see
`Index`) are searched here and others elsewhere, and the answers of these parts are `merged`.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

import numpy as np

from kbq.answers import Answer, Unit
from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.index.base import Bonus, Index
from kbq.index.inner_products import in_steps
from kbq.search.hybrid import LexicalScores, SummedBonus
from kbq.search.spans import Spans, find_spans
from kbq.search.units import TextOf, Units, best_units, shared_texts

Wanted = tuple[int, Unit]  # k, and what an answer is
BATCH = 64  # queries searched together
STARTS = 2**15  # of spans that are scored together, unless one query has more
DEEPER = 4  # times as deep is the next round


@dataclass(frozen=True, slots=True)
class SearchContext:
    """All that a search reads: the shards, the index that finds candidates in them, the length penalty of phrases."""

    shards: Sequence[Shard]
    index: Index
    length_penalty: float = 0.0


def search(
    context: SearchContext, queries: Floats, k: int, unit: Unit, lexical: Sequence[LexicalScores] = ()
) -> list[list[Answer]]:
    """Return the k best units for each query; fewer only where the shards hold fewer.

    Args:
        queries: start vector over end vector, in the units of the rows. Shape: (queries, 2, dim).
        lexical: scores of the same queries, one item for each source; all are added to the scores of phrases.
    """
    return search_several(context, queries, [(k, unit)], lexical)[0]


def search_several(
    context: SearchContext, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores] = ()
) -> list[list[list[Answer]]]:
    """`search` for several (k, unit) at once: each takes its units from the same spans."""
    hits: list[list[list[Answer]]] = [[] for _ in wanted]
    most = max(1, sum(len(shard) for shard in context.shards))  # what is kept for each query grows with k
    wanted = [(min(k, most), unit) for k, unit in wanted]
    for first in range(0, len(queries), BATCH):
        batch = _search_batch(context, queries[first : first + BATCH], wanted, lexical, first)
        for found, answers in zip(hits, batch, strict=True):
            found += answers
    return hits


def raised(found: Sequence[Sequence[Answer]], offsets: Floats) -> list[list[Answer]]:
    """Add an offset to the scores of each query's answers. Shape of `offsets`: (queries,)."""
    pairs = zip(found, offsets.tolist(), strict=True)
    return [[replace(answer, score=answer.score + offset) for answer in answers] for answers, offset in pairs]


def merged(parts: Sequence[Sequence[Answer]], k: int) -> list[Answer]:
    """Return the k best answers to a query, given those of parts of the shards, in order.

    Answers with equal scores are in the order of shards and rows, as they are in each part.
    """
    return list(islice(heapq.merge(*parts, key=lambda hit: -hit.score), k))


class _Ranking:
    """The k best units of one kind, for each query, as far as they are found in each group.

    A deeper round of an approximate index may find a better unit, too late: it is left out. So a round only ever
    appends units, and can be saved where other groups have k better ones.
    """

    def __init__(self, wanted: Wanted, groups: int, queries: int) -> None:
        self.k, self.unit = wanted
        # The k best phrases open in the k best pieces (see exact.py); paragraphs and pages may hold several of these.
        self.depth = self.k if self.unit in ("phrase", "sentence") else 2 * self.k
        self._found = [[Units([], False, np.inf)] * queries for _ in range(groups)]  # [group][query]
        self._best = [[-np.inf] * self.k for _ in range(queries)]  # heaps of the scores of the k best units so far

    def may_grow(self, group: int, query: int) -> bool:
        """Return whether a group may hold more of the k best units."""
        found = self._found[group][query]
        return not found.is_complete and found.complete_above >= self._best[query][0]

    def add(
        self, group: int, query: int, shards: Sequence[Shard], spans: list[Spans], text_of: TextOf, most: int | None
    ) -> None:
        """Add the units of spans that were found at a greater depth.

        Args:
            most: how many units there can be in the group; None: all its spans are given.
        """
        found = self._found[group][query]
        wanted, between = self.k - len(found.hits), (self._best[query][0], found.complete_above)
        units = best_units(shards, spans, self.unit, wanted, between, text_of)
        for hit in units.hits:
            heapq.heappushpop(self._best[query], hit.score)
        hits = found.hits + units.hits
        is_complete = units.is_complete or most is None or len(hits) >= most
        complete_above = min(found.complete_above, units.complete_above)
        self._found[group][query] = Units(hits, is_complete, complete_above)

    def answers(self) -> list[list[Answer]]:
        """Return the k best units for each query."""
        return [merged([found.hits for found in of_query], self.k) for of_query in zip(*self._found, strict=True)]


def _search_batch(
    context: SearchContext, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores], first: int
) -> list[list[list[Answer]]]:
    """`search_several` for some queries: every group is searched in rounds, ever deeper, until the best are found.

    `first`: the number of the first query in `lexical`. Shape of `queries`: (queries, 2, dim).
    """
    groups = context.index.groups
    rankings = [_Ranking(each, len(groups), len(queries)) for each in wanted]
    texts = [shared_texts(group.shards) for group in groups]  # the paragraphs of answers, each read once
    depth = max(ranking.depth for ranking in rankings)
    while open_in := _open(rankings, len(groups), len(queries)):
        for number, some in open_in.items():
            group = groups[number]
            bonus = SummedBonus(lexical, [first + query for query in some], group.first) if lexical else None
            part = SearchContext(group.shards, group.index, context.length_penalty)
            batch = batch_spans(part, queries[some], depth, bonus, certain=True)
            is_deepest = depth >= sum(len(shard) for shard in group.shards)
            most = cache(partial(_most, group.shards))
            for query, spans in zip(some, batch, strict=True):
                for ranking in rankings:
                    if ranking.may_grow(number, query):
                        limit = None if is_deepest else most(ranking.unit)
                        ranking.add(number, query, group.shards, spans, texts[number], limit)
        depth *= DEEPER
    return [ranking.answers() for ranking in rankings]


def _open(rankings: Sequence[_Ranking], groups: int, queries: int) -> dict[int, list[int]]:
    """Return the queries, by group, for which that group may hold more of the best units."""
    open_in = {}
    for group in range(groups):
        some = [query for query in range(queries) if any(ranking.may_grow(group, query) for ranking in rankings)]
        if some:
            open_in[group] = some
    return open_in


def batch_spans(
    context: SearchContext, queries: Floats, depth: int, bonus: Bonus | None = None, certain: bool = False
) -> Iterator[list[Spans]]:
    """Yield, for each query, the spans that open at the index's candidates at this depth, one item per shard.

    Shape of `queries`: (queries, 2, dim); see `find_spans`.
    """
    candidates = context.index.candidates(queries[:, 0], queries[:, 1], depth, bonus)
    penalty, exact = context.length_penalty, in_steps(queries)
    sizes = [sum(len(of_shard.starts) for of_shard in of_query) for of_query in zip(*candidates, strict=True)]
    together = max(1, STARTS // max([1, *sizes]))
    for first in range(0, len(queries), together):
        part = slice(first, first + together)
        of_shards = [
            find_spans(
                shard,
                of_shard[part],
                exact[part],
                length_penalty=penalty,
                certain=certain,
                products_of=partial(context.index.products, number),
            )
            for number, (shard, of_shard) in enumerate(zip(context.shards, candidates, strict=True))
        ]
        yield from map(list, zip(*of_shards, strict=True))


def _most(shards: Sequence[Shard], unit: Unit) -> int:
    """Return how many units there may be in all shards."""
    if unit not in ("paragraph", "page"):
        return sum(len(shard) for shard in shards)
    filled = [np.flatnonzero(shard.filled()) for shard in shards]
    if unit == "paragraph":
        return sum(map(len, filled))
    return sum(len(np.unique(s.paragraph_pages[numbers])) for s, numbers in zip(shards, filled, strict=True))
