"""Search: query vectors become the k best distinct units of all shards, best first.

The answers to a query are the same whatever is asked beside it. They are also the same if some `groups` of shards (see
`Index`) are searched here and others elsewhere, and the answers of these parts are `merged`.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

import numpy as np

from kbq.answers import Answer, Unit
from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.index.base import Bonus, Index
from kbq.index.inner_products import in_steps
from kbq.search.hybrid import LexicalScores, SummedBonus
from kbq.search.spans import Spans, find_spans
from kbq.search.units import TextOf, best_units, shared_texts

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
    """The k best units for each query; fewer only where the shards hold fewer.

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
        batch = _Batch(context, queries[first : first + BATCH], wanted, lexical, first)
        for found, answers in zip(hits, batch.answers(), strict=True):
            found += answers
    return hits


def merged(parts: Sequence[Sequence[Answer]], k: int) -> list[Answer]:
    """The k best answers to a query, given those of parts of the shards, in order.

    Answers with equal scores are in the order of shards and rows, as they are in each part.
    """
    return list(islice(heapq.merge(*parts, key=lambda hit: -hit.score), k))


@dataclass(slots=True)
class _Found:
    """The units of one query in one group so far, best first. No more will be added that score above `at_most`.

    A deeper round of an approximate index may find a better one, too late: it is left out. So a round only ever appends
    units, and can be saved where other groups have k better ones.
    """

    units: list[Answer] = field(default_factory=list)
    at_most: float = np.inf
    is_complete: bool = False


class _Ranking:
    """The k best units of one kind, for each query, as far as they are found in each group."""

    def __init__(self, wanted: Wanted, groups: int, queries: int) -> None:
        self.k, self.unit = wanted
        # The k best phrases open in the k best pieces (see exact.py); paragraphs and pages may hold several of these.
        self.depth = self.k if self.unit in ("phrase", "sentence") else 2 * self.k
        self._found = [[_Found() for _ in range(queries)] for _ in range(groups)]  # [group][query]
        self._best = [[-np.inf] * self.k for _ in range(queries)]  # heaps of the scores of the k best units so far

    def may_grow(self, group: int, query: int) -> bool:
        """Whether a group may hold more of the k best units."""
        found = self._found[group][query]
        return not found.is_complete and found.at_most >= self._best[query][0]

    def add(
        self, group: int, query: int, shards: Sequence[Shard], spans: list[Spans], text_of: TextOf, most: int | None
    ) -> None:
        """Add the units of spans that were found at a greater depth.

        Args:
            most: how many units there can be in the group; None: all its spans are given.
        """
        found = self._found[group][query]
        wanted, between = self.k - len(found.units), (self._best[query][0], found.at_most)
        units = best_units(shards, spans, self.unit, wanted, between, text_of)
        found.units += units.hits
        for hit in units.hits:
            heapq.heappushpop(self._best[query], hit.score)
        found.at_most = min(found.at_most, units.complete_above)
        found.is_complete = units.is_complete or most is None or len(found.units) >= most

    def answers(self) -> list[list[Answer]]:
        """The k best units for each query."""
        return [merged([found.units for found in of_query], self.k) for of_query in zip(*self._found, strict=True)]


class _Batch:
    """The search for some queries, in every group, in rounds that are ever deeper until the k best units are found."""

    def __init__(
        self,
        context: SearchContext,
        queries: Floats,
        wanted: Sequence[Wanted],
        lexical: Sequence[LexicalScores],
        first: int,
    ) -> None:
        """`first`: the number of the first query in `lexical`. Shape of `queries`: (queries, 2, dim)."""
        self._queries, self._penalty, self._groups = queries, context.length_penalty, context.index.groups
        self._lexical, self._first = lexical, first
        self._rankings = [_Ranking(each, len(self._groups), len(queries)) for each in wanted]
        self._texts: dict[int, TextOf] = {}  # by group: the paragraphs of answers, each read once

    def answers(self) -> list[list[list[Answer]]]:
        """The k best units of each kind for each query."""
        depth = max(ranking.depth for ranking in self._rankings)
        while open_in := self._open():
            for group, queries in open_in.items():
                self._deepen(group, queries, depth)
            depth *= DEEPER
        return [ranking.answers() for ranking in self._rankings]

    def _open(self) -> dict[int, list[int]]:
        """The queries, by group, for which that group may hold more of the best units."""
        open_in: dict[int, list[int]] = {}
        for group in range(len(self._groups)):
            for query in range(len(self._queries)):
                if any(ranking.may_grow(group, query) for ranking in self._rankings):
                    open_in.setdefault(group, []).append(query)
        return open_in

    def _deepen(self, number: int, queries: list[int], depth: int) -> None:
        """Search one group at this depth."""
        group, deepest = self._groups[number], sum(len(shard) for shard in self._groups[number].shards)
        bonus = None
        if self._lexical:
            bonus = SummedBonus(self._lexical, [self._first + query for query in queries], group.first)
        context = SearchContext(group.shards, group.index, self._penalty)
        batch = batch_spans(context, self._queries[queries], depth, bonus, certain=True)
        most = cache(lambda unit: _most(group.shards, unit))
        text_of = self._texts.setdefault(number, shared_texts(group.shards))
        for query, spans in zip(queries, batch, strict=True):
            for ranking in self._rankings:
                if ranking.may_grow(number, query):
                    limit = most(ranking.unit) if depth < deepest else None
                    ranking.add(number, query, group.shards, spans, text_of, limit)


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
            find_spans(shard, of_shard[part], exact[part], length_penalty=penalty, certain=certain)
            for shard, of_shard in zip(context.shards, candidates, strict=True)
        ]
        yield from map(list, zip(*of_shards, strict=True))


def _most(shards: Sequence[Shard], unit: Unit) -> int:
    """How many units there may be in all shards."""
    if unit not in ("paragraph", "page"):
        return sum(len(shard) for shard in shards)
    filled = [np.flatnonzero(shard.filled()) for shard in shards]
    if unit == "paragraph":
        return sum(map(len, filled))
    return sum(len(np.unique(s.paragraph_pages[numbers])) for s, numbers in zip(shards, filled, strict=True))
