"""Claims: what the text says of a subject and a relation, with its probability and the place where it is said.

A file of claims is JSON lines, one claim a line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ValueType = Literal["text", "page", "date", "quantity"]


@dataclass(frozen=True, slots=True)
class PageValue:
    """A value that is a page of the knowledge base."""

    page_id: str
    title: str


@dataclass(frozen=True, slots=True)
class DateValue:
    """A date in EDTF (ISO 8601 where that has a form for it). Precision: 11 day, 10 month, 9 year, 8 decade, 7 century.

    Source of the numbers of precisions: Wikibase's data model.
    """

    edtf: str
    precision: int


@dataclass(frozen=True, slots=True)
class QuantityValue:
    """A number as decimal digits, and its unit as it is in the text ("" without one)."""

    number: str
    unit: str


NormalForm = PageValue | DateValue | QuantityValue


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another value that was found for the same cell, less likely."""

    value: str
    probability: float | None
    page_id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One value of one cell; `value` is the text exactly as it is in the source: paragraph[start:end].

    `sentence` holds it: `value == sentence[start - sentence_start : end - sentence_start]`.
    """

    subject: str
    relation: str
    value: str
    probability: float | None  # from 0 to 1; None where no calibration fits
    accepted: bool  # above the threshold of its relation: its cell is filled
    page_id: str
    title: str
    paragraph: int
    start: int
    end: int
    sentence: str
    sentence_start: int
    normal: NormalForm | None = None  # None where the text is not certainly one
    says_the_same: int = 1  # distinct places among those looked at, this one included, that have the same value
    alternatives: tuple[Alternative, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)  # of the page, as its corpus has them


@dataclass(frozen=True, slots=True)
class Source:
    """What claims come from; written beside them, and into formats that record provenance."""

    kbq_version: str
    model: str  # its digest
    knowledge_base: str  # digest of its content
    command: str
    time: str  # ISO 8601, UTC
