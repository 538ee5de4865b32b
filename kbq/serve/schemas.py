"""Schemas: what the API answers, for its description in OpenAPI, and what the tools of a language model answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec
from pydantic import BaseModel, Field

from kbq.tables.claims import Claim

Json = dict[str, Any]


class Found(BaseModel):
    """An answer, as `kbq query --json` prints it."""

    text: str
    score: float
    probability: float | None = Field(description="that it is right, from 0 to 1; null where no calibration fits")
    page_id: str
    title: str
    paragraph: int
    start: int
    end: int
    unit_start: int
    unit_end: int
    context_start: int
    context: str = Field(description="text == context[start - context_start : end - context_start]")
    metadata: Json = {}


class QueryResult(BaseModel):
    """The answers to a query."""

    query: str
    exact: bool
    unknown_words: list[str] = Field(description="words that no page has: perhaps mistyped")
    answers: list[Found]
    best_guess: Found | None = Field(None, description="where no answer is likely enough")


class Queried(BaseModel):
    """The answers to all queries of a request."""

    kb: str
    results: list[QueryResult]


STREAMED = "A JSON document a line: the cells, as they are filled, and in the end the table, or a problem."


class Cell(BaseModel):
    """A line of a filled table: a cell."""

    subject: str
    relation: str
    values: Literal["one", "many"]
    claims: list[Json] = Field(description="those that fill the cell, or the best guess")
    triples: list[str] = Field(description="the claims as N-Triples")
    views: list[list[Json]] = Field(
        description="of each claim, and then of each of its alternatives, its `fact` (N-Triples), and its `command` "
        "(QuickStatements) or what it `lacks` for one"
    )
    rows: list[int] = Field(description="the rows that have this subject and an empty cell, from 0")
    column: int = Field(description="the place of the relation among those asked for, from 0")


class FilledLines(BaseModel):
    """The last line: the filled table."""

    columns: list[str]
    rows: list[Json]
    counts: Json = Field(description="how many rows, cells, queries and filled cells, and what could not be asked")


class ProblemLine(BaseModel):
    """The last line where something failed after the answer had begun: a problem (RFC 9457)."""

    problem: Json


(_CLAIM,), RECORDS = msgspec.json.schema_components([Claim], ref_template="#/components/schemas/{name}")


def line_of_table() -> Json:
    """Describe a line of `/v1/fill`, whose claims refer to `RECORDS`."""
    cell, table, problem = (one.model_json_schema() for one in (Cell, FilledLines, ProblemLine))
    cell["properties"]["claims"]["items"] = _CLAIM
    return {"oneOf": [cell, table, problem]}


class NumberedText(BaseModel):
    """A paragraph, by the corpus's own number."""

    number: int
    text: str


class PageText(BaseModel):
    """A page."""

    id: str
    title: str
    paragraphs: list[NumberedText]
    metadata: Json


class PageEntry(BaseModel):
    """A page by its title."""

    id: str
    title: str


class NamedPages(BaseModel):
    """Pages whose titles begin alike."""

    titles: list[PageEntry]


class Served(BaseModel):
    """The knowledge bases, each with `name`, `pages`, `paragraphs`, `tokens`, `kept_vectors`, `index`."""

    version: str
    kbs: list[Json]


def described(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe the answer of a route."""
    return {200: {"model": model}}


# The records of tools have no slots, which the MCP library would take for default values.


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
        """Take over what a claim says."""
        fields = claim.to_dict()
        return cls(**{name: fields.get(name) for name in cls.__annotations__})  # type: ignore[arg-type]

    @classmethod
    def best(cls, claims: Sequence[Claim]) -> Self | None:
        """Return the first value that is accepted; None where none is."""
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
