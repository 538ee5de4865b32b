"""Manifest: the file that describes a knowledge base.

A change is published by writing it, last, in one step.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

import kbq
from kbq.answers import IndexKind
from kbq.dump.shards import (
    REPAIR,
    Counts,
    HexDigits,
    PhraseLimit,
    Shard,
    ShardEntry,
    deleted_file,
    read_deleted,
)
from kbq.errors import KbqError, KnowledgeBaseError, ModelError
from kbq.plugins import plugin
from kbq.storage.folders import discard_folder, refuse_strange_files
from kbq.storage.machine import stays_in_memory
from kbq.storage.reading import CHECK, reading_from, reading_problem
from kbq.storage.records import (
    OtherFormatError,
    digest_of_record,
    read_object,
    read_record,
    write_record,
)
from kbq.storage.seals import SEAL, Damage, FileSeal, all_damage, first_damage, read_seal
from kbq.storage.writing import remove_file, writing_alone, writing_to

if TYPE_CHECKING:
    from kbq.model.model import Model

# The kind of an index that another program built, and the folder of its parts.
IMPORTED = "official"
LINK = "index.faiss"  # a name in that folder: the only link that a knowledge base may have

MANIFEST = "manifest.json"
STATE = "building.json"  # exists during a build, and after one that was stopped
FORMAT = 4
BM25 = "bm25"  # folder in each shard
WITHOUT_QUERIES = "delete it, to use slot queries about the knowledge base instead"
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=0)]


def sentence(kb: Path, damage: Damage) -> str:
    """Say what is wrong with a file, and what to do: an index can be built again from the shards."""
    parts = damage.path.relative_to(kb).parts
    advice = REPAIR
    if IMPORTED in parts:
        advice = f"put back the official file, or delete {kb} and import the index again"
    elif any(part.startswith("sparta") for part in parts[:2]):
        advice = f"`kbq index sparta {kb} MODEL` builds it again"
    elif len(parts) > 2:
        advice = f"`kbq verify {kb} --repair` builds it again"
    elif parts[0].startswith("queries"):
        advice = WITHOUT_QUERIES
    return reading_problem(damage.path, damage.problem, advice)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index of the shards. Its recall is the share of exact search's ten best phrases that it
    finds.

    The recall of an official index is unknown, as there are no vectors to search exactly.
    """

    kind: IndexKind = "exact"
    probes: Annotated[int, Meta(ge=1)] = 1  # cells of each shard to search for a query
    target: Share = 1.0  # requested recall
    recall: Share = 1.0  # measured recall
    queries: Number = 0  # number of queries on which it was measured
    filter: float | None = None  # only rows with a filter logit above this are in the index
    # Digest of the given queries and the tuned encoder that it was made for, if any.
    asked: HexDigits = ""

    @property
    def facts(self) -> str:
        """What decides its hits, beside the shards: `exact`, or its kind with all that it was made
        for.
        """
        if self.kind == "exact":
            return self.kind
        return f"{self.part}, {self.probes} cells"

    @property
    def part(self) -> str:
        """The name of its folder in that of a shard.

        An index with another filter, or for other queries, has another folder, so that the index in
        use stays until the manifest names the new one. Disk indexes do not depend on queries.
        """
        if self.filter is None:
            above = ""
        else:
            above = f"-above{self.filter!r}"
        learned = ""
        if self.kind != "disk" and self.asked:
            learned = f"-for-{self.asked}"
        return f"{self.kind}{above}{learned}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published knowledge base.

    `corpora` holds a digest of each corpus that was added. `index` is the default, `others` can be
    chosen. `seals` are the digests of the seals of index folders, by their paths below the
    knowledge base; `shards` has those of shards.
    """

    model: str  # name or folder of the model that it was built with
    model_fingerprint: str
    dim: Annotated[int, Meta(ge=1)]
    filter_threshold: float
    shards: tuple[ShardEntry, ...] = ()
    corpora: tuple[str, ...] = ()
    index: IndexEntry = IndexEntry()
    others: tuple[IndexEntry, ...] = ()
    bm25: bool = False  # whether every shard has a BM25 index
    sparta: HexDigits = ""  # name of the SPARTA index of every shard, if there is one
    seals: dict[str, str] = field(default_factory=dict)
    phrases: PhraseLimit = field(default_factory=PhraseLimit)
    kbq: str = kbq.__version__

    @property
    def counts(self) -> Counts:
        """The total counts of all shards, without deleted pages."""
        return sum((shard.live for shard in self.shards), Counts())

    @property
    def contents(self) -> str:
        """A digest of all but the indexes of vectors, which change nothing that exact search finds."""
        return digest_of_record(dataclasses.replace(self, index=IndexEntry(), others=(), seals={}))

    @property
    def size(self) -> Counts:
        """The total counts of all shards, with deleted pages."""
        return sum((shard.size for shard in self.shards), Counts())

    def parts(self, *entries: IndexEntry) -> list[str]:
        """Return the folders of all word indexes and these vector indexes, as paths below the
        knowledge base.
        """
        sparta = [f"sparta-{self.sparta}"] * bool(self.sparta)
        vectors = [entry.part for entry in entries if entry.kind != "exact"]
        parts = [*sparta, *[IMPORTED] * (IMPORTED in vectors)]
        for shard in self.shards:
            within = [*[BM25] * self.bm25, *sparta]
            if shard.size.rows:
                within += vectors
            parts += [f"{shard.name}/{part}" for part in within]
        return parts

    @property
    def next_shard(self) -> int:
        """Return the number of the next shard, which no earlier one has."""
        numbers = [int(shard.name.removeprefix("shard-")) for shard in self.shards]
        return max(numbers, default=-1) + 1

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        return (self.index, *self.others)

    @property
    def available(self) -> tuple[IndexEntry, ...]:
        """The indexes that a query can use, with exact search, for which nothing is built."""
        has_exact = self.has_codes or any(entry.kind == "exact" for entry in self.entries)
        if has_exact:
            return self.entries
        return *self.entries, IndexEntry()

    @property
    def has_codes(self) -> bool:
        return self.index.kind == IMPORTED

    def refuse_codes(self, folder: Path) -> None:
        """Raise KnowledgeBaseError if it has codes instead of vectors."""
        if self.has_codes:
            raise KnowledgeBaseError(plugin("codes").codes_instead_of_vectors(folder))

    def entry(self, folder: Path, kind: IndexKind | None) -> IndexEntry:
        """Return the index of a kind, by default the first. Raises KnowledgeBaseError if there is
        none.
        """
        by_kind = {entry.kind: entry for entry in self.available}
        if kind is not None and kind not in by_kind:
            self.refuse_codes(folder)
            raise KnowledgeBaseError(
                f"{folder} has no {kind} index, only {' and '.join(by_kind)}: "
                f"build it with `kbq index vectors {folder} --kind {kind}`"
            )
        if kind is None:
            return self.index
        return by_kind[kind]

    def with_shards(self, shards: Sequence[ShardEntry], corpus: str) -> "Manifest":
        """Return the manifest with another corpus, and without SPARTA, which the new shards lack."""
        return dataclasses.replace(
            self, shards=(*self.shards, *shards), corpora=(*self.corpora, corpus), sparta=""
        )

    def shard_folders(self, folder: Path) -> list[Path]:
        return [folder / shard.name for shard in self.shards]

    def open_shards(self, folder: Path, parts: Iterable[str] = ()) -> list[Shard]:
        """Open all shards, in order, after a check of their files and of those of other `parts`."""
        files = self.files(folder, [*(shard.name for shard in self.shards), *parts])
        damage = first_damage(files)
        if damage is not None:
            raise KnowledgeBaseError(sentence(folder, damage))
        stay = stays_in_memory(self.size.rows * self.dim)
        shards: list[Shard]
        if self.has_codes:
            shards = plugin("codes").open_shards(folder, self)
        else:
            shards = [
                Shard(folder / entry.name, stay, entry.deleted, self.phrases)
                for entry in self.shards
            ]

        for shard, entry in zip(shards, self.shards, strict=True):
            rows = entry.size.rows
            pages = entry.size.pages
            if (shard.shape, len(shard.ids)) != ((rows, self.dim), pages):
                held = f"{len(shard)} rows of {shard.shape[1]} dimensions"
                said = f"the manifest says {rows} of {self.dim} and {pages}"
                raise KnowledgeBaseError(
                    f"shard {shard.folder} holds {held} and {len(shard.ids)} pages, {said}: "
                    f"{REPAIR}"
                )

        return shards

    def without_seals(self, parts: Iterable[str]) -> "Manifest":
        """Return the manifest without the seals of rebuilt indexes, which are read when it is
        written.
        """
        gone = set(parts)
        return dataclasses.replace(
            self, seals={name: seal for name, seal in self.seals.items() if name not in gone}
        )

    def _sealed(
        self, folder: Path, parts: Iterable[str]
    ) -> tuple[dict[Path, FileSeal], list[Damage]]:
        """Return the files of some parts, as their seals list them, and what is wrong with these
        seals.
        """
        files: dict[Path, FileSeal] = {}
        damages = []
        seals = self.seals | {shard.name: shard.seal for shard in self.shards}
        for part in parts:
            try:
                seal = read_seal(folder / part)
                if seal.digest != seals.get(part, ""):
                    raise ValueError("it belongs to another knowledge base or build")
                files |= {folder / part / name: file for name, file in seal.files.items()}
            except (OSError, ValueError) as error:
                damages.append(Damage(folder / part / SEAL, error))

        return files, damages

    def files(self, folder: Path, parts: Iterable[str]) -> dict[Path, FileSeal]:
        """Return the files of some parts, which are folders below the knowledge base, as their
        seals list them.

        Raises KnowledgeBaseError if a seal is missing, damaged, or not the one that the manifest
        names.
        """
        files, damages = self._sealed(folder, parts)
        if damages:
            raise KnowledgeBaseError(sentence(folder, damages[0]))
        return files

    def all_files(self, folder: Path) -> tuple[dict[Path, FileSeal], list[Damage]]:
        """Return all sealed files, and what is wrong with the seals and with lists of deleted
        pages.
        """
        files, damages = self._sealed(
            folder, [*(shard.name for shard in self.shards), *self.parts(*self.entries)]
        )
        for shard in self.shards:
            try:
                read_deleted(folder / shard.name, shard.deleted)
            except (OSError, ValueError) as error:
                damages.append(Damage(deleted_file(folder / shard.name, shard.deleted), error))
        return files, damages

    @contextmanager
    def damage_explained(self, folder: Path) -> Iterator[None]:
        """Turn an unexpected error into a KnowledgeBaseError that names a damaged file, if there is
        one.
        """
        try:
            yield
        except (KbqError, MemoryError, OSError):
            raise
        except Exception as error:
            files, damages = self.all_files(folder)
            damage = next(iter(damages), None) or next(all_damage(files), None)
            if damage is not None:
                raise KnowledgeBaseError(sentence(folder, damage)) from error
            raise


def refuse_other_model(folder: Path, manifest: Manifest, model: "Model") -> None:
    """Raise ModelError if a knowledge base was built with another phrase encoder."""
    then = manifest.model_fingerprint
    now = model.config.phrase_fingerprint
    if then == now:
        return
    if manifest.model == model.source:
        raise ModelError(
            f"the model {model.source} has changed since {folder} was built with it ({then}, now "
            f"{now}): build the knowledge base again, or restore the earlier model"
        )

    raise ModelError(
        f"{folder} was built with the model {manifest.model} ({then}), not {model.source} ({now}): "
        f"use --model={manifest.model}"
    )


NEITHER = "{folder} is neither a knowledge base nor a model: name the folder of one"


def is_knowledge_base(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


def read_manifest(folder: Path) -> Manifest:
    """Read a manifest.

    Raises KnowledgeBaseError if it is missing, damaged, or of another format version, or if the
    folder has links.
    """
    path = folder / MANIFEST
    if path.is_symlink() or path.exists():  # else the folder may be any, and large
        refuse_strange_parts(folder)
    try:
        return read_record(path, Manifest, FORMAT)
    except (FileNotFoundError, NotADirectoryError):
        raise KnowledgeBaseError(_why_not(folder)) from None
    except OtherFormatError as error:
        if error.found is not None:
            raise KnowledgeBaseError(
                f"{folder} has format version {error.found}, this kbq reads {FORMAT}: "
                "build the knowledge base again, or use the kbq version that wrote it"
            ) from None
        problem: Exception = ValueError("it names no format version")
    except (OSError, ValueError) as error:
        problem = error

    advice = "restore it from a copy, or delete the folder and build the knowledge base again"
    raise KnowledgeBaseError(reading_problem(path, problem, advice))


def refuse_strange_parts(folder: Path) -> None:
    """Raise KnowledgeBaseError for links and devices, which no knowledge base has."""
    refuse_strange_files(
        folder,
        "a knowledge base",
        KnowledgeBaseError,
        lambda path: path == folder / IMPORTED / LINK,
    )


def _why_not(folder: Path) -> str:
    """Return why a folder is not a knowledge base, and what to do."""
    if (folder / STATE).exists():
        return (
            f"{folder} is not a complete knowledge base, its build is running or was stopped: "
            "to resume it, run the same `kbq build` again"
        )

    if folder.exists():
        what = "is a file, not a folder"
        if folder.is_dir():
            what = f"has no {MANIFEST}"
        return (
            f"{folder} is not a knowledge base ({what}): make one in a new folder with `kbq build "
            "CORPUS KB`"
        )

    return f"{folder} does not exist: make a knowledge base with `kbq build CORPUS {folder}`"


def publish(folder: Path, manifest: Manifest) -> Manifest:
    """End a build: the folder becomes the knowledge base that the manifest describes."""
    published = write_manifest(folder, manifest)
    remove_file(folder / STATE)
    return published


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Replace the manifest, with the seals of new indexes, and return it. An unfinished build can
    still be resumed.

    Raises KnowledgeBaseError if a new index has no seal, or belongs to another shard.
    """
    seals = {}
    of_shards = {shard.name: shard.seal for shard in manifest.shards}
    for part in manifest.parts(*manifest.entries):
        if part in manifest.seals:
            seals[part] = manifest.seals[part]
            continue
        with reading_from(folder / part / SEAL, KnowledgeBaseError, "build this index again"):
            seal = read_seal(folder / part)
            if seal.of != of_shards.get(part.partition("/")[0], ""):
                raise ValueError("it was built from another shard")
            seals[part] = seal.digest

    manifest = dataclasses.replace(manifest, seals=seals)
    write_record(folder / MANIFEST, manifest, FORMAT)
    return manifest


@contextmanager
def changing(folder: Path, in_parts: bool = False) -> Iterator[Manifest]:
    """Lock a published knowledge base, remove what killed runs have left, and yield its manifest.

    `in_parts`: the work publishes several manifests, and goes on with the next one if it is done
    again.
    """
    read_manifest(folder)  # first, so that only a knowledge base is locked
    with writing_to(folder, KnowledgeBaseError, goes_on=True), writing_alone(folder):
        manifest = read_manifest(folder)
        # A damaged state is reported when it is resumed.
        with suppress(OSError, ValueError, TypeError, KeyError):
            if read_object(folder / STATE)["first_shard"] < manifest.next_shard:
                remove_file(folder / STATE)  # the build was killed just after it was published

        remove_unnamed_shards(folder, manifest)
        with manifest.damage_explained(folder):
            try:
                yield manifest
            except OSError as error:
                if in_parts or read_manifest(folder) == manifest:
                    raise
                reason = f"{folder} has been changed as asked, but then there was an error"
                raise KnowledgeBaseError(
                    f"{reason} ({error.strerror or error}): {CHECK}"
                ) from error


def remove_unnamed_shards(folder: Path, manifest: Manifest) -> None:
    """Remove shards and lists of deleted pages that neither the manifest nor an unfinished build
    needs.

    What cannot be removed stays until the next change: nothing names it, so nothing needs it.
    """
    named = {deleted_file(folder / entry.name, entry.deleted) for entry in manifest.shards}
    for unnamed in set(folder.glob("shard-*/deleted-*")) - named:
        with suppress(OSError):
            remove_file(unnamed)
    if not (folder / STATE).exists():
        for unnamed in set(folder.glob("shard-*")) - set(manifest.shard_folders(folder)):
            discard_folder(unnamed)
