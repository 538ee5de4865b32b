"""Indexes: what a knowledge base is searched with is built, measured with queries, and entered in its manifest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from kbq.dump.manifest import IndexEntry, Manifest, changing, refuse_other_model, write_manifest
from kbq.dump.shards import Shard
from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError
from kbq.indexing.choice import build_missing, chosen_kind, is_built, remove_others
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

    @classmethod
    def as_before(cls, folder: Path, manifest: Manifest, kind: IndexKind) -> Self:
        """What was wished for when the index of this kind was built, or the usual."""
        entry = next((entry for entry in manifest.entries if entry.kind == kind), None)
        if entry is None:
            return cls(kind)
        return cls(kind, entry.target, kept_queries(folder, entry), entry.filter)


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
            "add --index compact, tiny or approximate",
            is_usage=True,
        )
    shards = manifest.open_shards(folder)
    entries: dict[IndexKind, IndexEntry] = {entry.kind: entry for entry in manifest.entries if entry.kind != "exact"}
    unfinished = {other: entry for other, entry in entries.items() if not is_built(shards, entry)}
    queries = {other: kept_queries(folder, entry) for other, entry in unfinished.items()}
    if kind != "exact":
        unfinished[kind] = IndexEntry(kind, target=wish.target, filter=wish.filter)
        queries[kind] = wish.queries
    for other, entry in unfinished.items():
        asked = _digest(queries[other], model)
        texts = queries[other] or own_queries(shards, model, OWN_QUERIES)
        entries[other] = _built(shards, replace(entry, asked=asked), model, texts, report)
        if queries[other]:
            write_json(_queries_file(folder, asked), queries[other])
    default = entries.pop(kind, IndexEntry())
    return replace(manifest, index=default, others=tuple(entries.values()))


def add_index(folder: Path, model: Model, wish: IndexWish, report: Report = silent) -> Manifest:
    """Build an index of a knowledge base that is there, beside its others; from now on it answers.

    Raises:
        KnowledgeBaseError: faiss is missing, the folder cannot be written, or a filter is for exact search.
        ModelError: the model is another one than the knowledge base was built with.
        QueryError: a query of the wish cannot be read.
    """
    with changing(folder) as before:
        refuse_other_model(folder, before, model)
        manifest = build_indexes(folder, before, model, wish, report)
        write_manifest(folder, manifest)
        remove_unnamed(folder, manifest)
    return manifest


def _digest(queries: Sequence[str], model: Model) -> str:
    """What tells indexes apart that were made for other queries, or a tuned encoder; empty of the usual ones."""
    if not (queries or model.config.base):
        return ""
    of = "\n".join([*queries, model.config.query_fingerprint if model.config.base else ""])
    return hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def remove_unnamed(folder: Path, manifest: Manifest) -> None:
    """Remove indexes, and the queries of indexes, that the manifest does not name."""
    for entry in manifest.entries:
        remove_others(manifest.shard_folders(folder), entry)
    named = {_queries_file(folder, entry.asked) for entry in manifest.entries}
    for other in set(folder.glob("queries-*.json")) - named:
        other.unlink()


def _queries_file(folder: Path, asked: str) -> Path:
    return folder / f"queries-{asked}.json"


def kept_queries(folder: Path, entry: IndexEntry) -> tuple[str, ...]:
    """The queries that an index was made for; none where these were slots of its own pages.

    Raises:
        KnowledgeBaseError: the file that keeps them is damaged.
    """
    path = _queries_file(folder, entry.asked)
    try:
        queries = json.loads(path.read_text("utf-8"))
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise ValueError("no list of texts")
        return tuple(queries)
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise KnowledgeBaseError(
            f"{path} is damaged ({error}): delete it, then slots of its own pages are asked"
        ) from None


def _built(
    shards: Sequence[Shard], entry: IndexEntry, model: Model, texts: Sequence[str], report: Report
) -> IndexEntry:
    queries = model.in_row_units(*model.encode_queries(texts))
    measured = min(MEASURED, -(-len(texts) // 2))
    teaching = slice(measured if len(texts) > 1 else 0, None)  # a single query must do both
    taught = np.concatenate([queries[teaching, 0], queries[teaching, 1]])
    build_missing(shards, entry, taught, model.device, report)
    return calibrate(shards, entry, queries[:measured], model.device, model.config.length_penalty, report)
