"""Blocks: what a library finds in a document, before it is joined into paragraphs."""

from collections import Counter
from dataclasses import dataclass, field

BOLD = 7  # the level of a short line in bold letters, which may be a heading


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a row of a table or a heading."""

    text: str
    level: int = 0  # of a heading: 1 to 6, or BOLD; 0: text
    size: float = 0.0  # of the letters of a PDF, in points


@dataclass(slots=True)
class Contents:
    """The contents of a document."""

    pages: list[tuple[int, list[Block]]]  # with the number of a page of a PDF; 0 for others
    title: str = ""  # that its metadata state
    metadata: dict[str, object] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    window_title: str = ""  # of a page of HTML
