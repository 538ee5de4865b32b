"""API: the routes under /v1, and the types of their requests and answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, Literal, Self

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from prometheus_client import generate_latest
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import PlainTextResponse, Response, StreamingResponse

import kbq
from kbq.answers import CONTEXT, Result, SearchOptions
from kbq.corpus.pages import Page
from kbq.errors import KbqError
from kbq.options import declared
from kbq.serve import problems
from kbq.serve.filling import Services, WithServices
from kbq.serve.guard import refuse_host, refuse_key
from kbq.serve.problems import DESCRIBED, RefusedError, document
from kbq.storage.records import json_line
from kbq.tables.claims import Claim
from kbq.tables.options import FillOptions, Values
from kbq.tables.relations import MARK, Relation, preset, relation_named
from kbq.tables.tables import subject_of
from kbq.text.letters import without_surrogates

Json = dict[str, Any]

LINES = "application/x-ndjson"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
Text = Annotated[str, Field(min_length=1, max_length=problems.LONGEST)]
KbName = Annotated[str | None, Field(max_length=64, description="a name; by default the first that is served")]


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


async def json_only(request: Request) -> None:
    """Refuse a body that is not declared as JSON: a form of another site can send anything else."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and given != "application/json":
        raise RefusedError(415, f"the content type is {given!r:.60}: send application/json")


router = APIRouter(prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED})
health = APIRouter(tags=["service"])


class Given(BaseModel):
    """An object that a client sends, of which every field is known."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def known_fields(cls, fields: Any) -> Any:
        """Refuse more fields than any request has: to name 100,000 that are unknown would take a second.

        A field that is null has its default.
        """
        if not isinstance(fields, dict):
            return fields
        if len(fields) > problems.MOST_FIELDS:
            raise PydanticCustomError("too_many_fields", f"has {len(fields):,} fields: leave unknown ones out")
        return {name: value for name, value in fields.items() if value is not None or name not in cls.model_fields}


def http_fields(record: Any, *names: str, **changes: Any) -> Any:
    """Make a base for requests over HTTP, with these options of a record; `changes`: (type, narrower limits)."""
    fields: dict[str, Any] = {}
    for one in declared(record):
        if one.name in names:
            kind, limits = changes.get(one.name, (one.annotation, {}))
            limits = {"ge": one.option.least, "le": one.option.most} | limits
            fields[one.name] = (kind, Field(one.default, description=one.option.help, **limits))
    return create_model(f"{record.__name__}OverHttp", __base__=Given, **fields)


PageIds = Annotated[
    list[Text], Field(max_length=problems.MOST_PAGES, description="answer from these pages only, by their ids")
]
Metadata = Annotated[
    dict[Text, str],
    Field(
        max_length=8,
        description="answer only from pages whose metadata have these values",
        examples=[{"language": "en"}],
    ),
]
MOST: Any = {"le": problems.MOST_ANSWERS}
ASKED: Any = http_fields(
    SearchOptions, "k", "unit", "backend", "reader", "rerank", "min_probability",
    k=(int, MOST), rerank=(int | None, MOST), reader=(Literal["default"] | None, {}),
)  # fmt: skip


class AskedQueries(ASKED):  # type: ignore[misc]
    """Queries with their options, as `kbq query` takes them."""

    queries: Annotated[list[Text], Field(min_length=1, max_length=problems.MOST_QUERIES)]
    context: Annotated[int, Field(ge=0, le=100_000)] = CONTEXT
    pages: PageIds = []  # noqa: RUF012
    where: Metadata = {}  # noqa: RUF012
    kb: KbName = None

    @property
    def options(self) -> SearchOptions:
        """The same for a search; raises QueryError where options do not fit."""
        return SearchOptions(**{name: getattr(self, name) for name in ASKED.model_fields})


@router.post("/query", tags=["asking"], response_model=None, responses=described(Queried))
async def query(request: Request, asked: AskedQueries, services: WithServices) -> Response:
    """Answer queries, each `subject [SEP] relation` or a question: documents such as `kbq query --json` prints."""
    served = services.kbs.named(asked.kb)
    problems.refuse_costly(len(asked.queries), asked.options)
    request.state.queries = asked.queries  # for the log
    part = await asyncio.to_thread(served.part, asked.pages, asked.where)
    found = await services.batcher.found(served, asked.queries, asked.options, part)
    # Neither the search nor other requests wait while a large answer is written.
    return await asyncio.to_thread(_written, served.name, found, asked.context)


def _written(kb: str, found: Sequence[Result], context: int) -> Response:
    results, size = list[str](), 0
    for one in found:
        results.append(json_line(one.to_dict(context)))
        size += len(results[-1])
        if size > problems.MOST_ANSWERED:
            raise RefusedError(
                422, f"the answer has more than {problems.MOST_ANSWERED:,} characters: ask for a smaller context"
            )
    return Response(f'{{"kb": {json.dumps(kb)}, "results": [{", ".join(results)}]}}', media_type="application/json")


class WantedRelation(Given):
    """A relation with what `relations.toml` may say of it."""

    name: Text
    query: Annotated[list[Text], Field(max_length=8, description="wordings; by default the name")] = []
    values: Literal["one", "many"] = "one"
    type: Literal["text", "page", "date", "quantity"] | None = None
    min_probability: Annotated[float | None, Field(ge=0, le=1)] = None

    @property
    def relation(self) -> Relation:
        """The same for `kbq fill`."""
        named = relation_named(self.name, self.values)
        query = tuple(self.query) or named.query
        return replace(named, query=query, type=self.type or named.type, min_probability=self.min_probability)


FILLED: Any = http_fields(
    FillOptions, "values", "min_probability", "precision", "top", "dates",
    min_probability=(float | None, {}), precision=(float | None, {}), top=(int, {"le": 10}),
)  # fmt: skip


class AskedTable(FILLED):  # type: ignore[misc]
    """A table to fill: each subject with each relation is a cell."""

    subjects: Annotated[list[Text], Field(max_length=problems.MOST_CELLS, description="or `rows`")] = []  # noqa: RUF012
    rows: Annotated[list[dict[str, Any]], Field(max_length=problems.MOST_CELLS, description="filled where empty")] = []  # noqa: RUF012
    subject: Annotated[Text, Field(description="the column of `rows` that has the subjects")] = "subject"
    relations: Annotated[
        list[Text | WantedRelation],
        Field(min_length=1, max_length=problems.MOST_RELATIONS, description="names, or known ones, such as @people"),
    ]
    ids: Annotated[
        dict[Text, Annotated[str, Field(pattern="^Q[0-9]+$")]],
        Field(max_length=problems.MOST_CELLS, description="names with their Q-numbers of Wikidata, for `triples`"),
    ] = {}  # noqa: RUF012
    pages: PageIds = []  # noqa: RUF012
    where: Metadata = {}  # noqa: RUF012
    kb: KbName = None


@router.post(
    "/fill",
    tags=["asking"],
    response_class=StreamingResponse,
    responses={200: {"description": STREAMED, "content": {LINES: {"schema": line_of_table()}}}},
)
async def fill(table: AskedTable, services: WithServices) -> StreamingResponse:
    """Fill a table: a line of JSON for each cell with its claims, as soon as it is asked; the last has the table."""
    cells = await filled(table, services)
    lines = (without_surrogates(json_line(line)) + "\n" async for line in cells)
    return StreamingResponse(lines, media_type=LINES)


def _relations(wanted: str | WantedRelation, values: Values) -> list[Relation]:
    """Return what a client names: a relation, a known one (@spouse), or those of a preset (@people)."""
    if not isinstance(wanted, str):
        return [wanted.relation]
    return preset(wanted) if wanted.startswith(MARK) else [relation_named(wanted, values)]


async def filled(table: AskedTable, services: Services) -> AsyncIterator[dict[str, Any]]:
    """Return the lines of a table once the first is there, so that a bad table is refused before the answer begins."""
    if bool(table.subjects) == bool(table.rows):
        raise RefusedError(422, "the table has no subjects: give either subjects or rows", fields={"subjects": "none"})
    rows = table.rows or [{"subject": subject} for subject in dict.fromkeys(table.subjects)]
    relations = list(chain.from_iterable(_relations(one, table.values) for one in table.relations))
    problems.refuse_more("cells", len(rows) * len(relations), problems.MOST_CELLS, 422)
    subject = table.subject if table.rows else "subject"
    options = FillOptions(subject, **{name: getattr(table, name) for name in FILLED.model_fields})
    wordings = [words for one in relations for words in one.query]
    problems.refuse_long([subject_of(row.get(subject)) for row in rows], wordings)
    kb = await asyncio.to_thread(services.kbs.named(table.kb).part, table.pages, table.where)
    lines = services.filler.lines(kb, rows, relations, options, table.ids)
    first = await anext(lines)

    async def all_lines() -> AsyncIterator[dict[str, Any]]:
        async with aclosing(lines):  # which gives back the place of its table, also where the client is gone
            yield first
            try:
                async for line in lines:
                    yield line
            except KbqError as error:  # the answer has begun
                yield {"problem": document(error, services.kbs.hidden)}

    return all_lines()


@router.get("/pages/{page_id:path}", tags=["pages"], response_model=None, responses=described(PageText))
async def page(page_id: str, services: WithServices, kb: str | None = None) -> dict[str, Any]:
    """Give a page with its paragraphs."""
    return page_document(services.kbs.named(kb).page(page_id))


def page_document(page: Page) -> dict[str, Any]:
    """Return a page with its paragraphs, by the corpus's own numbers."""
    paragraphs = [{"number": one.number, "text": one.text} for one in page.paragraphs]
    return {"id": page.id, "title": page.title, "paragraphs": paragraphs, "metadata": dict(page.metadata)}


@router.get("/titles", tags=["pages"], response_model=None, responses=described(NamedPages))
async def titles(
    services: WithServices,
    prefix: Annotated[str, Query(max_length=problems.LONGEST)] = "",
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
    kb: str | None = None,
) -> dict[str, Any]:
    """Give pages whose titles begin with some letters, whatever their case and accents."""
    found = services.kbs.named(kb).titles.beginning_with(prefix, limit)
    return {"titles": [one._asdict() for one in found]}


@router.get("/kbs", tags=["service"], response_model=None, responses=described(Served))
async def knowledge_bases(services: WithServices) -> dict[str, Any]:
    """Give the knowledge bases that are served, each with its size; the first is asked where none is named."""
    kbs = [
        {"name": one.name, **one.kb.counts.facts, "index": one.kb.index.kind, "problem": one.problem}
        for one in services.kbs
    ]
    return {"version": kbq.__version__, "kbs": kbs}


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process is alive."""
    return {"status": "alive"}


@health.get("/readyz")
async def readyz(request: Request, services: WithServices) -> dict[str, Any]:
    """Say whether queries are answered; `problem` says why a changed knowledge base is not served, but the one before.

    A client that names another Host, or lacks a key where one is needed, is not told of knowledge bases.
    """
    if services.batcher.problem:
        raise RefusedError(503, f"{services.batcher.problem}: start the service again if this goes on")
    status: dict[str, Any] = {"status": "ready"}
    try:
        refuse_host(services.settings, request.headers.get("host", ""))
        refuse_key(services.settings, "/readyz", request.headers, "")
    except RefusedError:
        return status
    return status | {"kbs": [{"name": one.name, "problem": one.problem} for one in services.kbs]}


@health.get("/metrics")
async def metrics(services: WithServices) -> Response:
    """Give the metrics, as Prometheus reads them."""
    for one in services.kbs:
        services.metrics.pages.labels(one.name).set(one.kb.counts.pages)
    return PlainTextResponse(generate_latest(services.metrics.registry), media_type=PROMETHEUS)
