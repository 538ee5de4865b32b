"""Records: the frozen values that travel between the parts of kbq. Imports nothing from kbq.

Text is Unicode NFC everywhere. Character positions are half-open, [start, end), and count the
characters of one paragraph. `score`: higher is better; only the scores of one query in one search can be
compared.
"""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class Summed:
    """Counts that are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page; `number` is the source's own, so numbers may have gaps."""

    number: int
    text: str
    begin: int = 0  # first character that belongs to the content: a list marker before it is no answer


@dataclass(frozen=True, slots=True)
class Document:
    """A page; `id` is the page's id (KILT: wikipedia_id)."""

    id: str
    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """An exact substring of a paragraph: `text == paragraph.text[start:end]`."""

    text: str
    document_id: str
    title: str
    paragraph: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Query:
    """What the query encoder reads: `subject [SEP] relation`, a question, a marked mention."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A phrase found for a query, with the text around it."""

    phrase: Phrase
    score: float
    context: str  # the whole paragraph
    unit: tuple[int, int]  # characters of the retrieved unit (phrase, sentence, paragraph) in it


@dataclass(frozen=True, slots=True)
class ProvenanceItem:
    """A place that supports an answer: one item of a KILT provenance list."""

    document_id: str
    title: str
    paragraph: int
    start: int
    end: int
    text: str | None = None  # the paragraph, where it was asked for


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to a query and its pages, best first."""

    id: str
    input: str
    answer: str | None  # None: the task has no answer that is a span, only provenance counts
    provenance: tuple[ProvenanceItem, ...]
