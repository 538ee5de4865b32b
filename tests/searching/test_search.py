"""Search: the depth is that of all shards together."""

from collections.abc import Callable, Sequence

import numpy as np

from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.indexing.base import Bonus, Candidates, ShardGroup, everything
from kbq.searching.search import SearchContext, search


class Hesitant:
    """An index that finds nothing before it is asked for all rows."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self.groups = [ShardGroup(0, shards, self)]

    def candidates(self, starts: Floats, ends: Floats, k: int, bonus: Bonus | None = None) -> list[list[Candidates]]:
        if k >= sum(len(shard) for shard in self._shards):
            return everything(self._shards, len(starts), bonus)
        return [[Candidates(np.empty(0, np.int64), np.inf)] * len(starts) for _ in self._shards]


def test_a_search_goes_on_until_it_has_asked_for_the_rows_of_all_shards(random_shard: Callable[..., Shard]) -> None:
    shards = [random_shard(30, seed=seed) for seed in range(5)]
    queries = np.random.default_rng(0).normal(size=(3, 2, 16)).astype(np.float32)
    assert [len(hits) for hits in search(SearchContext(shards, Hesitant(shards)), queries, 10, "phrase")] == [10] * 3
