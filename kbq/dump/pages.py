"""Pages: a knowledge base as texts only, found by page id; opens no encoder and no index."""

import itertools
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from kbq.dump.manifest import read_manifest
from kbq.dump.shards import Shard


class Pages:
    """The pages of a knowledge base. The table of ids is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        """Raises KnowledgeBaseError when the folder is no whole knowledge base."""
        self._shards = read_manifest(folder).open_shards(folder)

    def ids(self) -> Iterator[str]:
        """The ids of all pages, in the order of the corpus."""
        return itertools.chain.from_iterable(shard.ids for shard in self._shards)

    @cached_property
    def _places(self) -> dict[str, tuple[Shard, int]]:
        return {page: (shard, number) for shard in self._shards for number, page in enumerate(shard.ids)}

    def is_known(self, page: str) -> bool:
        """Whether the knowledge base has the page."""
        return page in self._places

    def text_of(self, page: str, paragraph: int | None) -> str | None:
        """A paragraph by the corpus's number, the page's first one for None; None where there is no such text."""
        if page not in self._places:
            return None
        shard, number = self._places[page]
        paragraphs = shard.page(number).paragraphs
        if paragraph is None:
            return paragraphs[0].text if paragraphs else None
        return next((found.text for found in paragraphs if found.number == paragraph), None)
