"""KnowledgeBase: a folder that holds a corpus as phrases: build it, ask it, teach it, change it.
Read this first.

    pages ─┬─► model/ ─► dump/ (phrases) ─► index/ (rows) ─┬─► search/ ─┬─────────────┬─► Answer
           └─► words/ (BM25, learned impacts) ─────────────┘            └─► reading/ ─┘

`query` takes this way through asking/, which opens the files and networks that it needs.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kbq.answers import Answer, Answers, AnswersOfEach, Facts, PageName, Result, StrongTerms
from kbq.asking.searcher import Searcher, SearchTarget, SearchTargetKwargs
from kbq.dump.manifest import read_manifest
from kbq.dump.page_directory import unknown_page
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import build_missing
from kbq.maintain.changes import NOTHING_DONE, Changes, Outcome
from kbq.maintain.delete import delete, page_ids
from kbq.maintain.options import RECALL, TERMS, BuildKwargs, SyncKwargs, UpdateKwargs, build_options
from kbq.model.model import Model, model_of
from kbq.model.queries import readable_queries
from kbq.options import refuse_unknown_options
from kbq.progress import LateBar, warn
from kbq.sample_kb import sample_folder
from kbq.search.options import (
    EXPLAINED,
    N_RERANKED,
    STRONGEST,
    TOP_PAGES,
    K,
    Purpose,
    SearchOptions,
    check_explained,
    search_options,
)
from kbq.storage.paths import as_iterable, as_path
from kbq.storage.reports import unheard
from kbq.tuning.settings import HIDDEN
from kbq.words.bm25 import index_bm25
from kbq.words.impacts import impact_lines, index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import ThreadPoolExecutor
    from os import PathLike

    from kbq.answers import WantedKind
    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.factory import Build
    from kbq.kilt.prediction import PredictionOutcome
    from kbq.kilt.task import Task
    from kbq.search.options import (
        Backend,
        PredictKwargs,
        QueryKwargs,
        RankKwargs,
        SearchKwargs,
        Unit,
        WordBackend,
    )
    from kbq.storage.reports import Note, Report
    from kbq.tables.options import FillKwargs
    from kbq.tables.relations import Relation
    from kbq.tables.tables import Table
    from kbq.training.engine import StepReport
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome
    from kbq.tuning.settings import FinetuningKwargs

    Corpus = str | Path | Iterable[Page]
    PageIds = str | Path | Iterable[str]
    Records = str | Path | Iterable[Mapping[str, Any]]

HERE = SearchTarget()


class KnowledgeBase:
    """A published knowledge base: build or open it, ask it, teach it, measure it, change it; `with`
    closes it.

    Long work shows a bar after some seconds, unless `KBQ_PROGRESS` is 0 or a `report` takes the
    progress.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        model: Model | Callable[[], Model],
        where: SearchTarget = HERE,
        lazy: bool = False,
        outcome: Outcome = NOTHING_DONE,
    ) -> None:
        """Open what a manifest describes, with a model or with what opens it; use `open` or `build`
        instead.

        `outcome`: of the call that returns this object.
        """
        self.folder = folder
        self.manifest = manifest
        self.index = manifest.entry(folder, where.index)
        self._model = model
        self._where = where
        self._is_lazy = lazy
        self._is_closed = False
        self._outcome = outcome
        if not lazy:
            self.searcher = self._opened_searcher()

    # Build and open

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        ray: str | None = None,
        device: str = "auto",
        lazy: bool = False,
        **options: Unpack[BuildKwargs],
    ) -> Self:
        """Encode a corpus into `folder` and publish it. A build that was killed resumes where it
        stopped.

        Args:
            corpus: a file, a folder, "-" for standard input, or pages with ids of their own.
            folder: a new folder, one in which a build stopped half-way, or with `append` a
                knowledge base.
            model: `default`, a folder or a hub name; by default that of the knowledge base to
                append to, or `default`.
            ray: the address of a Ray cluster whose machines encode, in place of `workers`; `local`
                starts one here.
            options: those of `BuildOptions`, and `note`, `report` and `report_stage`.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build; or the
                index needs faiss.
            ModelError: the knowledge base to append to was built with another model.
            CorpusError: the corpus cannot be read; nothing is published.
            ClusterError: the cluster cannot be used.
        """
        from kbq.dump.page_encoder import processes
        from kbq.maintain.build import build

        folder = as_path(folder, "the folder of a knowledge base")
        settings, reports = build_options(options, BuildKwargs)
        start_encoders = processes(settings.workers)
        if ray is not None:
            from kbq.cluster.nodes import encoders_on

            start_encoders = encoders_on(ray)
        with _reporting(f"building {folder}", reports, corpus) as reported:
            reported |= {"start_encoders": start_encoders, "device": device}
            manifest, opened, bad_lines = build(corpus, folder, model, settings, **reported)
        return cls(folder, manifest, opened, lazy=lazy, outcome=Outcome(bad_lines=bad_lines))

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        lazy: bool = False,
        **where: Unpack[SearchTargetKwargs],
    ) -> Self:
        """Open a published knowledge base with its own model, or with one whose query side was
        tuned for it.

        Args:
            model: a folder, a name, or one that is open, which several knowledge bases can share.
            lazy: open files and networks when they are first needed: to change or describe it takes
                few of them.
            where: `index`: the kind that is searched; by default the one that was built last.
                `device`: `auto`, `cpu`, `cuda` or `cuda:n`; `auto` searches on the CPU if GPUs have
                too little room. `workers`: processes that answer, each with one thread and its own
                copy of the networks and, on a GPU, of the vectors.
                `ray`: the address of a Ray cluster whose machines search the shards, which must lie
                in the same folder on each; `local` starts one here.

        Raises:
            KnowledgeBaseError: it is missing, incomplete, damaged, of another format version, or
                lacks this index; or there are fewer workers than 1, or several beside a cluster.
            ModelError: the model is missing or belongs to another phrase encoder.
            ClusterError: the cluster cannot be used.
        """
        refuse_unknown_options(where, SearchTargetKwargs.__annotations__, KnowledgeBaseError)
        return cls._opened(
            as_path(folder, "the folder of a knowledge base"), model, SearchTarget(**where), lazy
        )

    @classmethod
    def _opened(
        cls, folder: Path, model: str | Path | Model | None, where: SearchTarget, lazy: bool
    ) -> Self:
        """Open a knowledge base with a model, or with the one that it names."""
        manifest = read_manifest(folder)
        opens = (
            model
            if isinstance(model, Model)
            else partial(model_of, folder, manifest.model, model, where.device)
        )
        return cls(folder, manifest, opens, where, lazy)

    @classmethod
    def sample(
        cls,
        model: str | Path | None = None,
        *,
        note: Note = unheard,
        lazy: bool = False,
        **where: Unpack[SearchTargetKwargs],
    ) -> Self:
        """Open the knowledge base of the bundled articles, built on first use and kept in the
        user's cache folder.

        `lazy` and `where` are as for `open`; `note` is told of the build. Raises KnowledgeBaseError
        if the cache folder cannot be written.

        >>> KnowledgeBase.sample().query("Marie Curie [SEP] place of birth", k=1)[0].text
        'Warsaw'
        """
        folder = sample_folder(cls.build, note)
        return cls.open(folder, model, lazy=lazy, **where)

    def with_model(self, model: str | PathLike[str]) -> Self:
        """Open the same knowledge base with another query encoder: one that `finetune` has made for
        it. A lazy one stays lazy.

        Raises ModelError if it is missing or belongs to another phrase encoder.
        """
        is_open = isinstance(self._model, Model)
        device = str(self.model.device) if is_open else self._where.device
        return self._reopened(model=Model.open(as_path(model, "a model"), device))

    def with_pages(self, pages: PageIds) -> Self:
        """Open the same knowledge base to answer from these pages only: they are chosen before the
        best answers are. A lazy one stays lazy.

        `pages` are ids, an id, or the `Path` of a file with one id a line. Raises
        KnowledgeBaseError that names all ids that the knowledge base lacks.
        """
        return self._reopened(where=replace(self._where, pages=tuple(page_ids(pages))))

    @property
    def model(self) -> Model:
        """The open model, which encodes pages and queries."""
        if not isinstance(self._model, Model):
            self._model = self._model()
        return self._model

    @cached_property
    def searcher(self) -> Searcher:
        """The open files and networks, for parts of kbq that check and batch queries themselves."""
        if self._is_closed:
            raise KnowledgeBaseError(
                f"the knowledge base {self.folder} has been closed: open it again"
            )
        return self._opened_searcher()

    def _opened_searcher(self) -> Searcher:
        searcher = Searcher(self.folder, self.manifest, self._where, self.model)
        self.manifest = searcher.manifest
        self.index = searcher.index
        return searcher

    def _reopened(
        self,
        manifest: Manifest | None = None,
        outcome: Outcome = NOTHING_DONE,
        *,
        model: Model | None = None,
        where: SearchTarget | None = None,
    ) -> Self:
        """Open this knowledge base again, as lazily, with all that is not given as it is here."""
        return type(self)(
            self.folder,
            manifest or self.manifest,
            model or self._model,
            where or self._where,
            self._is_lazy,
            outcome,
        )

    def close(self) -> None:
        """Release files, indexes and networks. Any later use raises KnowledgeBaseError; closing
        twice is fine.
        """
        self._is_closed = True
        self.__dict__.pop("searcher", None)
        thread = self.__dict__.pop("_thread", None)
        if thread:
            thread.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"KnowledgeBase({str(self.folder)!r}: {self.counts.pages:,} pages, "
            f"{self.counts.rows:,} vectors)"
        )

    # Look

    @property
    def changes(self) -> Changes:
        """What the update, sync or delete changed that returned this object."""
        return self._outcome.changes

    @property
    def bad_lines(self) -> int:
        """How many lines the build or update skipped that returned this object."""
        return self._outcome.bad_lines

    @property
    def index_bytes(self) -> int:
        """The size of the index of words that was added when this object was returned."""
        return self._outcome.index_bytes

    @property
    def counts(self) -> Counts:
        """Pages, paragraphs, tokens and rows, without deleted pages."""
        return self.manifest.counts

    def info(self) -> dict[str, object]:
        """Describe what the knowledge base holds and what its indexes cost, as `kbq info --json`
        prints it.
        """
        from kbq.description import describe

        read_manifest(self.folder)  # it may have been removed meanwhile
        return Facts(describe(self.folder))

    def pages(self) -> Iterator[PageName]:
        """Return the ids and titles of the pages that answers may come from, in the order of the
        corpus.
        """
        return (PageName(*names) for names in self.searcher.pages.visible_names())

    def page(self, page_id: str) -> Page:
        """Return the page with this id, its paragraphs and metadata. Raises KnowledgeBaseError if
        there is none.
        """
        with self.manifest.damage_explained(self.folder):
            page = self.searcher.pages.page(page_id)
        if page is None:
            raise unknown_page(self.folder, page_id)
        return page

    @property
    def is_current(self) -> bool:
        """Whether the folder still holds what is open; if not, `reload` opens what it holds now."""
        try:
            return read_manifest(self.folder) == self.manifest
        except KnowledgeBaseError:  # it has been deleted
            return False

    def reload(self) -> Self:
        """Open what the folder holds now, in this object, too: an update of others changes nothing
        that is open.

        Raises KnowledgeBaseError if the folder holds no knowledge base any more; what was open
        stays open.
        """
        opened = self._reopened(read_manifest(self.folder))
        self.close()
        self.manifest = opened.manifest
        self.index = opened.index
        self._outcome = opened._outcome
        if not self._is_lazy:
            self.searcher = opened.searcher
        self._is_closed = False
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the knowledge base is and how it is searched; unpickling and copying open it
        again.
        """
        if not self.model.source:
            raise KnowledgeBaseError(
                "a knowledge base whose model is in no folder cannot be pickled: save the model"
            )
        return self._opened, (self.folder.absolute(), self.model.source, self._where, self._is_lazy)

    # Ask

    @overload
    def query(  # type: ignore[overload-overlap]
        self,
        texts: str,
        k: int = ...,
        unit: Unit | None = ...,
        backend: Backend = ...,
        **options: Unpack[SearchKwargs],
    ) -> list[Answer]: ...
    @overload
    def query(
        self,
        texts: Iterable[str],
        k: int = ...,
        unit: Unit | None = ...,
        backend: Backend = ...,
        **options: Unpack[SearchKwargs],
    ) -> list[list[Answer]]: ...

    def query(
        self,
        texts: str | Iterable[str],
        k: int = K,
        unit: Unit | None = None,
        backend: Backend = "auto",
        **options: Unpack[SearchKwargs],
    ) -> list[Answer] | list[list[Answer]]:
        """Return the k best distinct answers, best first; fewer only where the knowledge base holds
        fewer.

        Args:
            texts: `subject [SEP] relation`, a question, or a marked mention; one text gives a list
                of answers, several give a list for each.
            k: how many answers.
            unit: what an answer is: phrase, sentence, paragraph or page.
            backend: `dense` (vectors), `bm25` or `sparta` (words), `hybrid` (both), or `auto`:
                hybrid where words are indexed.
            options: `rerank` (how many phrases are judged again), `min_probability`, `calibration`
                (a file), `bm25_weight`, `sparta_weight`, and to read paragraphs: `reader`, `depth`,
                `retrieval_weight`. `SearchOptions` says more.

        Raises:
            QueryError: a text is empty, too long, or malformed; or what is asked for does not exist
                here.
        """
        search = search_options(options, k=k, unit=unit, backend=backend)
        if isinstance(texts, str):
            return Answers(next(self.ask([texts], search)).likely)
        asked = list(as_iterable(texts, QueryError, "queries are", "a text, or a list of texts"))
        answers = AnswersOfEach()
        with LateBar("asking") as bar:
            progress = bar.to("count")
            for result in self.ask(asked, search):
                answers.append(Answers(result.likely))
                progress(len(answers), len(asked))

        answers.queries = asked
        return answers

    @overload
    async def aquery(  # type: ignore[overload-overlap]
        self, texts: str, k: int = ..., **options: Unpack[QueryKwargs]
    ) -> list[Answer]: ...
    @overload
    async def aquery(
        self, texts: Iterable[str], k: int = ..., **options: Unpack[QueryKwargs]
    ) -> list[list[Answer]]: ...

    async def aquery(
        self, texts: str | Iterable[str], k: int = K, **options: Unpack[QueryKwargs]
    ) -> list[Answer] | list[list[Answer]]:
        """Await what `query` returns, while the event loop goes on.

        Queries that are awaited together wait for one another, on one thread of this knowledge
        base; ask several texts at once where you can.
        """
        import asyncio  # imported on demand: commands do not need it

        ask = partial(self.query, texts, k, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        """The thread that answers what is awaited."""
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(1, "kbq")

    def query_stream(
        self,
        texts: Iterable[str],
        k: int = K,
        unit: Unit | None = None,
        backend: Backend = "auto",
        **options: Unpack[SearchKwargs],
    ) -> Iterator[list[Answer]]:
        """Yield the answers of `query` to each text of a generator; as many are read ahead as are
        asked together.

        Raises QueryError at a text that cannot be asked; the answers to those before it have been
        given.
        """
        search = search_options(options, k=k, unit=unit, backend=backend)
        asked = iter(texts)
        while batch := list(islice(asked, self.searcher.batch_size)):
            yield from (Answers(result.likely) for result in self.ask(batch, search))

    def ask(
        self,
        texts: Sequence[str],
        options: SearchOptions,
        places: Sequence[str] = (),
        spell: bool = False,
    ) -> Iterator[Result]:
        """Check all texts, then yield what is found for each: unlikely answers and the best guess,
        too.

        Args:
            places: of the texts, for messages: "file:line".
            spell: name the words that no page has.

        Raises:
            QueryError: a text cannot be asked, or what is asked for does not exist here; nothing is
                searched.
        """
        searcher = self.searcher
        size = self.searcher.batch_size
        searcher.query_tokenizers(options)  # opens the reader, even before there is a query
        queries = searcher.check(options, texts, places)
        batches = (queries[first : first + size] for first in range(0, len(queries), size))
        return chain.from_iterable(searcher.results(batch, options, spell) for batch in batches)

    def explain(
        self, text: str, k: int = EXPLAINED, backend: WordBackend = "bm25"
    ) -> list[tuple[Answer, dict[str, float]]]:
        """Find the k best paragraphs by words alone, each with what every term of the query adds to
        its score.

        Raises QueryError if the knowledge base has no such index, or the text cannot be read.
        """
        check_explained(k, backend)
        queries = readable_queries([text], ())
        with self.manifest.damage_explained(self.folder):
            return list(self.searcher.words.scores(queries, backend).explained(0, k))

    def strongest_terms(
        self, page_id: str, k: int = STRONGEST, backend: WordBackend = "sparta"
    ) -> list[StrongTerms]:
        """Return the k strongest terms of each sentence of a page, or by `bm25` of each paragraph,
        with their weights.

        Raises KnowledgeBaseError if there is no such page, and QueryError if there is no such
        index.
        """
        check_explained(k, backend)
        with self.manifest.damage_explained(self.folder):
            place = self.searcher.pages.place(page_id)
            if place is not None:
                return self.searcher.words.strongest(place, backend, k)
        raise unknown_page(self.folder, page_id)

    def export_impacts(self, out: str | Path) -> int:
        """Write the impacts of all sentences for Anserini (JsonVectorCollection); return how many
        sentences there are.

        Raises QueryError if the knowledge base has no learned impacts.
        """
        self.searcher.words.require("sparta")
        with self.manifest.damage_explained(self.folder):
            from kbq.kilt.records import write_lines

            return write_lines(
                as_path(out, "out"), impact_lines(self.searcher.shards, self.manifest)
            )

    # Teach and measure

    def finetune(
        self,
        triples: str | Path | Sequence[str | Path],
        out: str | Path,
        *,
        task: str | Task = "slot_filling",
        dev: str | Path | None = None,
        examples: int = 0,
        command: str = "",
        note: Note = warn,
        report: Callable[[StepReport], None] | None = None,
        report_stage: Report | None = None,
        **settings: Unpack[FinetuningKwargs],
    ) -> FinetuningOutcome:
        """Tune the query encoder on triples; this knowledge base is not changed. `with_model` takes
        the outcome.

        Args:
            triples: KILT lines, open questions, or CSV, TSV or JSON lines of subject, relation,
                object[, aliases, page]; or several such files, each perhaps followed by a colon and
                its task: all count the same.
            out: folder of the new query encoder.
            task: a task or its name, a family such as `entity_linking`, or a task file.
            dev: scored after each epoch; by default a tenth is set aside, with subjects and pages
                of its own.
            examples: how many queries of each file to tune on, each relation its share; 0: all.
            settings: those of `FinetuningSettings`.

        Raises:
            TrainingError: there is no usable triple, a setting has no meaning, or `out` exists.
        """
        from kbq.tuning.finetune import finetune
        from kbq.tuning.settings import FinetuningSettings

        refuse_unknown_options(settings, FinetuningSettings.__dataclass_fields__, QueryError)
        with LateBar(f"tuning {out}", report, report_stage) as bar:
            return finetune(
                self.searcher,
                triples,
                out,
                FinetuningSettings(**settings),
                task=task,
                dev=dev,
                examples=examples,
                command=command,
                note=note,
                report=bar.to("step", report),
                report_stage=bar.to("stage", report_stage),
            )

    def calibrate(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        purpose: Purpose | None = None,
        hidden: float = HIDDEN,
        backend: Backend = "auto",
        command: str = "",
        note: Note = warn,
        report: Callable[[int, int], None] | None = None,
        **options: Unpack[RankKwargs],
    ) -> CalibrationOutcome:
        """Learn how likely answers are to be right, and write it into a file; `calibration` of
        `query` or, for cells, of `fill` takes it.

        Args:
            triples: as for `finetune`; where the object is empty, no answer is right.
            purpose: "query", most of which have an answer, or "cell" of a table, most of which have
                none; few triples change little of the model's own calibration for it. By default,
                cells if all triples are decisions on a table.
            hidden: share of the queries that are asked again without the pages that answer them.
            options: those of `SearchOptions`.

        Raises:
            TrainingError: there are too few triples, or all answers are right, or none is.
        """
        from kbq.tuning.calibrate import calibrate

        search = search_options(options, backend=backend)
        path = as_path(out, "out")
        self.searcher.check(search)
        with LateBar(f"calibrating {path}") as bar:
            progress = bar.to("count", report)
            outcome = calibrate(
                self.searcher,
                triples,
                path,
                search,
                purpose=purpose,
                hidden=hidden,
                command=command,
                note=note,
                report=progress,
            )

        self.searcher.forget_calibration()  # it may be the file just written
        return outcome

    @overload
    def predict(
        self, records: Records, task: str | Task, out: None = ..., **options: Unpack[PredictKwargs]
    ) -> list[dict[str, Any]]: ...
    @overload
    def predict(
        self, records: Records, task: str | Task, out: str | Path, **options: Unpack[PredictKwargs]
    ) -> PredictionOutcome: ...

    def predict(
        self,
        records: Records,
        task: str | Task,
        out: str | Path | None = None,
        *,
        top_pages: int = TOP_PAGES,
        unit: Unit = "page",
        with_text: bool = False,
        questions: str | Path | None = None,
        backend: Backend = "auto",
        report: Callable[[int, int], None] | None = None,
        **options: Unpack[SearchKwargs],
    ) -> PredictionOutcome | list[dict[str, Any]]:
        """Predict KILT records: into a file, resuming where a killed run stopped, or without `out`
        as records.

        Args:
            records: a file of KILT or of open questions, or records with `id` and `input`.
            questions: a file with the questions by id, for KILT's TriviaQA, which leaves them out.
            top_pages: places of each provenance.
            unit: what a place is: a page or, to rank passages, one of several paragraphs, sentences
                or phrases of a page.
            with_text: add the paragraph, or the sentence, and the phrase in it.
            options: those of `SearchOptions`; below `min_probability`, a prediction has an empty
                answer.

        Raises:
            QueryError: records cannot be asked; all of these are named.
            KbqError: `out` is of another run.
        """
        from kbq.kilt.prediction import Predictor, refuse_other_files
        from kbq.kilt.task import Task

        search = search_options(options, k=top_pages, unit=unit, backend=backend)
        path = None if out is None else as_path(out, "out")
        with LateBar("predicting") as bar:
            asked = None if questions is None else as_path(questions, "questions")
            refuse_other_files(records)
            predictor = Predictor(Task.load(task), self.searcher, search, with_text, asked)
            return predictor.predict(records, path, bar.to("count", report))

    def fill(
        self,
        table: Records | None,
        relations: Iterable[str | Relation],
        out: str | Path | None = None,
        *,
        command: str = "",
        note: Note = warn,
        report: Callable[[int, int, int], None] | None = None,
        **options: Unpack[FillKwargs],
    ) -> Table:
        """Fill the empty cells of a table with what the text says, where that is likely enough,
        each with its evidence.

        Args:
            table: a file (CSV, TSV, JSON lines, Parquet, XLSX), rows, or a data frame; None: a row
                for each page, whose title is the subject.
            relations: the columns to fill, which are added where they are missing; files
                relations.toml; presets of known relations such as @people (`kbq relations` prints
                them).
            out: the table that is written, with its claims beside it; without it, the table is only
                returned. The answers are kept beside it, too: a killed run resumes, and one with
                another threshold, format, row or column asks only for what is missing.
            report: called with the numbers of cells that are done, of all cells, and of those
                filled.
            options: those of `FillOptions` and `SearchOptions`. With `check`, the table has
                verdicts.

        Raises:
            KbqError: the table or the relations cannot be used, or `out` was made by somebody else.
            QueryError: answers have no probability here, or the precision cannot be promised.
        """
        from kbq.tables.fill import fill, read_inputs
        from kbq.tables.options import fill_options

        settings, others = fill_options(options)
        k = max(N_RERANKED, others.get("rerank") or 0)
        search = search_options(others, unit="phrase", k=k, purpose="cell")
        with LateBar("filling") as bar:
            progress = bar.to("cells", report)
            inputs = read_inputs(table, relations, out, settings, note)
            return fill(
                self.searcher, inputs, settings, search, command=command, note=note, report=progress
            )

    # Maintain: each returns the knowledge base as it is now; this object goes on with what it has
    # open

    def update(self, corpus: Corpus, **options: Unpack[UpdateKwargs]) -> Self:
        """Add the pages of a corpus that are new, and replace those that have changed, by their
        ids.

        Pages that are as they were are recognised by their digests, and not encoded again. What the
        knowledge base answers is what one built from its present pages would. `changes` of the
        outcome says how many there are.

        Args:
            options: as for `build`; `dry_run` only compares, and changes nothing.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or holds another
                unfinished update.
            CorpusError: the corpus cannot be read; nothing is changed.
        """
        return self._updated(corpus, options, delete_missing=False)

    def sync(self, corpus: Corpus, **options: Unpack[SyncKwargs]) -> Self:
        """`update`, and delete the pages that the corpus lacks: the knowledge base then has the
        corpus's pages.
        """
        return self._updated(corpus, options, delete_missing=True)

    def _updated(self, corpus: Corpus, keywords: Mapping[str, Any], delete_missing: bool) -> Self:
        """Update or sync, and reopen with the same settings."""
        from kbq.dump.page_encoder import processes
        from kbq.maintain.update import update

        options, others = build_options(keywords, SyncKwargs if delete_missing else UpdateKwargs)
        with _reporting(f"updating {self.folder}", others) as reported:
            manifest, changes, bad_lines = update(
                corpus,
                self._changeable,
                lambda: self.model,
                options,
                delete_missing=delete_missing,
                start_encoders=processes(options.workers),
                **reported,
            )

        return self._reopened(manifest, Outcome(changes, bad_lines))

    @property
    def _changeable(self) -> Path:
        """The folder. Raises KnowledgeBaseError if it is opened to answer from some pages: a change
        is of all.
        """
        if self._where.pages:
            raise KnowledgeBaseError(
                f"{self.folder} is opened to answer from {len(self._where.pages):,} of its pages: "
                "open all of it to change it"
            )
        return self.folder

    def delete(self, pages: PageIds, *, missing_ok: bool = False) -> Self:
        """Delete pages: no answer comes from them any more. `compact` removes their bytes.

        `pages` are ids, an id, or the `Path` of a file with one id a line. Raises
        KnowledgeBaseError if the folder cannot be written or, unless `missing_ok`, some pages are
        not there; it names all of these.
        """
        manifest, changes = delete(self._changeable, page_ids(pages), missing_ok)
        return self._reopened(manifest, Outcome(changes))

    def compact(self, threshold: float = 0.0, report: Report | None = None) -> Self:
        """Write shards again without their deleted pages, and join small ones; nothing is encoded
        again.

        Shards of which at most a share of `threshold` is deleted stay as they are; the others keep
        nothing that a deleted page said. Raises KnowledgeBaseError if the folder is in use or
        cannot be written, or an update is unfinished.
        """
        from kbq.maintain.compact import compact

        with LateBar(f"compacting {self.folder}") as bar:
            manifest = compact(
                self._changeable, lambda: self.model, threshold, bar.to("stage", report)
            )
        return self._reopened(manifest)

    def index_vectors(
        self,
        kind: WantedKind = "auto",
        recall: float = RECALL,
        queries: Sequence[str] = (),
        filter: float | None = None,
        ray: str | None = None,
        report: Report | None = None,
    ) -> Self:
        """Build an index over the vectors, beside those that exist; from now on it is the one that
        is searched.

        Args:
            recall: share of the ten best phrases of exact search that it must find.
            queries: like those to come; by default slots of the knowledge base's own pages.
            filter: index only tokens with a filter logit above this.
            ray: the address of a Ray cluster whose machines build it, a shard each; `local` starts
                one here.

        Raises:
            KnowledgeBaseError: faiss is missing, or the folder cannot be written.
            ClusterError: the cluster cannot be used.
        """
        from kbq.maintain.indexes import IndexSpec, add_index

        build_all: Build = build_missing
        if ray is not None:
            from kbq.cluster.nodes import building_on

            build_all = building_on(ray)

        asked = tuple(as_iterable(queries, QueryError, "queries are", "a list of texts"))
        read = readable_queries(asked, [self.model.query_tokenizer])
        spec = IndexSpec(kind, recall, tuple(query.text for query in read), filter)
        with LateBar(f"indexing {self.folder}") as bar:
            manifest = add_index(
                self._changeable, self.model, spec, bar.to("stage", report), build_all
            )

        return self._reopened(manifest, where=replace(self._where, index=None))

    def index_bm25(self, report: Report | None = None) -> Self:
        """Add a BM25 index of the words to shards that have none."""
        return self._with_words(index_bm25, report)

    def index_sparta(
        self, model: str | Path, terms: int = TERMS, report: Report | None = None
    ) -> Self:
        """Add the impacts that a SPARTA model has learned, the strongest `terms` of each sentence."""
        device = self._where.device
        return self._with_words(
            lambda folder, reported: index_sparta(folder, model, terms, device, reported), report
        )

    def _with_words(self, index: Callable[[Path, Report], int], report: Report | None) -> Self:
        with LateBar(f"indexing {self.folder}") as bar:
            size = index(self._changeable, bar.to("stage", report))
        return self._reopened(read_manifest(self.folder), Outcome(index_bytes=size))


@contextmanager
def _reporting(
    title: str, options: Mapping[str, Any], corpus: object = None
) -> Iterator[dict[str, Any]]:
    """Yield these options with reports to a bar, and notes to the log, where the caller gives none."""
    pages = options.get("report")
    stage = options.get("report_stage")
    with LateBar(title, pages, stage, corpus=corpus) as bar:
        yield (
            {"note": warn}
            | dict(options)
            | {"report": bar.to("pages", pages), "report_stage": bar.to("stage", stage)}
        )
