"""OpenFolder: the folder of a knowledge base becomes shards, an index, words and networks, open until `close`."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

from kbq.answers import IndexKind
from kbq.dump.changes import page_ids, refuse_unknown
from kbq.dump.manifest import read_manifest, refuse_other_model
from kbq.dump.page_directory import Pages, Titles
from kbq.errors import KnowledgeBaseError
from kbq.index.factory import open_index
from kbq.model.model import Model, model_of
from kbq.reading.probability import Calibration, own_calibration
from kbq.reading.reader import Reader
from kbq.reading.reranker import Reranking
from kbq.search.hybrid import WordIndexes
from kbq.storage.files import as_path
from kbq.storage.records import digest_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from kbq.array_types import Bools
    from kbq.cluster.searcher import RaySearcher
    from kbq.dump.manifest import Manifest
    from kbq.dump.shards import Counts
    from kbq.index.base import Index
    from kbq.parallel import Answerers

# What `close` lets go of.
OPENED = "shards", "words", "reranking", "titles", "_opened_index", "_cluster", "answerers", "_readers"


class OpenFolder:
    """A published knowledge base that is open; `with` closes it at the end."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        model: Model,
        index: IndexKind | None = None,
        may_leave_gpu: bool = True,
        ray: str | None = None,
        workers: int = 1,
        pages: Sequence[str] = (),
    ) -> None:
        """Open what a manifest describes or, if another has replaced it, what that one does; `open` is the usual way.

        Args:
            index: the kind that is searched, instead of the manifest's first.
            may_leave_gpu: search on the CPU where the model's GPUs have no room for the vectors.
            ray: the address of a Ray cluster whose machines search the shards.
            workers: processes that answer; 1: this one does.
            pages: ids of those that it answers from; none: of all.
        """
        self.folder, self.model = folder, model
        self._may_leave_gpu, self._ray, self._workers, self._chosen_pages = may_leave_gpu, ray, workers, pages
        self._readers: dict[str, Reader] = {}
        self.reranking = Reranking(model)
        try:
            self._open(manifest, index)
        except KnowledgeBaseError:
            published = read_manifest(folder)
            if published == manifest:
                raise
            self._open(published, index)

    def _open(self, manifest: Manifest, kind: IndexKind | None) -> None:
        """Open the shards, what searches them (an index here or, on a cluster, many), and the words."""
        refuse_other_model(self.folder, manifest, self.model)
        self.manifest, self.index = manifest, manifest.entry(self.folder, kind)
        self._cluster: RaySearcher | None = None
        self.answerers: Answerers | None = None
        self.__dict__.pop("_opened_index", None)
        with manifest.damage_explained(self.folder):
            self.shards = manifest.open_shards(self.folder, manifest.parts())  # an index looks at its own files
            shown: list[Bools] = []  # of each shard, the pages that may be answered with
            if self._chosen_pages:
                shown, unknown = Pages(self.shards).chosen(self._chosen_pages)
                refuse_unknown(self.folder, unknown)
                for shard, pages in zip(self.shards, shown, strict=True):
                    shard.show_only(pages)
            if self._workers > 1:
                from kbq.parallel import Answerers

                kind, leave, chosen = self.index.kind, self._may_leave_gpu, self._chosen_pages
                opened = partial(
                    type(self), self.folder.absolute(), manifest, index=kind, may_leave_gpu=leave, pages=chosen
                )
                self.answerers = Answerers(opened, self.model, self._workers)
            elif self._ray is None:
                self._opened_index  # noqa: B018 - opens it
            else:
                from kbq.cluster.searcher import open_searcher

                manifest.refuse_codes(self.folder)
                penalty = self.model.config.length_penalty
                self._cluster = open_searcher(self._ray, self.folder, manifest, self.index, self.shards, shown, penalty)
            self.words = WordIndexes(self.folder, manifest, self.shards)

    @cached_property
    def _opened_index(self) -> Index:
        """The index of all shards; where others search, it is opened here when it is asked for."""
        return open_index(self.shards, self.index, self.model.device, self._may_leave_gpu)

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
        workers: int = 1,
        device: str = "auto",
    ) -> Self:
        """Open a published knowledge base with its own model, or with one whose query side was tuned for it.

        Args:
            model: a folder, a name, or one that is open, which several knowledge bases can share.
            index: the kind that is searched; by default the one that was built last.
            ray: the address of a Ray cluster whose machines search the shards, which must lie in the same folder on
                each; `local` starts one here.
            workers: processes that answer, each with one thread and its own copy of the networks and,
                on a GPU, of the vectors; they need a main module that can be imported, as `multiprocessing` says.
            device: `auto`, `cpu`, `cuda` or `cuda:n`; `auto` searches on the CPU where the GPUs have too little room.

        Raises:
            KnowledgeBaseError: missing, incomplete, damaged, of another format version, or without this index; or
                workers are fewer than 1, or there is a cluster, too.
            ModelError: the model is missing or belongs to another phrase encoder.
            ClusterError: the cluster cannot be used.
        """
        folder = as_path(folder, "the folder of a knowledge base")
        manifest = read_manifest(folder)
        if index is not None and index not in get_args(IndexKind):
            kinds = ", ".join(get_args(IndexKind))
            raise KnowledgeBaseError(f"index kind {index!r} is unknown: choose from {kinds}", is_usage=True)
        if not isinstance(workers, int) or workers < 1 or (ray is not None and workers > 1):
            problem = f"workers is {workers!r:.20}: give 1 or more; with a Ray cluster, 1"
            raise KnowledgeBaseError(problem, is_usage=True)
        opened = model if isinstance(model, Model) else model_of(folder, manifest.model, model, device)
        return cls(folder, manifest, opened, index, device == "auto", ray, workers)

    def with_model(self, model: str | PathLike[str]) -> Self:
        """Open the same knowledge base with another query encoder: one that `finetune` has made for it.

        Raises:
            ModelError: it is missing, or belongs to another phrase encoder.
        """
        opened = Model.open(as_path(model, "a model"), str(self.model.device))
        return self._again(self.manifest, opened, self._chosen_pages)

    def with_pages(self, pages: str | Path | Iterable[str]) -> Self:
        """Open the same knowledge base to answer from these pages only: they are chosen before the best answers are.

        Args:
            pages: ids, an id, or the `Path` of a file with one id a line.

        Raises:
            KnowledgeBaseError: it does not have one of them; all of these are named.
        """
        return self._again(self.manifest, self.model, page_ids(pages))

    def _again(self, manifest: Manifest, model: Model, pages: Sequence[str] = ()) -> Self:
        """Open the same knowledge base, searched where it is searched now."""
        kind, leave, others = self.index.kind, self._may_leave_gpu, (self._ray, self._workers)
        return type(self)(self.folder, manifest, model, kind, leave, *others, tuple(pages))

    def reader(self, name: str) -> Reader:
        """Return a reader, opened once."""
        if name == self.reranking.base:
            return self.reranking.reader
        if name not in self._readers:
            self._readers[name] = Reader.open(name, str(self.model.device))
        return self._readers[name]

    @cached_property
    def own_calibration(self) -> Calibration | None:
        """The model's own calibration, if it has one."""
        return own_calibration(self.model)

    @cached_property
    def titles(self) -> Titles:
        """Which page alone has a title; see `Titles`."""
        return Titles(self.shards)

    @property
    def pages_digest(self) -> str:
        """A digest of the ids of the pages that it answers from; empty: of all."""
        ids = "\n".join(sorted(self._chosen_pages))
        return digest_of_bytes(ids.encode("utf-8", "surrogatepass")) if self._chosen_pages else ""

    @property
    def counts(self) -> Counts:
        """Pages, paragraphs, tokens and rows, without deleted pages."""
        return self.manifest.counts

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.folder)!r}: {self.counts.pages:,} pages, {self.counts.rows:,} vectors)"
