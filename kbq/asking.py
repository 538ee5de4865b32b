"""OpenKnowledgeBase: a knowledge base that is open becomes answers to queries. Read this after `kb.py`.

Who asks calls `ask` (the command line, the library) or, once texts are checked, `results` (the service, KILT
predictions, tables); fine-tuning and calibration call `search`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from kbq.answers import WORDS_ALONE, Answer, Answers, Backend, K, Result, SearchOptions, Unit
from kbq.errors import QueryError
from kbq.model.queries import refuse_unreadable
from kbq.opening import OpenFolder
from kbq.reading.probability import Calibration, SearchMode, fitting
from kbq.reading.reranker import before_others
from kbq.search.hybrid import BM25_WEIGHT, SPARTA_WEIGHT
from kbq.search.search import BATCH, SearchContext, Wanted, search_several
from kbq.storage.files import as_path, given
from kbq.storage.records import digest_of_record
from kbq.text.letters import clean_text
from kbq.text.markers import mention_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbq.answers import SearchWords, WordBackend
    from kbq.model.queries import QueryTokenizer


class OpenKnowledgeBase(OpenFolder):
    """A published knowledge base that is open to be asked."""

    @overload
    def query(  # type: ignore[overload-overlap]
        self, texts: str, k: int = ..., unit: Unit | None = ..., backend: Backend = ..., **options: Unpack[SearchWords]
    ) -> list[Answer]: ...
    @overload
    def query(
        self,
        texts: Iterable[str],
        k: int = ...,
        unit: Unit | None = ...,
        backend: Backend = ...,
        **options: Unpack[SearchWords],
    ) -> list[list[Answer]]: ...

    def query(
        self,
        texts: str | Iterable[str],
        k: int = K,
        unit: Unit | None = None,
        backend: Backend = "auto",
        **options: Unpack[SearchWords],
    ) -> list[Answer] | list[list[Answer]]:
        """Return the k best distinct answers, best first; fewer only where the knowledge base holds fewer.

        Args:
            texts: `subject [SEP] relation`, a question, or a marked mention; one text gives a list of answers, several
                give a list for each.
            options: as of `SearchOptions`, which says what each means.

        Raises:
            QueryError: a text is empty, too long, or malformed; or what is asked for does not exist here.
        """
        several = "queries are", "a text, or a list of texts"
        asked = [texts] if isinstance(texts, str) else list(given(texts, QueryError, *several))
        found = self.ask(asked, search_options(options, k=k, unit=unit, backend=backend))
        answers: list[list[Answer]] = [Answers(result.likely) for result in found]
        return answers[0] if isinstance(texts, str) else answers

    # Ask

    def ask(
        self, texts: Sequence[str], options: SearchOptions, places: Sequence[str] = (), spell: bool = False
    ) -> Iterator[Result]:
        """Check all texts, then search some at a time, and yield what is found for each.

        Args:
            places: of the texts, for messages: "file:line".
            spell: whether words that no page has are named.

        Raises:
            QueryError: a text cannot be asked, or what is asked for does not exist here; nothing is searched.
        """
        self.query_tokenizers(options)  # opens the reader, even before there is a query
        self.check(options, texts, places)
        batches = (texts[first : first + self.at_once] for first in range(0, len(texts), self.at_once))
        return chain.from_iterable(self.results(batch, options, spell) for batch in batches)

    def results(self, texts: Sequence[str], options: SearchOptions, spell: bool = False) -> Iterator[Result]:
        """`ask` for texts that `check` has let pass, all of them searched together."""
        exact = self.is_exact(options)
        for text, answers in zip(texts, self.search(texts, options), strict=True):
            words = self.unknown_words(text) if spell else {}
            yield Result(text, answers, options.min_probability, words, exact)

    def check(self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()) -> None:
        """Refuse options that do not fit or would be ignored, and texts that cannot be asked.

        Args:
            places: of the texts, for messages.

        Raises:
            QueryError: weights are given that count nothing, reranking where there is none, a calibration that does
                not fit, or a least probability for a marked mention, whose page has none; or texts cannot be read, and
                all of these are named.
        """
        self.calibration(options)
        backend, words = self.chosen(options.backend), self.words
        for name, weight, index in (
            ("bm25", options.bm25_weight, words.bm25),
            ("sparta", options.sparta_weight, words.sparta),
        ):
            if weight is not None and (backend != "hybrid" or not index):
                idle = f"--{name}-weight has no effect with the backend {backend} of {self.folder}: leave it out"
                raise QueryError(idle, is_usage=True)
        if texts:
            refuse_unreadable(texts, self.query_tokenizers(options), places)
        if options.min_probability and any(map(mention_in, texts)):
            raise QueryError("the page of a mention has no probability: leave --min-probability out")

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """Find the k best answers to each text, likely or not; see `results`."""
        if self.answerers is not None:
            return self.answerers.search(texts, options)
        texts = [self.words.respelled(clean_text(text)) for text in texts]
        if options.reader is not None:
            (paragraphs,) = self._found(texts, options, (options.depth, "paragraph"))
            weight = options.retrieval_weight * self.score_scale(options)
            return self.reader(options.reader).answers(texts, paragraphs, options.k, options.chosen_unit, weight)
        k, unit, looks = options.k, options.chosen_unit, self.reranking.looks(options)
        if not looks:
            return self._found(texts, options, (k, unit))[0]
        if unit == "phrase":  # a phrase that the reader proposes may take the place of one behind those looked at
            (found,) = self._found(texts, options, (looks if k <= looks else k + looks, unit))
            phrases = [hits[:looks] for hits in found]
        else:
            found, phrases = self._found(texts, options, (k, unit), (looks, "phrase"))
        judged = self.reranking.rerank_found(texts, phrases, self.score_scale(options))
        calibration = self.calibration(options)
        if calibration is not None:
            judged = [calibration.applied(*each) for each in zip(texts, judged, strict=True)]
        return [before_others(*each, unit)[:k] for each in zip(judged, found, strict=True)]

    def _found(self, texts: Sequence[str], options: SearchOptions, *wanted: Wanted) -> list[list[list[Answer]]]:
        """Find, for each (k, unit) that is wanted, the k best units of each text."""
        backend = self.chosen(options.backend)
        with self.manifest.damage_explained(self.folder):
            if backend == "bm25" or backend == "sparta":
                scores = self.words.scores(texts, backend)
                return [[scores.best(query, unit, k) for query in range(len(texts))] for k, unit in wanted]
            lexical = self.words.all_scores(texts, *self.weights(options)) if backend == "hybrid" else ()
            starts, ends = self.model.encode_queries(texts)
            queries, offsets = self.model.in_row_units(starts, ends), self.model.score_offsets(starts, ends)
            if self._cluster is not None:
                found = self._cluster.search_several(queries, wanted, lexical)
            else:
                found = search_several(self.search_context, queries, wanted, lexical)
        if offsets.any():
            for of_text, offset in (
                (one, by) for each in found for one, by in zip(each, offsets.tolist(), strict=True)
            ):
                of_text[:] = [replace(answer, score=answer.score + offset) for answer in of_text]
        return found

    def explain(self, text: str, k: int = 3, backend: WordBackend = "bm25") -> list[tuple[Answer, dict[str, float]]]:
        """Find the k best paragraphs by words alone, each with what every term of the query adds to its score.

        Raises:
            QueryError: the knowledge base has no such index, or the text cannot be read.
        """
        SearchOptions(k, backend=backend)
        if backend not in WORDS_ALONE:
            raise QueryError(f"backend {backend!r} cannot be explained: choose bm25 or sparta", is_usage=True)
        refuse_unreadable([text], ())
        with self.manifest.damage_explained(self.folder):
            return list(self.words.scores([clean_text(text)], backend).explained(0, k))

    def unknown_words(self, text: str, may_suggest: Callable[[], bool] = lambda: True) -> dict[str, str | None]:
        """Name words of a query that no page has, perhaps mistyped, and what was meant; see `WordIndexes.unknown`."""
        with self.manifest.damage_explained(self.folder):
            return self.words.unknown(text, self.model.query_tokenizer.numbers, may_suggest)

    # What a search is made of

    @property
    def at_once(self) -> int:
        """How many queries to ask at a time."""
        return BATCH * self._workers

    def is_exact(self, options: SearchOptions) -> bool:
        """Return whether the k best units that a search returns are the k best that there are.

        Exact search and sums of words see everything. An index does not: no bound covers the cells that were not
        probed, nor the rows that its codes or its filter hide. A reader reads some paragraphs only.
        """
        return options.reader is None and (self.index.kind == "exact" or options.backend in WORDS_ALONE)

    def chosen(self, backend: Backend) -> Literal["dense", "hybrid", "bm25", "sparta"]:
        """Return the backend that `auto` stands for here."""
        return backend if backend != "auto" else "hybrid" if self.words else "dense"

    def query_tokenizers(self, options: SearchOptions) -> list[QueryTokenizer]:
        """Return the tokenizers of all networks that will read a query."""
        own = [self.model.query_tokenizer]
        return own if options.reader is None else [*own, self.reader(options.reader).query_tokenizer]

    def weights(self, options: SearchOptions) -> tuple[float, float]:
        """Return the points that one of BM25, and one of learned impacts, adds in a hybrid search."""
        factor, (bm25, sparta) = self.model.config.lexical_factor, (options.bm25_weight, options.sparta_weight)
        return BM25_WEIGHT * factor if bm25 is None else bm25, SPARTA_WEIGHT * factor if sparta is None else sparta

    def score_scale(self, options: SearchOptions) -> float:
        """Return the worth of a point of the search, in points of a query encoder whose `lexical_factor` is 1."""
        bm25, sparta = self.weights(SearchOptions())
        return {"bm25": bm25, "sparta": sparta}.get(options.backend, 1.0) / (self.model.config.lexical_factor or 1.0)

    def mode(self, options: SearchOptions) -> SearchMode:
        """Describe all that decides the scores of a search but the text: a calibration holds for one mode."""
        weights = zip(("BM25", "SPARTA"), self.weights(options), (self.words.bm25, self.words.sparta), strict=True)
        added = [f"{weight:g} {name}" for name, weight, index in weights if index]
        parts = ["vectors", *(added if self.chosen(options.backend) == "hybrid" else ())]
        looks = self.reranking.looks(options)
        return SearchMode(self.model.config.query_fingerprint, self.reranking.digest, " + ".join(parts), looks)

    def calibration(self, options: SearchOptions) -> Calibration | None:
        """Return the calibration that gives the answers of a search their probabilities; see `fitting`.

        Raises:
            ModelError: the file that is asked for, or the model's own, is missing or damaged.
        """
        mode, path = self.mode(options), options.calibration
        found = None
        if mode.second_look:
            found = self.own_calibration if path is None else Calibration.read(Path(path))
        return fitting(found, options, mode, self.reranking)

    def judged_by(self, options: SearchOptions) -> dict[str, object] | None:
        """Identify the reranker and the calibration of a search, so that runs can be compared; None: there is none."""
        mode, calibration = self.mode(options), self.calibration(options)
        digest = calibration and digest_of_record(calibration)
        return {"reader": mode.reader, "phrases": mode.second_look, "calibration": digest} if mode.second_look else None

    @property
    def search_context(self) -> SearchContext:
        """The parts of the knowledge base that a search on this machine reads."""
        return SearchContext(self.shards, self._opened_index, self.model.config.length_penalty)


def search_options(words: Mapping[str, Any], **others: Any) -> SearchOptions:
    """Make the options of a search from words that a method was given; networks and files may be paths.

    Raises:
        QueryError: a value that has no meaning.
    """
    named = [name for name in ("reader", "calibration") if words.get(name) is not None]
    paths = {name: str(as_path(words[name], f"a {name}")) for name in named}
    return SearchOptions(**{**words, **paths, **others})
