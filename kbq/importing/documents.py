"""Documents: a text and the places of its tokens, as DensePhrases keeps them, become the paragraphs of a page.

The paragraphs of a document are one text, joined by ` [PAR] `; every token has its characters in it. Tokens repeat
where windows overlapped, and the characters of neighbours may overlap: they are taken as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Bools, Floats, Rows
from kbq.corpus.pages import Page, PageIds, Paragraph
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import CLOSES, OPENS, PhraseLimit
from kbq.errors import CorpusError

SEPARATOR = " [PAR] "
# The official search pairs rows at most 9 apart, whose tokens are at most 10 apart.
LIMIT = PhraseLimit(tokens=11, rows=10, repeats=True)
NAMED = 20  # documents whose misfits are named


@dataclass(frozen=True, slots=True)
class OfficialDocument:
    """A document of a phrase dump. `kept`: the tokens that have a row. Shapes: starts, ends (tokens,), kept (rows,)."""

    number: str
    title: str
    text: str
    starts: Rows
    ends: Rows
    kept: Rows
    source: Path  # the file that it is in

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not belong together."""
        tokens = len(self.starts)
        if len(self.ends) != tokens:
            raise ValueError(f"it has {tokens:,} starts of tokens and {len(self.ends):,} ends")
        if len(self.kept) and not 0 <= self.kept[0] <= self.kept[-1] < tokens:
            raise ValueError(f"it keeps token {self.kept[-1]:,} of {tokens:,}")
        if (np.diff(self.kept) <= 0).any():
            raise ValueError("its kept tokens are not in order")
        try:
            (self.title + self.text).encode()
        except UnicodeEncodeError:
            raise ValueError("its text is not UTF-8") from None


class DocumentPage(Page):
    """A page with the document that it was made from."""

    __slots__ = ("document", "misfits", "paragraph_of")

    document: OfficialDocument
    paragraph_of: Rows  # the paragraph of each token. Shape: (tokens,)
    misfits: Bools  # tokens whose characters are not in one paragraph. Shape: (tokens,)

    def __init__(self, document: OfficialDocument) -> None:
        texts, starts, ends = document.text.split(SEPARATOR), document.starts, document.ends
        begins = np.cumsum([0, *(len(text) + len(SEPARATOR) for text in texts[:-1])])
        found = (np.searchsorted(begins, starts, side="right") - 1).clip(min=0)
        in_order = np.maximum.accumulate(found) if len(found) else found
        stops = (begins + [len(text) for text in texts])[in_order]
        misfits = (starts < 0) | (ends <= starts) | (ends > stops) | (found != in_order)
        with_tokens = set(np.unique(in_order).tolist())
        filled = [number for number, text in enumerate(texts) if text.strip() or number in with_tokens]
        super().__init__(document.number, document.title, [Paragraph(number, texts[number]) for number in filled])
        for name, value in (("document", document), ("paragraph_of", in_order), ("misfits", misfits)):
            object.__setattr__(self, name, value)

    def encoded(self, vectors: NDArray[np.int8], logits: Floats) -> EncodedParagraphs:
        """Return the paragraphs with their rows; phrases neither open nor close at misfits.

        `logits`: the higher one of the filter's two. Shapes: (rows, dim), (rows,).
        """
        kept, lengths = self.document.kept, np.array([len(text) for text in self.document.text.split(SEPARATOR)])
        begins = np.cumsum(lengths + len(SEPARATOR)) - lengths - len(SEPARATOR)
        owners = self.paragraph_of[kept]
        tokens, sizes = (np.bincount(numbers, minlength=len(lengths)) for numbers in (self.paragraph_of, owners))
        filled = [paragraph.number for paragraph in self.paragraphs]
        edges = np.where(self.misfits[kept], 0, OPENS | CLOSES).astype(np.uint8)
        positions = (kept - np.searchsorted(self.paragraph_of, owners)).astype(np.uint32)
        starts, ends = (
            (side[kept] - begins[owners]).clip(0, lengths[owners]).astype(np.uint32)
            for side in (self.document.starts, self.document.ends)
        )
        return EncodedParagraphs(tokens[filled], sizes[filled], vectors, logits, edges, positions, starts, ends)


@dataclass(slots=True)
class Misfits:
    """Tokens whose characters are not in one paragraph of their document: no phrase opens or closes there."""

    tokens: int = 0
    documents: int = 0
    named: list[str] = field(default_factory=list)

    def see(self, page: DocumentPage) -> None:
        """Count the misfits of a page."""
        count = int(page.misfits.sum())
        if count:
            self.tokens += count
            self.documents += 1
            if len(self.named) < NAMED:
                first = int(page.misfits.argmax())
                starts, ends = page.document.starts, page.document.ends
                self.named.append(
                    f"document {page.id}: {count:,} of {len(starts):,} tokens are not in a paragraph of its text, the "
                    f"first is token {first:,} at characters {starts[first]:,}-{ends[first]:,} of "
                    f"{len(page.document.text):,}"
                )


def pages_of(documents: Iterator[OfficialDocument], misfits: Misfits) -> Iterator[DocumentPage]:
    """Yield the pages of documents. Raises CorpusError if a number occurs twice."""
    seen = PageIds()
    for document in documents:
        if not seen.add(document.number):
            raise CorpusError(f"document {document.number} occurs twice: give a dump in which each has its number")
        page = DocumentPage(document)
        misfits.see(page)
        yield page
