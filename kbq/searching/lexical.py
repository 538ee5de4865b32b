"""Lexical scores: how well paragraphs match the terms of a query, alone or added to the scores of their phrases."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from kbq.array_types import Floats
from kbq.dump.shards import Shard
from kbq.options import Unit
from kbq.records import Hit


@dataclass(frozen=True, slots=True)
class HybridWeights:
    """What a point of each source adds to the score of a phrase, for a query encoder whose `lexical_factor` is 1.

    How they were chosen: docs/decisions.md. The default model halves them.
    """

    bm25: float = 8.0
    sparta: float = 4.0

    def times(self, factor: float) -> "HybridWeights":
        """The weights for a query encoder whose scores are larger by this factor."""
        return HybridWeights(self.bm25 * factor, self.sparta * factor)


class ParagraphIndex(Protocol):
    """An inverted index of one shard: BM25, or learned impacts."""

    def scores(self, terms: Sequence[str]) -> Floats:
        """How well each paragraph matches these terms. Shape: (paragraphs,)."""

    def parts(self, terms: Sequence[str], paragraph: int) -> dict[str, float]:
        """What each term adds to the score of a paragraph."""


class LexicalScores:
    """Sparse scores of queries, given as their terms. `indexes` has one item for each shard.

    A phrase gains `weight` times its paragraph's score.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        indexes: Sequence[ParagraphIndex],
        terms: Sequence[Sequence[str]],
        weight: float = 1.0,
    ) -> None:
        self._shards, self._indexes, self._weight = shards, indexes, weight
        self._terms = terms

    def bonus(self, shard: int, queries: Sequence[int]) -> Floats:
        """What the paragraphs of a shard add to the scores of their phrases. Shape: (queries, paragraphs)."""
        scores = np.stack([self._indexes[shard].scores(self._terms[query]) for query in queries])
        scores *= np.float32(self._weight)
        return scores

    def best(self, query: int, unit: Unit, k: int) -> list[Hit]:
        """The k best paragraphs, or pages by their best paragraph; none that share no term with the query.

        There is no phrase: the whole paragraph is the answer.
        """
        hits: list[Hit] = []
        pages = set()
        for score, number, paragraph in self._in_order(query):
            shard = self._shards[number]
            page = (number, int(shard.paragraph_documents[paragraph]))
            if unit == "document" and page in pages:
                continue
            pages.add(page)
            hits.append(_whole_paragraph(shard, paragraph, score))
            if len(hits) == k:
                break
        return hits

    def explained(self, query: int, k: int) -> Iterator[tuple[Hit, dict[str, float]]]:
        """The k best paragraphs, each with what the query's terms add to its score."""
        for score, number, paragraph in islice(self._in_order(query), k):
            parts = self._indexes[number].parts(self._terms[query], paragraph)
            yield _whole_paragraph(self._shards[number], paragraph, score), parts

    def _in_order(self, query: int) -> Iterator[tuple[float, int, int]]:
        """(score, shard, paragraph) of every score above zero, best first."""
        shards = (self._in_shard(shard, query) for shard in range(len(self._shards)))
        return ((-negative, shard, paragraph) for negative, shard, paragraph in heapq.merge(*shards))

    def _in_shard(self, shard: int, query: int) -> Iterator[tuple[float, int, int]]:
        """(-score, shard, paragraph) of every score above zero in one shard, best first."""
        scores = self._indexes[shard].scores(self._terms[query])
        matches = np.flatnonzero(scores > 0)
        for paragraph in matches[np.argsort(-scores[matches], kind="stable")].tolist():
            yield -float(scores[paragraph]), shard, paragraph


class SummedBonus:
    """The `Bonus` of all sources added up, for some of their queries; computed for one shard at a time, on demand."""

    def __init__(self, sources: Sequence[LexicalScores], queries: Sequence[int]) -> None:
        self._sources, self._queries = sources, queries

    def __getitem__(self, shard: int, /) -> Floats:
        total, *others = (source.bonus(shard, self._queries) for source in self._sources)
        for bonus in others:
            total += bonus
        return total


def _whole_paragraph(shard: Shard, paragraph: int, score: float) -> Hit:
    located = shard.located(paragraph)
    whole = (0, len(located.text))
    return Hit(located.phrase(*whole), score, located.text, whole)
