"""OpenKnowledgeBase: a knowledge base that is open becomes answers to queries. Read this after `kb.py`.

Who asks calls `ask` (the command line, the library) or, once texts are checked, `results` (the service, KILT
predictions, tables); fine-tuning and calibration call `search`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, get_args, overload

from kbq.answers import (
    WORDS_ALONE,
    Answer,
    Answers,
    Backend,
    IndexKind,
    K,
    Result,
    SearchOptions,
    Unit,
)
from kbq.dump.changes import page_ids, refuse_unknown
from kbq.dump.manifest import read_manifest, refuse_other_model
from kbq.dump.page_directory import Pages, Titles
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import open_index
from kbq.model.model import Model, model_of
from kbq.model.queries import refuse_unreadable
from kbq.reading.calibration import SearchMode
from kbq.reading.reranker import before_others
from kbq.reading.reranking import Reranking
from kbq.search.hybrid import BM25_WEIGHT, SPARTA_WEIGHT, LexicalScores, WordIndexes
from kbq.search.search import BATCH, SearchContext, Wanted, search_several
from kbq.storage.lines import clean_text
from kbq.storage.paths import as_path, given
from kbq.storage.records import digest_of_bytes, digest_of_record
from kbq.text.markers import mention_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from kbq.answers import SearchWords, WordBackend
    from kbq.array_types import Bools, Floats
    from kbq.cluster.searcher import RaySearcher
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.base import Index
    from kbq.model.queries import QueryTokenizer
    from kbq.reading.calibration import Calibration
    from kbq.reading.reader import Reader


OPENED = "shards", "words", "reranking", "titles", "_opened_index", "_cluster", "_readers"  # what `close` lets go of


class OpenKnowledgeBase:
    """A published knowledge base, with the encoders that it is asked with; `with` closes it at the end."""

    pages_digest = ""  # of the ids of the pages that it answers from; empty: of all

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        model: Model,
        index: IndexKind | None = None,
        may_leave_gpu: bool = False,
        ray: str | None = None,
        pages: Sequence[str] = (),
    ) -> None:
        """Open the shards, the index and the words; `KnowledgeBase.open` is the usual way.

        Args:
            index: the kind that is searched, instead of the manifest's first.
            may_leave_gpu: search on the CPU where the model's GPUs have no room for the vectors.
            ray: the address of a Ray cluster whose machines search the shards.
            pages: ids of those that it answers from; none: of all.
        """
        refuse_other_model(folder, manifest, model)
        self._chosen_pages = pages
        self.folder = folder
        self.manifest = manifest
        self.model = model
        self.index = manifest.entry(folder, index)
        self._may_leave_gpu, self._ray = may_leave_gpu, ray
        with manifest.damage_explained(folder):
            self.shards = manifest.open_shards(folder, manifest.parts())  # an index looks at its own files
            self._open_search(self._show_only(pages) if pages else [])
            self.words = WordIndexes(folder, manifest, self.shards)
        self._readers: dict[str, Reader] = {}
        self.reranking = Reranking(model)

    def _show_only(self, pages: Sequence[str]) -> list[Bools]:
        """Answer from these pages only; returns whether each page of each shard is one. Shapes: (pages,)."""
        shown, unknown = Pages(self.shards).chosen(pages)
        refuse_unknown(self.folder, unknown)
        for shard, chosen in zip(self.shards, shown, strict=True):
            shard.show_only(chosen)
        self.pages_digest = digest_of_bytes("\n".join(sorted(pages)).encode("utf-8", "surrogatepass"))
        return shown

    def _open_search(self, shown: Sequence[Bools]) -> None:
        """Open what searches the shards: an index here or, on a cluster, many.

        `shown`: of each shard, the pages that may be answered with; none: all. Shapes: (pages,).
        """
        self._opened_index: Index | None = None
        self._cluster: RaySearcher | None = None
        if self._ray is None:
            self.search_context  # noqa: B018 - opens the index
        else:
            from kbq.cluster.searcher import open_searcher

            self.manifest.refuse_codes(self.folder)
            penalty = self.model.config.length_penalty
            self._cluster = open_searcher(
                self._ray, self.folder, self.manifest, self.index, self.shards, shown, penalty
            )

    def close(self) -> None:
        """Let go of files, indexes and networks; what is asked of it afterwards is refused. Closing twice is fine."""
        for name in OPENED:
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker is to know what there is

        def __getattr__(self, name: str) -> object:
            """Raises KnowledgeBaseError for what `close` has let go of."""
            if name in OPENED:
                raise KnowledgeBaseError(f"the knowledge base {self.folder} has been closed: open it again")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        index: IndexKind | None = None,
        ray: str | None = None,
        device: str = "auto",
    ) -> Self:
        """Open a published knowledge base with its own model, or with one whose query side was tuned for it.

        Args:
            model: a folder, a name, or one that is open, which several knowledge bases can share.
            index: the kind that is searched; by default the one that was built last.
            ray: the address of a Ray cluster whose machines search the shards, which must lie in the same folder on
                each; `local` starts one here.
            device: `auto`, `cpu`, `cuda` or `cuda:n`; `auto` searches on the CPU where the GPUs have too little room.

        Raises:
            KnowledgeBaseError: missing, incomplete, damaged, of another format version, or without this index.
            ModelError: the model is missing or belongs to another phrase encoder.
            ClusterError: the cluster cannot be used.
        """
        folder = as_path(folder, "the folder of a knowledge base")
        manifest = read_manifest(folder)
        if index is not None and index not in get_args(IndexKind):
            kinds = ", ".join(get_args(IndexKind))
            raise KnowledgeBaseError(f"index kind {index!r} is unknown: choose from {kinds}", is_usage=True)
        opened = model if isinstance(model, Model) else model_of(folder, manifest.model, model, device)
        return cls._opened(folder, manifest, opened, index, device == "auto", ray)

    @classmethod
    def _opened(
        cls,
        folder: Path,
        manifest: Manifest,
        model: Model,
        index: IndexKind | None,
        may_leave_gpu: bool = True,
        ray: str | None = None,
        pages: Sequence[str] = (),
    ) -> Self:
        """Open what this manifest describes or, if it has been replaced meanwhile, what the present one does."""
        try:
            return cls(folder, manifest, model, index, may_leave_gpu, ray, pages)
        except KnowledgeBaseError:
            published = read_manifest(folder)
            if published == manifest:
                raise
            return cls(folder, published, model, index, may_leave_gpu, ray, pages)

    def with_model(self, model: str | PathLike[str]) -> Self:
        """The same knowledge base, asked with another query encoder: one that `finetune` has made for it.

        Raises:
            ModelError: it is missing, or belongs to another phrase encoder.
        """
        opened = Model.open(as_path(model, "a model"), str(self.model.device))
        return self._again(opened, self._chosen_pages)

    def with_pages(self, pages: str | Path | Iterable[str]) -> Self:
        """The same knowledge base, answering from these pages only: they are chosen before the best answers are.

        Args:
            pages: ids, an id, or the `Path` of a file with one id a line.

        Raises:
            KnowledgeBaseError: it does not have one of them; all of these are named.
        """
        return self._again(self.model, page_ids(pages))

    def _again(self, model: Model, pages: Sequence[str]) -> Self:
        """The same knowledge base, opened with this model, to answer from these pages."""
        may_leave_gpu, ray = self._may_leave_gpu, self._ray
        return self._opened(self.folder, self.manifest, model, self.index.kind, may_leave_gpu, ray, tuple(pages))

    @overload
    def query(  # type: ignore[overload-overlap]
        self,
        texts: str,
        k: int = ...,
        unit: Unit | None = ...,
        backend: Backend = ...,
        **options: Unpack[SearchWords],
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
        """The k best distinct answers, best first; fewer only where the knowledge base holds fewer.

        Args:
            texts: `subject [SEP] relation`, a question, or a marked mention; one text gives a list of answers, several
                give a list for each.
            options: as of `SearchOptions`, which says what each means.

        Raises:
            QueryError: a text is empty, too long, or malformed; or what is asked for does not exist here.
        """
        wanted = search_options(options, k=k, unit=unit, backend=backend)
        self.check(wanted)
        several = "queries are", "a text, or a list of texts"
        asked = [texts] if isinstance(texts, str) else list(given(texts, QueryError, *several))
        answers: list[list[Answer]] = [Answers(result.likely) for result in self.ask(asked, wanted)]
        return answers[0] if isinstance(texts, str) else answers

    # Ask

    def ask(
        self, texts: Sequence[str], options: SearchOptions, places: Sequence[str] = (), spell: bool = False
    ) -> Iterator[Result]:
        """What is found for each text: all texts are checked first, then some are searched at a time.

        Args:
            places: of the texts, for messages: "file:line".
            spell: whether words that no page has are named.

        Raises:
            QueryError: a text cannot be asked, or what is asked for does not exist here; nothing is searched.
        """
        self.refuse(texts, options, places)
        return self._results(texts, options, spell)

    def _results(self, texts: Sequence[str], options: SearchOptions, spell: bool) -> Iterator[Result]:
        for first in range(0, len(texts), BATCH):
            yield from self.results(texts[first : first + BATCH], options, spell)

    def results(self, texts: Sequence[str], options: SearchOptions, spell: bool = False) -> Iterator[Result]:
        """`ask` for texts that `refuse` has let pass, all of them searched together."""
        exact = self.is_exact(options)
        for text, answers in zip(texts, self.search(texts, options), strict=True):
            words = self.unknown_words(text) if spell else {}
            yield Result(text, answers, options.min_probability, words, exact)

    def refuse(self, texts: Sequence[str], options: SearchOptions, places: Sequence[str] = ()) -> None:
        """Refuse texts that cannot be asked, and options that do not fit.

        Raises:
            QueryError: says which, and why; see `check`.
        """
        refuse_unreadable(texts, self.query_tokenizers(options), places)
        self.check(options, texts)

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """The k best answers to each text, likely or not; see `results`."""
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

    def mode(self, options: SearchOptions) -> SearchMode:
        """What decides the scores of a search, apart from the text: a calibration holds for one mode."""
        weights = zip(("BM25", "SPARTA"), self.weights(options), (self.words.bm25, self.words.sparta), strict=True)
        added = [f"{weight:g} {name}" for name, weight, index in weights if index]
        parts = ["vectors", *(added if self.chosen(options.backend) == "hybrid" else ())]
        looks = self.reranking.looks(options)
        return SearchMode(self.model.config.query_fingerprint, self.reranking.digest, " + ".join(parts), looks)

    def calibration(self, options: SearchOptions) -> Calibration | None:
        """What gives the answers of a search their probabilities; see `Reranking.calibration`."""
        return self.reranking.calibration(options, self.mode(options))

    def _found(self, texts: Sequence[str], options: SearchOptions, *wanted: Wanted) -> list[list[list[Answer]]]:
        """For each (k, unit) that is wanted, the k best units of each text."""
        backend = self.chosen(options.backend)
        with self.manifest.damage_explained(self.folder):
            if backend == "bm25" or backend == "sparta":
                scores = self.words.scores(texts, backend)
                return [[scores.best(query, unit, k) for query in range(len(texts))] for k, unit in wanted]
            lexical = self.words.all_scores(texts, *self.weights(options)) if backend == "hybrid" else ()
            return self._search(*self.model.encode_queries(texts), wanted, lexical)

    def _search(
        self, starts: Floats, ends: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores]
    ) -> list[list[list[Answer]]]:
        queries, offsets = self.model.in_row_units(starts, ends), self.model.score_offsets(starts, ends)
        if self._cluster is not None:
            found = self._cluster.search_several(queries, wanted, lexical)
        else:
            found = search_several(self.search_context, queries, wanted, lexical)
        return [_shifted(each, offsets) for each in found]

    def search_vectors(
        self, starts: Floats, ends: Floats, k: int = K, unit: Unit = "phrase", lexical: Sequence[LexicalScores] = ()
    ) -> list[list[Answer]]:
        """`search` for queries that are encoded already; `lexical` scores are added. Shapes: (queries, dim)."""
        SearchOptions(k, unit)  # refuses what has no meaning
        return self._search(starts, ends, [(k, unit)], lexical)[0]

    def explain(self, text: str, k: int = 3, backend: WordBackend = "bm25") -> list[tuple[Answer, dict[str, float]]]:
        """The k best paragraphs by words alone, each with what every term of the query adds to its score.

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
        """Words of a query that no page has, perhaps mistyped, and what was meant; see `WordIndexes.unknown`."""
        with self.manifest.damage_explained(self.folder):
            return self.words.unknown(text, self.model.query_tokenizer.numbers, may_suggest)

    def is_exact(self, options: SearchOptions) -> bool:
        """Whether the k best units that a search returns are the k best that there are.

        Exact search and sums of words see everything. An index does not: no bound covers the cells that were not
        probed, nor the rows that its codes or its filter hide. A reader reads some paragraphs only.
        """
        return options.reader is None and (self.index.kind == "exact" or options.backend in WORDS_ALONE)

    def check(self, options: SearchOptions, texts: Sequence[str] = ()) -> None:
        """Refuse what would be ignored.

        Args:
            texts: that will be asked.

        Raises:
            QueryError: weights are given that count nothing, reranking where there is none, a calibration that
                does not fit, or a least probability for a marked mention, whose page has none.
        """
        self.calibration(options)
        if options.min_probability and any(map(mention_in, texts)):
            raise QueryError("the page of a mention has no probability: leave --min-probability out")
        backend = self.chosen(options.backend)
        for name, weight, index in (
            ("bm25-weight", options.bm25_weight, self.words.bm25),
            ("sparta-weight", options.sparta_weight, self.words.sparta),
        ):
            if weight is not None and (backend != "hybrid" or not index):
                raise QueryError(
                    f"--{name} has no effect with the backend {backend} of {self.folder}: leave it out", is_usage=True
                )

    def chosen(self, backend: Backend) -> Literal["dense", "hybrid", "bm25", "sparta"]:
        """The backend that `auto` stands for here."""
        return backend if backend != "auto" else "hybrid" if self.words else "dense"

    def query_tokenizers(self, options: SearchOptions) -> list[QueryTokenizer]:
        """The tokenizers of all networks that will read a query."""
        own = [self.model.query_tokenizer]
        return own if options.reader is None else [*own, self.reader(options.reader).query_tokenizer]

    def reader(self, name: str) -> Reader:
        """A reader, opened once."""
        if name == self.reranking.base:
            return self.reranking.reader
        if name not in self._readers:
            from kbq.reading.reader import Reader

            self._readers[name] = Reader.open(name, str(self.model.device))
        return self._readers[name]

    def weights(self, options: SearchOptions) -> tuple[float, float]:
        """What a point of BM25, and of learned impacts, adds in a hybrid search."""
        factor, (bm25, sparta) = self.model.config.lexical_factor, (options.bm25_weight, options.sparta_weight)
        return BM25_WEIGHT * factor if bm25 is None else bm25, SPARTA_WEIGHT * factor if sparta is None else sparta

    def score_scale(self, options: SearchOptions) -> float:
        """What a point of the search is worth, in points of a query encoder whose `lexical_factor` is 1."""
        bm25, sparta = self.weights(SearchOptions())
        return {"bm25": bm25, "sparta": sparta}.get(options.backend, 1.0) / (self.model.config.lexical_factor or 1.0)

    def judged_by(self, options: SearchOptions) -> dict[str, object] | None:
        """What looks at phrases again and says how likely they are, so that runs can be compared; None: nothing."""
        mode, calibration = self.mode(options), self.calibration(options)
        digest = calibration and digest_of_record(calibration)
        return {"reader": mode.reader, "phrases": mode.second_look, "calibration": digest} if mode.second_look else None

    @cached_property
    def titles(self) -> Titles:
        """Which page alone has a title; see `Titles`."""

        return Titles(self.shards)

    @property
    def search_context(self) -> SearchContext:
        """What a search here needs of the knowledge base; on a cluster, its index is opened when that is asked for."""
        if self._opened_index is None:
            self._opened_index = open_index(self.shards, self.index, self.model.device, self._may_leave_gpu)
        return SearchContext(self.shards, self._opened_index, self.model.config.length_penalty)

    @property
    def counts(self) -> Counts:
        """Pages, paragraphs, tokens and rows, without deleted pages."""
        return self.manifest.counts

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.folder)!r}: {self.counts.pages:,} pages, {self.counts.rows:,} vectors)"


def _shifted(found: list[list[Answer]], offsets: Floats) -> list[list[Answer]]:
    """The answers to each query, with an offset added to their scores. Shape: (queries,)."""
    if not offsets.any():
        return found
    return [
        [replace(answer, score=answer.score + offset) for answer in answers]
        for answers, offset in zip(found, offsets.tolist(), strict=True)
    ]


def search_options(words: Mapping[str, Any], **others: Any) -> SearchOptions:
    """The options of a search from words that a method was given; networks and files may be paths.

    Raises:
        QueryError: a value that has no meaning.
    """
    paths = {
        name: str(as_path(words[name], what))
        for name, what in (("reader", "a reader"), ("calibration", "a calibration"))
        if words.get(name) is not None
    }
    return SearchOptions(**{**words, **paths, **others})
