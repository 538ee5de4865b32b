"""KnowledgeBase: a folder that holds a corpus as phrases: build it, ask it, teach it, change it. Read this first.

pages ──── model/ ────► phrase dump (dump/) ──► rows (index/) ──► spans ──► phrases … pages (search/) ──► Answer
  └─── words ──► BM25, learned impacts (words/) ───────────────────┘                └── reading/ ──┘

`query` takes this way: `ask` checks texts, `search` finds the best phrases and has them judged again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kbq.answers import (
    INDEX_KINDS,
    LOOKS,
    TOP_PAGES,
    WORDS_ALONE,
    Answer,
    Answers,
    AnswersOfEach,
    Facts,
    K,
    PageName,
    Result,
    SearchFacts,
    SearchOptions,
)
from kbq.dump.changes import Changes, delete, page_ids, refuse_unknown
from kbq.dump.manifest import MANIFEST, read_manifest, refuse_other_model
from kbq.dump.options import TERMS, BuildWords, SyncWords, UpdateWords, build_options
from kbq.dump.page_directory import Pages, Titles
from kbq.dump.page_encoder import processes
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import build_missing, open_index
from kbq.model.model import Model, model_of
from kbq.model.queries import refuse_unreadable
from kbq.options import refuse_unknown_options
from kbq.progress import LateBar, warn
from kbq.reading.probability import HIDDEN, SearchPlan, best_answers, own_calibration
from kbq.reading.reader import Reader
from kbq.reading.reranker import Reranking
from kbq.sample_kb import Building, quietly, sample_folder
from kbq.search.building_indexes import IndexSpec, add_index
from kbq.search.changing import build, compact, update
from kbq.search.search import BATCH, SearchContext, Wanted, WordIndexes, raised, search_several
from kbq.storage.files import as_path, file_digest, given
from kbq.storage.records import digest_of_bytes
from kbq.text.letters import clean_text
from kbq.text.markers import mention_in
from kbq.words.bm25 import index_bm25
from kbq.words.sparta import index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from kbq.answers import Backend, IndexKind, PredictWords, RankWords, SearchWords, Unit, WantedKind, WordBackend
    from kbq.array_types import Bools
    from kbq.cluster.searcher import RaySearcher
    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.base import Index
    from kbq.index.factory import Build
    from kbq.kilt.prediction import PredictionOutcome
    from kbq.kilt.task import Task
    from kbq.model.queries import QueryTokenizer
    from kbq.parallel import Answerers
    from kbq.reading.probability import Calibration
    from kbq.storage.files import Note, Report
    from kbq.tables.options import FillWords
    from kbq.tables.relations import Relation
    from kbq.tables.tables import Table
    from kbq.training.engine import StepReport
    from kbq.training.settings import FinetuningWords
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome

# Attributes that are set when the files are opened: at once or, of a lazy knowledge base, at the first use of one.
OPENED = "shards", "words", "reranking", "titles", "_pages", "answerers", "_cluster", "_opened_index", "_readers"


@dataclass(frozen=True, slots=True)
class Where:
    """Where a knowledge base is searched, and what of it."""

    device: str = "auto"  # searches on the CPU where the model's GPUs have no room for the vectors
    ray: str | None = None  # address of a Ray cluster whose machines search
    workers: int = 1  # processes that answer; 1: this one does
    pages: tuple[str, ...] = ()  # ids of the pages that it answers from; none: all


HERE = Where()


class KnowledgeBase:
    """A published knowledge base: built, asked, taught, measured and changed; `with` closes it at the end."""

    bad_lines = 0  # of the corpus, left out by the build or update that made this object
    changes = Changes()  # made by the update, sync or delete that made this object
    index_bytes = 0  # of the index of words that was added when this object was made

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        model: Model | Callable[[], Model],
        index: IndexKind | None = None,
        where: Where = HERE,
        lazy: bool = False,
    ) -> None:
        """Open what a manifest describes or, if another has replaced it, what that one does; use `open` or `build`.

        Args:
            model: it, or what opens it when it is first needed.
            index: the kind that is searched, instead of the manifest's first.
        """
        self.folder, self.manifest, self.index = folder, manifest, manifest.entry(folder, index)
        self._where, self._is_lazy, self._is_closed = where, lazy, False
        if isinstance(model, Model):
            self.model = model
        else:
            self._open_model = model
        if not lazy:
            self._open(index)

    # Build and open

    @classmethod
    def build(
        cls,
        corpus: str | Path | Iterable[Page],
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        ray: str | None = None,
        device: str = "auto",
        lazy: bool = False,
        **options: Unpack[BuildWords],
    ) -> Self:
        """Encode a corpus into `folder` and publish it. A build that was killed resumes where it stopped.

        Args:
            corpus: a file, a folder, "-" for standard input, or pages with ids of their own.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            model: `default`, a folder or a hub name; by default that of the knowledge base to append to, or `default`.
            ray: the address of a Ray cluster whose machines encode, in place of `workers`; `local` starts one here.
            options: as of `BuildOptions` and `CorpusWords`.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build; or the index needs faiss.
            ModelError: the knowledge base to append to was built with another model.
            CorpusError: the corpus cannot be read; nothing is published.
            ClusterError: the cluster cannot be used.
        """
        folder, (wanted, reports) = (
            as_path(folder, "the folder of a knowledge base"),
            build_options(options, BuildWords),
        )
        start_encoders = processes(wanted.workers)
        if ray is not None:
            from kbq.cluster.nodes import encoders_on

            start_encoders = encoders_on(ray)
        with _told(f"building {folder}", reports) as told:
            told |= {"start_encoders": start_encoders, "device": device}
            manifest, opened, bad_lines = build(corpus, folder, model, wanted, **told)
        kb = cls(folder, manifest, opened, lazy=lazy)
        kb.bad_lines = bad_lines
        return kb

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        index: IndexKind | None = None,
        ray: str | None = None,
        workers: int = 1,
        device: str = "auto",
        lazy: bool = False,
    ) -> Self:
        """Open a published knowledge base with its own model, or with one whose query side was tuned for it.

        Args:
            model: a folder, a name, or one that is open, which several knowledge bases can share.
            index: the kind that is searched; by default the one that was built last.
            ray: the address of a Ray cluster whose machines search the shards, which must lie in the same folder on
                each; `local` starts one here.
            workers: processes that answer, each with one thread and its own copy of the networks and,
                on a GPU, of the vectors.
            device: `auto`, `cpu`, `cuda` or `cuda:n`; `auto` searches on the CPU where the GPUs have too little room.
            lazy: open files and networks when they are first needed, as to change or describe it takes few of them.

        Raises:
            KnowledgeBaseError: missing, incomplete, damaged, of another format version, or without this index; or
                workers are fewer than 1, or there is a cluster, too.
            ModelError: the model is missing or belongs to another phrase encoder.
            ClusterError: the cluster cannot be used.
        """
        folder = as_path(folder, "the folder of a knowledge base")
        manifest = read_manifest(folder)
        if index is not None and index not in INDEX_KINDS:
            kinds = ", ".join(INDEX_KINDS)
            raise KnowledgeBaseError(f"index kind {index!r} is unknown: choose from {kinds}", is_usage=True)
        if not isinstance(workers, int) or workers < 1 or (ray is not None and workers > 1):
            problem = f"workers is {workers!r:.20}: give 1 or more; with a Ray cluster, 1"
            raise KnowledgeBaseError(problem, is_usage=True)
        opens = model if isinstance(model, Model) else partial(model_of, folder, manifest.model, model, device)
        return cls(folder, manifest, opens, index, Where(device, ray, workers), lazy)

    @classmethod
    def sample(
        cls,
        model: str | Path | None = None,
        *,
        index: IndexKind | None = None,
        ray: str | None = None,
        workers: int = 1,
        device: str = "auto",
        building: Building = quietly,
    ) -> Self:
        """Return the knowledge base of the bundled articles, built on first use and kept in the user's cache folder.

        Args:
            building: called with the folder where it is built; gives a context whose value is a `report` for `build`.

        Raises:
            KnowledgeBaseError: the cache folder cannot be written.

        >>> KnowledgeBase.sample().query("Marie Curie [SEP] place of birth", k=1)[0].text
        'Warsaw'
        """
        folder = sample_folder(cls.build, building)
        return cls.open(folder, model, index=index, ray=ray, workers=workers, device=device)

    def with_model(self, model: str | PathLike[str]) -> Self:
        """Open the same knowledge base with another query encoder: one that `finetune` has made for it.

        Raises:
            ModelError: it is missing, or belongs to another phrase encoder.
        """
        opened = Model.open(as_path(model, "a model"), str(self.model.device))
        return type(self)(self.folder, self.manifest, opened, self.index.kind, self._where)

    def with_pages(self, pages: str | Path | Iterable[str]) -> Self:
        """Open the same knowledge base to answer from these pages only: they are chosen before the best answers are.

        Args:
            pages: ids, an id, or the `Path` of a file with one id a line.

        Raises:
            KnowledgeBaseError: it does not have one of them; all of these are named.
        """
        where = replace(self._where, pages=tuple(page_ids(pages)))
        return type(self)(self.folder, self.manifest, self.model, self.index.kind, where)

    def _reopened(self, manifest: Manifest, index: IndexKind | None) -> Self:
        """This knowledge base after a change, searched where it was searched before."""
        model = self.__dict__.get("model") or self._open_model
        return type(self)(self.folder, manifest, model, index, self._where, self._is_lazy)

    def _open(self, index: IndexKind | None) -> None:
        """Open the files that the manifest names or, if it has been replaced, those that its successor does."""
        try:
            self._open_files()
        except KnowledgeBaseError:
            published = read_manifest(self.folder)
            if published == self.manifest:
                raise
            self.manifest, self.index = published, published.entry(self.folder, index)
            self._open_files()

    def _open_files(self) -> None:
        """Open the shards, what searches them (an index here or, on a cluster, many), and the words."""
        folder, manifest, where = self.folder, self.manifest, self._where
        refuse_other_model(folder, manifest, self.model)
        self.reranking, self._readers = Reranking(self.model), dict[str, Reader]()
        self._cluster: RaySearcher | None = None
        self.answerers: Answerers | None = None
        self.__dict__.pop("_opened_index", None)
        with manifest.damage_explained(folder):
            self.shards = manifest.open_shards(folder, manifest.parts())  # an index looks at its own files
            shown: list[Bools] = []  # of each shard, the pages that may be answered with
            if where.pages:
                shown, unknown = Pages(self.shards).chosen(where.pages)
                refuse_unknown(folder, unknown)
                for shard, pages in zip(self.shards, shown, strict=True):
                    shard.show_only(pages)
            self._pages, self.titles = Pages(self.shards), Titles(self.shards)
            if where.workers > 1:
                from kbq.parallel import Answerers

                one = replace(where, workers=1)
                opens = partial(type(self), folder.absolute(), manifest, index=self.index.kind, where=one)
                self.answerers = Answerers(opens, self.model, where.workers)
            elif where.ray is None:
                self._opened_index  # noqa: B018 - opens it
            else:
                from kbq.cluster.searcher import open_searcher

                manifest.refuse_codes(folder)
                penalty = self.model.config.length_penalty
                self._cluster = open_searcher(where.ray, folder, manifest, self.index, self.shards, shown, penalty)
            self.words = WordIndexes(folder, manifest, self.shards)

    @cached_property
    def _opened_index(self) -> Index:
        """The index of all shards; where others search, it is opened here when it is asked for."""
        return open_index(self.shards, self.index, self.model.device, self._where.device == "auto")

    if not TYPE_CHECKING:  # a type checker is to know what there is

        def __getattr__(self, name: str) -> object:
            """Open what is needed of a lazy knowledge base; KnowledgeBaseError for what `close` has released."""
            if name == "model" and "_open_model" in self.__dict__:
                self.model = self._open_model()
            elif name in OPENED and "_is_closed" in self.__dict__:
                if self._is_closed:
                    raise KnowledgeBaseError(f"the knowledge base {self.folder} has been closed: open it again")
                self._open(self.index.kind)
            if name in self.__dict__:
                return self.__dict__[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def close(self) -> None:
        """Release files, indexes and networks. Any later use raises KnowledgeBaseError; closing twice is fine."""
        self._is_closed = True
        for name in OPENED:
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.folder)!r}: {self.counts.pages:,} pages, {self.counts.rows:,} vectors)"

    # Look

    @property
    def counts(self) -> Counts:
        """Pages, paragraphs, tokens and rows, without deleted pages."""
        return self.manifest.counts

    def info(self) -> dict[str, object]:
        """Describe what the knowledge base holds and what its indexes cost, as `kbq info --json` prints it."""
        from kbq.description import describe

        return Facts(describe(self.folder))

    def pages(self) -> Iterator[PageName]:
        """Return the ids and titles of the pages that answers may come from, in the order of the corpus."""
        return (PageName(*names) for names in self._pages.shown())

    def page(self, page_id: str) -> Page:
        """Return a page with its title, paragraphs and metadata.

        Args:
            page_id: as answers name it.

        Raises:
            KnowledgeBaseError: there is no such page.
        """
        with self.manifest.damage_explained(self.folder):
            page = self._pages.page(page_id)
        if page is None:
            raise KnowledgeBaseError(f"{self.folder} has no page {page_id!r:.80}: `pages()` names all of them")
        return page

    @property
    def is_current(self) -> bool:
        """Whether the folder still holds what is open; if not, `reload` opens what it holds now."""
        try:
            return read_manifest(self.folder) == self.manifest
        except KnowledgeBaseError:  # it has been deleted
            return False

    def reload(self) -> Self:
        """Open what the folder holds now, in this object, too: an update of others changes nothing that is open.

        Raises:
            KnowledgeBaseError: the folder holds no knowledge base any more; what was open stays open.
        """
        opened = self._reopened(read_manifest(self.folder), self.index.kind)
        self.close()
        self.__dict__.update(opened.__dict__)
        return self

    def __copy__(self) -> Self:
        kb = object.__new__(type(self))  # shares what is open; to close one leaves the other open
        kb.__dict__.update(self.__dict__)
        return kb

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place of the knowledge base and how it is searched; unpickling and `deepcopy` open it again."""
        if not self.model.source:
            raise KnowledgeBaseError("a knowledge base whose model is in no folder cannot be pickled: save the model")
        place = self.folder.absolute(), self.model.source, self.index.kind, self._where, self._is_lazy
        return _unpickled, (type(self), *place)

    # Ask

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
            k: how many answers.
            unit: what an answer is: phrase, sentence, paragraph or page.
            backend: `dense` (vectors), `bm25` or `sparta` (words), `hybrid` (both), or `auto`: hybrid where words are
                indexed.
            options: `rerank` (how many phrases are judged again), `min_probability`, `calibration` (a file),
                `bm25_weight`, `sparta_weight`, and to read paragraphs: `reader`, `depth`, `retrieval_weight`.
                `SearchOptions` says more.

        Raises:
            QueryError: a text is empty, too long, or malformed; or what is asked for does not exist here.
        """
        several = "queries are", "a text, or a list of texts"
        search = search_options(options, k=k, unit=unit, backend=backend)
        if isinstance(texts, str):
            return Answers(next(self.ask([texts], search)).likely)
        asked, answers = list(given(texts, QueryError, *several)), AnswersOfEach()
        with LateBar("asking") as bar:
            told = bar.to("count")
            for result in self.ask(asked, search):
                answers.append(Answers(result.likely))
                told(len(answers), len(asked))
        answers.queries = asked
        return answers

    def query_stream(
        self,
        texts: Iterable[str],
        k: int = K,
        unit: Unit | None = None,
        backend: Backend = "auto",
        **options: Unpack[SearchWords],
    ) -> Iterator[list[Answer]]:
        """`query` for any number of texts, such as those of a generator: some are read, asked, and their answers given.

        Raises:
            QueryError: a text cannot be asked; the answers to those asked before it have been given.
        """
        search, asked = search_options(options, k=k, unit=unit, backend=backend), iter(texts)
        while batch := list(islice(asked, self.batch_size)):
            yield from (Answers(result.likely) for result in self.ask(batch, search))

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

    def unknown_words(self, text: str) -> list[str]:
        """Name words of a query that no page has, perhaps mistyped; see `WordIndexes.unknown`."""
        with self.manifest.damage_explained(self.folder):
            return self.words.unknown(text, self.model.query_tokenizer.numbers)

    # Search: the steps of a query, for those that check and batch queries themselves

    @property
    def batch_size(self) -> int:
        """How many queries to ask at a time."""
        return BATCH * self._where.workers

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
        batches = (texts[first : first + self.batch_size] for first in range(0, len(texts), self.batch_size))
        return chain.from_iterable(self.results(batch, options, spell) for batch in batches)

    def check(self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()) -> None:
        """Refuse options that do not fit or would be ignored, and texts that cannot be asked.

        Args:
            places: of the texts, for messages.

        Raises:
            QueryError: weights are given that count nothing, reranking where there is none, a calibration that does
                not fit, or a least probability for a marked mention, whose page has none; or texts cannot be read, and
                all of these are named.
        """
        backend = self.plan(options).backend
        for name, weight, index in (
            ("bm25", options.bm25_weight, self.words.bm25),
            ("sparta", options.sparta_weight, self.words.sparta),
        ):
            if weight is not None and (backend != "hybrid" or not index):
                idle = f"--{name}-weight has no effect with the backend {backend} of {self.folder}: leave it out"
                raise QueryError(idle, is_usage=True)
        if texts:
            refuse_unreadable(texts, self.query_tokenizers(options), places)
        if options.min_probability and any(map(mention_in, texts)):
            raise QueryError("the page of a mention has no probability: leave --min-probability out")

    def results(self, texts: Sequence[str], options: SearchOptions, spell: bool = False) -> Iterator[Result]:
        """`ask` for texts that `check` has let pass, all of them searched together."""
        is_exact = options.reader is None and (self.index.kind == "exact" or options.backend in WORDS_ALONE)
        for text, answers in zip(texts, self.search(texts, options), strict=True):
            words = self.unknown_words(text) if spell else []
            yield Result(text, answers, options.min_probability, words, is_exact)

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """Find the k best answers to each text, likely or not; see `results`."""
        if self.answerers is not None:
            return self.answerers.search(texts, options)
        plan = self.plan(options)
        texts = [self.words.respelled(clean_text(text)) for text in texts]
        find = partial(self._found, texts, plan)
        if options.reader is None:
            return best_answers(texts, options, plan, self.reranking, find)
        ((paragraphs,), weight) = find((options.depth, "paragraph")), options.retrieval_weight * plan.score_scale
        return self.reader(options.reader).answers(texts, paragraphs, options.k, options.chosen_unit, weight)

    def _found(self, texts: Sequence[str], plan: SearchPlan, *wanted: Wanted) -> list[list[list[Answer]]]:
        """Find, for each (k, unit) that is wanted, the k best units of each text."""
        with self.manifest.damage_explained(self.folder):
            if plan.backend == "bm25" or plan.backend == "sparta":
                scores = self.words.scores(texts, plan.backend)
                return [[scores.best(query, unit, k) for query in range(len(texts))] for k, unit in wanted]
            lexical = self.words.all_scores(texts, *plan.weights) if plan.backend == "hybrid" else ()
            starts, ends = self.model.encode_queries(texts)
            queries = self.model.in_row_units(starts, ends)
            if self._cluster is not None:
                found = self._cluster.search_several(queries, wanted, lexical)
            else:
                found = search_several(self.search_context, queries, wanted, lexical)
        offsets = self.model.score_offsets(starts, ends)
        return [raised(of_texts, offsets) for of_texts in found] if offsets.any() else found

    def plan(self, options: SearchOptions) -> SearchPlan:
        """Return what follows from the options of a search here.

        Raises:
            QueryError: probabilities or reranking are asked for where there are none, or a calibration does not fit.
            ModelError: the calibration that is asked for, or the model's own, is missing or damaged.
        """
        return SearchPlan.of(options, self.words, self.reranking, lambda: self._own_calibration)

    @cached_property
    def _own_calibration(self) -> Calibration | None:
        return own_calibration(self.model)

    def facts(self, options: SearchOptions) -> SearchFacts:
        """Return what decides the answers of a search besides its queries, so that runs can be compared."""
        plan, ids = self.plan(options), "\n".join(sorted(self._where.pages))
        return SearchFacts(
            manifest=file_digest(self.folder / MANIFEST),
            pages=digest_of_bytes(ids.encode("utf-8", "surrogatepass")) if ids else "",
            index=self.index.kind,
            query_encoder=self.model.config.query_fingerprint,
            backend=plan.backend,
            weights=plan.weights,
            reader=None if options.reader is None else self.reader(options.reader).fingerprint(),
            reranker=plan.judged_by,
        )

    def query_tokenizers(self, options: SearchOptions) -> list[QueryTokenizer]:
        """Return the tokenizers of all networks that will read a query."""
        own = [self.model.query_tokenizer]
        return own if options.reader is None else [*own, self.reader(options.reader).query_tokenizer]

    def untuned_relations(self, texts: Iterable[str]) -> list[str]:
        """Return the relations of queries on which a tuned query encoder was not tuned; of any other, none."""
        return self.model.config.untuned_relations(texts)

    def reader(self, name: str) -> Reader:
        """Return a reader, opened once."""
        if name == self.reranking.base:
            return self.reranking.reader
        if name not in self._readers:
            self._readers[name] = Reader.open(name, str(self.model.device))
        return self._readers[name]

    @property
    def search_context(self) -> SearchContext:
        """The parts of the knowledge base that a search on this machine reads."""
        return SearchContext(self.shards, self._opened_index, self.model.config.length_penalty)

    # Teach and measure

    def finetune(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        task: str | Task = "slot_filling",
        dev: str | Path | None = None,
        examples: int = 0,
        command: str = "",
        note: Note = warn,
        report: Callable[[StepReport], None] | None = None,
        **settings: Unpack[FinetuningWords],
    ) -> FinetuningOutcome:
        """Tune the query encoder on triples; this knowledge base is not changed. `with_model` takes the outcome.

        Args:
            triples: KILT lines, or CSV, TSV or JSON lines of subject, relation, object[, aliases, page].
            out: folder of the new query encoder.
            task: a task or its name, a family such as `entity_linking`, or a task file.
            dev: scored after each epoch; by default a tenth is set aside, with subjects and pages of its own.
            examples: how many queries to tune on, each relation its share; 0: all.
            settings: as of `FinetuningSettings`.

        Raises:
            TrainingError: there is no usable triple, a setting has no meaning, or `out` exists.
        """
        from kbq.training.settings import FinetuningSettings
        from kbq.tuning.finetune import finetune

        refuse_unknown_options(settings, FinetuningSettings.__dataclass_fields__, QueryError)
        with LateBar(f"tuning {out}") as bar:
            return finetune(
                self, triples, out, FinetuningSettings(**settings), task=task, dev=dev, examples=examples,
                command=command, note=note, report=bar.to("step", report),
            )  # fmt: skip

    def calibrate(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        hidden: float = HIDDEN,
        backend: Backend = "auto",
        command: str = "",
        report: Callable[[int, int], None] | None = None,
        **options: Unpack[RankWords],
    ) -> CalibrationOutcome:
        """Learn how likely answers are to be right, and write it into a file; `calibration` of `query` takes it.

        Args:
            triples: KILT lines, or CSV, TSV or JSON lines of subject, relation, object[, aliases, page]; without an
                object, nothing is right.
            out: the file.
            hidden: share of the queries that are asked again without the pages that answer them.
            options: as of `SearchOptions`.

        Raises:
            TrainingError: there are too few triples, or all answers are right, or none is.
        """
        from kbq.tuning.calibrate import calibrate

        search = search_options(options, backend=backend)
        self.check(search)
        path = as_path(out, "out")
        with LateBar(f"calibrating {path}") as bar:
            told = bar.to("count", report)
            outcome = calibrate(self, triples, path, search, hidden=hidden, command=command, report=told)
        self.__dict__.pop("_own_calibration", None)  # it may be the file just written
        return outcome

    @overload
    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: None = ...,
        **options: Unpack[PredictWords],
    ) -> list[dict[str, Any]]: ...

    @overload
    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: str | Path,
        **options: Unpack[PredictWords],
    ) -> PredictionOutcome: ...

    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: str | Path | None = None,
        *,
        top_pages: int = TOP_PAGES,
        with_text: bool = False,
        backend: Backend = "auto",
        report: Callable[[int, int], None] | None = None,
        **options: Unpack[SearchWords],
    ) -> PredictionOutcome | list[dict[str, Any]]:
        """Predict KILT records: into a file, resuming where a killed run stopped, or without `out` as records.

        Args:
            records: a KILT file, or records with `id` and `input`.
            top_pages: pages of each provenance.
            with_text: add each page's paragraph.
            options: as of `SearchOptions`; below `min_probability`, a prediction has an empty answer.

        Raises:
            QueryError: records that cannot be asked; all are named.
            KbqError: `out` is of another run.
        """
        from kbq.kilt.prediction import predict_all

        search = search_options(options, k=top_pages, unit="page", backend=backend)
        path = None if out is None else as_path(out, "out")
        with LateBar("predicting") as bar:
            return predict_all(self, records, task, path, search, with_text, bar.to("count", report))

    def fill(
        self,
        table: str | Path | Iterable[Mapping[str, Any]] | None,
        relations: Iterable[str | Relation],
        out: str | Path | None = None,
        *,
        command: str = "",
        note: Note = warn,
        report: Callable[[int, int, int], None] | None = None,
        **options: Unpack[FillWords],
    ) -> Table:
        """Fill the empty cells of a table with what the text says, where that is likely enough, each with its evidence.

        Args:
            table: a file (CSV, TSV, JSON lines, Parquet, XLSX), rows, or a data frame; None: a row for each page, whose
                title is the subject.
            relations: the columns to fill, which are added where they are missing; files relations.toml; presets of
                known relations such as @people (`kbq relations` prints them).
            out: the table that is written, with its claims beside it. What was asked is kept there, too: a run that was
                killed goes on, and one with another threshold, format, row or column asks only for what is not there.
                Without it, the table is returned only.
            report: called with the cells that are done, all of them, and those filled.
            options: as of `FillOptions` and, for the search, of `SearchOptions`. `check` gives a table of verdicts.

        Raises:
            KbqError: the table or the relations cannot be used, or `out` was made by somebody else.
            QueryError: answers have no probability here, or the precision cannot be promised.
        """
        from kbq.tables.fill import fill
        from kbq.tables.options import fill_options

        wanted, words = fill_options(options)
        search = search_options(words, unit="phrase", k=max(LOOKS, words.get("rerank") or 0))
        with LateBar("filling") as bar:
            told = bar.to("cells", report)
            return fill(self, table, relations, out, wanted, search, command=command, note=note, report=told)

    # Maintain

    def update(self, corpus: str | Path | Iterable[Page], **options: Unpack[UpdateWords]) -> Self:
        """Add the pages of a corpus that are new, and replace those that have changed, by their ids; open the outcome.

        Pages that are as they were are recognised by their digests, and not encoded again. What the knowledge base
        answers is what one built from its present pages would. `changes` of the outcome says how many there are.

        Args:
            options: as of `BuildOptions` and `CorpusWords`; `dry_run` only compares, and changes nothing.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or holds another unfinished update.
            CorpusError: the corpus cannot be read; nothing is changed.
        """
        return self._updated(corpus, options, delete_missing=False)

    def sync(self, corpus: str | Path | Iterable[Page], **options: Unpack[SyncWords]) -> Self:
        """`update`, and delete the pages that the corpus does not have: the knowledge base then has its pages."""
        return self._updated(corpus, options, delete_missing=True)

    def _updated(self, corpus: str | Path | Iterable[Page], words: Mapping[str, Any], delete_missing: bool) -> Self:
        options, others = build_options(words, SyncWords if delete_missing else UpdateWords)
        with _told(f"updating {self.folder}", others) as told:
            manifest, changes, bad_lines = update(
                corpus, self._changeable, lambda: self.model, options, delete_missing=delete_missing,
                start_encoders=processes(options.workers), **told,
            )  # fmt: skip
        kb = self._reopened(manifest, self.index.kind)
        kb.changes, kb.bad_lines = changes, bad_lines
        return kb

    @property
    def _changeable(self) -> Path:
        """The folder. Raises KnowledgeBaseError if it is opened to answer from some pages: a change is of all."""
        if self._where.pages:
            raise KnowledgeBaseError(
                f"{self.folder} is opened to answer from {len(self._where.pages):,} of its pages: open all of it to "
                "change it"
            )
        return self.folder

    def delete(self, pages: str | Path | Iterable[str], *, missing_ok: bool = False) -> Self:
        """Delete pages, and open what is left: no answer comes from them any more. `compact` removes their bytes.

        Args:
            pages: ids, an id, or the `Path` of a file with one id a line.
            missing_ok: leave out ids that the knowledge base does not have.

        Raises:
            KnowledgeBaseError: it does not have one of them (all of these are named), or the folder cannot be written.
        """
        manifest, changes = delete(self._changeable, page_ids(pages), missing_ok)
        kb = self._reopened(manifest, self.index.kind)
        kb.changes = changes
        return kb

    def compact(self, threshold: float = 0.0, report: Report | None = None) -> Self:
        """Write shards again without their deleted pages, join small ones, and open the outcome.

        Afterwards no file of the folder holds anything that a deleted page said. Nothing is encoded again.

        Args:
            threshold: leave shards of which at most this share of pages is deleted.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or an update is unfinished.
        """
        with LateBar(f"compacting {self.folder}") as bar:
            manifest = compact(self._changeable, lambda: self.model, threshold, bar.to("stage", report))
        return self._reopened(manifest, self.index.kind)

    def index_vectors(
        self,
        kind: WantedKind = "auto",
        recall: float = 0.99,
        queries: Sequence[str] = (),
        filter: float | None = None,
        ray: str | None = None,
        report: Report | None = None,
    ) -> Self:
        """Build an index over the vectors, beside those that exist, and open the knowledge base with it.

        Args:
            recall: share of the ten best phrases of exact search that it must find.
            queries: like those to come; by default slots of the knowledge base's own pages.
            filter: index only tokens with a filter logit above this.
            ray: the address of a Ray cluster whose machines build it, a shard each; `local` starts one here.

        Raises:
            KnowledgeBaseError: faiss is missing, or the folder cannot be written.
            ClusterError: the cluster cannot be used.
        """
        folder = self._changeable
        build: Build = build_missing
        if ray is not None:
            from kbq.cluster.nodes import building_on

            build = building_on(ray)
        asked = tuple(given(queries, QueryError, "queries are", "a list of texts"))
        refuse_unreadable(asked, [self.model.query_tokenizer])
        with LateBar(f"indexing {folder}") as bar:
            spec = IndexSpec(kind, recall, asked, filter)
            manifest = add_index(folder, self.model, spec, bar.to("stage", report), build)
        return self._reopened(manifest, None)

    def index_bm25(self, report: Report | None = None) -> Self:
        """Add a BM25 index of the words to shards that have none, and open the knowledge base with it."""
        with LateBar(f"indexing {self.folder}") as bar:
            return self._with_words(index_bm25(self._changeable, bar.to("stage", report)))

    def index_sparta(self, model: str | Path, terms: int = TERMS, report: Report | None = None) -> Self:
        """Add impacts that a SPARTA model has learned, the strongest `terms` of each sentence, and open with them."""
        with LateBar(f"indexing {self.folder}") as bar:
            device, told = self._where.device, bar.to("stage", report)
            return self._with_words(index_sparta(self._changeable, model, terms, device, told))

    def _with_words(self, index_bytes: int) -> Self:
        kb = self._reopened(read_manifest(self.folder), self.index.kind)
        kb.index_bytes = index_bytes
        return kb


@contextmanager
def _told(title: str, words: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield these words with reports to a bar, and notes to the log, where the caller gives none."""
    pages, stage = words.get("report"), words.get("report_stage")
    with LateBar(title, pages, stage) as bar:
        yield {"note": warn} | dict(words) | {"report": bar.to("pages", pages), "report_stage": bar.to("stage", stage)}


def _unpickled(
    cls: type[KnowledgeBase], folder: Path, model: str, index: IndexKind, where: Where, lazy: bool
) -> KnowledgeBase:
    manifest = read_manifest(folder)
    return cls(folder, manifest, partial(model_of, folder, manifest.model, model, where.device), index, where, lazy)


def search_options(words: Mapping[str, Any], **others: Any) -> SearchOptions:
    """Make the options of a search from words that a method was given; networks and files may be paths.

    Raises:
        QueryError: an option is unknown, or its value has no meaning.
    """
    refuse_unknown_options(words, SearchOptions.__dataclass_fields__, QueryError)
    named = [name for name in ("reader", "calibration") if words.get(name) is not None]
    paths = {name: str(as_path(words[name], f"a {name}")) for name in named}
    return SearchOptions(**{**words, **paths, **others})
