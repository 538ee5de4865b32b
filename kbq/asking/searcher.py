"""Searcher: answer queries from an open knowledge base.

`results` answers queries that `check` has let pass: `search` finds the best phrases and has them
judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from kbq.answers import INDEX_KINDS, IndexKind, Result
from kbq.asking.plan import SearchFacts, SearchPlan
from kbq.asking.workers import Answerers
from kbq.dump.manifest import read_manifest, refuse_other_model
from kbq.dump.page_directory import Pages, Titles, refuse_unknown
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import Place, choose_place, open_index
from kbq.model.model import Model
from kbq.model.queries import ReadsQueries, readable_queries
from kbq.reading.generative import GenerativeReader, open_any
from kbq.reading.probability import own_calibration
from kbq.reading.reader import Reader
from kbq.reading.reranker import Reranking, judged_first, rerank
from kbq.search.options import WORDS_ALONE, Purpose, SearchOptions
from kbq.search.search import (
    BATCH,
    SearchContext,
    Wanted,
    WordIndexes,
    search_several,
    with_offsets,
)
from kbq.storage.records import digest_of_bytes
from kbq.text.queries import Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbq.answers import Answer
    from kbq.array_types import Bools
    from kbq.cluster.searcher import RaySearcher
    from kbq.dump.manifest import Manifest
    from kbq.index.base import Index
    from kbq.reading.probability import Calibration


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """Where a knowledge base is searched, and which part of it. Raises KnowledgeBaseError for
    invalid values.
    """

    index: IndexKind | None = None  # default: the one that was built last
    device: str = "auto"  # searches on the CPU where the model's GPUs have no room for the vectors
    ray: str | None = None  # address of a Ray cluster whose machines search
    workers: int = 1  # processes that answer; 1: this one does
    pages: tuple[str, ...] = ()  # ids of the pages that it answers from; none: all

    def __post_init__(self) -> None:
        if self.index is not None and self.index not in INDEX_KINDS:
            kinds = ", ".join(INDEX_KINDS)
            raise KnowledgeBaseError(
                f"index kind {self.index!r} is unknown: choose from {kinds}", is_usage=True
            )

        if (
            not isinstance(self.workers, int)
            or self.workers < 1
            or (self.ray is not None and self.workers > 1)
        ):
            problem = f"workers is {self.workers!r:.20}: give 1 or more; with a Ray cluster, 1"
            raise KnowledgeBaseError(problem, is_usage=True)


class SearchTargetKwargs(TypedDict, total=False):
    """The options of `KnowledgeBase.open`; see `SearchTarget`."""

    index: IndexKind | None
    device: str
    ray: str | None
    workers: int


class Searcher:
    """The open files, indexes and networks of a knowledge base."""

    def __init__(self, folder: Path, manifest: Manifest, where: SearchTarget, model: Model) -> None:
        """Open what a manifest describes or, if another has replaced it, what that one does."""
        self.folder = folder
        self.manifest = manifest
        self.where = where
        self.model = model
        self._calibrations: dict[Purpose, Calibration | None] = {}
        try:
            self._open()
        except KnowledgeBaseError:
            self.manifest = read_manifest(folder)
            if self.manifest == manifest:
                raise
            self._open()

    def _open(self) -> None:
        """Open the shards, what searches them (an index here or, on a cluster, many), and the
        words.
        """
        folder = self.folder
        manifest = self.manifest
        where = self.where
        self.index = manifest.entry(folder, where.index)
        refuse_other_model(folder, manifest, self.model)
        self.reranking = Reranking(self.model)
        self._readers = dict[str, Reader | GenerativeReader]()
        self.answerers: Answerers | None = None
        self._cluster: RaySearcher | None = None
        self.place: Place | None = None  # the nodes' CPUs search on a cluster

        with manifest.damage_explained(folder):
            # An index looks at its own files.
            self.shards = manifest.open_shards(folder, manifest.parts())
            self._index: Index | None = None  # index of all shards, once it is searched here
            shown: list[Bools] = []  # pages of each shard that may be answered with
            if where.pages:
                shown, unknown = Pages(self.shards).chosen(where.pages)
                refuse_unknown(folder, unknown)
                for shard, pages in zip(self.shards, shown, strict=True):
                    shard.show_only(pages)

            if where.ray is None:
                may_leave = where.device == "auto"
                entries = manifest.available
                device = self.model.device
                self.place = choose_place(
                    self.shards, entries, where.index, device, may_leave, where.workers
                )
                self.index = self.place.entry

            if where.workers > 1:
                alone = replace(where, workers=1, index=self.index.kind)
                opens = partial(Searcher, folder.absolute(), manifest, alone)
                self.answerers = Answerers(opens, self.model, where.workers)
            elif where.ray is None:
                self._index = self._opened_index()
            else:
                from kbq.cluster.searcher import open_searcher

                manifest.refuse_codes(folder)
                penalty = self.model.config.length_penalty
                self._cluster = open_searcher(
                    where.ray, folder, manifest, self.index, self.shards, shown, penalty
                )

            self.words = WordIndexes(folder, manifest, self.shards)

    @cached_property
    def pages(self) -> Pages:
        return Pages(self.shards)

    @cached_property
    def titles(self) -> Titles:
        return Titles(self.shards)

    def _opened_index(self) -> Index:
        if self.place is None:
            device = self.model.device
        else:
            device = self.place.device
        return open_index(self.shards, self.index, device, self.where.device == "auto")

    @property
    def search_context(self) -> SearchContext:
        """The parts of the knowledge base that a search in this process reads.

        Where others search, the index is opened here when it is first asked for.
        """
        if self._index is None:
            self._index = self._opened_index()
        return SearchContext(self.shards, self._index, self.model.config.length_penalty)

    @property
    def batch_size(self) -> int:
        """How many queries to ask at a time."""
        return BATCH * self.where.workers

    def plan(self, options: SearchOptions) -> SearchPlan:
        """Return what follows from the options of a search here.

        Raises:
            QueryError: probabilities or reranking are asked for where there are none, or a
                calibration does not fit.
            ModelError: the calibration that is asked for, or the model's own, is missing or
                damaged.
        """
        return SearchPlan.of(
            options, self.words, self.reranking, lambda: self._own_calibration(options.purpose)
        )

    def _own_calibration(self, purpose: Purpose) -> Calibration | None:
        if purpose not in self._calibrations:
            self._calibrations[purpose] = own_calibration(self.model, purpose)
        return self._calibrations[purpose]

    def forget_calibration(self) -> None:
        """Read the model's own calibrations again when they are needed."""
        self._calibrations.clear()

    def facts(self, options: SearchOptions) -> SearchFacts:
        """Return what decides the answers of a search besides its queries, so that runs can be
        compared.
        """
        plan = self.plan(options)
        ids = "\n".join(sorted(self.where.pages))
        pages = ""
        if ids:
            pages = digest_of_bytes(ids.encode("utf-8", "surrogatepass"))
        if options.reader is None:
            reader = None
        else:
            reader = self.reader(options.reader).fingerprint()
        return SearchFacts(
            contents=self.manifest.contents,
            pages=pages,
            index=self.index.facts,
            query_encoder=self.model.config.query_fingerprint,
            backend=plan.backend,
            weights=plan.weights,
            reader=reader,
            reranker=plan.judged_by,
        )

    def reader(self, name: str) -> Reader | GenerativeReader:
        if name == self.reranking.base:
            return self.reranking.reader
        if name not in self._readers:
            self._readers[name] = open_any(name, str(self.model.device))
        return self._readers[name]

    def writes_answers(self, options: SearchOptions) -> bool:
        """Whether the reader writes answers instead of finding phrases."""
        return options.reader is not None and isinstance(
            self.reader(options.reader), GenerativeReader
        )

    def query_tokenizers(self, options: SearchOptions) -> list[ReadsQueries]:
        """Return the tokenizers of all networks that will read a query."""
        own: list[ReadsQueries] = [self.model.query_tokenizer]
        return (
            own if options.reader is None else [*own, self.reader(options.reader).query_tokenizer]
        )

    def untuned_relations(self, texts: Iterable[str]) -> list[str]:
        """Return the relations of queries on which a tuned query encoder was not tuned; of any
        other, none.
        """
        return self.model.config.untuned_relations(texts)

    def unknown_words(self, query: Query) -> list[str]:
        """Name words of a query that no page has, perhaps mistyped; see `WordIndexes.unknown`."""
        with self.manifest.damage_explained(self.folder):
            return self.words.unknown(query, self.model.query_tokenizer.numbers)

    def check(
        self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()
    ) -> list[Query]:
        """Return the queries that texts are; refuse those that cannot be asked, and options that do
        not fit or would be ignored.

        Args:
            places: of the texts, for messages: "file:line".

        Raises:
            QueryError: a weight has no effect here, reranking where there is none, a calibration
                that does not fit, or a least probability for a marked mention, whose page has none;
                or texts cannot be read, and all of these are named.
        """
        backend = self.plan(options).backend
        for name, weight, index in (
            ("bm25", options.bm25_weight, self.words.bm25),
            ("sparta", options.sparta_weight, self.words.sparta),
        ):
            if weight is not None and (backend != "hybrid" or not index):
                idle = (
                    f"--{name}-weight has no effect with the backend {backend} of {self.folder}: "
                    "leave it out"
                )
                raise QueryError(idle, is_usage=True)

        queries = []
        if texts:
            queries = readable_queries(texts, self.query_tokenizers(options), places)
        if options.min_probability and any(query.mention is not None for query in queries):
            raise QueryError(
                "the page of a mention has no probability: leave --min-probability out"
            )

        return queries

    def results(
        self, queries: Sequence[Query], options: SearchOptions, spell: bool = False
    ) -> Iterator[Result]:
        """Yield what is found for each query that `check` has let pass; all are searched together.

        Args:
            spell: whether words that no page has are named.
        """
        is_exact = options.reader is None and (
            self.index.kind == "exact" or options.backend in WORDS_ALONE
        )
        for query, answers in zip(queries, self.search(queries, options), strict=True):
            words = self.unknown_words(query) if spell else []
            yield Result(query.text, answers, options.min_probability, words, is_exact)

    def search(self, queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        """Find the k best answers to each query, likely or not; see `results`."""
        if self.answerers is not None:
            return self.answerers.search(queries, options)
        plan = self.plan(options)
        queries = list(map(self.words.respelled, queries))
        if options.reader is None:
            return self._best_answers(queries, options, plan)
        (paragraphs,) = self._found(queries, plan, (options.depth, "paragraph"))
        weight = options.retrieval_weight * plan.score_scale
        texts = [query.text for query in queries]
        return self.reader(options.reader).answers(
            texts, paragraphs, options.k, options.chosen_unit, weight
        )

    def _best_answers(
        self, queries: Sequence[Query], options: SearchOptions, plan: SearchPlan
    ) -> list[list[Answer]]:
        """Find the k best answers to each query, reranked and, where a calibration fits, with
        probabilities.
        """
        k = options.k
        unit = options.chosen_unit
        n_reranked = plan.n_reranked
        if not n_reranked:
            return self._found(queries, plan, (k, unit))[0]
        # A phrase that the reader proposes may take the place of one after those judged again.
        if unit == "phrase":
            (units,) = self._found(
                queries, plan, (n_reranked if k <= n_reranked else k + n_reranked, unit)
            )
            phrases = [hits[:n_reranked] for hits in units]
        else:
            units, phrases = self._found(queries, plan, (k, unit), (n_reranked, "phrase"))

        judged = rerank(
            self.reranking.reader, queries, phrases, plan.score_scale, self.reranking.relation_judge
        )
        if plan.calibration is not None:
            namings = map(plan.naming, queries)
            judged = [
                plan.calibration.applied(*each)
                for each in zip(queries, judged, namings, strict=True)
            ]

        return [judged_first(*each, unit)[:k] for each in zip(judged, units, strict=True)]

    def _found(
        self, queries: Sequence[Query], plan: SearchPlan, *wanted: Wanted
    ) -> list[list[list[Answer]]]:
        """Find, for each (k, unit) that is wanted, the k best units of each query."""
        with self.manifest.damage_explained(self.folder):
            if plan.backend == "bm25" or plan.backend == "sparta":
                scores = self.words.scores(queries, plan.backend)
                return [
                    [scores.best(number, unit, k) for number in range(len(queries))]
                    for k, unit in wanted
                ]

            lexical = (
                self.words.all_scores(queries, *plan.weights) if plan.backend == "hybrid" else ()
            )
            read = self.model.query_tokenizer.ids_of
            # A query that has been respelled is read anew.
            ids = [list(query.ids) or read(query.text) for query in queries]
            starts, ends = self.model.encode_ids(ids)
            vectors = self.model.in_row_units(starts, ends)
            if self._cluster is not None:
                units = self._cluster.search_several(vectors, wanted, lexical)
            else:
                units = search_several(self.search_context, vectors, wanted, lexical)

        offsets = self.model.score_offsets(starts, ends)
        if offsets.any():
            return [with_offsets(of_texts, offsets) for of_texts in units]
        return units
