"""Evidence: what the words of a query say about paragraphs, alone or added to the scores of their phrases."""

from collections.abc import Iterator, Sequence

import numpy as np

from kbq.indexing.candidates import Floats
from kbq.indexing.dump import Shard
from kbq.records import Hit, Phrase
from kbq.searching.units import Unit
from kbq.sparse.bm25 import query_words
from kbq.sparse.impacts import ImpactIndex

BM25_WEIGHT = 8.0  # for the default model; chosen on T-REx train, see docs/decisions.md


class Evidence:
    """BM25 scores of queries. `indexes` has one item for each shard; a phrase gains `weight` times its paragraph's."""

    def __init__(
        self,
        shards: Sequence[Shard],
        indexes: Sequence[ImpactIndex],
        texts: Sequence[str],
        weight: float = BM25_WEIGHT,
    ) -> None:
        self._shards, self._indexes, self._weight = shards, indexes, weight
        self._words = [query_words(text) for text in texts]

    def bonus(self, queries: Sequence[int]) -> list[Floats]:
        """For each shard what its paragraphs add to the scores of their phrases. Shapes: (queries, paragraphs)."""
        return [
            np.float32(self._weight) * np.stack([index.scores(self._words[query]) for query in queries])
            for index in self._indexes
        ]

    def best(self, query: int, unit: Unit, k: int) -> list[Hit]:
        """The k paragraphs, or pages by their best paragraph, that share most with the query; none that share nothing.

        There is no phrase: the whole paragraph is the answer.
        """
        scores = [index.scores(self._words[query]) for index in self._indexes]
        hits: list[Hit] = []
        pages = set()
        for number, paragraph in _in_order(scores):
            shard = self._shards[number]
            page = (number, int(shard.paragraph_documents[paragraph]))
            if unit == "document" and page in pages:
                continue
            pages.add(page)
            hits.append(_whole_paragraph(shard, paragraph, float(scores[number][paragraph])))
            if len(hits) == k:
                break
        return hits


def _in_order(scores: Sequence[Floats]) -> Iterator[tuple[int, int]]:
    """(shard, paragraph) of every score above zero, best first."""
    everywhere = np.concatenate(scores)
    shards = np.repeat(np.arange(len(scores)), [len(part) for part in scores])
    places = np.concatenate([np.arange(len(part)) for part in scores])
    found = np.flatnonzero(everywhere > 0)
    for index in found[np.argsort(-everywhere[found], kind="stable")]:
        yield int(shards[index]), int(places[index])


def _whole_paragraph(shard: Shard, paragraph: int, score: float) -> Hit:
    page = int(shard.paragraph_documents[paragraph])
    text = shard.texts[paragraph]
    number = int(shard.paragraph_numbers[paragraph])
    return Hit(Phrase(text, shard.ids[page], shard.titles[page], number, 0, len(text)), score, text, (0, len(text)))
