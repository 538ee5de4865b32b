"""Schemas: what the API answers, for its description in OpenAPI; the documents themselves are made in `documents`."""

from typing import Any

from pydantic import BaseModel, Field

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
    unknown_words: dict[str, str | None] = Field(description="words that no page has, with what may be meant")
    answers: list[Found]
    best_guess: Found | None = Field(None, description="where no answer is likely enough")


class Queried(BaseModel):
    """The answers to all queries of a request."""

    kb: str
    results: list[QueryResult]


class Cell(BaseModel):
    """A line of a filled table: a cell. The last line has `columns`, `rows` and `counts` instead."""

    subject: str
    relation: str
    claims: list[Json] = Field(description="those that fill the cell, or the best guess: see OUT.claims.jsonl")
    triples: list[str] = Field(description="the claims as N-Triples")
    rows: list[int] = Field(description="the rows that have this subject, from 0")
    column: int = Field(description="the place of the relation among those asked for, from 0")


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
    """What is served; each knowledge base with `name`, `pages`, `paragraphs`, `tokens`, `kept_vectors`, `index`."""

    version: str
    kbs: list[Json]


def described(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The answer of a route."""
    return {200: {"model": model}}
