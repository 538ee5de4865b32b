"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it. Read this first.

pages ── encoding/ ──► phrase dump (dump/) ──► rows (indexing/) ──► spans ──► phrases … pages (searching/) ──► Answer
  └─── words ──► BM25, learned impacts (words/) ────────────────────────┘                  └── reading/ ──┘
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, get_args, overload

from kbq.answers import (
    DEPTH,
    LOOKS,
    RETRIEVAL_WEIGHT,
    TOP,
    WORDS_ALONE,
    Answer,
    Answers,
    Backend,
    IndexKind,
    K,
    PageName,
    SearchOptions,
    Unit,
    is_likely,
)
from kbq.dump.changes import Changes, delete, page_ids, refuse_unknown
from kbq.dump.damage import damage_explained
from kbq.dump.manifest import read_manifest, refuse_other_model
from kbq.dump.page_directory import Pages
from kbq.dump.workers import processes
from kbq.errors import KnowledgeBaseError, QueryError
from kbq.index.factory import build_missing, open_index
from kbq.model.model import Model
from kbq.model.queries import refuse_unreadable
from kbq.reading.calibration import HIDDEN, SearchMode
from kbq.reading.reranker import before_others
from kbq.reading.reranking import Reranking
from kbq.sample_kb import Building, quietly, sample_folder
from kbq.search.building_indexes import IndexSpec, add_index
from kbq.search.changing import build, compact, model_of, update
from kbq.search.hybrid import BM25_WEIGHT, SPARTA_WEIGHT, LexicalScores, WordIndexes
from kbq.search.search import BATCH, SearchContext, Wanted, search_several
from kbq.storage.lines import clean_text
from kbq.storage.paths import as_path, given
from kbq.storage.progress import Note, Report, silent, unheard
from kbq.storage.records import digest_of_bytes, digest_of_record
from kbq.storage.rows import EMPTY
from kbq.text.markers import mention_in
from kbq.words.bm25 import index_bm25
from kbq.words.sparta import TERMS, index_sparta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbq.answers import CorpusColumns, CorpusFormat, SearchWords, WantedKind, WordBackend
    from kbq.array_types import Bools, Floats
    from kbq.cluster.searcher import RaySearcher
    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.base import Index
    from kbq.index.factory import Build
    from kbq.kilt.prediction import PredictionOutcome
    from kbq.kilt.task import Task
    from kbq.model.queries import QueryTokenizer
    from kbq.reading.calibration import Calibration
    from kbq.reading.reader import Reader
    from kbq.tables.claims import Dates
    from kbq.tables.outputs import Format
    from kbq.tables.relations import Relation
    from kbq.tables.tables import Table
    from kbq.tables.titles import Titles
    from kbq.training.engine import StepReport
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome


OPENED = "shards", "words", "judging", "titles", "_opened_index", "_cluster", "_readers"  # what `close` lets go of


class KnowledgeBase:
    """A published knowledge base, with the encoders that it is asked with; `with` closes it at the end."""

    bad_lines = 0  # of the corpus, left out by the build or update that made this object
    changes = Changes()  # made by the update, sync or delete that made this object
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
        with damage_explained(folder, manifest):
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
        opened = model if isinstance(model, Model) else model_of(folder, manifest, model, device)
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

    def with_model(self, model: str | Path | FinetuningOutcome) -> Self:
        """The same knowledge base, asked with another query encoder: one that `finetune` has made for it.

        Raises:
            ModelError: it is missing, or belongs to another phrase encoder.
        """
        opened = Model.open(as_path(model, "a model"), str(self.model.device))
        return self._again(opened, self._chosen_pages)

    def pages(self) -> Iterator[PageName]:
        """The ids and titles of the pages that answers may come from, in the order of the corpus."""
        from kbq.tables.fill import every_page

        return (PageName(row["page_id"], row["subject"]) for row in every_page(self))

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

    # Ask

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
        *,
        bm25_weight: float | None = None,
        sparta_weight: float | None = None,
        reader: str | Path | None = None,
        depth: int = DEPTH,
        retrieval_weight: float = RETRIEVAL_WEIGHT,
        second_look: int | None = None,
        min_probability: float = 0.0,
        calibration: str | Path | None = None,
    ) -> list[Answer] | list[list[Answer]]:
        """The k best distinct answers, best first; fewer only where the knowledge base holds fewer.

        Args:
            texts: `subject [SEP] relation`, a question, or a marked mention; one text gives a list of answers, several
                give a list for each.
            unit: what an answer is: a phrase, or the best phrase of each sentence, paragraph or page.
            backend: what scores a phrase: its vectors (dense), or these and the words of its paragraph (hybrid), by
                BM25 and learned impacts, as far as they are there. BM25 alone, or learned impacts alone (sparta), find
                paragraphs and pages. `auto` is hybrid where there are words, else dense.
            bm25_weight: what a point of BM25 adds in a hybrid search; by default that of the query encoder.
            sparta_weight: the same for a point of SPARTA.
            reader: a question-answering network that finds phrases, or pages, in the `depth` best paragraphs.
            retrieval_weight: what a point of the search adds to the reader's score.
            second_look: how many of the best phrases the model's own reader judges again, after which they have a new
                order; by default 10 where the model can, 0 for none.
            min_probability: leave out answers that are less likely to be right, or of which that is not known; nothing
                may be left.
            calibration: a file of `calibrate`, which gives answers their probabilities, instead of the model's own.

        Raises:
            QueryError: a text is empty, too long, or malformed; or what is asked for does not exist here.
        """
        options = SearchOptions(
            k, unit, backend, bm25_weight, sparta_weight, _name(reader, "a reader"), depth, retrieval_weight,
            second_look, min_probability, _name(calibration, "a calibration"),
        )  # fmt: skip
        self.check(options)
        several = "queries are", "a text, or a list of texts"
        asked = [texts] if isinstance(texts, str) else list(given(texts, QueryError, *several))
        refuse_unreadable(asked, self.query_tokenizers(options))
        self.check(options, asked)
        answers: list[list[Answer]] = []
        for first in range(0, len(asked), BATCH):
            found = self.search(asked[first : first + BATCH], options)
            answers += [[answer for answer in each if is_likely(answer, min_probability)] for each in found]
        shown: list[list[Answer]] = [*map(Answers, answers)]
        return shown[0] if isinstance(texts, str) else shown

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """`query` for texts that have been checked, and are searched together."""
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
        """What gives the answers of a search their probabilities; see `Judging.calibration`."""
        return self.reranking.calibration(options, self.mode(options))

    def _found(self, texts: Sequence[str], options: SearchOptions, *wanted: Wanted) -> list[list[list[Answer]]]:
        """For each (k, unit) that is wanted, the k best units of each text."""
        backend = self.chosen(options.backend)
        with damage_explained(self.folder, self.manifest):
            if backend == "bm25" or backend == "sparta":
                scores = self.words.scores(texts, backend)
                return [[scores.best(query, unit, k) for query in range(len(texts))] for k, unit in wanted]
            lexical = self.words.all_scores(texts, *self.weights(options)) if backend == "hybrid" else ()
            vectors = self.model.encode_queries(texts)
            found = self._search(self.model.in_row_units(*vectors), wanted, lexical)
            return [_shifted(each, self.model.score_offsets(*vectors)) for each in found]

    def _search(
        self, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores]
    ) -> list[list[list[Answer]]]:
        if self._cluster is not None:
            return self._cluster.search_several(queries, wanted, lexical)
        return search_several(self.search_context, queries, wanted, lexical)

    def search_vectors(
        self, starts: Floats, ends: Floats, k: int = K, unit: Unit = "phrase", lexical: Sequence[LexicalScores] = ()
    ) -> list[list[Answer]]:
        """`search` for queries that are encoded already; `lexical` scores are added. Shapes: (queries, dim)."""
        SearchOptions(k, unit)  # refuses what has no meaning
        (found,) = self._search(self.model.in_row_units(starts, ends), [(k, unit)], lexical)
        return _shifted(found, self.model.score_offsets(starts, ends))

    def explain(self, text: str, k: int = 3, backend: WordBackend = "bm25") -> list[tuple[Answer, dict[str, float]]]:
        """The k best paragraphs by words alone, each with what every term of the query adds to its score.

        Raises:
            QueryError: the knowledge base has no such index, or the text cannot be read.
        """
        SearchOptions(k, backend=backend)
        if backend not in WORDS_ALONE:
            raise QueryError(f"backend {backend!r} cannot be explained: choose bm25 or sparta", is_usage=True)
        refuse_unreadable([text], ())
        with damage_explained(self.folder, self.manifest):
            return list(self.words.scores([clean_text(text)], backend).explained(0, k))

    def unknown_words(self, text: str, may_suggest: Callable[[], bool] = lambda: True) -> dict[str, str | None]:
        """Words of a query that no page has, perhaps mistyped, and what was meant; see `WordIndexes.unknown`."""
        with damage_explained(self.folder, self.manifest):
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
            QueryError: weights are given that count nothing, a second look where there is none, a calibration that
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
        second_look: int | None = None,
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

        options = SearchOptions(
            backend=backend, bm25_weight=bm25_weight, sparta_weight=sparta_weight, second_look=second_look
        )
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
        second_look: int | None = None,
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
            top_pages, "page", backend, bm25_weight, sparta_weight, _name(reader, "a reader"), depth, retrieval_weight,
            second_look, min_probability, _name(calibration, "a calibration"),
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
        second_look: int | None = None,
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
            LOOKS if second_look is None else max(LOOKS, second_look), "phrase", backend, bm25_weight, sparta_weight,
            second_look=second_look, calibration=_name(calibration, "a calibration"),
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

    @cached_property
    def titles(self) -> Titles:
        """Which page alone has a title; see `Titles`."""
        from kbq.tables.titles import Titles

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


def _name(path: str | Path | None, what: str) -> str | None:
    return None if path is None else str(as_path(path, what))
