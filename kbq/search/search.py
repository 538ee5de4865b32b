"""Search: find the k best distinct units of all shards by vectors, words or both.

The answers to a query do not depend on other queries beside it, nor on where the `groups` of shards
(see `Index`) are searched, as long as their answers are `merged`.
"""

import heapq
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from kbq.answers import Answer, StrongTerms
from kbq.array_types import Floats
from kbq.dump.manifest import Manifest
from kbq.dump.page_directory import PagePlace
from kbq.dump.shards import Shard
from kbq.errors import QueryError
from kbq.index.base import Bonus, Index
from kbq.index.inner_products import rounded_for_exact_sums
from kbq.search.options import Unit, WordBackend
from kbq.search.spans import Spans, TextOf, Units, best_units, find_spans, shared_texts
from kbq.text.normal_forms import folded
from kbq.text.queries import MARKERS, Query
from kbq.words.bm25 import (
    BM25Index,
    WordStatistics,
    missing_words,
    open_bm25,
    query_words,
    shares_of,
    title_term,
)
from kbq.words.impacts import PieceTokenizer, SentenceImpacts
from kbq.words.names import NOWHERE, Names, Naming

NAMESAKES = 64  # paragraphs of pages with one title that are looked at
# Words with a capital of a question that may begin a name, and words of a name.
MOST_NAMES = 8
LONGEST_NAME = 4
_WORD = re.compile(r"[^\W_][\w'’ʻʼ.-]*[^\W_]|[^\W_]")
ParagraphIndex = BM25Index | SentenceImpacts  # index of one shard

Wanted = tuple[int, Unit]  # k, and what an answer is
BATCH = 64  # queries searched together
STARTS = 2**15  # spans that are scored together, unless one query has more
DEEPER = 4  # how many times as deep the next round is


@dataclass(frozen=True, slots=True)
class WordQueries:
    """The terms of queries for one source of scores, from which `LexicalScores` of shards elsewhere
    are made.
    """

    terms: Sequence[Sequence[str]]
    weight: float
    # Statistics of the whole knowledge base, for BM25; None for learned impacts.
    statistics: WordStatistics | None
    slots: "SlotWords | None" = None


@dataclass(frozen=True, slots=True)
class SlotWords:
    """The subjects and the relations of queries, as far as they count otherwise than the words of
    any text.
    """

    namings: Sequence[Naming]  # the pages that name the subject of each query
    shares: Sequence[Sequence[float]]  # share of each term of each query that counts


class LexicalScores:
    """Sparse scores of queries, given as their terms: a phrase gains `weight` times its paragraph's
    score.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        indexes: Sequence[ParagraphIndex],
        terms: Sequence[Sequence[str]],
        weight: float = 1.0,
        slots: SlotWords | None = None,
    ) -> None:
        self._shards = shards
        self._indexes = indexes
        self._weight = weight
        self._terms = terms
        self._text_of = shared_texts(shards)
        self._slots = slots

    @property
    def queries(self) -> WordQueries:
        """The queries without the shards, of which there must be some."""
        words = {term for terms in self._terms for term in terms}
        return WordQueries(
            self._terms, self._weight, self._indexes[0].statistics(words), self._slots
        )

    def bonus(self, shard: int, queries: Sequence[int]) -> Floats:
        """Return the scores that the paragraphs of a shard add to their phrases. Shape: (queries,
        paragraphs).
        """
        scores = np.stack([self._scores(shard, query) for query in queries])
        scores *= np.float32(self._weight)
        return self._shown(shard, scores)

    def _scores(self, shard: int, query: int) -> Floats:
        """Return the scores of a shard's paragraphs, without the weight. Shape: (paragraphs,)."""
        if self._slots is None:
            return self._indexes[shard].scores(self._terms[query])
        scores = self._indexes[shard].scores(self._terms[query], self._slots.shares[query])
        named = self._slots.namings[query].of_shards.get(self._shards[shard].folder.name)
        if named is not None:
            scores[named.paragraphs] += named.points
        return scores

    def _shown(self, shard: int, scores: Floats) -> Floats:
        """Return scores that are zero for paragraphs of pages that give no answers. Shape: (…,
        paragraphs).
        """
        shown = self._shards[shard].shown
        return scores if shown is None else scores * shown

    def best(self, query: int, unit: Unit, k: int) -> list[Answer]:
        """Find the k best paragraphs, or pages by their best paragraph, that share a term with the
        query; with learned impacts, also sentences.
        """
        if unit == "sentence":
            return list(islice(self._sentences(query), min(k, sys.maxsize)))
        hits: list[Answer] = []
        pages = set()
        for score, number, paragraph in self._in_order(query):
            shard = self._shards[number]
            page = (number, int(shard.paragraph_pages[paragraph]))
            if unit == "page" and page in pages:
                continue
            pages.add(page)
            hits.append(shard.answer(paragraph, score, text=self._text_of(number, paragraph)))
            if len(hits) == k:
                break

        return hits

    def _sentences(self, query: int) -> Iterator[Answer]:
        """Yield the sentences of every score above zero, best first. BM25 knows none."""
        indexes = [index for index in self._indexes if isinstance(index, SentenceImpacts)]
        ranked = heapq.merge(
            *(
                _in_order(self._sentence_scores(shard, index, query), shard)
                for shard, index in enumerate(indexes)
            )
        )
        for negative, number, sentence in ranked:
            paragraph, place = indexes[number].place(sentence)
            text = self._text_of(number, paragraph)
            yield self._shards[number].answer(paragraph, -negative, place, place, text)

    def _sentence_scores(self, shard: int, index: SentenceImpacts, query: int) -> Floats:
        """Return the scores of a shard's sentences, zero on pages that give no answers. Shape:
        (sentences,).
        """
        scores = index.sentence_scores(self._terms[query]) * np.float32(self._weight)
        shown = self._shards[shard].shown
        return scores if shown is None else scores * shown[index.paragraphs]

    def explained(self, query: int, k: int) -> Iterator[tuple[Answer, dict[str, float]]]:
        """Yield the k best paragraphs, each with the share of each term in its score."""
        for score, number, paragraph in islice(self._in_order(query), min(k, sys.maxsize)):
            parts = self._indexes[number].parts(self._terms[query], paragraph)
            yield self._shards[number].answer(paragraph, score), parts

    def _in_order(self, query: int) -> Iterator[tuple[float, int, int]]:
        """Yield (score, shard, paragraph) of every score above zero, best first."""
        shards = (self._in_shard(shard, query) for shard in range(len(self._shards)))
        return (
            (-negative, shard, paragraph) for negative, shard, paragraph in heapq.merge(*shards)
        )

    def _in_shard(self, shard: int, query: int) -> Iterator[tuple[float, int, int]]:
        """Yield (-score, shard, paragraph) of every score above zero in one shard, best first."""
        return _in_order(self._shown(shard, self._scores(shard, query)), shard)


def _in_order(scores: Floats, shard: int) -> Iterator[tuple[float, int, int]]:
    """Yield (-score, shard, number) of every score above zero, best first."""
    matches = np.flatnonzero(scores > 0)
    for number in matches[np.argsort(-scores[matches], kind="stable")].tolist():
        yield -float(scores[number]), shard, number


class SummedBonus:
    """The summed `Bonus` of all sources for some of their queries, computed on demand for one shard
    at a time.
    """

    def __init__(
        self, sources: Sequence[LexicalScores], queries: Sequence[int], first: int = 0
    ) -> None:
        """`first` is the number of the first shard in the sources."""
        self._sources = sources
        self._queries = queries
        self._first = first

    def __getitem__(self, shard: int, /) -> Floats:
        total, *others = (
            source.bonus(self._first + shard, self._queries) for source in self._sources
        )
        for bonus in others:
            total += bonus
        return total


class WordIndexes:
    """BM25 and learned impacts (SPARTA) of all shards, as far as the knowledge base has them."""

    def __init__(self, folder: Path, manifest: Manifest, shards: Sequence[Shard]) -> None:
        """Open the indexes. Raises KnowledgeBaseError if files are missing or damaged."""
        self._folder = folder
        self._shards = shards
        self.bm25 = open_bm25(shards) if manifest.bm25 else []
        self.sparta = (
            [SentenceImpacts(shard, manifest) for shard in shards] if manifest.sparta else []
        )
        self._pieces = PieceTokenizer(folder, manifest) if manifest.sparta else None
        self._names = Names(shards, self.bm25)

    def __bool__(self) -> bool:
        return bool(self.bm25 or self.sparta)

    def scores(
        self, queries: Sequence[Query], backend: WordBackend, weight: float = 1.0
    ) -> LexicalScores:
        """Return the lexical scores of queries. Raises QueryError if the knowledge base has no such
        index.
        """
        self.require(backend)
        if backend == "sparta" and self._pieces is not None:
            pieces = list(map(self._pieces.terms, queries))
            return LexicalScores(self._shards, self.sparta, pieces, weight)
        return LexicalScores(self._shards, self.bm25, self._words_of(queries), weight)

    def require(self, backend: WordBackend) -> None:
        """Raise QueryError if the knowledge base has no index of words for this backend."""
        if backend == "sparta" and self._pieces is None:
            raise QueryError(
                f"{self._folder} has no learned impacts: add them with `kbq index sparta "
                f"{self._folder} MODEL`"
            )
        if backend == "bm25" and not self.bm25:
            raise QueryError(
                f"{self._folder} has no BM25 index: add one with `kbq index bm25 {self._folder}`"
            )

    def _words_of(self, queries: Sequence[Query]) -> list[list[str]]:
        return [query_words(query, self.bm25) for query in queries]

    def strongest(self, place: PagePlace, backend: WordBackend, k: int) -> list[StrongTerms]:
        """Return the k strongest terms of each sentence of a page or, by BM25, of each paragraph.

        Raises QueryError if the knowledge base has no such index.
        """
        self.require(backend)
        index: ParagraphIndex = (self.sparta if backend == "sparta" else self.bm25)[place.shard]
        shard = self._shards[place.shard]
        first, stop = np.searchsorted(shard.paragraph_pages, [place.page, place.page + 1]).tolist()
        strongest: list[StrongTerms] = []
        for paragraph in range(first, stop):
            number = int(shard.paragraph_numbers[paragraph])
            strongest += [
                StrongTerms(number, text, terms) for text, terms in index.sentences(paragraph, k)
            ]
        return strongest

    def all_scores(
        self, queries: Sequence[Query], bm25_weight: float, sparta_weight: float
    ) -> list[LexicalScores]:
        """Return the weighted scores of all indexes. Raises QueryError if there is none."""
        sources = []
        if self.sparta:
            sources = [self.scores(queries, "sparta", sparta_weight)]
        if self.bm25 or not sources:
            self.require("bm25")
            terms = self._words_of(queries)
            slots = SlotWords(list(map(self.naming, queries)), list(map(shares_of, queries, terms)))
            sources.append(LexicalScores(self._shards, self.bm25, terms, bm25_weight, slots))
        return sources

    def naming(self, query: Query) -> Naming:
        """Return the pages that name the subject of a slot query; none for any other query."""
        if query.is_slot and self.bm25:
            return self._names.of(query.subject)
        return NOWHERE

    def respelled(self, query: Query) -> Query:
        """Spell the subject of a query, or a name in a question, like the title that reads the
        same: Łódź for Lodz.

        To an encoder, another spelling is another name.
        """
        if not self.bm25 or query.mention is not None:
            return query
        if query.is_slot:
            title = self._title_like(query.subject)
            if title:
                return Query.of(f"{title} [SEP] {query.relation}")
            return query

        text = query.text
        words = list(_WORD.finditer(text))
        names = [place for place, word in enumerate(words) if word[0][0].isupper()][:MOST_NAMES]
        for length in range(min(LONGEST_NAME, len(words)), 0, -1):
            for first in (place for place in names if place + length <= len(words)):
                begin = words[first].start()
                end = words[first + length - 1].end()
                name = text[begin:end]
                title = self._title_like(text[begin:end])
                # One word must match in upper and lower case, too: ".in" is not the title "In".
                if title and (length > 1 or folded(title) == folded(name)):
                    # Ends such as that of Kievan Rus'.
                    end += not title[-1].isalnum() and text[end : end + 1] == title[-1]
                    return Query.of(f"{text[:begin]}{title}{text[end:]}")

        return query

    def _title_like(self, name: str) -> str:
        """Return the only title that reads like a name but is spelled otherwise, or ""."""
        if not name:
            return ""
        term = title_term(name)
        titles = set[str]()
        for shard, index in zip(self._shards, self.bm25, strict=True):
            titles |= {
                shard.title_of(paragraph) for paragraph in index.of(term)[0][:NAMESAKES].tolist()
            }

        others = [
            title
            for title in titles
            if len(title) <= 2 * len(name) + 8 and not MARKERS.search(title)
        ]
        is_clear = len(titles) == len(others) == 1 and others[0].lower() != name.lower()

        return others[0] if is_clear else ""

    def missing(self, text: str) -> list[str]:
        """Return the words of a text that no page has in any form, as far as a BM25 index can tell."""
        if self.bm25:
            return missing_words(text, self.bm25)
        return []

    def unknown(
        self, query: Query, numbers_of: Callable[[Sequence[str]], Sequence[int | None]]
    ) -> list[str]:
        """Return the words of a query that no page has: mistyped words, and names that this corpus
        lacks.

        A relation or a question may use other words than all pages. Its words count only if the
        encoder's vocabulary lacks them, too, and `numbers_of` returns None.
        """
        if query.mention is not None:
            return list(dict.fromkeys(self.missing(query.mention)))
        text = query.text
        if query.is_slot:
            text = query.relation
        missing = self.missing(text)
        unread = [
            word
            for word, number in zip(missing, numbers_of(missing), strict=True)
            if number is None
        ]
        return list(dict.fromkeys((*self.missing(query.subject), *unread)))


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The shards that a search reads, the index that finds candidates in them, and the length
    penalty of phrases.
    """

    shards: Sequence[Shard]
    index: Index
    length_penalty: float = 0.0


def search(
    context: SearchContext,
    queries: Floats,
    k: int,
    unit: Unit,
    lexical: Sequence[LexicalScores] = (),
) -> list[list[Answer]]:
    """Return the k best units for each query, or all if the shards hold fewer.

    Args:
        queries: start vector over end vector, in the units of the rows. Shape: (queries, 2, dim).
        lexical: scores of the same queries from each source, which are added to those of phrases.
    """
    return search_several(context, queries, [(k, unit)], lexical)[0]


def search_several(
    context: SearchContext,
    queries: Floats,
    wanted: Sequence[Wanted],
    lexical: Sequence[LexicalScores] = (),
) -> list[list[list[Answer]]]:
    """`search` for several (k, unit) at once, which take their units from the same spans."""
    hits: list[list[list[Answer]]] = [[] for _ in wanted]
    most = max(1, sum(len(shard) for shard in context.shards))  # the memory of a query grows with k
    wanted = [(min(k, most), unit) for k, unit in wanted]
    for first in range(0, len(queries), BATCH):
        batch = _search_batch(context, queries[first : first + BATCH], wanted, lexical, first)
        for collected, answers in zip(hits, batch, strict=True):
            collected += answers
    return hits


def with_offsets(answers_of: Sequence[Sequence[Answer]], offsets: Floats) -> list[list[Answer]]:
    """Add an offset to the scores of each query's answers. Shape of `offsets`: (queries,)."""
    pairs = zip(answers_of, offsets.tolist(), strict=True)
    return [
        [replace(answer, score=answer.score + offset) for answer in answers]
        for answers, offset in pairs
    ]


def merged(parts: Sequence[Sequence[Answer]], k: int) -> list[Answer]:
    """Merge the answers to a query from parts of the shards, in order, to the k best.

    Equal scores are in the order of shards and rows.
    """
    return list(islice(heapq.merge(*parts, key=lambda hit: -hit.score), k))


class _Ranking:
    """The k best units of one kind, for each query, as far as they are found in each group.

    Rounds only append units: a better one that a deeper round of an approximate index finds comes
    too late. So a round can be saved where other groups have k better units.
    """

    def __init__(self, wanted: Wanted, groups: int, queries: int) -> None:
        self.k, self.unit = wanted
        # The k best phrases open in the k best pieces (see exact.py), several of which may be in
        # one paragraph.
        if self.unit in ("phrase", "sentence"):
            self.depth = self.k
        else:
            self.depth = 2 * self.k
        # Units of each query, by group.
        self._found = [[Units([], False, np.inf)] * queries for _ in range(groups)]
        # Heaps of the scores of the k best units so far.
        self._best = [[-np.inf] * self.k for _ in range(queries)]

    def may_grow(self, group: int, query: int) -> bool:
        """Return whether a deeper search may find better units."""
        units = self._found[group][query]
        return not units.is_complete and units.complete_above >= self._best[query][0]

    def add(
        self,
        group: int,
        query: int,
        shards: Sequence[Shard],
        spans: list[Spans],
        text_of: TextOf,
        limit: int | None,
    ) -> None:
        """Add the units of spans that were found at a greater depth.

        `limit` is the number of units that the group may hold, or None if all its spans are given.
        """
        before = self._found[group][query]
        missing = self.k - len(before.hits)
        between = (self._best[query][0], before.complete_above)
        units = best_units(shards, spans, self.unit, missing, between, text_of)
        for hit in units.hits:
            heapq.heappushpop(self._best[query], hit.score)
        hits = before.hits + units.hits
        is_complete = units.is_complete or limit is None or len(hits) >= limit
        complete_above = min(before.complete_above, units.complete_above)
        self._found[group][query] = Units(hits, is_complete, complete_above)

    def answers(self) -> list[list[Answer]]:
        return [
            merged([units.hits for units in of_query], self.k)
            for of_query in zip(*self._found, strict=True)
        ]


def _search_batch(
    context: SearchContext,
    queries: Floats,
    wanted: Sequence[Wanted],
    lexical: Sequence[LexicalScores],
    first: int,
) -> list[list[list[Answer]]]:
    """Search every group in ever deeper rounds until the best units are found. Shape of `queries`:
    (queries, 2, dim).

    `first` is the number of the first query in `lexical`.
    """
    groups = context.index.groups
    rankings = [_Ranking(each, len(groups), len(queries)) for each in wanted]
    # The paragraphs of answers, each read once.
    texts = [shared_texts(group.shards) for group in groups]
    depth = max(ranking.depth for ranking in rankings)

    while unfinished := _unfinished(rankings, len(groups), len(queries)):
        for number, some in unfinished.items():
            group = groups[number]
            bonus = (
                SummedBonus(lexical, [first + query for query in some], group.first)
                if lexical
                else None
            )
            part = SearchContext(group.shards, group.index, context.length_penalty)
            batch = batch_spans(part, queries[some], depth, bonus, certain=True)
            is_deepest = depth >= sum(len(shard) for shard in group.shards)
            limit_of = cache(partial(_unit_limit, group.shards))
            for query, spans in zip(some, batch, strict=True):
                for ranking in rankings:
                    if ranking.may_grow(number, query):
                        limit = None if is_deepest else limit_of(ranking.unit)
                        ranking.add(number, query, group.shards, spans, texts[number], limit)

        depth *= DEEPER

    return [ranking.answers() for ranking in rankings]


def _unfinished(rankings: Sequence[_Ranking], groups: int, queries: int) -> dict[int, list[int]]:
    """Return, by group, the queries for which it may hold more of the best units."""
    unfinished: dict[int, list[int]] = {}
    for group in range(groups):
        for query in range(queries):
            if any(ranking.may_grow(group, query) for ranking in rankings):
                unfinished.setdefault(group, []).append(query)
    return unfinished


def batch_spans(
    context: SearchContext,
    queries: Floats,
    depth: int,
    bonus: Bonus | None = None,
    certain: bool = False,
) -> Iterator[list[Spans]]:
    """Yield, for each query, the spans of each shard that open at the index's candidates at this
    depth.

    Shape of `queries`: (queries, 2, dim); see `find_spans`.
    """
    index = context.index
    candidates = index.candidates(queries[:, 0], queries[:, 1], depth, bonus)
    exact = rounded_for_exact_sums(queries)
    sizes = [
        sum(len(of_shard.starts) for of_shard in of_query)
        for of_query in zip(*candidates, strict=True)
    ]
    together = max(1, STARTS // max([1, *sizes]))

    for first in range(0, len(queries), together):
        part = slice(first, first + together)
        of_shards = []
        for number, (shard, of_shard) in enumerate(zip(context.shards, candidates, strict=True)):
            spans = find_spans(
                shard,
                of_shard[part],
                exact[part],
                length_penalty=context.length_penalty,
                certain=certain,
                products_of=partial(index.products, number),
            )
            of_shards.append(spans)

        yield from map(list, zip(*of_shards, strict=True))


def _unit_limit(shards: Sequence[Shard], unit: Unit) -> int:
    """Return how many units shards hold at most."""
    if unit not in ("paragraph", "page"):
        return sum(len(shard) for shard in shards)
    limit = 0
    for shard in shards:
        paragraphs = np.flatnonzero(shard.filled())
        if unit == "paragraph":
            limit += len(paragraphs)
        else:
            limit += len(np.unique(shard.paragraph_pages[paragraphs]))
    return limit
