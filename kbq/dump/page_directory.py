"""Pages: look up pages by id or title, without opening an encoder or an index."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import xxhash

from kbq.array_types import Bools
from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.text.normal_forms import normalised


class PagePlace(NamedTuple):
    """The number of a page's shard, and its number there."""

    shard: int
    page: int


class PageValue(msgspec.Struct, frozen=True, tag_field="type", tag="page"):
    """A value that is a page of the knowledge base."""

    page_id: str
    title: str


class Pages:
    """The pages of all shards of a knowledge base that are not deleted."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a knowledge base. Raises KnowledgeBaseError if the folder does not hold a complete
        one.
        """
        return cls(read_manifest(folder).open_shards(folder))

    def ids(self) -> Iterator[str]:
        return (page_id for shard in self._shards for _, page_id in shard.live_ids())

    def names(self) -> Iterator[tuple[str, str]]:
        return (
            (page_id, shard.titles[page])
            for shard in self._shards
            for page, page_id in shard.live_ids()
        )

    def visible_names(self) -> Iterator[tuple[str, str]]:
        """Yield the ids and titles of the pages that answers may come from; see `Shard.show_only`."""
        for shard in self._shards:
            pages = shard.live_pages()
            if shard.shown is not None:
                pages = np.bincount(shard.paragraph_pages, shard.shown, len(shard.ids)) > 0
            yield from (
                (shard.ids[page], shard.titles[page]) for page in np.flatnonzero(pages).tolist()
            )

    def metadata(self) -> Iterator[Mapping[str, Any]]:
        for shard in self._shards:
            for page, _ in shard.live_ids():
                yield shard.metadata_of(page)

    def place(self, page_id: str) -> PagePlace | None:
        places = self._table.places(page_id)  # nearly always one at most
        return next(
            (place for place in places if self._shards[place.shard].ids[place.page] == page_id),
            None,
        )

    def chosen(self, ids: Iterable[str]) -> tuple[list[Bools], list[str]]:
        """Return whether each page of each shard is one of these, and the unknown ids. Shapes:
        (pages,).
        """
        masks = [np.zeros(len(shard.ids), bool) for shard in self._shards]
        unknown = []
        for page_id in ids:
            place = self.place(page_id)
            if place is None:
                unknown.append(page_id)
            else:
                masks[place.shard][place.page] = True
        return masks, unknown

    @cached_property
    def _table(self) -> "_Table":
        return _Table(self._shards, self.ids())

    def is_known(self, page_id: str) -> bool:
        return self.place(page_id) is not None

    def page(self, page_id: str) -> Page | None:
        """Return a page as it was indexed, or None if it is unknown."""
        place = self.place(page_id)
        if place is None:
            return None
        return self._shards[place.shard].page(place.page)

    def text_of(self, page_id: str, paragraph: int | None) -> str | None:
        """Return a paragraph by the corpus's number, by default the page's first, or None if there
        is none.
        """
        page = self.page(page_id)
        paragraphs = page.paragraphs if page else ()
        if paragraph is None:
            return paragraphs[0].text if paragraphs else None
        return next((own.text for own in paragraphs if own.number == paragraph), None)


class Titles:
    """The titles of all pages that are not deleted, compared as values are."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def page(self, text: str) -> PageValue | None:
        """Return the only page with this title, or None."""
        pages = self.pages(text)
        if len(pages) == 1:
            return pages[0]
        return None

    def pages(self, text: str) -> list[PageValue]:
        """Return the pages with this title."""
        form = normalised(text)
        values = []
        for shard, page in self._table.places(form):
            title = self._shards[shard].titles[page]
            if normalised(title) == form:
                values.append(PageValue(self._shards[shard].ids[page], title))
        return values

    @cached_property
    def _table(self) -> "_Table":
        return _Table(self._shards, (normalised(title) for _, title in Pages(self._shards).names()))


class _Table:
    """Finds pages by the digests of their names, in 24 bytes per page that is not deleted."""

    def __init__(self, shards: Sequence[Shard], names: Iterable[str]) -> None:
        pages = [np.flatnonzero(shard.live_pages()) for shard in shards]
        sizes = [len(of_shard) for of_shard in pages]
        numbers = np.concatenate([*pages, np.empty(0, np.int64)])
        keys = np.fromiter(map(_key, names), np.uint64, len(numbers))
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._pages = numbers[order]
        self._shards = np.repeat(np.arange(len(pages)), sizes)[order]

    def places(self, name: str) -> list[PagePlace]:
        """Return the pages whose name has the same digest; once in 2^64 pairs, it is another name."""
        first, stop = (np.searchsorted(self._keys, _key(name), side) for side in ("left", "right"))
        return list(
            map(PagePlace, self._shards[first:stop].tolist(), self._pages[first:stop].tolist())
        )


def _key(name: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")))


def unknown_page(folder: Path, page_id: str) -> KnowledgeBaseError:
    return KnowledgeBaseError(
        f"{folder} has no page {page_id!r:.80}: `kbq pages {folder}` lists them"
    )


def refuse_unknown(folder: Path, ids: Sequence[str]) -> None:
    """Raise KnowledgeBaseError if there are any ids, which are those of unknown pages."""
    if len(ids) == 1:
        raise unknown_page(folder, ids[0])
    if ids:
        raise KnowledgeBaseError(
            f"{folder} has no pages with {len(ids):,} of these ids: check them", list(ids)
        )
