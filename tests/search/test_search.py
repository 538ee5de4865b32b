"""Search: the depth is that of all shards together."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.index.base import Bonus, Candidates, ShardGroup, everything
from kbq.search.search import SearchContext, batch_spans, search


class Hesitant:
    """An index that finds nothing before it is asked for all rows."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self.groups = [ShardGroup(0, shards, self)]

    def candidates(
        self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None
    ) -> list[list[Candidates]]:
        if k >= sum(len(shard) for shard in self._shards):
            return everything(self._shards, len(starts), bonus)
        return [[Candidates(np.empty(0, np.int64), np.inf)] * len(starts) for _ in self._shards]

    def products(self, shard: int, rows: Rows, query_of: Rows, queries: Floats | Doubles) -> Floats:
        return self._shards[shard].products(rows, query_of, queries)


def test_a_search_goes_on_until_it_has_asked_for_the_rows_of_all_shards(
    random_shard: Callable[..., Shard],
) -> None:
    shards = [random_shard(30, seed=seed) for seed in range(5)]
    queries = np.random.default_rng(0).normal(size=(3, 2, 16)).astype(np.float32)
    assert [
        len(hits) for hits in search(SearchContext(shards, Hesitant(shards)), queries, 10, "phrase")
    ] == [10] * 3


def test_how_many_queries_are_scored_together_changes_nothing(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [random_shard(30, 0, 7, seed=seed) for seed in range(2)]
    context = SearchContext(shards, Hesitant(shards))
    queries = np.random.default_rng(0).normal(size=(5, 2, 16)).astype(np.float32)
    scores = []
    for starts in (2**15, 2 * 74, 1):  # five, two, and one together
        monkeypatch.setattr("kbq.search.search.STARTS", starts)
        scores.append(
            [
                spans.scores.tolist()
                for shard in batch_spans(context, queries, 1000)
                for spans in shard
            ]
        )
    assert scores[0] == scores[1] == scores[2]
    assert [len(each) for each in scores[0]] == [26, 23] * 5
