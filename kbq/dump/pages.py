"""Pages: a page id becomes the texts of the page in a knowledge base, without opening an encoder or an index."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard


class Pages:
    """The pages of a knowledge base; the table of ids is made on first use."""

    def __init__(self, folder: Path) -> None:
        """Raises KnowledgeBaseError if the folder is not a complete knowledge base."""
        self._shards = read_manifest(folder).open_shards(folder)

    def ids(self) -> Iterator[str]:
        """The ids of all pages, in the order of the corpus."""
        return (page_id for shard in self._shards for _, page_id in shard.live_ids())

    @cached_property
    def _by_id(self) -> dict[str, tuple[Shard, int]]:
        return {page_id: (shard, number) for shard in self._shards for number, page_id in shard.live_ids()}

    def is_known(self, page_id: str) -> bool:
        """Whether the knowledge base has the page."""
        return page_id in self._by_id

    def text_of(self, page_id: str, paragraph: int | None) -> str | None:
        """A paragraph by the corpus's number (None: the first of the page); None if there is no such paragraph."""
        if page_id not in self._by_id:
            return None
        shard, number = self._by_id[page_id]
        paragraphs = shard.page(number).paragraphs
        if paragraph is None:
            return paragraphs[0].text if paragraphs else None
        return next((found.text for found in paragraphs if found.number == paragraph), None)
