"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it, teach it. Read this first.

pages ──── model/ ────► phrase dump (dump/) ──► rows (index/) ──► spans ──► phrases … pages (search/) ──► Answer
  └─── words ──► BM25, learned impacts (words/) ───────────────────┘                └── reading/ ──┘
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from kbq.answers import (
    DEPTH,
    LOOKS,
    RETRIEVAL_WEIGHT,
    TOP,
    Backend,
    IndexKind,
    PageName,
    SearchOptions,
)
from kbq.asking import OpenKnowledgeBase, named
from kbq.dump.changes import Changes, delete, page_ids
from kbq.dump.manifest import read_manifest
from kbq.dump.workers import processes
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import build_missing
from kbq.model.model import Model
from kbq.model.queries import refuse_unreadable
from kbq.reading.calibration import HIDDEN
from kbq.sample_kb import Building, quietly, sample_folder
from kbq.search.building_indexes import IndexSpec, add_index
from kbq.search.changing import build, compact, update
from kbq.storage.paths import as_path, given
from kbq.storage.progress import Note, Report, silent, unheard
from kbq.storage.rows import EMPTY
from kbq.words.bm25 import index_bm25
from kbq.words.sparta import TERMS, index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbq.answers import CorpusColumns, CorpusFormat, SearchWords, WantedKind
    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.factory import Build
    from kbq.kilt.prediction import PredictionOutcome
    from kbq.kilt.task import Task
    from kbq.tables.claims import Dates
    from kbq.tables.outputs import Format
    from kbq.tables.relations import Relation
    from kbq.tables.tables import Table
    from kbq.training.engine import StepReport
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome


class KnowledgeBase(OpenKnowledgeBase):
    """A published knowledge base: built, asked, taught, measured and changed; `with` closes it at the end."""

    bad_lines = 0  # of the corpus, left out by the build or update that made this object
    changes = Changes()  # made by the update, sync or delete that made this object

    # Build and open

    @classmethod
    def build(
        cls,
        corpus: str | Path | Iterable[Page],
        folder: str | Path,
        model: str | Path | Model | None = None,
        *,
        format: CorpusFormat = "auto",
        columns: CorpusColumns | None = None,
        index: WantedKind = "auto",
        bm25: bool = True,
        sparta: str | Path | None = None,
        terms: int = TERMS,
        append: bool = False,
        skip_bad_lines: bool = False,
        workers: int = 1,
        ray: str | None = None,
        device: str = "auto",
        report: Callable[[Counts], None] = unheard,
        report_stage: Report = silent,
        note: Note = unheard,
    ) -> Self:
        """Encode a corpus into `folder` and publish it. A build that was killed resumes where it stopped.

        Args:
            corpus: a file, a folder, "-" for standard input, or pages with ids of their own.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            model: `default`, a folder or a hub name; by default that of the knowledge base to append to, or `default`.
            format: of a file; `auto` recognises it.
            columns: what a table, or jsonl, calls the columns of ids, titles and texts.
            index: `auto` searches exactly up to about 2 million kept tokens, above with a compact index.
            bm25: add a BM25 index; with `append`, there is one where there was one before.
            sparta: folder of a SPARTA model whose impacts are added, the strongest `terms` of each sentence.
            skip_bad_lines: leave bad lines out, with a note, instead of refusing the corpus.
            workers: processes that encode; several need a main module that can be imported, as `multiprocessing` says.
            ray: the address of a Ray cluster whose machines encode, in place of `workers`; `local` starts one here.
            report: called after each block with what this build has written so far.
            report_stage: called with the progress of what follows: indexes and words.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build; or the index needs faiss.
            ModelError: the knowledge base to append to was built with another model.
            CorpusError: the corpus cannot be read; nothing is published.
            ClusterError: the cluster cannot be used.
        """
        folder = as_path(folder, "the folder of a knowledge base")
        start_encoders = processes(workers)
        if ray is not None:
            from kbq.cluster.encoding import encoders_on

            start_encoders = encoders_on(ray)
        manifest, opened, bad_lines = build(
            corpus, folder, model, format=format, columns=columns, index=index, bm25=bm25, sparta=sparta,
            terms=terms, append=append, skip_bad_lines=skip_bad_lines,
            start_encoders=start_encoders, device=device, report=report,
            report_stage=report_stage, note=note,
        )  # fmt: skip
        kb = cls(folder, manifest, opened, may_leave_gpu=True)
        kb.bad_lines = bad_lines
        return kb

    @classmethod
    def sample(
        cls,
        model: str | Path | None = None,
        *,
        index: IndexKind | None = None,
        ray: str | None = None,
        device: str = "auto",
        building: Building = quietly,
    ) -> Self:
        """The knowledge base of the bundled articles, built on first use and kept in the user's cache folder.

        Args:
            building: called with the folder where it is built; gives a context whose value is a `report` for `build`.

        Raises:
            KnowledgeBaseError: the cache folder cannot be written.

        >>> KnowledgeBase.sample().query("Marie Curie [SEP] place of birth", k=1)[0].text
        'Warsaw'
        """
        return cls.open(sample_folder(cls.build, building), model, index=index, ray=ray, device=device)

    def pages(self) -> Iterator[PageName]:
        """The ids and titles of the pages that answers may come from, in the order of the corpus."""
        from kbq.tables.slots import every_page

        return (PageName(row["page_id"], row["subject"]) for row in every_page(self))

    # Teach and measure

    def finetune(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        task: str | Task = "slot_filling",
        dev: str | Path | None = None,
        examples: int = 0,
        objective: Literal["auto", "kilt", "phrase", "page"] = "auto",
        terms: str = "joint,start,end",
        k: int = 100,
        epochs: int = 3,
        patience: int = 2,
        batch: int = 24,
        accumulate: int = 1,
        learning_rate: float = 2e-4,
        keep: float = 0.5,
        seed: int = 0,
        note: Note = unheard,
        report: Callable[[StepReport], None] = unheard,
    ) -> FinetuningOutcome:
        """Tune the query encoder on triples; this knowledge base is not changed. `with_model` takes the outcome.

        Args:
            triples: KILT lines, or CSV, TSV or JSON lines of subject, relation, object[, aliases, page].
            out: folder of the new query encoder.
            dev: scored after each epoch; by default a tenth is set aside, with subjects and pages of its own.
            examples: how many queries to tune on, each relation its share; 0: all.
            objective: what is right: the answer on a gold page (kilt), the answer anywhere (phrase), or the page.
            terms: of the loss, some of joint, start and end.
            k: phrases found for a query that compete.
            patience: epochs without a better dev score, after which tuning stops.
            batch: queries searched together.
            accumulate: batches of one step.
            keep: from 0 to 1: how much the present answers to other queries count beside the triples.

        Raises:
            TrainingError: there is no usable triple, a setting has no meaning, or `out` exists.
        """
        from kbq.tuning.finetune import finetune

        return finetune(
            self, triples, out, task=task, dev=dev, examples=examples, objective=objective, terms=terms, k=k,
            epochs=epochs, patience=patience, batch=batch, accumulate=accumulate, learning_rate=learning_rate,
            keep=keep, seed=seed, note=note, report=report,
        )  # fmt: skip

    def calibrate(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        hidden: float = HIDDEN,
        backend: Backend = "auto",
        bm25_weight: float | None = None,
        sparta_weight: float | None = None,
        rerank: int | None = None,
        command: str = "",
        report: Callable[[int, int], None] = unheard,
    ) -> CalibrationOutcome:
        """Learn how likely answers are to be right, and write it into a file; `calibration` of `query` takes it.

        Args:
            triples: KILT lines, or CSV, TSV or JSON lines of subject, relation, object[, aliases, page]; without an
                object, nothing is right.
            out: the file.
            hidden: share of the queries that are asked again without the pages that answer them.

        Raises:
            TrainingError: there are too few triples, or all answers are right, or none is.
        """
        from kbq.tuning.calibrate import calibrate

        options = SearchOptions(backend=backend, bm25_weight=bm25_weight, sparta_weight=sparta_weight, rerank=rerank)
        self.check(options)
        path = as_path(out, "out")
        return calibrate(self, triples, path, options, hidden=hidden, command=command, report=report)

    @overload
    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: None = ...,
        *,
        top_pages: int = ...,
        with_text: bool = ...,
        backend: Backend = ...,
        report: Callable[[int, int], None] = ...,
        **options: Unpack[SearchWords],
    ) -> list[dict[str, Any]]: ...

    @overload
    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: str | Path,
        *,
        top_pages: int = ...,
        with_text: bool = ...,
        backend: Backend = ...,
        report: Callable[[int, int], None] = ...,
        **options: Unpack[SearchWords],
    ) -> PredictionOutcome: ...

    def predict(
        self,
        records: str | Path | Iterable[Mapping[str, Any]],
        task: str | Task,
        out: str | Path | None = None,
        *,
        top_pages: int = 20,
        with_text: bool = False,
        backend: Backend = "auto",
        bm25_weight: float | None = None,
        sparta_weight: float | None = None,
        reader: str | Path | None = None,
        depth: int = DEPTH,
        retrieval_weight: float = RETRIEVAL_WEIGHT,
        rerank: int | None = None,
        min_probability: float = 0.0,
        calibration: str | Path | None = None,
        report: Callable[[int, int], None] = unheard,
    ) -> PredictionOutcome | list[dict[str, Any]]:
        """Predict KILT records: into a file, resuming where a killed run stopped, or without `out` as records.

        Args:
            records: a KILT file, or records with `id` and `input`.
            top_pages: pages of each provenance.
            with_text: add each page's paragraph.
            min_probability: of an answer, below which the prediction has an empty one.

        Raises:
            QueryError: records that cannot be asked; all are named.
            KbqError: `out` is of another run.
        """
        from kbq.kilt.prediction import predict_file, predict_records
        from kbq.kilt.task import Task

        options = SearchOptions(
            top_pages, "page", backend, bm25_weight, sparta_weight, named(reader, "a reader"), depth, retrieval_weight,
            rerank, min_probability, named(calibration, "a calibration"),
        )  # fmt: skip
        self.check(options)
        chosen = Task.load(task)
        if min_probability and chosen.answer == "none":
            raise QueryError(f"{chosen.name} asks for pages alone, so --min-probability has no effect: leave it out")
        if out is None:
            return predict_records(chosen, records, self, options, with_text, report)
        read_manifest(self.folder)  # it may have been removed meanwhile
        return predict_file(chosen, records, self, as_path(out, "out"), options, with_text, report)

    def fill(
        self,
        table: str | Path | Iterable[Mapping[str, Any]] | None,
        relations: Iterable[str | Relation],
        out: str | Path | None = None,
        *,
        subject: str = "subject",
        values: Literal["one", "many"] = "one",
        min_probability: float | None = None,
        precision: float | None = None,
        top: int = TOP,
        limit: int = 0,
        overwrite: bool = False,
        check: bool = False,
        dates: Dates = "text",
        empty: Iterable[str] = EMPTY,
        decisions: str | Path | None = None,
        format: Format | None = None,
        ids: str | Path | None = None,
        dry_run: bool = False,
        force: bool = False,
        backend: Backend = "auto",
        bm25_weight: float | None = None,
        sparta_weight: float | None = None,
        rerank: int | None = None,
        calibration: str | Path | None = None,
        command: str = "",
        note: Note = unheard,
        report: Callable[[int, int, int], None] = unheard,
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
            subject: the column of subjects.
            values: whether a cell gets the best value, or all that are likely enough; of relations given by name.
            min_probability: of a value, below which a cell stays empty; by default 0.5.
            precision: instead of it, the share of values to be right, which the calibration promises above a threshold.
            top: alternatives that a cell's claim keeps.
            limit: cells that are asked for at most; 0: all.
            overwrite: fill cells that have a value, too.
            check: change nothing, but compare the values that are there with the text; a table of verdicts is given.
            dates: how dates are written into cells: as the text has them, or as `iso` or `edtf`.
            empty: what cells without a value hold: such a cell counts as empty.
            decisions: JSON lines of values that a person has accepted or rejected.
            format: of `out`, where its suffix does not say it; nt, trig, qs and html have the claims alone.
            ids: of nt, trig and qs: a table of names (subjects, values, pages, units) and their Q-numbers of Wikidata.
            dry_run: only say, in `counts`, how much there is to ask, and about how many seconds it takes.
            force: overwrite `out` whoever made it, and ask again where another knowledge base was asked.
            report: called with the cells that are done, all of them, and those filled.

        Raises:
            KbqError: the table or the relations cannot be used, or `out` was made by somebody else.
            QueryError: answers have no probability here, or the precision cannot be promised.
        """
        from kbq.tables.fill import fill
        from kbq.tables.options import FillOptions

        search = SearchOptions(
            LOOKS if rerank is None else max(LOOKS, rerank), "phrase", backend, bm25_weight, sparta_weight,
            rerank=rerank, calibration=named(calibration, "a calibration"),
        )  # fmt: skip
        options = FillOptions(
            subject, values, min_probability, precision, top, limit, overwrite, check, dates, tuple(empty)
        )
        return fill(
            self, table, relations, out, options, search, decisions=decisions, format=format, ids=ids, dry_run=dry_run,
            force=force, command=command, note=note, report=report,
        )  # fmt: skip

    # Maintain

    def update(
        self,
        corpus: str | Path | Iterable[Page],
        *,
        format: CorpusFormat = "auto",
        columns: CorpusColumns | None = None,
        skip_bad_lines: bool = False,
        dry_run: bool = False,
        workers: int = 1,
        report: Callable[[Counts], None] = unheard,
        report_stage: Report = silent,
        note: Note = unheard,
    ) -> Self:
        """Add the pages of a corpus that are new, and replace those that have changed, by their ids; open the outcome.

        Pages that are as they were are recognised by their digests, and not encoded again. What the knowledge base
        answers is what one built from its present pages would. `changes` of the outcome says how many there are.

        Args:
            dry_run: only compare; nothing is changed.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or holds another unfinished update.
            CorpusError: the corpus cannot be read; nothing is changed.
        """
        return self._updated(
            corpus, format=format, columns=columns, skip_bad_lines=skip_bad_lines, delete_missing=False,
            dry_run=dry_run, workers=workers, report=report, report_stage=report_stage, note=note,
        )  # fmt: skip

    def sync(
        self,
        corpus: str | Path | Iterable[Page],
        *,
        format: CorpusFormat = "auto",
        columns: CorpusColumns | None = None,
        dry_run: bool = False,
        workers: int = 1,
        report: Callable[[Counts], None] = unheard,
        report_stage: Report = silent,
        note: Note = unheard,
    ) -> Self:
        """`update`, and delete the pages that the corpus does not have: the knowledge base then has its pages."""
        return self._updated(
            corpus, format=format, columns=columns, skip_bad_lines=False, delete_missing=True, dry_run=dry_run,
            workers=workers, report=report, report_stage=report_stage, note=note,
        )  # fmt: skip

    def _updated(self, corpus: str | Path | Iterable[Page], workers: int, **options: Any) -> Self:
        self._refuse_chosen_pages()
        start_encoders = processes(workers)
        manifest, changes, bad_lines = update(
            corpus, self.folder, lambda: self.model, start_encoders=start_encoders, **options
        )
        kb = self._reopened(manifest, self.index.kind)
        kb.changes, kb.bad_lines = changes, bad_lines
        return kb

    def _refuse_chosen_pages(self) -> None:
        """What changes a knowledge base, changes all of it."""
        if self._chosen_pages:
            raise KnowledgeBaseError(
                f"{self.folder} is opened to answer from {len(self._chosen_pages):,} of its pages: open all of it to "
                "change it"
            )

    def _reopened(self, manifest: Manifest, index: IndexKind | None) -> Self:
        """This knowledge base after a change, searched where it was searched before."""
        return self._opened(self.folder, manifest, self.model, index, self._may_leave_gpu, self._ray)

    def delete(self, pages: str | Path | Iterable[str], *, missing_ok: bool = False) -> Self:
        """Delete pages, and open what is left: no answer comes from them any more. `compact` removes their bytes.

        Args:
            pages: ids, an id, or the `Path` of a file with one id a line.
            missing_ok: leave out ids that the knowledge base does not have.

        Raises:
            KnowledgeBaseError: it does not have one of them (all of these are named), or the folder cannot be written.
        """
        self._refuse_chosen_pages()
        manifest, changes = delete(self.folder, page_ids(pages), missing_ok)
        kb = self._reopened(manifest, self.index.kind)
        kb.changes = changes
        return kb

    def compact(self, threshold: float = 0.0, report: Report = silent) -> Self:
        """Write shards again without their deleted pages, join small ones, and open the outcome.

        Afterwards no file of the folder holds anything that a deleted page said. Nothing is encoded again.

        Args:
            threshold: leave shards of which at most this share of pages is deleted.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or an update is unfinished.
        """
        self._refuse_chosen_pages()
        manifest = compact(self.folder, lambda: self.model, threshold, report)
        return self._reopened(manifest, self.index.kind)

    def index_vectors(
        self,
        kind: WantedKind = "auto",
        recall: float = 0.99,
        queries: Sequence[str] = (),
        filter: float | None = None,
        ray: str | None = None,
        report: Report = silent,
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
        self._refuse_chosen_pages()
        build: Build = build_missing
        if ray is not None:
            from kbq.cluster.indexing import building_on

            build = building_on(ray)
        asked = tuple(given(queries, QueryError, "queries are", "a list of texts"))
        refuse_unreadable(asked, [self.model.query_tokenizer])
        manifest = add_index(self.folder, self.model, IndexSpec(kind, recall, asked, filter), report, build)
        return self._reopened(manifest, None)

    def index_bm25(self, report: Report = silent) -> Self:
        """Add a BM25 index of the words to shards that have none, and open the knowledge base with it."""
        self._refuse_chosen_pages()
        index_bm25(self.folder, report)
        return self._reopened(read_manifest(self.folder), self.index.kind)

    def index_sparta(self, model: str | Path, terms: int = TERMS, report: Report = silent) -> Self:
        """Add impacts that a SPARTA model has learned, the strongest `terms` of each sentence, and open with them."""
        self._refuse_chosen_pages()
        index_sparta(self.folder, model, terms, str(self.model.device), report)
        return self._reopened(read_manifest(self.folder), self.index.kind)

    def info(self) -> dict[str, object]:
        """What the knowledge base holds and what its indexes cost, as `kbq info --json` prints it."""
        from kbq.description import describe

        return describe(self.folder)
