"""Pages: the records of a corpus, and a set of millions of their ids in little memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kbq.errors import CorpusError
from kbq.storage.files import given

LONGEST_NAME = 4096  # characters of an id or a title: as long as a path may be


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page; `number` is the corpus's own, so numbers may have gaps."""

    number: int
    text: str
    begin: int = 0  # first character of the content: a list marker before it is not part of any answer


@dataclass(frozen=True, slots=True, init=False)
class Page:
    """A page of a corpus; `id` is the page's own (KILT: wikipedia_id)."""

    id: str
    title: str
    paragraphs: tuple[Paragraph, ...]
    metadata: Mapping[str, object] = field(hash=False)  # what else its source says of it, as JSON values: url, date, …

    def __init__(
        self,
        id: str,
        title: str,
        paragraphs: str | Iterable[Paragraph | str] = (),
        *,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Paragraphs that are given as strings are numbered by their position, from 0.

        >>> page = Page("1", "Warsaw", ["Warsaw is the capital of Poland."], metadata={"licence": "CC0"})
        >>> page.paragraphs
        (Paragraph(number=0, text='Warsaw is the capital of Poland.', begin=0),)
        >>> page.metadata
        {'licence': 'CC0'}
        """
        if metadata is not None and not isinstance(metadata, Mapping):
            raise CorpusError(f"the metadata of page {id!r} are {metadata!r:.60}: give a dict")
        texts = [paragraphs] if isinstance(paragraphs, str) else paragraphs
        several = given(texts, CorpusError, f"the paragraphs of page {id!r} are", "a text, or a list of texts")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "title", title)
        numbered = (Paragraph(number, one) if isinstance(one, str) else one for number, one in enumerate(several))
        object.__setattr__(self, "paragraphs", tuple(numbered))
        object.__setattr__(self, "metadata", dict(metadata or {}))


def refuse_long_names(page: Page) -> None:
    """Refuse a text as a title or an id, as both are printed with every answer. Raises CorpusError."""
    for what, name in (("page id", page.id), ("title", page.title)):
        if len(name) > LONGEST_NAME:
            raise CorpusError(
                f"the {what} {name[:40]!r}… has {len(name):,} characters: shorten it to {LONGEST_NAME:,} at most"
            )


class PageIds:
    """A set of page ids, to find duplicates.

    It keeps a 64-bit hash of each id: 8 bytes a page, twice that while they are sorted. The probability that two
    different ids collide is pages² / 2^65: one in a million for 6 million pages.
    """

    max_recent = 2**17  # hashes that are collected before they are sorted in

    def __init__(self, known_ids: Iterable[str] = ()) -> None:
        """`known_ids`: the ids to begin with, each once."""
        self._recent: set[int] = set()
        self._sorted = np.sort(np.fromiter(map(hash, known_ids), np.int64))

    def __contains__(self, page_id: str) -> bool:
        key = hash(page_id)
        row = int(np.searchsorted(self._sorted, key))
        return key in self._recent or bool((self._sorted[row : row + 1] == key).any())

    def add(self, page_id: str) -> bool:
        """Add an id; return whether it was new."""
        if page_id in self:
            return False
        self._recent.add(hash(page_id))
        if len(self._recent) >= self.max_recent:
            self._sorted = np.concatenate([self._sorted, np.fromiter(self._recent, np.int64)])
            self._sorted.sort()
            self._recent.clear()
        return True
