"""Delete: pages leave a knowledge base by their ids."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kbq.dump.manifest import Manifest, changing, remove_unnamed_shards, write_manifest
from kbq.dump.page_directory import Pages, refuse_unknown
from kbq.errors import KnowledgeBaseError
from kbq.maintain.changes import Changes, with_pages_deleted
from kbq.storage.lines import read_lines
from kbq.storage.paths import as_iterable
from kbq.text.normal_forms import clean_text


def delete(folder: Path, ids: Sequence[str], missing_ok: bool = False) -> tuple[Manifest, Changes]:
    """Delete pages by their ids, each once, so that no answer comes from them. Their bytes stay
    until `compact`.
    """
    with changing(folder) as before:
        shards = before.open_shards(folder)
        gone, missing = Pages(shards).chosen(ids)
        if not missing_ok:
            refuse_unknown(folder, missing)
        deleted = len(ids) - len(missing)
        manifest = before
        if deleted:
            manifest = write_manifest(folder, with_pages_deleted(before, shards, gone))
            remove_unnamed_shards(folder, manifest)
    return manifest, Changes(deleted=deleted, unchanged=manifest.counts.pages)


def page_ids(pages: str | Path | Iterable[str]) -> list[str]:
    """Return ids, one id, or the ids in the lines of a file, each once, cleaned and stripped like
    those of a corpus.

    `Path("-")` is standard input. Raises KnowledgeBaseError if the file cannot be read, or there is
    no id.
    """
    if isinstance(pages, str):
        ids = [pages]
    elif isinstance(pages, Path):
        ids = [line for _, line in read_lines(str(pages), KnowledgeBaseError)]
    else:
        ids = list(as_iterable(pages, KnowledgeBaseError, "pages are", "a file, or a list of ids"))

    for page_id in ids:
        if not isinstance(page_id, str):
            raise KnowledgeBaseError(f"a page id is {page_id!r:.60}: give a text")

    found = list(dict.fromkeys(filter(None, (clean_text(page_id).strip() for page_id in ids))))
    if not found:
        source = "there is"
        if isinstance(pages, Path):
            source = f"{pages} holds"
        raise KnowledgeBaseError(f"{source} no page id: give at least one")

    return found
