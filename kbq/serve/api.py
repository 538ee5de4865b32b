"""API: the routes under /v1, with the types of their requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from prometheus_client import generate_latest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.responses import PlainTextResponse, Response, StreamingResponse

import kbq
from kbq.answers import CONTEXT, Result
from kbq.english.quantities import Measure
from kbq.errors import KbqError
from kbq.options import declared
from kbq.search.options import SearchOptions
from kbq.serve import limits
from kbq.serve.filling import Services, WithServices
from kbq.serve.guard import refuse_host, refuse_key
from kbq.serve.problems import DESCRIBED, RefusedError, document
from kbq.storage.records import json_line
from kbq.tables.claims import Claim, ValueType
from kbq.tables.options import FillOptions, Values
from kbq.tables.relations import MARK, Relation, preset, relation_named
from kbq.tables.tables import subject_of
from kbq.text.normal_forms import without_surrogates

Json = dict[str, Any]

LINES = "application/x-ndjson"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
Text = Annotated[str, Field(min_length=1, max_length=limits.LONGEST)]
KbName = Annotated[
    str | None, Field(max_length=64, description="a name; by default the first that is served")
]


class Found(BaseModel):
    """An answer, as `kbq query --json` prints it."""

    text: str
    score: float
    probability: float | None = Field(
        description="that it is right, from 0 to 1; null where no calibration fits"
    )
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


STREAMED = (
    "A JSON document a line: the cells, as they are filled, and in the end the table, or a problem."
)


class Cell(BaseModel):
    """A cell, which is a line of a filled table."""

    subject: str
    relation: str
    type: ValueType | None
    values: Literal["one", "many"]
    claims: list[Json] = Field(description="those that fill the cell, or the best guess")
    triples: list[str] = Field(description="the claims as N-Triples")
    views: list[list[Json]] = Field(
        description=(
            "each claim, and then each of its alternatives with its `normal` form, as a `fact` "
            "(N-Triples)"
        )
    )
    rows: list[int] = Field(description="the rows that have this subject and an empty cell, from 0")
    column: int = Field(description="the place of the relation among those asked for, from 0")


class FilledLines(BaseModel):
    """The last line: the filled table."""

    columns: list[str]
    rows: list[Json]
    counts: Json = Field(
        description="numbers of rows, cells, queries and filled cells, and why some were not asked"
    )


class ProblemLine(BaseModel):
    """The last line if something failed after the answer had begun: a problem (RFC 9457)."""

    problem: Json


(_CLAIM,), RECORDS = msgspec.json.schema_components(
    [Claim], ref_template="#/components/schemas/{name}"
)


def line_of_table() -> Json:
    """Describe a line of `/v1/fill`, whose claims refer to `RECORDS`."""
    cell, table, problem = (
        record.model_json_schema() for record in (Cell, FilledLines, ProblemLine)
    )
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
    """The knowledge bases, each with `name`, `pages`, `paragraphs`, `tokens`, `kept_vectors`,
    `index`.
    """

    version: str
    kbs: list[Json]


def described(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}}


async def json_only(request: Request) -> None:
    """Refuse a body that is not declared as JSON, which a form of another site cannot send."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and given != "application/json":
        raise RefusedError(415, f"the content type is {given!r:.60}: send application/json")


router = APIRouter(
    prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED}
)
health = APIRouter(tags=["service"])


ABOUT = "title", "description", "default", "examples"  # a field, whatever its type


class ClientObject(BaseModel):
    """An object from a client, without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def known_fields(cls, fields: Any) -> Any:
        """Refuse more fields than any request has (naming 100,000 unknown ones takes a second);
        null is the default.
        """
        if not isinstance(fields, dict):
            return fields
        if len(fields) > limits.MOST_FIELDS:
            raise PydanticCustomError(
                "too_many_fields", f"has {len(fields):,} fields: leave unknown ones out"
            )
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in cls.model_fields
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe that null is the default of any field that has one."""
        described = handler.resolve_ref_schema(handler(schema))
        for name, field in described["properties"].items():
            if name not in described.get("required", ()) and {"type": "null"} not in field.get(
                "anyOf", ()
            ):
                about = {word: field.pop(word) for word in ABOUT if word in field}
                described["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}
        return described


def http_fields(record: Any, *names: str, **changes: Any) -> Any:
    """Make a base for requests with these options of a record; `changes`: (type, narrower limits)."""
    fields: dict[str, Any] = {}
    for option in declared(record):
        if option.name in names:
            kind, limits = changes.get(option.name, (option.annotation, {}))
            limits = {"ge": option.option.least, "le": option.option.most} | limits
            fields[option.name] = (
                kind,
                Field(option.default, description=option.option.help, **limits),
            )
    return create_model(f"{record.__name__}OverHttp", __base__=ClientObject, **fields)


PageIds = Annotated[
    list[Text],
    Field(max_length=limits.MOST_PAGES, description="answer from these pages only, by their ids"),
]
QNumber = Annotated[str, Field(pattern="^Q[0-9]+$")]
QNumbers = Annotated[
    dict[Text, QNumber],
    Field(
        max_length=limits.MOST_CELLS,
        description="names with their Q-numbers of Wikidata, for `triples`",
    ),
]
Metadata = Annotated[
    dict[Text, str],
    Field(
        max_length=8,
        description="answer only from pages whose metadata have these values",
        examples=[{"language": "en"}],
    ),
]
MOST: Any = {"le": limits.MOST_ANSWERS}
SEARCHED: Any = http_fields(
    SearchOptions,
    "k",
    "unit",
    "backend",
    "reader",
    "rerank",
    "min_probability",
    k=(int, MOST),
    rerank=(int | None, MOST),
    reader=(Literal["default"] | None, {}),
)


class QueryRequest(SEARCHED):  # type: ignore[misc]
    """Queries with options, as for `kbq query`."""

    queries: Annotated[list[Text], Field(min_length=1, max_length=limits.MOST_QUERIES)]
    context: Annotated[int, Field(ge=0, le=100_000)] = CONTEXT
    pages: PageIds = []  # noqa: RUF012
    where: Metadata = {}  # noqa: RUF012
    kb: KbName = None

    @property
    def options(self) -> SearchOptions:
        """The options of the search; raises QueryError if they do not fit."""
        return SearchOptions(**{name: getattr(self, name) for name in SEARCHED.model_fields})


@router.post("/query", tags=["asking"], response_model=None, responses=described(Queried))
async def query(request: Request, asked: QueryRequest, services: WithServices) -> Response:
    """Answer queries, each `subject [SEP] relation` or a question, with documents as
    `kbq query --json` prints them.
    """
    served = services.kbs.named(asked.kb)
    limits.refuse_costly(len(asked.queries), asked.options)
    request.state.queries = asked.queries  # kept for the log
    part = await asyncio.to_thread(served.part, asked.pages, asked.where)
    results = await services.batcher.found(served, asked.queries, asked.options, part)
    # In a thread, so that neither the search nor other requests wait for a large answer.
    return await asyncio.to_thread(_written, served.name, results, asked.context)


def _written(kb: str, found: Sequence[Result], context: int) -> Response:
    """Return results as JSON. Raises RefusedError if they are too long."""
    results = list[str]()
    size = 0
    for page in found:
        results.append(json_line(page.to_dict(context)))
        size += len(results[-1])
        if size > limits.MOST_ANSWERED:
            raise RefusedError(
                422,
                f"the answer has more than {limits.MOST_ANSWERED:,} characters: ask for a "
                "smaller context",
            )

    return Response(
        f'{{"kb": {json.dumps(kb)}, "results": [{", ".join(results)}]}}',
        media_type="application/json",
    )


class WantedRelation(ClientObject):
    """A relation with the keys of `relations.toml`."""

    name: Text
    query: Annotated[
        list[Text], Field(max_length=8, description="wordings; by default the name")
    ] = []
    values: Literal["one", "many"] = "one"
    type: Literal["text", "page", "date", "quantity"] | None = None
    measures: list[Measure] = []
    min_probability: Annotated[float | None, Field(ge=0, le=1)] = None

    @property
    def relation(self) -> Relation:
        """The relation as `kbq fill` knows it."""
        named = relation_named(self.name, self.values)
        return replace(
            named,
            query=tuple(self.query) or named.query,
            type=self.type or named.type,
            measures=tuple(self.measures) or named.measures,
            min_probability=self.min_probability,
        )


FILLED: Any = http_fields(
    FillOptions,
    "values",
    "min_probability",
    "precision",
    "top",
    "dates",
    min_probability=(float | None, {}),
    precision=(float | None, {}),
    top=(int, {"le": 10}),
)


class FillRequest(FILLED):  # type: ignore[misc]
    """A table to fill: each subject with each relation is a cell."""

    subjects: Annotated[
        list[Text], Field(max_length=limits.MOST_CELLS, description="or `rows`")
    ] = []  # noqa: RUF012
    rows: Annotated[
        list[dict[str, Any]],
        Field(max_length=limits.MOST_CELLS, description="filled where empty"),
    ] = []  # noqa: RUF012
    subject: Annotated[Text, Field(description="the column of `rows` that has the subjects")] = (
        "subject"
    )
    relations: Annotated[
        list[Text | WantedRelation],
        Field(
            min_length=1,
            max_length=limits.MOST_RELATIONS,
            description="names, or known ones, such as @people",
        ),
    ]
    ids: QNumbers = {}  # noqa: RUF012
    pages: PageIds = []  # noqa: RUF012
    where: Metadata = {}  # noqa: RUF012
    kb: KbName = None


@router.post(
    "/fill",
    tags=["asking"],
    response_class=StreamingResponse,
    responses={200: {"description": STREAMED, "content": {LINES: {"schema": line_of_table()}}}},
)
async def fill(table: FillRequest, services: WithServices) -> StreamingResponse:
    """Fill a table: each line of JSON is a cell with its claims, sent when it is final; the last
    has the table.
    """
    cells = await filled(table, services)
    lines = (without_surrogates(json_line(line)) + "\n" async for line in cells)
    return StreamingResponse(lines, media_type=LINES)


def relations_asked(asked: str | WantedRelation, values: Values) -> list[Relation]:
    """Return the relation that a client names, perhaps a known one (@spouse), or those of a preset
    (@people).
    """
    if not isinstance(asked, str):
        return [asked.relation]
    if asked.startswith(MARK):
        return preset(asked)
    return [relation_named(asked, values)]


async def filled(table: FillRequest, services: Services) -> AsyncIterator[dict[str, Any]]:
    """Return the lines of a table when the first is there, so that a bad table is refused before
    the answer begins.
    """
    if bool(table.subjects) == bool(table.rows):
        raise RefusedError(
            422,
            "the table has no subjects: give either subjects or rows",
            fields={"subjects": "none"},
        )

    rows = table.rows or [{"subject": subject} for subject in dict.fromkeys(table.subjects)]
    relations = list(
        chain.from_iterable(relations_asked(relation, table.values) for relation in table.relations)
    )
    limits.refuse_more("cells", len(rows) * len(relations), limits.MOST_CELLS, 422)
    subject = table.subject if table.rows else "subject"
    options = FillOptions(subject, **{name: getattr(table, name) for name in FILLED.model_fields})
    wordings = [words for relation in relations for words in relation.query]
    limits.refuse_long([subject_of(row.get(subject)) for row in rows], wordings)
    kb = await asyncio.to_thread(services.kbs.named(table.kb).part, table.pages, table.where)
    lines = services.filler.lines(kb, rows, relations, options, table.ids)
    first = await anext(lines)

    async def all_lines() -> AsyncIterator[dict[str, Any]]:
        async with aclosing(lines):  # gives back the place of its table, even if the client is gone
            yield first
            try:
                async for line in lines:
                    yield line
            except KbqError as error:  # the answer has begun
                yield {"problem": document(error, services.kbs.hidden)}

    return all_lines()


@router.get(
    "/pages/{page_id:path}", tags=["pages"], response_model=None, responses=described(PageText)
)
async def page(page_id: str, services: WithServices, kb: str | None = None) -> dict[str, Any]:
    """Return a page with its paragraphs, by the corpus's own numbers."""
    opened = services.kbs.named(kb).page(page_id)
    paragraphs = [
        {"number": paragraph.number, "text": paragraph.text} for paragraph in opened.paragraphs
    ]
    return {
        "id": opened.page_id,
        "title": opened.title,
        "paragraphs": paragraphs,
        "metadata": dict(opened.metadata),
    }


@router.get("/titles", tags=["pages"], response_model=None, responses=described(NamedPages))
async def titles(
    services: WithServices,
    prefix: Annotated[str, Query(max_length=limits.LONGEST)] = "",
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
    kb: str | None = None,
) -> dict[str, Any]:
    """Return pages whose titles begin with a prefix, whatever its case and accents."""
    named, _ = services.kbs.named(kb).titles.listed(prefix, 0, limit)
    return {"titles": [{"id": page.page_id, "title": page.title} for page in named]}


@router.get("/kbs", tags=["service"], response_model=None, responses=described(Served))
async def knowledge_bases(services: WithServices) -> dict[str, Any]:
    """Return the served knowledge bases with their sizes; requests that name none get the first."""
    kbs = [
        {
            "name": served.name,
            **served.kb.counts.facts,
            "index": served.kb.index.kind,
            "problem": served.problem,
        }
        for served in services.kbs
    ]
    return {"version": kbq.__version__, "kbs": kbs}


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the process is alive."""
    return {"status": "alive"}


@health.get("/readyz")
async def readyz(request: Request, services: WithServices) -> dict[str, Any]:
    """Report whether queries are answered; `problem`: why a changed knowledge base is not served,
    but the old one.

    Knowledge bases are not named to clients that name another Host or lack a key.
    """
    if services.batcher.problem:
        raise RefusedError(
            503, f"{services.batcher.problem}: start the service again if this goes on"
        )

    status: dict[str, Any] = {"status": "ready"}
    try:
        refuse_host(services.settings, request.headers.get("host", ""))
        refuse_key(services.settings, "/readyz", request.headers, "")
    except RefusedError:
        return status

    return status | {
        "kbs": [{"name": served.name, "problem": served.problem} for served in services.kbs]
    }


@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(services: WithServices) -> Response:
    """Return the metrics, as Prometheus reads them."""
    for served in services.kbs:
        services.metrics.pages.labels(served.name).set(served.kb.counts.pages)
    return PlainTextResponse(generate_latest(services.metrics.registry), media_type=PROMETHEUS)
