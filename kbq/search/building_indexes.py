"""Indexes: build an index, measure its recall, name it in the manifest; verify the files of a knowledge base.

Recall is measured with queries. Vectors of the dump cannot replace them, as they are close to other vectors of the dump
and find those with a fraction of the probes.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast, get_args

import numpy as np
import torch

from kbq.answers import Answer, IndexKind, WantedKind
from kbq.array_types import Floats
from kbq.dump.manifest import (
    FORMAT,
    IMPORTED,
    WITHOUT_QUERIES,
    IndexEntry,
    Manifest,
    changing,
    is_knowledge_base,
    read_manifest,
    refuse_other_model,
    sentence,
    write_manifest,
)
from kbq.dump.shards import Shard
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.index.cells import clusters_for
from kbq.index.factory import Build, build_missing, chosen_kind, is_built, open_index, remove_others
from kbq.model.model import Model, model_of
from kbq.model.model_folder import local_folder, model_damage, model_files, record_name, remedy
from kbq.search.search import BATCH, SearchContext, search
from kbq.storage.files import Report, Stage, as_path, reading_problem, remove_file, remove_folder, silent
from kbq.storage.records import SEAL, Damage, all_damage, read_record, write_record
from kbq.words.bm25 import add_bm25, bm25_folder, is_older

OWN_QUERIES = 1000  # slot queries that are made if none are given
MEASURED = 200  # queries to measure recall on; rotations are learned from the others
K = 10  # recall is measured on the k best phrases
SLOTS = (
    "place of birth", "date of birth", "occupation", "spouse", "member of", "country", "located in", "capital",
    "part of", "author", "founded by", "instance of", "language", "award received", "genre", "date",
)  # fmt: skip

OLDER = "an older version indexed its words, which are only found as written, with their accents"


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries that an index was made for."""

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """The index to build, which becomes the default."""

    kind: WantedKind = "auto"
    target: float = 0.99  # recall to reach: the share of exact search's ten best phrases
    queries: tuple[str, ...] = ()  # examples of those to expect; by default, slot queries about pages of the dump
    filter: float | None = None  # index only rows with a filter logit above this, and the best of each paragraph

    def __post_init__(self) -> None:
        if self.kind not in get_args(WantedKind):
            kinds = ", ".join(get_args(WantedKind))
            raise KnowledgeBaseError(f"index kind {self.kind!r} is unknown: choose from {kinds}", is_usage=True)
        if not (isinstance(self.target, int | float) and 0 <= self.target <= 1):
            raise KnowledgeBaseError(f"recall is {self.target!r}, must be from 0 to 1", is_usage=True)
        if self.filter is not None and not (isinstance(self.filter, int | float) and math.isfinite(self.filter)):
            raise KnowledgeBaseError(
                f"--filter is {self.filter}, must be a number: `kbq info` shows the model's own", is_usage=True
            )

    @classmethod
    def as_before(cls, folder: Path, manifest: Manifest, kind: IndexKind) -> Self:
        """Return the specification of the present index of a kind, or the defaults if there is none."""
        wanted = cast(WantedKind, kind)  # an official index has been refused
        entry = next((entry for entry in manifest.entries if entry.kind == kind), None)
        return cls(wanted) if entry is None else cls(wanted, entry.target, kept_queries(folder, entry), entry.filter)


def build_indexes(
    folder: Path,
    manifest: Manifest,
    model: Model,
    spec: IndexSpec,
    report: Report = silent,
    build: Build = build_missing,
) -> Manifest:
    """Build an index, extend all others to new shards, and return the new manifest, which the caller writes.

    `build` indexes the shards that lack an index, here or elsewhere.
    """
    new_kind = chosen_kind(manifest, spec.kind)
    if new_kind == "exact" and spec.filter is not None:
        raise KnowledgeBaseError(
            f"exact search scores every row of {folder}, --filter={spec.filter:g} is for other indexes: "
            "add --kind=compact, tiny or disk",
            is_usage=True,
        )
    shards = manifest.open_shards(folder)
    entries: dict[IndexKind, IndexEntry] = {entry.kind: entry for entry in manifest.entries if entry.kind != "exact"}
    unfinished = {kind: entry for kind, entry in entries.items() if not is_built(shards, entry)}
    queries = {kind: kept_queries(folder, entry) for kind, entry in unfinished.items()}
    if new_kind != "exact":
        unfinished[new_kind] = IndexEntry(new_kind, target=spec.target, filter=spec.filter)
        queries[new_kind] = spec.queries
    pairs = itertools.product(shards, manifest.entries)
    whole = {f"{shard.folder.name}/{entry.part}" for shard, entry in pairs if is_built([shard], entry)}
    for kind, entry in unfinished.items():
        digest = _digest(queries[kind], model)
        texts = queries[kind] or own_queries(shards, model, OWN_QUERIES)
        vectors = model.in_row_units(*model.encode_queries(texts))
        measured = min(MEASURED, -(-len(texts) // 2))
        others = vectors[measured if len(texts) > 1 else 0 :]  # a single query is used for both
        entry = replace(entry, asked=digest)
        build(shards, entry, np.concatenate([others[:, 0], others[:, 1]]), model.device, report)
        penalty = model.config.length_penalty
        entries[kind] = tune_probes(shards, entry, vectors[:measured], model.device, penalty, report)
        if queries[kind]:
            write_record(queries_file(folder, digest), Queries(tuple(queries[kind])), FORMAT)
    built = [part for part in manifest.parts(*(entries[kind] for kind in unfinished)) if part not in whole]
    default = entries.pop(new_kind, IndexEntry())
    return replace(manifest.without_seals(built), index=default, others=tuple(entries.values()))


def add_index(
    folder: Path, model: Model, spec: IndexSpec, report: Report = silent, build: Build = build_missing
) -> Manifest:
    """Add an index to a knowledge base and make it the default."""
    with changing(folder) as before:
        before.refuse_codes(folder)
        refuse_other_model(folder, before, model)
        manifest = write_manifest(folder, build_indexes(folder, before, model, spec, report, build))
        remove_unnamed(folder, manifest)
    return manifest


def _digest(queries: Sequence[str], model: Model) -> str:
    """Return a digest of the given queries and of a tuned encoder, or "" without either."""
    if not (queries or model.config.base):
        return ""
    content = "\n".join([*queries, model.config.query_fingerprint if model.config.base else ""])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def remove_unnamed(folder: Path, manifest: Manifest) -> None:
    for entry in manifest.entries:
        remove_others(manifest.shard_folders(folder), entry)
    named_files = {queries_file(folder, entry.asked) for entry in manifest.entries}
    for unnamed_file in set(folder.glob("queries-*.json")) - named_files:
        remove_file(unnamed_file)


def queries_file(folder: Path, digest: str) -> Path:
    return folder / f"queries-{digest}.json"


def kept_queries(folder: Path, entry: IndexEntry) -> tuple[str, ...]:
    """Read the queries that were given for an index, if any. Raises KnowledgeBaseError if their file is damaged."""
    path = queries_file(folder, entry.asked)
    try:
        return read_record(path, Queries, FORMAT).queries
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise KnowledgeBaseError(reading_problem(path, error, WITHOUT_QUERIES)) from None


def own_queries(shards: Sequence[Shard], model: Model, count: int, seed: int = 0) -> list[str]:
    """Make slot queries about random pages whose titles the encoder can read."""
    random = np.random.default_rng(seed)
    slots = [str(slot) for slot in random.choice(SLOTS, count)]
    left = [(shard.titles, np.flatnonzero(shard.live_pages())) for shard in shards]
    left = [(titles, pages) for titles, pages in left if len(pages)]
    if not left:
        return slots
    queries = []
    for slot in slots:
        titles, pages = left[random.integers(len(left))]
        query = f"{titles[int(pages[random.integers(len(pages))])]} [SEP] {slot}"
        queries.append(query if model.query_tokenizer.accepts(query) else slot)
    return queries


def tune_probes(
    shards: Sequence[Shard],
    entry: IndexEntry,
    queries: Floats,
    device: torch.device,
    length_penalty: float = 0.0,
    report: Report = silent,
) -> IndexEntry:
    """Return the entry with about the fewest probes that reach its target recall, and the measured recall.

    If all cells miss the target, take the fewest probes that find as much as all cells.

    Args:
        queries: start over end vector, in the units of the rows. Shape: (queries, 2, dim).
        length_penalty: subtracted from the score of a phrase for each token after its first.
    """

    def ten_best(trial: IndexEntry) -> list[list[Answer]]:
        index = open_index(shards, trial, device, may_leave_gpu=True)  # the index may be built for lack of GPU memory
        context = SearchContext(shards, index, length_penalty)
        how = "exactly" if trial.kind == "exact" else f"with {trial.probes:,} probe{'s' * (trial.probes > 1)}"
        stage = Stage(report, f"recall of the {entry.kind} index, queries searched {how}", len(queries))
        hits: list[list[Answer]] = []
        for first in range(0, len(queries), BATCH):
            part = queries[first : first + BATCH]
            hits += search(context, part, K, "phrase")
            stage.add(len(part))
        return hits

    exact = ten_best(IndexEntry())

    def measure(probes: int) -> IndexEntry:
        trial = replace(entry, probes=probes)
        return replace(trial, recall=recall(exact, ten_best(trial)), queries=len(queries))

    cells = max((clusters_for(len(shard)) for shard in shards), default=1)
    trials = [measure(1)]
    while trials[-1].recall < entry.target and trials[-1].probes < cells:
        trials.append(measure(min(cells, 2 * trials[-1].probes)))
    goal = min(entry.target, trials[-1].recall)
    best = next(trial for trial in trials if trial.recall >= goal)
    too_few = max((trial.probes for trial in trials if trial.probes < best.probes), default=0)
    while best.probes - too_few > max(1, best.probes // 16):
        trial = measure((too_few + best.probes) // 2)
        if trial.recall < goal:
            too_few = trial.probes
        else:
            best = trial
    return best


def recall(exact: Sequence[Sequence[Answer]], found: Sequence[Sequence[Answer]]) -> float:
    """Return the mean share of exact search's phrases that were found, or 1 if there are none."""
    shares = []
    for true, hits in zip(exact, found, strict=True):
        phrases = {hit.place for hit in hits}
        shares += [np.mean([hit.place in phrases for hit in true])] if true else []
    return float(np.mean(shares)) if shares else 1.0


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of files compared, a sentence for each problem, and the damaged folders that were rebuilt."""

    folder: Path
    files: int
    bytes: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    unread: int = 0  # problems with files that cannot be read but may be whole

    def __bool__(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems


def verify(
    folder: str | Path, repair: bool = False, *, model: str | None = None, device: str = "auto", report: Report = silent
) -> Verification:
    """Compare every file of a knowledge base, a model or another network that kbq wrote with its digest.

    Args:
        repair: rebuild damaged indexes of vectors and words; shards cannot be rebuilt.
        model: that of the knowledge base, if it has moved. It is opened only to rebuild indexes of vectors.
        report: called with the bytes that have been compared.

    Raises:
        KbqError: the folder is neither, its manifest is damaged, or it has another format version.

    >>> import kbq
    >>> bool(kbq.verify("default"))
    True
    """
    folder = as_path(folder, "a folder")
    if not is_knowledge_base(folder):
        return _verified_model(folder, repair, report)
    manifest = read_manifest(folder)
    files, damages = manifest.all_files(folder)
    for entry in manifest.entries:
        try:
            kept_queries(folder, entry)
        except KnowledgeBaseError as error:
            damages.append(Damage(queries_file(folder, entry.asked), ValueError(str(error).partition(": ")[0])))
    stage = Stage(report, "bytes compared", sum(file.bytes for file in files.values()))
    damages += all_damage(files, stage.add)
    words = [bm25_folder(shard) for shard in manifest.shard_folders(folder)] if manifest.bm25 else []
    damages += [Damage(place / SEAL, ValueError(OLDER)) for place in words if is_older(place)]
    if damages and read_manifest(folder) != manifest:  # it has been changed meanwhile
        return verify(folder, repair, model=model, device=device, report=report)
    repaired = _repaired(folder, damages, model, device, report) if repair and damages else ()
    parts = tuple(folder / part for part in repaired)
    left = [one for one in damages if not any(one.path.is_relative_to(part) for part in parts)]
    problems, unread = tuple(sentence(folder, one) for one in left), sum(one.is_unread for one in left)
    return Verification(folder, len(files), sum(file.bytes for file in files.values()), problems, repaired, unread)


def _verified_model(folder: Path, repair: bool, report: Report) -> Verification:
    folder = folder if folder.exists() else local_folder(folder)
    if record_name(folder) is None:
        raise KbqError(f"{folder} is neither a knowledge base nor a model: name the folder of one")
    if repair:
        raise KbqError(f"{folder} is a model, which cannot be repaired: {remedy(folder)}", is_usage=True)
    try:
        sizes = [file.bytes for file in model_files(folder).values()]
    except (OSError, ValueError):  # the record is damaged, which is found again below
        sizes = []
    stage = Stage(report, "bytes compared", sum(sizes))
    damages = list(model_damage(folder, stage.add))
    problems = tuple(reading_problem(one.path, one.problem, remedy(folder)) for one in damages)
    return Verification(folder, len(sizes), sum(sizes), problems, unread=sum(one.is_unread for one in damages))


def _repaired(folder: Path, damages: list[Damage], model: str | None, device: str, report: Report) -> tuple[str, ...]:
    """Rebuild the damaged indexes, if all shards are whole, and return their folders."""
    with changing(folder) as manifest:
        built = [part for part in manifest.parts(*manifest.entries) if "sparta" not in part and IMPORTED not in part]
        damaged = tuple(part for part in built if any(one.path.is_relative_to(folder / part) for one in damages))
        shards = manifest.shard_folders(folder)
        if any(one.path.parent in shards for one in damages) or not damaged:
            return ()
        needs_model = any(not part.endswith("/bm25") for part in damaged)
        # Opened before anything is removed.
        opened = model_of(folder, manifest.model, model, device) if needs_model else None
        for part in damaged:
            remove_folder(folder / part)
        after = manifest.without_seals(damaged)
        if opened is not None:
            spec = IndexSpec.as_before(folder, manifest, manifest.index.kind)
            after = build_indexes(folder, after, opened, spec, report)
        if manifest.bm25:
            after = add_bm25(folder, after, report)
        remove_unnamed(folder, write_manifest(folder, after))
    return damaged
