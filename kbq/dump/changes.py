"""Changes: a corpus beside the pages that a knowledge base has; what is new, what has changed, what is gone.

A deleted page stays in the files of its shard, which never change; a list beside them says that it does not count.
`compacting.py` makes shards without such pages.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kbq.array_types import Bools, Rows
from kbq.corpus.pages import Page
from kbq.dump.manifest import STATE, Manifest
from kbq.dump.page_directory import Pages
from kbq.dump.publishing import changing, write_manifest
from kbq.dump.shard_writer import page_digest
from kbq.dump.shards import Shard, deleted_file
from kbq.errors import KnowledgeBaseError
from kbq.storage.files import given
from kbq.storage.folders import remove_folder
from kbq.storage.lines import read_lines
from kbq.storage.records import digest_of_bytes
from kbq.storage.writing import remove_file, write_bytes
from kbq.text.letters import clean_text


@dataclass(frozen=True, slots=True)
class Changes:
    """How many pages a change has added, replaced and deleted, and how many it has left as they were."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return bool(self.added or self.replaced or self.deleted)

    def __str__(self) -> str:
        return f"+{self.added:,} ~{self.replaced:,} −{self.deleted:,} ={self.unchanged:,}"


class Comparison:
    """The pages of a corpus, compared one after another with those of a knowledge base."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._pages = Pages(shards)
        self._seen = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._replaced = [np.zeros(len(shard.ids), bool) for shard in shards]
        self._added = 0

    def to_encode(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield the pages that the knowledge base does not have, or not as they are now."""
        for page in pages:
            place = self._pages.place(page.id)
            if place is None:
                self._added += 1
                yield page
                continue
            self._seen[place.shard][place.page] = True
            if self._shards[place.shard].page_digests[place.page].tobytes() != page_digest(page):
                self._replaced[place.shard][place.page] = True
                yield page

    def gone(self, also_missing: bool) -> list[Bools]:
        """Whether each page of each shard is replaced or, `also_missing`, was not in the corpus. Shapes: (pages,)."""
        if not also_missing:
            return self._replaced
        seen = zip(self._shards, self._seen, self._replaced, strict=True)
        return [(shard.live_pages() & ~was_seen) | replaced for shard, was_seen, replaced in seen]

    def changes(self, also_missing: bool) -> Changes:
        """Return what the corpus changes, once all of its pages have been compared."""
        gone = sum(int(pages.sum()) for pages in self.gone(also_missing))
        replaced = sum(int(pages.sum()) for pages in self._replaced)
        had = sum(int(shard.live_pages().sum()) for shard in self._shards)
        return Changes(self._added, replaced, gone - replaced, had - gone)


def delete(folder: Path, ids: Sequence[str], missing_ok: bool = False) -> tuple[Manifest, Changes]:
    """Delete pages: no answer comes from them any more. Their bytes stay until `compact`.

    Args:
        ids: of the pages, as they are in the corpus, each once.
        missing_ok: leave out ids that the knowledge base does not have, instead of refusing all.

    Raises:
        KnowledgeBaseError: a page is unknown (all of them are named), or the folder cannot be written.
    """
    with changing(folder) as before:
        shards = before.open_shards(folder)
        gone, missing = Pages(shards).chosen(ids)
        refuse_unknown(folder, [] if missing_ok else missing)
        deleted = len(ids) - len(missing)
        manifest = before
        if deleted:
            manifest = write_manifest(folder, without(before, shards, gone))
            remove_unnamed_shards(folder, manifest)
    return manifest, Changes(deleted=deleted, unchanged=manifest.counts.pages)


def page_ids(pages: str | Path | Iterable[str]) -> list[str]:
    """Return the ids of some pages, each once, cleaned and stripped as those of a corpus.

    Args:
        pages: the ids, one id, or the path of a file with one id a line, `Path("-")` for standard input.

    Raises:
        KnowledgeBaseError: the file cannot be read, or there is no id.
    """
    if isinstance(pages, str):
        ids = [pages]
    elif isinstance(pages, Path):
        ids = [line for _, line in read_lines(str(pages), KnowledgeBaseError)]
    else:
        ids = list(given(pages, KnowledgeBaseError, "pages are", "a file, or a list of ids"))
    for page_id in ids:
        if not isinstance(page_id, str):
            raise KnowledgeBaseError(f"a page id is {page_id!r:.60}: give a text")
    found = list(dict.fromkeys(filter(None, (clean_text(page_id).strip() for page_id in ids))))
    if not found:
        source = f"{pages} holds" if isinstance(pages, Path) else "there is"
        raise KnowledgeBaseError(f"{source} no page id: give at least one")
    return found


def refuse_unknown(folder: Path, ids: Sequence[str]) -> None:
    """Raise KnowledgeBaseError if there are any ids: those of pages that a knowledge base does not have."""
    if len(ids) == 1:
        raise KnowledgeBaseError(f"{folder} has no page {ids[0]!r}: check its id")
    if ids:
        raise KnowledgeBaseError(f"{folder} has no pages with {len(ids):,} of these ids: check them", list(ids))


def without(manifest: Manifest, shards: Sequence[Shard], gone: Sequence[Bools]) -> Manifest:
    """Return the manifest without some pages of its first shards, after writing the lists that it then names."""
    entries = list(manifest.shards)
    for number, (shard, pages) in enumerate(zip(shards, gone, strict=True)):
        if pages.any():
            left = shard.live_pages() & ~pages
            deleted = _write_deleted(shard.folder, np.flatnonzero(~left))
            entries[number] = replace(entries[number], deleted=deleted, live=shard.counts_of(left))
    return replace(manifest, shards=tuple(entries))


def _write_deleted(shard: Path, pages: Rows) -> str:
    """Write the list of a shard's deleted pages, beside an earlier one; return its digest, by which it is found."""
    content = io.BytesIO()
    np.lib.format.write_array(content, pages.astype(np.uint32), version=(1, 0))
    digest = digest_of_bytes(content.getvalue())
    write_bytes(deleted_file(shard, digest), content.getvalue())
    return digest


def remove_unnamed_shards(folder: Path, manifest: Manifest) -> None:
    """Remove lists of deleted pages, and shards, that the manifest does not name, except those of an unfinished build.

    Raises StrangeFileError if a shard is a link elsewhere, OSError if one cannot be removed.
    """
    named = {deleted_file(folder / entry.name, entry.deleted) for entry in manifest.shards}
    for unnamed in set(folder.glob("shard-*/deleted-*")) - named:
        remove_file(unnamed)
    if not (folder / STATE).exists():
        for unnamed in set(folder.glob("shard-*")) - set(manifest.shard_folders(folder)):
            remove_folder(unnamed)
