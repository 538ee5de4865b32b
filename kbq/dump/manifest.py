"""Manifest: what makes a folder a knowledge base. Written last, in one step; without it nothing is published."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kbq
from kbq.answers import IndexKind
from kbq.dump.shards import Counts, Shard, shard_name
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.system.files import write_json, writing_alone, writing_to
from kbq.system.machine import stays_in_memory

if TYPE_CHECKING:
    from kbq.encoding.model import Model

MANIFEST = "manifest.json"
STATE = "building.json"  # there while a build goes on, or where one was stopped
FORMAT = 3


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """How the shards are searched, and what share of the ten best phrases of exact search that finds."""

    kind: IndexKind = "exact"
    probes: int = 1  # cells of each shard looked at for one query
    target: float = 1.0  # the recall that was asked for
    recall: float = 1.0  # the recall that was measured
    queries: int = 0  # on how many queries it was measured
    filter: float | None = None  # logit above which a row is in the index; None: all rows are
    asked: str = ""  # digest of the queries and tuned encoder it was made for; empty: slots of its pages, its model


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published knowledge base.

    `corpora`: a digest of each corpus that was added. `index` answers unless one of the `others` is asked for.
    """

    model: str  # name or folder of the model it was built with
    model_fingerprint: str
    dim: int
    filter_threshold: float
    shards: tuple[Counts, ...] = ()
    corpora: tuple[str, ...] = ()
    index: IndexEntry = IndexEntry()
    others: tuple[IndexEntry, ...] = ()
    bm25: bool = False  # whether the words of every shard are indexed
    sparta: str = ""  # name of the learned impacts that every shard has; empty: none
    kbq: str = kbq.__version__

    @property
    def counts(self) -> Counts:
        """The counts of all shards together."""
        return sum(self.shards, Counts())

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors of all shards together."""
        return self.counts.rows * self.dim

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """All indexes that were built, the one that answers first."""
        return (self.index, *self.others)

    @property
    def available(self) -> tuple[IndexEntry, ...]:
        """What a query can ask: the indexes that were built, and exact search, which needs none."""
        has_exact = any(entry.kind == "exact" for entry in self.entries)
        return self.entries if has_exact else (*self.entries, IndexEntry())

    def entry(self, folder: Path, kind: IndexKind | None) -> IndexEntry:
        """The index of a kind; None: the one that answers.

        Raises:
            KnowledgeBaseError: it was not built.
        """
        by_kind = {entry.kind: entry for entry in self.available}
        if kind is not None and kind not in by_kind:
            raise KnowledgeBaseError(
                f"{folder} has no {kind} index, but {' and '.join(by_kind)}: "
                f"build it with `kbq index {folder} --index {kind}`"
            )
        return self.index if kind is None else by_kind[kind]

    def with_shards(self, shards: Sequence[Counts], corpus: str) -> "Manifest":
        """The same knowledge base with one more corpus, for which nothing has been learned yet."""
        shards, corpora = (*self.shards, *shards), (*self.corpora, corpus)
        return dataclasses.replace(self, shards=shards, corpora=corpora, sparta="")

    def shard_folders(self, folder: Path) -> list[Path]:
        """Where the shards lie, in order."""
        return [folder / shard_name(number) for number in range(len(self.shards))]

    def open_shards(self, folder: Path) -> list[Shard]:
        """All shards, in order.

        Raises:
            KnowledgeBaseError: one is missing, damaged, or holds other rows than were counted.
        """
        stay = stays_in_memory(self.vector_bytes)
        shards = [Shard(path, stay) for path in self.shard_folders(folder)]
        for shard, counts in zip(shards, self.shards, strict=True):
            if shard.vectors.shape != (counts.rows, self.dim):
                raise KnowledgeBaseError(
                    f"{shard.folder} holds {len(shard)} rows of {shard.vectors.shape[1]} dimensions, the manifest says "
                    f"{counts.rows} of {self.dim}: build the knowledge base again"
                )
            if (len(shard.texts), len(shard.ids)) != (counts.paragraphs, counts.pages):
                raise KnowledgeBaseError(
                    f"{shard.folder} holds {len(shard.texts)} paragraphs of {len(shard.ids)} pages, the manifest says "
                    f"{counts.paragraphs} of {counts.pages}: build the knowledge base again"
                )
        return shards


def refuse_other_model(folder: Path, manifest: Manifest, model: "Model") -> None:
    """Raises ModelError where a knowledge base was built with another phrase encoder."""
    then, now = manifest.model_fingerprint, model.config.phrase_fingerprint
    if then == now:
        return
    if manifest.model == model.source:
        raise ModelError(
            f"the model {model.source} has changed since {folder} was built with it ({then}, now {now}): "
            "build it again, or bring the earlier model back"
        )
    raise ModelError(
        f"{folder} was built with the model {manifest.model} ({then}), not {model.source} ({now}): "
        f"use --model {manifest.model}"
    )


def is_knowledge_base(folder: Path) -> bool:
    """Whether a knowledge base is published in this folder."""
    return (folder / MANIFEST).exists()


def publish(folder: Path, manifest: Manifest) -> None:
    """Make the folder the knowledge base that the manifest describes: the end of a build."""
    write_manifest(folder, manifest)
    (folder / STATE).unlink(missing_ok=True)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest; a build that stopped half-way can still go on."""
    write_json(folder / MANIFEST, {"format": FORMAT} | asdict(manifest))


@contextmanager
def changing(folder: Path) -> Iterator[Manifest]:
    """The manifest of a published knowledge base, which nobody else changes meanwhile.

    Raises:
        KnowledgeBaseError: there is none, or the folder cannot be written.
        KbqError: another process writes into it.
    """
    read_manifest(folder)  # a folder that is no knowledge base is not locked
    with writing_to(folder, KnowledgeBaseError, goes_on=True), writing_alone(folder):
        yield read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        KnowledgeBaseError: there is none, it is damaged, or of another format version.
    """
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text("utf-8"))
        version = fields.pop("format")
        if version != FORMAT:
            raise KnowledgeBaseError(
                f"{folder} has format version {version}, this kbq reads {FORMAT}: "
                "build it again, or use the kbq that wrote it"
            )
        fields["shards"] = tuple(Counts(**counts) for counts in fields["shards"])
        fields["corpora"] = tuple(fields["corpora"])
        fields["index"] = IndexEntry(**fields["index"])
        fields["others"] = tuple(IndexEntry(**entry) for entry in fields["others"])
        return Manifest(**fields)
    except (FileNotFoundError, NotADirectoryError):
        raise KnowledgeBaseError(_why_not(folder)) from None
    except OSError as error:
        raise KnowledgeBaseError(f"{path} cannot be read ({error.strerror}): check path and rights") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KnowledgeBaseError(
            f"{path} is damaged ({error}): delete the folder and build the knowledge base again"
        ) from None


def _why_not(folder: Path) -> str:
    if (folder / STATE).exists():
        return (
            f"{folder} is not a whole knowledge base, its build is going on or was stopped: after that, the same "
            "`kbq build` goes on with it"
        )
    if folder.exists():
        return f"{folder} holds no knowledge base (no {MANIFEST}): make one with `kbq build CORPUS {folder}`"
    return f"{folder} does not exist: make a knowledge base with `kbq build CORPUS {folder}`"
