"""KnowledgeBase: a folder that holds a corpus as phrases; build it, open it, ask it. Read this first.

documents ── encoding/ ──► phrase dump (indexing/) ──► spans ──► phrases, sentences, paragraphs, pages (searching/)
    └─────── words ──► impacts (sparse/) ──► evidence ──┘
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError, ModelError, QueryError
from kbq.indexing.building import build_shards
from kbq.indexing.choice import IndexKind, build_indexes, open_index
from kbq.indexing.dump import Counts, Shard
from kbq.indexing.manifest import Manifest, claim, publish, read_manifest
from kbq.records import Document, Hit
from kbq.searching.evidence import BM25_WEIGHT, Evidence
from kbq.searching.spans import batch_spans
from kbq.searching.units import Unit, best_units
from kbq.sparse.bm25 import add_bm25, open_bm25, remove_older

Floats = NDArray[np.float32]
Backend = Literal["dense", "bm25", "hybrid"]
SEARCH_DEPTH = 5  # what an exact index looks at beyond k; deeper where that does not settle the answer
HITS = 50  # starts and ends asked of an approximate index, or more
BATCH = 64  # queries searched together


class KnowledgeBase:
    """A published knowledge base with the encoders that can ask it."""

    def __init__(self, folder: Path, manifest: Manifest, model: Model) -> None:
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
            if len(shard) != counts.rows:
                raise KnowledgeBaseError(
                    f"{shard.folder} holds {len(shard)} rows, the manifest says {counts.rows}: "
                    "build the knowledge base again"
                )
        self.indexes = [open_index(shard, manifest.index, model.device) for shard in self.shards]
        self.bm25 = [open_bm25(shard, manifest) for shard in self.shards] if manifest.bm25 else []

    @classmethod
    def build(
        cls,
        documents: Iterable[Document],
        folder: Path,
        model: Model,
        *,
        model_name: str = "default",
        append: bool = False,
        index: IndexKind = "auto",
        sparse: bool = False,
        report: Callable[[Counts], None] = lambda counts: None,
    ) -> Self:
        """Encode documents into `folder` and publish it; a run that was killed goes on where it stopped.

        Args:
            documents: pages with unique ids.
            folder: a new folder, one in which a build stopped half-way, or with `append` a knowledge base.
            model_name: what the manifest calls the model, so that it is found again.
            index: `auto` searches exactly up to about 2 million kept tokens.
            sparse: add a BM25 index; a knowledge base that has one keeps it.
            report: told after each block how much of this build is on the disk.

        Raises:
            KnowledgeBaseError: the folder is in use, not writable, or holds another build.
            CorpusError: from `documents`; nothing is published.
        """
        try:
            before = claim(folder, model, model_name, append)
            shards, corpus = build_shards(documents, model, folder, len(before.shards), report)
            manifest = build_indexes(folder, before.with_shards(shards, corpus), index)
            if sparse or manifest.bm25:
                manifest = add_bm25(folder, manifest)
            publish(folder, manifest)
            remove_older(folder, manifest)
        except OSError as error:
            raise KnowledgeBaseError(
                f"{folder} cannot be written ({error.strerror}): make room or choose another folder; "
                "the same command goes on where it stopped"
            ) from error
        return cls(folder, manifest, model)

    @classmethod
    def open(cls, folder: Path, model: str | None = None, device: str = "auto") -> Self:
        """Open a published knowledge base with its own model, or one whose query side was tuned for it.

        Raises:
            KnowledgeBaseError: missing, not whole, damaged, or of another format version.
            ModelError: the model is missing or belongs to another phrase encoder.
        """
        manifest = read_manifest(folder)
        try:
            opened = Model.open(model or manifest.model, device)
        except ModelError as error:
            if model is not None or manifest.model == "default" or Path(manifest.model).is_dir():
                raise
            raise ModelError(
                f"{folder} needs the model it was built with: {error}; say with --model where it is"
            ) from None
        return cls(folder, manifest, opened)

    @property
    def counts(self) -> Counts:
        """Documents, paragraphs, tokens and rows of all shards."""
        return self.manifest.counts

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        unit: Unit = "phrase",
        backend: Backend = "dense",
        bm25_weight: float = BM25_WEIGHT,
    ) -> list[list[Hit]]:
        """The k best distinct units for each query, best first; fewer only where the knowledge base holds fewer.

        Args:
            backend: what scores a phrase: its vectors (dense), or these plus `bm25_weight` times the BM25 score of its
                paragraph (hybrid). BM25 alone finds paragraphs and documents that share a word with the query.

        Raises:
            QueryError: a text is empty, too long, or malformed; or BM25 is asked for what it does not have.
        """
        if backend == "dense":
            return self.search_vectors(*self.model.encode_queries(texts), k, unit)
        if not self.bm25:
            raise QueryError(f"{self.folder} has no BM25 index: add one with `kbq index {self.folder}`")
        evidence = Evidence(self.shards, self.bm25, texts, bm25_weight)
        if backend == "hybrid":
            return self.search_vectors(*self.model.encode_queries(texts), k, unit, evidence)
        if k < 1:
            raise QueryError(f"k is {k}, must be at least 1")
        if unit not in ("paragraph", "document"):
            raise QueryError(f"BM25 finds no {unit}: ask for paragraphs or documents, or use the backend hybrid")
        return [evidence.best(query, unit, k) for query in range(len(texts))]

    def search_vectors(
        self,
        starts: Floats,
        ends: Floats,
        k: int = 10,
        unit: Unit = "phrase",
        evidence: Evidence | None = None,
    ) -> list[list[Hit]]:
        """`search` for queries that are encoded already; `evidence` is added. Shapes: (queries, dim)."""
        if k < 1:
            raise QueryError(f"k is {k}, must be at least 1")
        vectors = np.stack([starts, ends], axis=1) * self.model.scale  # now in the units of the int8 rows
        hits: list[list[Hit]] = [[] for _ in vectors]
        for first in range(0, len(vectors), BATCH):
            batch = list(range(first, min(first + BATCH, len(vectors))))
            self._search_batch(vectors, batch, hits, k, unit, evidence)
        return hits

    def _search_batch(
        self,
        vectors: Floats,
        open_queries: list[int],
        hits: list[list[Hit]],
        k: int,
        unit: Unit,
        evidence: Evidence | None,
    ) -> None:
        """Shape of vectors: (queries, 2, dim)."""
        depth = SEARCH_DEPTH + (2 * k if unit == "document" else k)  # the k best paragraphs hold the k best phrases
        if self.manifest.index.kind == "approximate":
            depth = max(depth, HITS)
        deepest = max((len(shard) for shard in self.shards), default=0)
        while open_queries:
            bonus = evidence.bonus(open_queries) if evidence else [None] * len(self.shards)
            found = [
                batch_spans(shard, index, vectors[open_queries], depth, extra)
                for shard, index, extra in zip(self.shards, self.indexes, bonus, strict=True)
            ]
            unsettled = []
            for query, spans in zip(open_queries, zip(*found, strict=True), strict=True):
                units = best_units(self.shards, spans, unit, k)
                hits[query] = units.hits
                if not units.is_complete and depth < deepest:
                    unsettled.append(query)
            open_queries, depth = unsettled, depth * 4
