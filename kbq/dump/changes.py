"""Changes: compare a corpus with a knowledge base, rewrite shards without deleted pages, merge knowledge bases.

The files of a shard never change: a deleted page is named in a list beside them until a new shard is written without
it. Pages keep their order, so a compacted shard has the bytes that a build from the remaining pages would give it.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from kbq.array_types import Bools, Rows
from kbq.corpus.pages import Page, PageIds
from kbq.dump.building import SHARD_ROWS
from kbq.dump.manifest import (
    IndexEntry,
    Manifest,
    changing,
    publish,
    read_manifest,
    remove_unnamed_shards,
    write_manifest,
)
from kbq.dump.page_directory import Pages
from kbq.dump.shard_writer import Progress, ShardWriter, page_digest
from kbq.dump.shards import Shard, ShardEntry, deleted_file, shard_name
from kbq.errors import KnowledgeBaseError
from kbq.storage import files
from kbq.storage.lines import read_lines
from kbq.storage.records import digest_of_bytes
from kbq.text.letters import clean_text

CHUNK = 2**16  # rows, or texts, copied at a time


@dataclass(frozen=True, slots=True)
class Changes:
    """How many pages a change has added, replaced, deleted and left unchanged."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.deleted)

    def __str__(self) -> str:
        return f"+{self.added:,} ~{self.replaced:,} −{self.deleted:,} ={self.unchanged:,}"


class Comparison:
    """Compares the pages of a corpus, one by one, with those of a knowledge base."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._pages = Pages(shards)
        self._seen = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._replaced = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._added = 0

    def to_encode(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            place = self._pages.place(page.page_id)
            if place is None:
                self._added += 1
                yield page
                continue
            self._seen[place.shard][place.page] = True
            if self._shards[place.shard].page_digests[place.page].tobytes() != page_digest(page):
                self._replaced[place.shard][place.page] = True
                yield page

    def gone(self, also_missing: bool) -> list[Bools]:
        """Whether each page of each shard is replaced or, if `also_missing`, not in the corpus. Shapes: (pages,)."""
        if not also_missing:
            return self._replaced
        seen = zip(self._shards, self._seen, self._replaced, strict=True)
        return [(shard.live_pages() & ~was_seen) | replaced for shard, was_seen, replaced in seen]

    def changes(self, also_missing: bool) -> Changes:
        """Return the changes, once all pages of the corpus have been compared."""
        gone = sum(int(pages.sum()) for pages in self.gone(also_missing))
        replaced = sum(int(pages.sum()) for pages in self._replaced)
        had = sum(int(shard.live_pages().sum()) for shard in self._shards)
        return Changes(self._added, replaced, gone - replaced, had - gone)


def delete(folder: Path, ids: Sequence[str], missing_ok: bool = False) -> tuple[Manifest, Changes]:
    """Delete pages by their ids, each once, so that no answer comes from them. Their bytes stay until `compact`."""
    with changing(folder) as before:
        shards = before.open_shards(folder)
        gone, missing = Pages(shards).chosen(ids)
        refuse_unknown(folder, [] if missing_ok else missing)
        deleted = len(ids) - len(missing)
        manifest = before
        if deleted:
            manifest = write_manifest(folder, with_pages_deleted(before, shards, gone))
            remove_unnamed_shards(folder, manifest)
    return manifest, Changes(deleted=deleted, unchanged=manifest.counts.pages)


def page_ids(pages: str | Path | Iterable[str]) -> list[str]:
    """Return ids, one id, or the ids in the lines of a file, each once, cleaned and stripped like those of a corpus.

    `Path("-")` is standard input. Raises KnowledgeBaseError if the file cannot be read, or there is no id.
    """
    if isinstance(pages, str):
        ids = [pages]
    elif isinstance(pages, Path):
        ids = [line for _, line in read_lines(str(pages), KnowledgeBaseError)]
    else:
        ids = list(files.as_iterable(pages, KnowledgeBaseError, "pages are", "a file, or a list of ids"))
    for page_id in ids:
        if not isinstance(page_id, str):
            raise KnowledgeBaseError(f"a page id is {page_id!r:.60}: give a text")
    found = list(dict.fromkeys(filter(None, (clean_text(page_id).strip() for page_id in ids))))
    if not found:
        source = f"{pages} holds" if isinstance(pages, Path) else "there is"
        raise KnowledgeBaseError(f"{source} no page id: give at least one")
    return found


def refuse_unknown(folder: Path, ids: Sequence[str]) -> None:
    """Raise KnowledgeBaseError if there are any ids, which are those of unknown pages."""
    if len(ids) == 1:
        raise KnowledgeBaseError(f"{folder} has no page {ids[0]!r}: check its id")
    if ids:
        raise KnowledgeBaseError(f"{folder} has no pages with {len(ids):,} of these ids: check them", list(ids))


def with_pages_deleted(manifest: Manifest, shards: Sequence[Shard], gone: Sequence[Bools]) -> Manifest:
    """Write lists of deleted pages for the first shards, and return the manifest that names them."""
    entries = list(manifest.shards)
    for number, (shard, pages) in enumerate(zip(shards, gone, strict=True)):
        if pages.any():
            left = shard.live_pages() & ~pages
            content = io.BytesIO()
            np.lib.format.write_array(content, np.flatnonzero(~left).astype(np.uint32), version=(1, 0))
            # Part of the list's name, so that an earlier list stays.
            digest = digest_of_bytes(content.getvalue())
            files.write_bytes(deleted_file(shard.folder, digest), content.getvalue())
            entries[number] = replace(entries[number], deleted=digest, live=shard.counts_of(left))
    return replace(manifest, shards=tuple(entries))


def groups_to_compact(manifest: Manifest, threshold: float) -> list[list[ShardEntry]]:
    """Return the neighbouring shards to rewrite together; small neighbours are joined.

    Args:
        threshold: share of a shard's pages; a shard with more deleted pages is rewritten.
    """

    def is_due(entry: ShardEntry) -> bool:
        return bool(entry.deleted) and entry.live.pages < (1 - threshold) * entry.size.pages

    runs = groupby(manifest.shards, lambda entry: is_due(entry) or 2 * entry.live.rows < SHARD_ROWS)
    groups = [list(run) for is_candidate, run in runs if is_candidate]
    return [group for group in groups if len(group) > 1 or is_due(group[0])]


def write_compacted(
    folder: Path, group: Sequence[ShardEntry], shards: Sequence[Shard], first: int, report: Callable[[int], None]
) -> list[ShardEntry]:
    """Copy the remaining pages of some shards, in order, to new shards, the first of which has the number `first`.

    `report` is called with each number of rows copied.
    """
    left = [np.flatnonzero(shard.live_pages()) for shard in shards]
    sizes = [np.bincount(s.paragraph_pages, s.paragraph_sizes(), len(s.ids)).astype(np.int64) for s in shards]
    targets = _targets(np.concatenate([rows[pages] for rows, pages in zip(sizes, left, strict=True)]))
    of_shards = np.split(targets, np.cumsum([len(pages) for pages in left])[:-1])
    written = []
    for target in range(int(targets.max(initial=0)) + 1):  # a single, empty one if no page is left
        writer = ShardWriter(folder / shard_name(first + target), shards[0].shape[1], Progress())
        try:
            for shard, pages, of_pages in zip(shards, left, of_shards, strict=True):
                chosen = np.zeros(len(shard.ids), bool)
                chosen[pages[of_pages == target]] = True
                if chosen.any():
                    _copy_pages(shard, chosen, writer, report)
            written.append(writer.close())
        finally:
            writer.abandon()
    return written


def _targets(rows: Rows) -> Rows:
    """Return the number of each page's new shard, from 0, given its rows. A page that fills a shard is its last."""
    sums, targets, first = np.cumsum(rows), np.zeros(len(rows), np.int64), 0
    while first < len(rows):
        before = sums[first - 1] if first else 0
        first = int(np.searchsorted(sums, before + SHARD_ROWS)) + 1
        targets[first:] += 1
    return targets


def _copy_pages(shard: Shard, pages: Bools, writer: ShardWriter, report: Callable[[int], None]) -> None:
    """Append chosen pages of a shard to another. Shape of `pages`: (pages,)."""
    paragraphs = pages[shard.paragraph_pages]
    sizes = shard.paragraph_sizes()
    rows = np.flatnonzero(np.repeat(paragraphs, sizes))
    for first in range(0, len(rows), CHUNK):
        part = rows[first : first + CHUNK]
        for name, array in writer.per_row.items():
            array.append(getattr(shard, name)[part])
        report(len(part))
    new_numbers = np.cumsum(pages) - 1 + writer.counts.pages
    writer.per_paragraph["rows"].append(np.cumsum(sizes[paragraphs]) + writer.counts.rows)
    writer.per_paragraph["numbers"].append(shard.paragraph_numbers[paragraphs])
    writer.per_paragraph["pages"].append(new_numbers[shard.paragraph_pages[paragraphs]])
    writer.per_paragraph["tokens"].append(shard.paragraph_tokens[paragraphs])
    writer.page_digests.append(shard.page_digests[pages])
    for name, texts in writer.texts.items():
        copied = np.flatnonzero(paragraphs if name == "texts" else pages)
        for first in range(0, len(copied), CHUNK):
            texts.append([getattr(shard, name)[number] for number in copied[first : first + CHUNK].tolist()])
    writer.counts += shard.counts_of(pages)


def merge(out: Path, folders: Sequence[Path], report: files.Report = files.silent) -> Manifest:
    """Publish a knowledge base with the shards of all `folders`, in order, without changing the folders.

    It uses exact search. Indexes of vectors are linked, too, except those made for particular queries, so that
    `kbq index vectors` only has to measure an index that all shards have. BM25 stays if all folders have it. SPARTA
    indexes are left out, as their models may differ.

    Raises:
        KnowledgeBaseError: a folder is not a knowledge base or has another model, a page is in two folders, or `out`
            is not empty or cannot be written.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.refuse_codes(folder)
    _refuse_other_models(folders, manifests)
    opened = [m.open_shards(folder) for folder, m in zip(folders, manifests, strict=True)]
    shards = [shard for of_kb in opened for shard in of_kb]
    _refuse_pages_in_two(shards, files.Stage(report, "pages compared, shards", len(shards)))
    entries = [entry for manifest in manifests for entry in manifest.shards]
    merged = replace(
        manifests[0],
        shards=tuple(replace(entry, name=shard_name(number)) for number, entry in enumerate(entries)),
        corpora=tuple(corpus for manifest in manifests for corpus in manifest.corpora),
        index=IndexEntry(),
        others=(),
        bm25=all(manifest.bm25 for manifest in manifests),
        sparta="",
        seals={},  # they name the places of indexes
    )
    partial = out.with_name(f"{out.name}.partial")
    with files.writing_to(out, KnowledgeBaseError, "free disk space or choose another folder"):
        if out.exists() and any(out.iterdir()):
            raise KnowledgeBaseError(f"{out} is not empty: delete it or choose another folder")
        files.make_folders(out.parent)
        files.make_folder(partial)
        with files.writing_alone(partial, out):
            try:
                for left in partial.iterdir():  # left by a killed merge
                    files.remove_file(left) if left.is_symlink() or left.is_file() else files.remove_folder(left)
                stage = files.Stage(report, "linked, shards", len(shards))
                for number, shard in enumerate(shards):
                    files.link_folder(shard.folder, partial / shard_name(number), _stays_behind)
                    stage.add(1)
                published = publish(partial, merged)
                files.move(partial, out)
            except OSError:
                files.discard_folder(partial)
                raise
    return published


def _stays_behind(name: str) -> bool:
    return name.startswith("sparta") or "-for-" in name or name.endswith(".tmp")


def _refuse_other_models(folders: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.model_fingerprint != first.model_fingerprint:
            raise KnowledgeBaseError(
                f"{folder} was built with the model {manifest.model} ({manifest.model_fingerprint}), {folders[0]} with "
                f"{first.model} ({first.model_fingerprint}): build one of them again with the other's model"
            )
        if manifest.phrases != first.phrases:
            raise KnowledgeBaseError(
                f"phrases have at most {manifest.phrases.rows} tokens in {folder}, {first.phrases.rows} in "
                f"{folders[0]}, as one was imported: ask them one by one"
            )


def _refuse_pages_in_two(shards: Sequence[Shard], stage: files.Stage) -> None:
    page_ids = PageIds()
    for number, shard in enumerate(shards):
        for _, page_id in shard.live_ids():
            if not page_ids.add(page_id):
                others = (one for one in shards[:number] if any(page_id == known for _, known in one.live_ids()))
                other = next(others, shard)
                raise KnowledgeBaseError(
                    f"page id {page_id!r} is in {other.folder.parent} and in {shard.folder.parent}: "
                    "delete it in one of them"
                )
        stage.add(1)
