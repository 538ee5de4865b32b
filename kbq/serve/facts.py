"""Facts: what a language model is given: values with their evidence, tables of them, and pages.

Records without slots: the MCP library would take these for default values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kbq.tables.claims import Claim


@dataclass(frozen=True)
class Fact:
    """A value, and where the pages say it."""

    value: str
    probability: float | None  # that it is right, from 0 to 1; null: not known
    sentence: str
    page_id: str
    title: str
    paragraph: int
    start: int
    end: int
    normal: dict[str, Any] | None  # a date as EDTF, a quantity as number and unit, or the page that the value names

    @classmethod
    def of(cls, claim: Claim) -> Self:
        """What the claim says."""
        fields = claim.to_dict()
        return cls(**{name: fields.get(name) for name in cls.__annotations__})  # type: ignore[arg-type]

    @classmethod
    def best(cls, claims: Sequence[Claim]) -> Self | None:
        """The first value that is accepted; None where none is."""
        return next((cls.of(claim) for claim in claims if claim.accepted), None)


@dataclass(frozen=True)
class FilledSlot:
    """The answers to a slot, best first; where there are none, `note` says so."""

    subject: str
    relation: str
    answers: list[Fact]
    best_guess: Fact | None
    note: str


@dataclass(frozen=True)
class FilledRow:
    """A subject with its cells, by relation; null where the pages do not say it."""

    subject: str
    cells: dict[str, Fact | None]


@dataclass(frozen=True)
class FilledTable:
    """A table, and how many of its cells are filled."""

    rows: list[FilledRow]
    cells: int
    filled: int


@dataclass(frozen=True)
class FoundPage:
    """A page that is found for a query, with the phrase in it that answers best."""

    id: str
    title: str
    url: str
    answer: str
    probability: float | None
    text: str


@dataclass(frozen=True)
class FoundPages:
    """The pages found for a query, best first."""

    results: list[FoundPage]


@dataclass(frozen=True)
class FetchedPage:
    """A page with its text."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, Any]
