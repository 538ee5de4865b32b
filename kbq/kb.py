"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it. Read this first.

documents ── encoding/ ──► phrase dump (indexing/) ──► spans ──► phrases, sentences, paragraphs, pages (searching/)
    └─────── words ──► impacts (sparse/) ──► evidence ──┘
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.model import Model
from kbq.encoding.queries import QueryReader
from kbq.errors import KnowledgeBaseError, ModelError, QueryError
from kbq.indexing.building import build_shards, claim
from kbq.indexing.choice import chosen_kind, open_index, remove_other_filters
from kbq.indexing.dump import Counts, Shard
from kbq.indexing.manifest import Manifest, publish, read_manifest, write_manifest
from kbq.locks import writing_alone
from kbq.markers import MENTION, slot_of
from kbq.options import Backend, IndexKind, Unit, WantedKind
from kbq.records import Document, Hit
from kbq.searching.evidence import Evidence, Weights
from kbq.searching.indexes import IndexWish, build_indexes
from kbq.searching.search import search
from kbq.sparse.bm25 import add_bm25, missing_words, open_bm25, query_words, remove_older
from kbq.sparse.learned import PieceReader, SentenceImpacts
from kbq.stages import Report, silent

Floats = NDArray[np.float32]


class KnowledgeBase:
    """A published knowledge base with the encoders that can ask it."""

    def __init__(self, folder: Path, manifest: Manifest, model: Model, index: IndexKind | None = None) -> None:
        """`index`: the kind that answers, instead of the manifest's first."""
        if model.config.phrase_fingerprint != manifest.model_fingerprint:
            raise ModelError(
                f"{folder} was built with the model {manifest.model} ({manifest.model_fingerprint}), "
                f"the one given belongs to {model.config.phrase_fingerprint}: use --model {manifest.model}"
            )
        self.folder = folder
        self.manifest = manifest
        self.model = model
        self.shards = [Shard(path) for path in manifest.shard_folders(folder)]
        for shard, counts in zip(self.shards, manifest.shards, strict=True):
            if shard.vectors.shape != (counts.rows, manifest.dim):
                raise KnowledgeBaseError(
                    f"{shard.folder} holds {len(shard)} rows of {shard.vectors.shape[1]} dimensions, the manifest says "
                    f"{counts.rows} of {manifest.dim}: build the knowledge base again"
                )
        self.index = manifest.entry(folder, index)
        self.opened_index = open_index(self.shards, self.index, model.device)
        self.bm25 = [open_bm25(shard, manifest) for shard in self.shards] if manifest.bm25 else []
        self.sparta = [SentenceImpacts(shard, manifest) for shard in self.shards] if manifest.sparta else []
        self.pieces = PieceReader(folder, manifest) if manifest.sparta else None

    @classmethod
    def build(
        cls,
        documents: Iterable[Document],
        folder: Path,
        model: Model,
        *,
        model_name: str | None = None,
        append: bool = False,
        index: WantedKind = "auto",
        bm25: bool = True,
        workers: int = 1,
        report: Callable[[Counts], None] = lambda counts: None,
        report_stage: Report = silent,
    ) -> Self:
        """Encode documents into `folder` and publish it; a run that was killed goes on where it stopped.

        Args:
            documents: pages with unique ids.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            model_name: what the manifest calls the model, so that it is found again; else where it was opened from.
            index: `auto` searches exactly up to about 2 million kept tokens, above with a compact index.
            bm25: add a BM25 index; what is appended to has one or not as before.
            workers: processes that encode; several need a main module that can be imported, as `multiprocessing` says.
            report: told after each block how much of this build is on the disk.
            report_stage: told of what comes then: indexes and words.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build.
            CorpusError: from `documents`; nothing is published.
        """
        try:
            if append:
                read_manifest(folder)  # what is no knowledge base is not locked
            else:
                folder.mkdir(parents=True, exist_ok=True)
            with writing_alone(folder):
                before = claim(folder, model, model_name or model.source or "default", append)
                remove_older(folder, before)  # of an append that was killed at its very end
                shards, corpus = build_shards(documents, model, folder, len(before.shards), report, workers)
                after = before.with_shards(shards, corpus)
                wish = IndexWish.as_before(chosen_kind(after, index), before)
                manifest = build_indexes(folder, after, model, wish, report_stage)
                if before.bm25 if append else bm25:
                    manifest = add_bm25(folder, manifest, report_stage)
                publish(folder, manifest)
                remove_older(folder, manifest)
        except OSError as error:
            raise _unwritable(folder, error) from error
        return cls(folder, manifest, model)

    @classmethod
    def open(cls, folder: Path, model: str | None = None, device: str = "auto", index: IndexKind | None = None) -> Self:
        """Open a published knowledge base with its own model, or one whose query side was tuned for it.

        Args:
            index: the kind that answers; without it, the one that was built last.

        Raises:
            KnowledgeBaseError: missing, not whole, damaged, of another format version, or without this index.
            ModelError: the model is missing or belongs to another phrase encoder.
        """
        manifest = read_manifest(folder)
        try:
            opened = Model.open(manifest.model if model is None else model, device)
        except ModelError as error:
            if model is not None or manifest.model == "default" or Path(manifest.model).is_dir():
                raise
            raise ModelError(
                f"{folder} needs the model it was built with: {error}; say with --model where it is"
            ) from None
        try:
            return cls(folder, manifest, opened, index)
        except KnowledgeBaseError:
            published = read_manifest(folder)
            if published == manifest:
                raise
            return cls(folder, published, opened, index)  # an append has replaced files meanwhile

    def with_index(self, wish: IndexWish, report: Report = silent) -> "KnowledgeBase":
        """Build an index over the same rows, beside those that are there, and let it answer from now on.

        Raises:
            KnowledgeBaseError: faiss is missing, or the folder cannot be written.
        """
        try:
            with writing_alone(self.folder):
                manifest = build_indexes(self.folder, read_manifest(self.folder), self.model, wish, report)
                write_manifest(self.folder, manifest)
                remove_other_filters(manifest.shard_folders(self.folder), manifest.index)
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        return KnowledgeBase(self.folder, manifest, self.model)

    @property
    def counts(self) -> Counts:
        """Documents, paragraphs, tokens and rows of all shards."""
        return self.manifest.counts

    def is_exact(self, backend: Backend = "dense") -> bool:
        """Whether the k best units that a search returns are the k best that there are.

        Exact search and sums of words see everything. An index cannot say it: no bound covers the cells that were not
        probed, nor the rows that its codes or its filter hide.
        """
        return self.index.kind == "exact" or backend in ("bm25", "sparse")

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        unit: Unit = "phrase",
        backend: Backend = "auto",
        weights: Weights | None = None,
    ) -> list[list[Hit]]:
        """The k best distinct units for each query, best first; fewer only where the knowledge base holds fewer.

        Args:
            backend: what scores a phrase: its vectors (dense), or these plus what the words of its paragraph weigh
                (hybrid): BM25 and learned impacts, those that are there. BM25 and learned impacts (sparse) alone find
                paragraphs and documents. `auto` is hybrid where it can be, else dense.
            weights: of the hybrid backend; without them those of the query encoder.

        Raises:
            QueryError: a text is empty, too long, or malformed; or the backend does not have what is asked for.
        """
        backend = self.chosen(backend)
        if backend == "dense":
            return self.search_vectors(*self.model.encode_queries(texts), k, unit)
        if backend == "hybrid":
            return self.search_vectors(*self.model.encode_queries(texts), k, unit, self._sources(texts, weights))
        if k < 1:
            raise QueryError(f"k is {k}, must be at least 1")
        if unit not in ("paragraph", "document"):
            name = "BM25" if backend == "bm25" else "SPARTA"
            raise QueryError(f"{name} finds no {unit}: ask for paragraphs or documents, or use the backend hybrid")
        evidence = self.evidence(texts, backend)
        return [evidence.best(query, unit, k) for query in range(len(texts))]

    def chosen(self, backend: Backend) -> Backend:
        """What `auto` stands for here."""
        return backend if backend != "auto" else "hybrid" if self.bm25 or self.sparta else "dense"

    @property
    def readers(self) -> list[QueryReader]:
        """Of all networks that a query is read by."""
        return [self.model.reader]

    @property
    def weights(self) -> Weights:
        """Of the hybrid backend, for this query encoder."""
        return Weights().times(self.model.config.evidence)

    def unknown_words(self, text: str) -> list[str]:
        """Words of a query that stand nowhere here: mistyped, or names that this corpus does not have.

        A relation or a question may well be put in words that no page uses: of these only what the encoder reads in
        pieces. Where there is no BM25 index nothing is known of words.
        """
        if not self.bm25:
            return []
        mention = MENTION.search(text)
        subject, asked = (mention[1], "") if mention else slot_of(text) or ("", text)
        rare = (word for word in missing_words(asked, self.bm25) if not self.model.reader.knows(word))
        return [*missing_words(subject, self.bm25), *rare]

    def _sources(self, texts: Sequence[str], weights: Weights | None) -> list[Evidence]:
        """The evidence that is there; BM25 is asked for where nothing is."""
        weights = weights or self.weights
        sources = [self.evidence(texts, "sparse", weights.sparta)] if self.sparta else []
        if self.bm25 or not sources:
            sources.append(self.evidence(texts, "bm25", weights.bm25))
        return sources

    def evidence(self, texts: Sequence[str], backend: Backend, weight: float = 1.0) -> Evidence:
        """What the terms of these queries say: learned impacts for the backend sparse, else BM25.

        Raises:
            QueryError: the knowledge base has no such index.
        """
        if backend == "sparse":
            if self.pieces is None:
                raise QueryError(
                    f"{self.folder} has no learned impacts: add them with `kbq index {self.folder} --sparta MODEL`"
                )
            return Evidence(self.shards, self.sparta, [self.pieces.terms(text) for text in texts], weight)
        if not self.bm25:
            raise QueryError(f"{self.folder} has no BM25 index: add one with `kbq index {self.folder} --bm25`")
        return Evidence(self.shards, self.bm25, [query_words(text) for text in texts], weight)

    def search_vectors(
        self,
        starts: Floats,
        ends: Floats,
        k: int = 10,
        unit: Unit = "phrase",
        evidence: Sequence[Evidence] = (),
    ) -> list[list[Hit]]:
        """`search` for queries that are encoded already; `evidence` is added. Shapes: (queries, dim)."""
        if k < 1:
            raise QueryError(f"k is {k}, must be at least 1")
        queries = np.stack([starts, ends], axis=1) * self.model.scale  # now in the units of the int8 rows
        return search(self.shards, self.opened_index, queries, k, unit, evidence, self.model.config.length_penalty)


def _unwritable(folder: Path, error: OSError) -> KnowledgeBaseError:
    return KnowledgeBaseError(
        f"{folder} cannot be written ({error.strerror}): make room or choose another folder; "
        "the same command goes on where it stopped"
    )
