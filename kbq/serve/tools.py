"""Tools: an MCP server with which a language model looks up facts with their evidence."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated, Any, Self
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import BeforeValidator, Field, ValidationError
from starlette.applications import Starlette
from starlette.routing import Route

import kbq
from kbq.corpus.pages import Page
from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.model.queries import readable_queries
from kbq.search.options import SearchOptions
from kbq.serve.batcher import Batcher
from kbq.serve.filling import Services, SlotFiller
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.limits import LONGEST, MOST_RELATIONS, refuse_long
from kbq.serve.pages import web_address
from kbq.serve.problems import field_problems
from kbq.storage.rows import text_of
from kbq.tables.claims import Claim
from kbq.tables.options import Values
from kbq.tables.relations import Slot, relation_named
from kbq.tables.tables import subject_of

MCP = "/mcp"  # the address
# Limits of a table.
MOST_SUBJECTS = 50
MOST_CELLS = 200
LONGEST_PAGE = 50_000  # characters that are read of it
AROUND = 200  # characters on either side of a phrase that was found
EXAMPLES = 5  # titles that tell a model what the knowledge base is about
READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
INSTRUCTIONS = """\
Facts from the knowledge base {name}, which has {pages:,} pages, such as {titles}.
Every answer is a phrase of these pages, with its sentence, its place, and the probability that it is right.
Ask fill_slot for one property of one thing, fill_table for several; search finds pages, fetch reads one.
Where there are no answers, the pages do not say it: say so, and do not guess."""
UNLIKELY = (
    "The pages do not say this clearly enough: best_guess is unlikely to be right. Do not state "
    "it as a fact."
)
NOTHING = "The pages do not say this."


def _text(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text_of(value)
    return value


AsText = BeforeValidator(_text)
AsList = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
Subject = Annotated[
    str,
    Field(
        description="A name, best the title of a page.",
        examples=["Marie Curie"],
        max_length=LONGEST,
    ),
    AsText,
]
Relation = Annotated[
    str,
    Field(
        description="A property in a few words.", examples=["place of birth"], max_length=LONGEST
    ),
    AsText,
]
PageId = Annotated[
    str,
    Field(description="The id of a page, from search.", examples=["S001"], max_length=LONGEST),
    AsText,
]
Query = Annotated[
    str,
    Field(
        description="A question, or words of the page.",
        examples=["Who discovered radium?"],
        max_length=LONGEST,
    ),
    AsText,
]


# The records have no slots, which the MCP library would take for default values.


@dataclass(frozen=True)
class Fact:
    """A value and its place in the pages."""

    value: str
    probability: float | None  # chance that it is right, from 0 to 1; null if unknown
    sentence: str
    page_id: str
    title: str
    paragraph: int
    start: int
    end: int
    # A date as EDTF, a quantity as number and unit, or the page that the value names.
    normal: dict[str, Any] | None

    @classmethod
    def of(cls, claim: Claim) -> Self:
        fields = claim.to_dict()
        return cls(**{name: fields.get(name) for name in cls.__annotations__})  # type: ignore[arg-type]


@dataclass(frozen=True)
class FilledSlot:
    """The answers to a slot, best first; `note` says if there are none."""

    subject: str
    relation: str
    answers: list[Fact]
    best_guess: Fact | None
    note: str


@dataclass(frozen=True)
class FilledRow:
    """A subject with its cells by relation; null if the pages do not say it."""

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
    """A page found for a query, with its phrase that answers best."""

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


class Tools:
    """The tools that a model may call; it reads the docstrings of these methods."""

    def __init__(self, served: ServedKb, batcher: Batcher) -> None:
        self._served = served
        self._batcher = batcher

    async def search(
        self,
        query: Query,
        limit: Annotated[int, Field(description="Pages at most.", ge=1, le=20)] = 5,
    ) -> FoundPages:
        """Find pages for a question or some words, each with the phrase that answers best; fetch
        reads a page.

        Example: {"query": "Who discovered radium?", "limit": 3}
        """
        with _refusals(self._served):
            (answers,) = await self._batcher.ask(
                self._served.now, [query], SearchOptions(limit, "page")
            )

        results = []
        for answer in answers:
            (first, last), url = answer.window(AROUND), _url(answer.page_id, answer.metadata)
            if answer.probability is None:
                probability = None
            else:
                probability = round(answer.probability, 4)
            text = answer.context[first:last]
            results.append(
                FoundPage(answer.page_id, answer.title, url, answer.text, probability, text)
            )

        return FoundPages(results)

    async def fetch(self, id: PageId) -> FetchedPage:
        """Read a page by its id, as the other tools give it.

        Example: {"id": "S001"}
        """
        opened = self._served.now
        if not opened.has_page(id):
            raise ToolError(
                f"{opened.name} has no page {id!r:.80}: take the id of one that search has found"
            )

        page = opened.page(id)
        return FetchedPage(
            page.page_id,
            page.title,
            _written(page),
            _url(page.page_id, page.metadata),
            dict(page.metadata),
        )

    async def fill_slot(
        self,
        subject: Subject,
        relation: Relation,
        limit: Annotated[int, Field(description="Answers at most.", ge=1, le=10)] = 3,
    ) -> FilledSlot:
        """Say what the pages say of one property of one thing, with evidence. No answers: the pages
        do not say it.

        Example: {"subject": "Marie Curie", "relation": "place of birth"}
        """
        ((claims,),) = await self._claims([subject], [relation], "many")
        answers = [Fact.of(claim) for claim in claims if claim.accepted][:limit]
        guess = None
        if claims and not answers:
            guess = Fact.of(claims[0])
        return FilledSlot(
            subject, relation, answers, guess, "" if answers else UNLIKELY if guess else NOTHING
        )

    async def fill_table(
        self,
        subjects: Annotated[list[Subject], Field(min_length=1, max_length=MOST_SUBJECTS), AsList],
        relations: Annotated[
            list[Relation], Field(min_length=1, max_length=MOST_RELATIONS), AsList
        ],
    ) -> FilledTable:
        """Fill a table of at most 200 cells, each with evidence; null where the pages do not say
        it.

        Example: {"subjects": ["Marie Curie", "Isaac Newton"], "relations": ["place of birth", "date
        of death"]}
        """
        cells = len(subjects) * len(relations)
        if cells > MOST_CELLS:
            raise ToolError(
                f"the table has {cells} cells, at most {MOST_CELLS} are filled at once: ask for "
                "fewer"
            )

        rows = []
        for subject, claims in zip(
            subjects, await self._claims(subjects, relations, "one"), strict=True
        ):
            facts = [
                next((Fact.of(claim) for claim in of_cell if claim.accepted), None)
                for of_cell in claims
            ]
            rows.append(FilledRow(subject, dict(zip(relations, facts, strict=True))))

        return FilledTable(
            rows, cells, sum(fact is not None for row in rows for fact in row.cells.values())
        )

    async def read(self, id: str) -> str:
        """Give the text of a page."""
        opened = self._served.now
        if not opened.has_page(id):
            raise ResourceNotFoundError(f"{opened.name} has no page {id!r:.80}")
        return _written(opened.page(id))

    async def _claims(
        self, subjects: list[str], relations: list[str], values: Values
    ) -> list[list[list[Claim]]]:
        """Return the claims of each subject, relation by relation."""
        opened = self._served.now  # all cells are of one state
        with _refusals(self._served):
            refuse_long(subjects, relations)
            asked = [relation_named(relation, values) for relation in relations]
            slots = [
                Slot(subject_of(subject), relation) for subject in subjects for relation in asked
            ]
            tokenizers = [opened.kb.model.query_tokenizer]
            queries = [query for slot in slots for query in slot.queries]
            await asyncio.to_thread(readable_queries, queries, tokenizers)
            claims = await SlotFiller(opened, self._batcher).claims(slots)

        return [claims[first : first + len(asked)] for first in range(0, len(claims), len(asked))]


def server(served: ServedKb, batcher: Batcher) -> MCPServer:
    """Make an MCP server for a knowledge base; the batcher must run while it does."""
    examples = ", ".join(page.title for page in served.now.titles.spread(EXAMPLES))
    made = _Server(
        "kbq",
        title=f"{served.name} (kbq)",
        version=kbq.__version__,
        instructions=INSTRUCTIONS.format(
            name=served.name, pages=served.kb.counts.pages, titles=examples
        ),
        log_level="WARNING",
    )
    tools = Tools(served, batcher)
    titles: dict[str, Callable[..., Any]] = {
        "Search": tools.search,
        "Read a page": tools.fetch,
        "Fill a slot": tools.fill_slot,
    }
    for title, tool in (titles | {"Fill a table": tools.fill_table}).items():
        made.tool(title=title, description=getdoc(tool), annotations=READ_ONLY)(tool)
    # An id is no path: it may have slashes and dots.
    by_id = ResourceSecurity(exempt_params=frozenset({"id"}))
    made.resource(
        "kbq://page/{+id}", name="page", title="A page", mime_type="text/plain", security=by_id
    )(tools.read)

    return made


def applications(services: Services) -> list[Starlette]:
    """Make applications for MCP over HTTP: a route for the first knowledge base, and one for each
    by its name.

    The lifespan of each must run while it is asked. Only POST is answered: as there are no
    sessions, nothing would ever come on the stream that a GET opens.
    """
    # The guard checks Host and Origin.
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    paths = {MCP: next(iter(services.kbs))} | {
        f"{MCP}/kb/{served.name}": served for served in services.kbs
    }
    made = [
        server(item, services.batcher).streamable_http_app(
            streamable_http_path=path,
            json_response=True,
            stateless_http=True,
            transport_security=guarded,
        )
        for path, item in paths.items()
    ]
    for route in (route for item in made for route in item.routes if isinstance(route, Route)):
        route.methods = {"POST"}

    return made


class _Server(MCPServer):
    """An MCP server that takes arguments as models write them, and refuses others in a sentence
    each.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a tool by its name; null stands for a default. Raises ToolError if it does not take
        these arguments.
        """
        declared = {
            tool.name: tool.input_schema["properties"] for tool in await self.list_tools()
        }.get(name, arguments)
        unknown = [given for given in arguments if given not in declared]
        if unknown:
            raise ToolError(f"{unknown[0]:.80} is unknown: choose from {', '.join(declared)}")
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return await super().call_tool(name, given, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            problems = field_problems(error.__cause__.errors()[:MOST_PROBLEMS])
            raise ToolError(
                "; ".join(f"{field} {problem}" for field, problem in problems.items())
            ) from None


@contextmanager
def _refusals(served: ServedKb) -> Iterator[None]:
    """Let the model read what kbq refuses."""
    try:
        yield
    except KbqError as error:
        problems = "; ".join(error.problems[:MOST_PROBLEMS])
        message = str(error)
        if problems:
            message = f"{error}: {problems}"
        raise ToolError(served.hidden(message)) from None


def _written(page: Page) -> str:
    text = "\n\n".join(paragraph.text for paragraph in page.paragraphs)
    rest = (
        f"\n\n[cut after {LONGEST_PAGE:,} of {len(text):,} characters]"
        if len(text) > LONGEST_PAGE
        else ""
    )
    return text[:LONGEST_PAGE] + rest


def _url(page_id: str, metadata: Mapping[str, object]) -> str:
    """Return the address that a page was taken from or, if its corpus gives none, that of the
    resource.
    """
    return web_address(metadata) or f"kbq://page/{quote(page_id, safe='')}"
