"""Manifest: the file that describes a knowledge base. It is written last and atomically, which publishes a build."""

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
STATE = "building.json"  # exists during a build, and after one that was stopped
FORMAT = 3


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index of the shards; its recall is the share of exact search's ten best phrases that it finds."""

    kind: IndexKind = "exact"
    probes: int = 1  # cells of each shard to search for a query
    target: float = 1.0  # requested recall
    recall: float = 1.0  # measured recall
    queries: int = 0  # number of queries on which it was measured
    filter: float | None = None  # only rows with a filter logit above this are in the index; None: all rows
    asked: str = ""  # digest of the queries and the tuned encoder it was made for; empty: slot queries, base model


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published knowledge base.

    `corpora`: a digest of each corpus that was added. `index` is the default, `others` can be chosen.
    """

    model: str  # name or folder of the model that it was built with
    model_fingerprint: str
    dim: int
    filter_threshold: float
    shards: tuple[Counts, ...] = ()
    corpora: tuple[str, ...] = ()
    index: IndexEntry = IndexEntry()
    others: tuple[IndexEntry, ...] = ()
    bm25: bool = False  # whether every shard has a BM25 index
    sparta: str = ""  # name of the SPARTA index that every shard has; empty: none
    kbq: str = kbq.__version__

    @property
    def counts(self) -> Counts:
        """The total counts of all shards."""
        return sum(self.shards, Counts())

    @property
    def vector_bytes(self) -> int:
        """The total size of the vectors of all shards, in bytes."""
        return self.counts.rows * self.dim

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """All indexes, the default first."""
        return (self.index, *self.others)

    @property
    def available(self) -> tuple[IndexEntry, ...]:
        """What a query can use: all indexes, and exact search, for which nothing is built."""
        has_exact = any(entry.kind == "exact" for entry in self.entries)
        return self.entries if has_exact else (*self.entries, IndexEntry())

    def entry(self, folder: Path, kind: IndexKind | None) -> IndexEntry:
        """The index of a kind; None: the default.

        Raises:
            KnowledgeBaseError: there is none.
        """
        by_kind = {entry.kind: entry for entry in self.available}
        if kind is not None and kind not in by_kind:
            raise KnowledgeBaseError(
                f"{folder} has no {kind} index, only {' and '.join(by_kind)}: "
                f"build it with `kbq index vectors {folder} --kind {kind}`"
            )
        return self.index if kind is None else by_kind[kind]

    def with_shards(self, shards: Sequence[Counts], corpus: str) -> "Manifest":
        """The same knowledge base with one more corpus, and no SPARTA index, which the new shards lack."""
        shards, corpora = (*self.shards, *shards), (*self.corpora, corpus)
        return dataclasses.replace(self, shards=shards, corpora=corpora, sparta="")

    def shard_folders(self, folder: Path) -> list[Path]:
        """The folders of all shards, in order."""
        return [folder / shard_name(number) for number in range(len(self.shards))]

    def open_shards(self, folder: Path) -> list[Shard]:
        """All shards, in order.

        Raises:
            KnowledgeBaseError: one is missing or damaged, or its counts differ from the manifest.
        """
        stay = stays_in_memory(self.vector_bytes)
        shards = [Shard(path, stay) for path in self.shard_folders(folder)]
        for shard, counts in zip(shards, self.shards, strict=True):
            if shard.vectors.shape != (counts.rows, self.dim):
                raise KnowledgeBaseError(
                    f"shard {shard.folder} holds {len(shard)} rows of {shard.vectors.shape[1]} dimensions, "
                    f"the manifest says {counts.rows} of {self.dim}: build the knowledge base again"
                )
            if (len(shard.texts), len(shard.ids)) != (counts.paragraphs, counts.pages):
                raise KnowledgeBaseError(
                    f"shard {shard.folder} holds {len(shard.texts)} paragraphs of {len(shard.ids)} pages, "
                    f"the manifest says {counts.paragraphs} of {counts.pages}: build the knowledge base again"
                )
        return shards


def refuse_other_model(folder: Path, manifest: Manifest, model: "Model") -> None:
    """Raises ModelError if a knowledge base was built with another phrase encoder."""
    then, now = manifest.model_fingerprint, model.config.phrase_fingerprint
    if then == now:
        return
    if manifest.model == model.source:
        raise ModelError(
            f"the model {model.source} has changed since {folder} was built with it ({then}, now {now}): "
            "build the knowledge base again, or restore the earlier model"
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
    """Replace the manifest; an unfinished build can still be resumed."""
    write_json(folder / MANIFEST, {"format": FORMAT} | asdict(manifest))


@contextmanager
def changing(folder: Path) -> Iterator[Manifest]:
    """Lock a published knowledge base, and yield its manifest.

    Raises:
        KnowledgeBaseError: there is none, or the folder cannot be written.
        KbqError: another process is writing to it.
    """
    read_manifest(folder)  # first, so that only a knowledge base is locked
    with writing_to(folder, KnowledgeBaseError, goes_on=True), writing_alone(folder):
        yield read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        KnowledgeBaseError: it is missing, damaged, or of another format version.
    """
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text("utf-8"))
        version = fields.pop("format")
        if version != FORMAT:
            raise KnowledgeBaseError(
                f"{folder} has format version {version}, this kbq reads {FORMAT}: "
                "build the knowledge base again, or use the kbq version that wrote it"
            )
        fields["shards"] = tuple(Counts(**counts) for counts in fields["shards"])
        fields["corpora"] = tuple(fields["corpora"])
        fields["index"] = IndexEntry(**fields["index"])
        fields["others"] = tuple(IndexEntry(**entry) for entry in fields["others"])
        return Manifest(**fields)
    except (FileNotFoundError, NotADirectoryError):
        raise KnowledgeBaseError(_why_not(folder)) from None
    except OSError as error:
        raise KnowledgeBaseError(f"{path} cannot be read ({error.strerror}): check its path and permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KnowledgeBaseError(
            f"{path} is damaged ({error}): delete the folder and build the knowledge base again"
        ) from None


def _why_not(folder: Path) -> str:
    if (folder / STATE).exists():
        return (
            f"{folder} is not a complete knowledge base, its build is running or was stopped: "
            "to resume it, run the same `kbq build` again"
        )
    if folder.exists():
        return f"{folder} is not a knowledge base (no {MANIFEST}): make one with `kbq build CORPUS {folder}`"
    return f"{folder} does not exist: make a knowledge base with `kbq build CORPUS {folder}`"
