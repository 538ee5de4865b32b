"""Indexes: building those of a knowledge base, measuring their recall with queries, naming them in its manifest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from kbq.answers import IndexKind, WantedKind
from kbq.dump.manifest import IndexEntry, Manifest, changing, refuse_other_model, write_manifest
from kbq.dump.shards import Shard
from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError
from kbq.indexing.factory import build_missing, chosen_kind, is_built, remove_others
from kbq.searching.recall import calibrate, own_queries
from kbq.system.callbacks import Report, silent
from kbq.system.files import write_json

OWN_QUERIES = 1000
MEASURED = 200  # queries that recall is measured on; the others teach a rotation


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """The index that is wanted: once it is built, it answers."""

    kind: WantedKind = "auto"
    target: float = 0.99  # share of the ten best phrases of exact search that it must find
    queries: tuple[str, ...] = ()  # like those to come; none: slot queries about the knowledge base's own pages
    filter: float | None = None  # the rows in it: filter logit above this, or a paragraph's best; None: all rows

    @classmethod
    def as_before(cls, folder: Path, manifest: Manifest, kind: IndexKind) -> Self:
        """The wish that the index of this kind was built with; the defaults where there is no such index."""
        entry = next((entry for entry in manifest.entries if entry.kind == kind), None)
        if entry is None:
            return cls(kind)
        return cls(kind, entry.target, kept_queries(folder, entry), entry.filter)


def build_indexes(folder: Path, manifest: Manifest, model: Model, wish: IndexSpec, report: Report = silent) -> Manifest:
    """Build the index that is wished for, and complete the others where a new shard has none.

    Raises:
        KnowledgeBaseError: faiss is missing, the folder cannot be written, or a filter is for exact search.
        QueryError: a query of the wish cannot be read.
    """
    new_kind = chosen_kind(manifest, wish.kind)
    if new_kind == "exact" and wish.filter is not None:
        raise KnowledgeBaseError(
            f"exact search looks at every row of {folder}, --filter {wish.filter:g} is for an index: "
            "add --index compact, tiny or disk",
            is_usage=True,
        )
    shards = manifest.open_shards(folder)
    entries: dict[IndexKind, IndexEntry] = {entry.kind: entry for entry in manifest.entries if entry.kind != "exact"}
    unfinished = {kind: entry for kind, entry in entries.items() if not is_built(shards, entry)}
    queries = {kind: kept_queries(folder, entry) for kind, entry in unfinished.items()}
    if new_kind != "exact":
        unfinished[new_kind] = IndexEntry(new_kind, target=wish.target, filter=wish.filter)
        queries[new_kind] = wish.queries
    for kind, entry in unfinished.items():
        digest = _digest(queries[kind], model)
        texts = queries[kind] or own_queries(shards, model, OWN_QUERIES)
        entries[kind] = _build_and_measure(shards, replace(entry, asked=digest), model, texts, report)
        if queries[kind]:
            write_json(_queries_file(folder, digest), queries[kind])
    default = entries.pop(new_kind, IndexEntry())
    return replace(manifest, index=default, others=tuple(entries.values()))


def add_index(folder: Path, model: Model, wish: IndexSpec, report: Report = silent) -> Manifest:
    """Add an index to an existing knowledge base, beside its others; from now on it answers.

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
    """A digest that tells apart indexes made for other queries or a tuned encoder; empty for the usual ones."""
    if not (queries or model.config.base):
        return ""
    content = "\n".join([*queries, model.config.query_fingerprint if model.config.base else ""])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def remove_unnamed(folder: Path, manifest: Manifest) -> None:
    """Remove indexes, and the queries of indexes, that the manifest does not name."""
    for entry in manifest.entries:
        remove_others(manifest.shard_folders(folder), entry)
    named_files = {_queries_file(folder, entry.asked) for entry in manifest.entries}
    for unnamed_file in set(folder.glob("queries-*.json")) - named_files:
        unnamed_file.unlink()


def _queries_file(folder: Path, digest: str) -> Path:
    return folder / f"queries-{digest}.json"


def kept_queries(folder: Path, entry: IndexEntry) -> tuple[str, ...]:
    """The queries that an index was made for; none where it was made for slots of its own pages.

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


def _build_and_measure(
    shards: Sequence[Shard], entry: IndexEntry, model: Model, texts: Sequence[str], report: Report
) -> IndexEntry:
    queries = model.in_row_units(*model.encode_queries(texts))
    test_count = min(MEASURED, -(-len(texts) // 2))
    training = slice(test_count if len(texts) > 1 else 0, None)  # a single query must serve for both
    training_vectors = np.concatenate([queries[training, 0], queries[training, 1]])
    build_missing(shards, entry, training_vectors, model.device, report)
    return calibrate(shards, entry, queries[:test_count], model.device, model.config.length_penalty, report)
