"""Indexes: what a knowledge base is searched with is built, measured with queries, and entered in its manifest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError
from kbq.indexing.choice import build_missing, chosen_kind, is_built
from kbq.indexing.dump import Shard
from kbq.indexing.manifest import IndexEntry, Manifest
from kbq.options import IndexKind, WantedKind
from kbq.searching.probes import calibrate, own_queries
from kbq.system.files import write_json
from kbq.system.stages import Report, silent

OWN_QUERIES = 1000
MEASURED = 200  # queries that recall is measured on; the others teach a rotation


@dataclass(frozen=True, slots=True)
class IndexWish:
    """The index that shall answer."""

    kind: WantedKind = "auto"
    target: float = 0.99  # share of the ten best phrases of exact search that it shall find
    queries: tuple[str, ...] = ()  # like those that will be asked; none: slot queries about its own pages
    filter: float | None = None  # threshold of the rows in it, above that of the model; None: all rows
    asked: str = ""  # digest of the queries, where they are those of an index that is there

    @classmethod
    def as_before(cls, folder: Path, manifest: Manifest, kind: IndexKind) -> Self:
        """What was wished for when the index of this kind was built, or the usual."""
        entry = next((entry for entry in manifest.entries if entry.kind == kind), None)
        if entry is None:
            return cls(kind)
        return cls(kind, entry.target, _kept_queries(folder, entry), entry.filter, entry.asked)

    def digest(self, model: Model) -> str:
        """What tells indexes apart that were made for other queries, or a tuned encoder; empty of the usual ones."""
        if self.asked or not (self.queries or model.config.base):
            return self.asked
        of = "\n".join([*self.queries, model.config.query_fingerprint if model.config.base else ""])
        return hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def build_indexes(folder: Path, manifest: Manifest, model: Model, wish: IndexWish, report: Report = silent) -> Manifest:
    """Build the index wished for, and complete those that lack a new shard.

    Raises:
        KnowledgeBaseError: faiss is missing, the folder cannot be written, or a filter is for exact search.
        QueryError: a query of the wish cannot be read.
    """
    kind = chosen_kind(manifest, wish.kind)
    if kind == "exact" and wish.filter is not None:
        raise KnowledgeBaseError(
            f"exact search looks at every row of {folder}, --filter {wish.filter:g} is for an index: "
            "add --index approximate or compact"
        )
    shards = manifest.open_shards(folder)
    entries: dict[IndexKind, IndexEntry] = {entry.kind: entry for entry in manifest.entries if entry.kind != "exact"}
    unfinished = {other: entry for other, entry in entries.items() if not is_built(shards, entry)}
    if kind != "exact":
        asked = wish.digest(model)
        unfinished[kind] = IndexEntry(kind, target=wish.target, filter=wish.filter, asked=asked)
        if wish.queries:
            write_json(_queries_file(folder, asked), wish.queries)
    for entry in unfinished.values():
        texts = _kept_queries(folder, entry) or own_queries(shards, model, OWN_QUERIES)
        entries[entry.kind] = _built(shards, entry, model, texts, report)
    default = entries.pop(kind, IndexEntry())
    return replace(manifest, index=default, others=tuple(entries.values()))


def forget_queries(folder: Path, manifest: Manifest) -> None:
    """Remove the queries of indexes that are there no more."""
    for other in set(folder.glob("queries-*.json")) - {
        _queries_file(folder, entry.asked) for entry in manifest.entries
    }:
        other.unlink()


def _queries_file(folder: Path, asked: str) -> Path:
    return folder / f"queries-{asked}.json"


def _kept_queries(folder: Path, entry: IndexEntry) -> tuple[str, ...]:
    """The queries that an index was made for; none where these were slots of its own pages."""
    path = _queries_file(folder, entry.asked)
    try:
        return tuple(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise KnowledgeBaseError(
            f"{path} is damaged ({error}): delete it, then slots of its own pages are asked"
        ) from None


def _built(
    shards: Sequence[Shard], entry: IndexEntry, model: Model, texts: Sequence[str], report: Report
) -> IndexEntry:
    starts, ends = (vectors * model.scale for vectors in model.encode_queries(texts))
    measured = min(MEASURED, -(-len(texts) // 2))
    teaching = slice(measured if len(texts) > 1 else 0, None)  # a single query must do both
    build_missing(shards, entry, np.concatenate([starts[teaching], ends[teaching]]), report)
    penalty = model.config.length_penalty
    return calibrate(shards, entry, starts[:measured], ends[:measured], model.device, penalty, report)
