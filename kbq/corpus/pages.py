"""Pages: the records of a corpus."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbq.errors import CorpusError
from kbq.storage.paths import given

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
    """A title is read again with every paragraph of its page, and printed with every answer from it, as is the id.

    Raises:
        CorpusError: one of them is no name but a text.
    """
    for what, name in (("page id", page.id), ("title", page.title)):
        if len(name) > LONGEST_NAME:
            raise CorpusError(
                f"the {what} {name[:40]!r}… has {len(name):,} characters: shorten it to {LONGEST_NAME:,} at most"
            )
