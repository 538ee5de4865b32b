"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it. Read this first.

pages ── encoding/ ──► phrase dump (dump/) ──► rows (indexing/) ──► spans ──► phrases … pages (searching/)
    └─── words ──► BM25, learned impacts (words/) ────────────────────────┘
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

from kbq.answers import WORDS_ALONE, Answer, Backend, IndexKind, Unit, WantedKind, WordBackend
from kbq.array_types import Floats
from kbq.corpus.pages import Page
from kbq.dump.building import build_shards, manifest_before
from kbq.dump.manifest import Manifest, publish, read_manifest, refuse_other_model
from kbq.dump.shards import Counts
from kbq.encoding.model import Model
from kbq.encoding.queries import QueryTokenizer
from kbq.errors import KnowledgeBaseError, ModelError, QueryError
from kbq.indexing.cells import load_faiss
from kbq.indexing.factory import chosen_kind, open_index
from kbq.searching.hybrid import HybridWeights, LexicalScores, WordIndexes
from kbq.searching.indexes import IndexSpec, add_index, build_indexes, kept_queries, remove_unnamed
from kbq.searching.search import search
from kbq.searching.spans import SearchContext
from kbq.system.callbacks import Report, silent
from kbq.system.files import writing_alone, writing_to
from kbq.system.lines import clean_text
from kbq.words.bm25 import add_bm25


class KnowledgeBase:
    """A published knowledge base with the encoders that can ask it."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        model: Model,
        index: IndexKind | None = None,
        may_leave_gpu: bool = False,
    ) -> None:
        """Open the shards, the index and the words.

        Args:
            index: the kind that answers, instead of the manifest's first.
            may_leave_gpu: search on the CPU where the model's GPUs have no room for the vectors.
        """
        refuse_other_model(folder, manifest, model)
        self.folder = folder
        self.manifest = manifest
        self.model = model
        self.shards = manifest.open_shards(folder)
        self.index = manifest.entry(folder, index)
        self._opened_index = open_index(self.shards, self.index, model.device, may_leave_gpu)
        self.words = WordIndexes(folder, manifest, self.shards)

    @classmethod
    def build(
        cls,
        pages: Iterable[Page],
        folder: Path,
        model: Model,
        *,
        append: bool = False,
        index: WantedKind = "auto",
        bm25: bool = True,
        workers: int = 1,
        report: Callable[[Counts], None] = lambda counts: None,
        report_stage: Report = silent,
    ) -> Self:
        """Encode pages into `folder` and publish it; a run that was killed goes on where it stopped.

        Args:
            pages: pages with unique ids.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            index: `auto` searches exactly up to about 2 million kept tokens, above with a compact index.
            bm25: add a BM25 index; with `append`, there is one where there was one before.
            workers: processes that encode; several need a main module that can be imported, as `multiprocessing` says.
            report: told after each block how much of this build is on the disk.
            report_stage: told how far the stages after that are: indexes and words.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build; or the index needs faiss.
            ModelError: the knowledge base to append to was built with another model.
            CorpusError: from `pages`; nothing is published.
        """
        with writing_to(folder, KnowledgeBaseError, goes_on=True):
            # A folder that is no knowledge base is not locked; a missing faiss is reported before hours of encoding.
            kinds = {index} | ({entry.kind for entry in read_manifest(folder).entries} if append else set())
            if kinds - {"auto", "exact"}:
                load_faiss()
            folder.mkdir(parents=True, exist_ok=True)
            with writing_alone(folder):
                before = manifest_before(folder, model, append)
                for entry in before.entries:
                    kept_queries(folder, entry)  # damaged ones are reported before hours of encoding
                shards, corpus = build_shards(pages, model, folder, len(before.shards), report, workers)
                after = before.with_shards(shards, corpus)
                wish = IndexSpec.as_before(folder, before, chosen_kind(after, index))
                manifest = build_indexes(folder, after, model, wish, report_stage)
                with_words = before.bm25 if append else bm25
                if with_words:
                    manifest = add_bm25(folder, manifest, report_stage)
                publish(folder, manifest)
                remove_unnamed(folder, manifest)
        return cls(folder, manifest, model, may_leave_gpu=True)

    @classmethod
    def open(cls, folder: Path, model: str | None = None, device: str = "auto", index: IndexKind | None = None) -> Self:
        """Open a published knowledge base with its own model, or one whose query side was tuned for it.

        Args:
            device: `auto`, `cpu`, `cuda` or `cuda:n`; `auto` searches on the CPU where the GPUs have too little room.
            index: the kind that answers; without it, the one that was built last.

        Raises:
            KnowledgeBaseError: missing, not whole, damaged, of another format version, or without this index.
            ModelError: the model is missing or belongs to another phrase encoder.
        """
        manifest = read_manifest(folder)
        opened_model = model_of(folder, manifest, model, device)
        try:
            return cls(folder, manifest, opened_model, index, device == "auto")
        except KnowledgeBaseError:
            published = read_manifest(folder)
            if published == manifest:
                raise
            # An index has been replaced meanwhile.
            return cls(folder, published, opened_model, index, device == "auto")

    def with_index(self, wish: IndexSpec, report: Report = silent) -> Self:
        """Build an index over the same rows, beside those that are there, and let it answer from now on.

        Raises:
            KnowledgeBaseError: faiss is missing, or the folder cannot be written.
        """
        manifest = add_index(self.folder, self.model, wish, report)
        return type(self)(self.folder, manifest, self.model, may_leave_gpu=True)

    @property
    def search_context(self) -> SearchContext:
        """What a search needs of the knowledge base."""
        return SearchContext(self.shards, self._opened_index, self.model.config.length_penalty)

    @property
    def counts(self) -> Counts:
        """Pages, paragraphs, tokens and rows of all shards."""
        return self.manifest.counts

    def is_exact(self, backend: Backend = "dense") -> bool:
        """Whether the k best units that a search returns are the k best that there are.

        Exact search and sums of words see everything. An index does not: no bound covers the cells that were not
        probed, nor the rows that its codes or its filter hide.
        """
        return self.index.kind == "exact" or backend in WORDS_ALONE

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        unit: Unit = "phrase",
        backend: Backend = "auto",
        weights: HybridWeights | None = None,
    ) -> list[list[Answer]]:
        """The k best distinct units for each query, best first; fewer only where the knowledge base holds fewer.

        Args:
            backend: what scores a phrase: its vectors (dense), or these and the words of its paragraph (hybrid), by
                BM25 and learned impacts, as far as they are there. BM25 alone, or learned impacts alone (sparta), find
                paragraphs and pages. `auto` is hybrid where there are words, else dense.
            weights: of the hybrid backend; None: those of the query encoder.

        Raises:
            QueryError: a text is empty, too long, or malformed; or the backend does not have what is asked for.
        """
        chosen, texts = self.chosen(backend), [clean_text(text) for text in texts]
        if chosen == "dense":
            return self.search_vectors(*self.model.encode_queries(texts), k, unit)
        if chosen == "hybrid":
            lexical = self.words.all_scores(texts, weights or self.weights)
            return self.search_vectors(*self.model.encode_queries(texts), k, unit, lexical)
        check_wanted(k, unit)
        if unit not in ("paragraph", "page"):
            name = "BM25" if chosen == "bm25" else "SPARTA"
            raise QueryError(
                f"{name} finds no {unit}: ask for paragraphs or pages, or use the backend hybrid", is_usage=True
            )
        scores = self.words.scores(texts, chosen)
        return [scores.best(query, unit, k) for query in range(len(texts))]

    def chosen(self, backend: Backend) -> Literal["dense", "hybrid"] | WordBackend:
        """What `auto` stands for here.

        Raises:
            QueryError: there is no such backend.
        """
        if backend not in get_args(Backend):
            raise QueryError(
                f"backend {backend!r} is unknown: choose from {', '.join(get_args(Backend))}", is_usage=True
            )
        return backend if backend != "auto" else "hybrid" if self.words else "dense"

    @property
    def query_tokenizers(self) -> list[QueryTokenizer]:
        """The tokenizers of all networks that will read a query."""
        return [self.model.query_tokenizer]

    @property
    def weights(self) -> HybridWeights:
        """What words weigh in a hybrid search with this query encoder."""
        return HybridWeights().times(self.model.config.lexical_factor)

    def unknown_words(self, text: str) -> dict[str, str | None]:
        """Words of a query that stand nowhere here, maybe mistyped, and what was meant; see `WordIndexes.unknown`."""
        return self.words.unknown(text, self.model.query_tokenizer.number)

    def search_vectors(
        self,
        starts: Floats,
        ends: Floats,
        k: int = 10,
        unit: Unit = "phrase",
        lexical: Sequence[LexicalScores] = (),
    ) -> list[list[Answer]]:
        """`search` for queries that are encoded already; `lexical` scores are added. Shapes: (queries, dim)."""
        check_wanted(k, unit)
        return search(self.search_context, self.model.in_row_units(starts, ends), k, unit, lexical)


def check_wanted(k: int, unit: Unit) -> None:
    """Raises QueryError where less than one answer, or an unknown unit, is asked for."""
    if k < 1:
        raise QueryError(f"k is {k}, must be at least 1")
    if unit not in get_args(Unit):
        raise QueryError(f"unit {unit!r} is unknown: choose from {', '.join(get_args(Unit))}", is_usage=True)


def model_of(folder: Path, manifest: Manifest, name: str | None = None, device: str = "auto") -> Model:
    """The model of this name, or else the one that a knowledge base was built with.

    Raises:
        ModelError: it is missing or damaged.
    """
    if name is not None:
        return Model.open(name, device)
    try:
        return Model.open(manifest.model, device)
    except ModelError as error:
        if manifest.model == "default" or Path(manifest.model).is_dir():
            raise
        raise ModelError(f"{folder} needs the model it was built with: {error}; say with --model where it is") from None
