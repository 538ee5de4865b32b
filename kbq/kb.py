"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it, teach it. Read this first.

pages ──── model/ ────► phrase dump (dump/) ──► rows (index/) ──► spans ──► phrases … pages (search/) ──► Answer
  └─── words ──► BM25, learned impacts (words/) ───────────────────┘                └── reading/ ──┘

How a query takes this way is in `asking.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kbq.answers import LOOKS, TOP_PAGES, Backend, IndexKind, PageName
from kbq.asking import OpenKnowledgeBase, search_options
from kbq.dump.changes import Changes, delete, page_ids
from kbq.dump.manifest import read_manifest
from kbq.dump.options import TERMS, build_options
from kbq.dump.workers import processes
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import build_missing
from kbq.model.model import Model
from kbq.model.queries import refuse_unreadable
from kbq.reading.probability import HIDDEN
from kbq.sample_kb import Building, quietly, sample_folder
from kbq.search.building_indexes import IndexSpec, add_index
from kbq.search.changing import build, compact, update
from kbq.storage.files import as_path, given
from kbq.storage.progress import Note, Report, silent, unheard
from kbq.words.bm25 import index_bm25
from kbq.words.sparta import index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbq.answers import PredictWords, RankWords, SearchWords, WantedKind
    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.options import BuildWords, SyncWords, UpdateWords
    from kbq.index.factory import Build
    from kbq.kilt.prediction import PredictionOutcome
    from kbq.kilt.task import Task
    from kbq.tables.options import FillWords
    from kbq.tables.relations import Relation
    from kbq.tables.tables import Table
    from kbq.training.engine import StepReport
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome
    from kbq.tuning.settings import FinetuningWords


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
        ray: str | None = None,
        device: str = "auto",
        **options: Unpack[BuildWords],
    ) -> Self:
        """Encode a corpus into `folder` and publish it. A build that was killed resumes where it stopped.

        Args:
            corpus: a file, a folder, "-" for standard input, or pages with ids of their own.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            model: `default`, a folder or a hub name; by default that of the knowledge base to append to, or `default`.
            ray: the address of a Ray cluster whose machines encode, in place of `workers`; `local` starts one here.
            options: as of `BuildOptions` and `CorpusWords`; several `workers` need a main module that can be imported,
                as `multiprocessing` says.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build; or the index needs faiss.
            ModelError: the knowledge base to append to was built with another model.
            CorpusError: the corpus cannot be read; nothing is published.
            ClusterError: the cluster cannot be used.
        """
        folder, (wanted, reports) = as_path(folder, "the folder of a knowledge base"), build_options(options)
        start_encoders = processes(wanted.workers)
        if ray is not None:
            from kbq.cluster.tasks import encoders_on

            start_encoders = encoders_on(ray)
        manifest, opened, bad_lines = build(
            corpus, folder, model, wanted, start_encoders=start_encoders, device=device, **reports
        )
        kb = cls(folder, manifest, opened)
        kb.bad_lines = bad_lines
        return kb

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

    def pages(self) -> Iterator[PageName]:
        """Return the ids and titles of the pages that answers may come from, in the order of the corpus."""
        from kbq.tables.fill import every_page

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
        command: str = "",
        note: Note = unheard,
        report: Callable[[StepReport], None] = unheard,
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
        from kbq.tuning.finetune import finetune
        from kbq.tuning.settings import FinetuningSettings

        return finetune(
            self, triples, out, FinetuningSettings(**settings), task=task, dev=dev, examples=examples, command=command,
            note=note, report=report,
        )  # fmt: skip

    def calibrate(
        self,
        triples: str | Path,
        out: str | Path,
        *,
        hidden: float = HIDDEN,
        backend: Backend = "auto",
        command: str = "",
        report: Callable[[int, int], None] = unheard,
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
        return calibrate(self, triples, as_path(out, "out"), search, hidden=hidden, command=command, report=report)

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
        report: Callable[[int, int], None] = unheard,
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
        return predict_all(self, records, task, None if out is None else as_path(out, "out"), search, with_text, report)

    def fill(
        self,
        table: str | Path | Iterable[Mapping[str, Any]] | None,
        relations: Iterable[str | Relation],
        out: str | Path | None = None,
        *,
        command: str = "",
        note: Note = unheard,
        report: Callable[[int, int, int], None] = unheard,
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
        return fill(self, table, relations, out, wanted, search, command=command, note=note, report=report)

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
        options, others = build_options(words)
        manifest, changes, bad_lines = update(
            corpus, self._changeable, lambda: self.model, options, delete_missing=delete_missing,
            start_encoders=processes(options.workers), **others,
        )  # fmt: skip
        kb = self._reopened(manifest, self.index.kind)
        kb.changes, kb.bad_lines = changes, bad_lines
        return kb

    @property
    def _changeable(self) -> Path:
        """The folder. Raises KnowledgeBaseError if it is opened to answer from some pages: a change is of all."""
        if self._chosen_pages:
            raise KnowledgeBaseError(
                f"{self.folder} is opened to answer from {len(self._chosen_pages):,} of its pages: open all of it to "
                "change it"
            )
        return self.folder

    def _reopened(self, manifest: Manifest, index: IndexKind | None) -> Self:
        """This knowledge base after a change, searched where it was searched before."""
        return type(self)(self.folder, manifest, self.model, index, self._may_leave_gpu, self._ray, self._workers)

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

    def compact(self, threshold: float = 0.0, report: Report = silent) -> Self:
        """Write shards again without their deleted pages, join small ones, and open the outcome.

        Afterwards no file of the folder holds anything that a deleted page said. Nothing is encoded again.

        Args:
            threshold: leave shards of which at most this share of pages is deleted.

        Raises:
            KnowledgeBaseError: the folder is in use or cannot be written, or an update is unfinished.
        """
        manifest = compact(self._changeable, lambda: self.model, threshold, report)
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
        folder = self._changeable
        build: Build = build_missing
        if ray is not None:
            from kbq.cluster.tasks import building_on

            build = building_on(ray)
        asked = tuple(given(queries, QueryError, "queries are", "a list of texts"))
        refuse_unreadable(asked, [self.model.query_tokenizer])
        manifest = add_index(folder, self.model, IndexSpec(kind, recall, asked, filter), report, build)
        return self._reopened(manifest, None)

    def index_bm25(self, report: Report = silent) -> Self:
        """Add a BM25 index of the words to shards that have none, and open the knowledge base with it."""
        index_bm25(self._changeable, report)
        return self._reopened(read_manifest(self.folder), self.index.kind)

    def index_sparta(self, model: str | Path, terms: int = TERMS, report: Report = silent) -> Self:
        """Add impacts that a SPARTA model has learned, the strongest `terms` of each sentence, and open with them."""
        index_sparta(self._changeable, model, terms, str(self.model.device), report)
        return self._reopened(read_manifest(self.folder), self.index.kind)

    def info(self) -> dict[str, object]:
        """Describe what the knowledge base holds and what its indexes cost, as `kbq info --json` prints it."""
        from kbq.description import describe

        return describe(self.folder)
