"""Indexes: build an index, measure its recall, name it in the manifest.

Recall is measured with queries. Vectors of the dump cannot replace them, as they are close to other
vectors of the dump and find those with a fraction of the probes.
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
    WITHOUT_QUERIES,
    IndexEntry,
    Manifest,
    changing,
    refuse_other_model,
    write_manifest,
)
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index.cells import clusters_for
from kbq.index.factory import Build, build_missing, chosen_kind, is_built, open_index, remove_others
from kbq.model.model import Model
from kbq.search.search import BATCH, SearchContext, search
from kbq.storage.reading import reading_problem
from kbq.storage.records import read_record, write_record
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.writing import remove_file

OWN_QUERIES = 1000  # slot queries that are made if none are given
MEASURED = 200  # queries to measure recall on; rotations are learned from the others
K = 10  # recall is measured on the k best phrases
SLOTS = (
    "place of birth", "date of birth", "occupation", "spouse", "member of", "country", "located in",
    "capital", "part of", "author", "founded by", "instance of", "language", "award received",
    "genre", "date",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries that an index was made for."""

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """The index to build, which becomes the default."""

    kind: WantedKind = "auto"
    target: float = 0.99  # recall to reach: the share of exact search's ten best phrases
    # Examples of those to expect; by default, slot queries about pages of the dump.
    queries: tuple[str, ...] = ()
    # Index only rows with a filter logit above this, and the best of each paragraph.
    filter: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(WantedKind):
            kinds = ", ".join(get_args(WantedKind))
            raise KnowledgeBaseError(
                f"index kind {self.kind!r} is unknown: choose from {kinds}", is_usage=True
            )

        if not (isinstance(self.target, int | float) and 0 <= self.target <= 1):
            raise KnowledgeBaseError(
                f"recall is {self.target!r}, must be from 0 to 1", is_usage=True
            )

        if self.filter is not None and not (
            isinstance(self.filter, int | float) and math.isfinite(self.filter)
        ):
            raise KnowledgeBaseError(
                f"--filter is {self.filter}, must be a number: `kbq info` shows the model's own",
                is_usage=True,
            )

    @classmethod
    def as_before(cls, folder: Path, manifest: Manifest, kind: IndexKind) -> Self:
        """Return the specification of the present index of a kind, or the defaults if there is
        none.
        """
        wanted = cast(WantedKind, kind)  # an official index has been refused
        entry = next((entry for entry in manifest.entries if entry.kind == kind), None)
        return (
            cls(wanted)
            if entry is None
            else cls(wanted, entry.target, kept_queries(folder, entry), entry.filter)
        )


def build_indexes(
    folder: Path,
    manifest: Manifest,
    model: Model,
    spec: IndexSpec,
    report: Report = silent,
    build: Build = build_missing,
) -> Manifest:
    """Build an index, extend all others to new shards, and return the new manifest, which the
    caller writes.

    `build` indexes the shards that lack an index, here or elsewhere.
    """
    new_kind = chosen_kind(manifest, spec.kind)
    if new_kind == "exact" and spec.filter is not None:
        raise KnowledgeBaseError(
            f"exact search scores every row of {folder}, --filter={spec.filter:g} is for other "
            "indexes: add --kind=compact, tiny or disk",
            is_usage=True,
        )

    shards = manifest.open_shards(folder)
    entries: dict[IndexKind, IndexEntry] = {
        entry.kind: entry for entry in manifest.entries if entry.kind != "exact"
    }
    unfinished = {kind: entry for kind, entry in entries.items() if not is_built(shards, entry)}
    queries = {kind: kept_queries(folder, entry) for kind, entry in unfinished.items()}
    if new_kind != "exact":
        unfinished[new_kind] = IndexEntry(new_kind, target=spec.target, filter=spec.filter)
        queries[new_kind] = spec.queries

    pairs = itertools.product(shards, manifest.entries)
    whole = {
        f"{shard.folder.name}/{entry.part}" for shard, entry in pairs if is_built([shard], entry)
    }
    for kind, entry in unfinished.items():
        digest = _digest(queries[kind], model)
        texts = queries[kind] or own_queries(shards, model, OWN_QUERIES)
        vectors = model.in_row_units(*model.encode_queries(texts))
        measured = min(MEASURED, -(-len(texts) // 2))
        others = vectors[measured if len(texts) > 1 else 0 :]  # a single query is used for both
        entry = replace(entry, asked=digest)
        build(shards, entry, np.concatenate([others[:, 0], others[:, 1]]), model.device, report)
        penalty = model.config.length_penalty
        entries[kind] = tune_probes(
            shards, entry, vectors[:measured], model.device, penalty, report
        )
        if queries[kind]:
            write_record(queries_file(folder, digest), Queries(tuple(queries[kind])), FORMAT)

    built = [
        part
        for part in manifest.parts(*(entries[kind] for kind in unfinished))
        if part not in whole
    ]
    default = entries.pop(new_kind, IndexEntry())

    return replace(manifest.without_seals(built), index=default, others=tuple(entries.values()))


def add_index(
    folder: Path,
    model: Model,
    spec: IndexSpec,
    report: Report = silent,
    build: Build = build_missing,
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
    fingerprint = ""
    if model.config.base:
        fingerprint = model.config.query_fingerprint
    content = "\n".join([*queries, fingerprint])
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
    """Read the queries that were given for an index, if any. Raises KnowledgeBaseError if their
    file is damaged.
    """
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
        if model.query_tokenizer.accepts(query):
            queries.append(query)
        else:
            queries.append(slot)

    return queries


def tune_probes(
    shards: Sequence[Shard],
    entry: IndexEntry,
    queries: Floats,
    device: torch.device,
    length_penalty: float = 0.0,
    report: Report = silent,
) -> IndexEntry:
    """Return the entry with about the fewest probes that reach its target recall, and the measured
    recall.

    If all cells miss the target, take the fewest probes that find as much as all cells.

    Args:
        queries: start over end vector, in the units of the rows. Shape: (queries, 2, dim).
        length_penalty: subtracted from the score of a phrase for each token after its first.
    """

    def ten_best(trial: IndexEntry) -> list[list[Answer]]:
        # The index may be built for lack of GPU memory.
        index = open_index(shards, trial, device, may_leave_gpu=True)
        context = SearchContext(shards, index, length_penalty)
        how = (
            "exactly"
            if trial.kind == "exact"
            else f"with {trial.probes:,} probe{'s' * (trial.probes > 1)}"
        )
        stage = Stage(
            report, f"recall of the {entry.kind} index, queries searched {how}", len(queries)
        )
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
        if true:
            shares += [np.mean([hit.place in phrases for hit in true])]
    if shares:
        return float(np.mean(shares))
    return 1.0
