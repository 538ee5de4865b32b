"""Tools: an MCP server with which a language model looks up facts and their evidence."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import Field
from starlette.applications import Starlette
from starlette.routing import Route

import kbq
from kbq.answers import Answer, SearchOptions
from kbq.corpus.pages import Page
from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.model.queries import refuse_unreadable
from kbq.serve.api import Fact, FetchedPage, FilledRow, FilledSlot, FilledTable, FoundPage, FoundPages
from kbq.serve.batcher import Batcher
from kbq.serve.filling import Services, SlotFiller
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.pages import web_address
from kbq.serve.problems import LONGEST, MOST_RELATIONS, refuse_long
from kbq.tables.claims import Claim
from kbq.tables.options import Values
from kbq.tables.relations import Slot, relation_named
from kbq.tables.tables import subject_of

MCP = "/mcp"  # the address
MOST_SUBJECTS, MOST_CELLS = 50, 200  # of a table
LONGEST_PAGE = 50_000  # characters that are read of it
AROUND = 200  # characters on either side of a phrase that was found
EXAMPLES = 5  # titles that tell a model what the knowledge base is about
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
INSTRUCTIONS = """\
Facts from the knowledge base {name}, which has {pages:,} pages, such as {titles}.
Every answer is a phrase of these pages, with its sentence, its place, and the probability that it is right.
Ask fill_slot for one property of one thing, fill_table for several; search finds pages, fetch reads one.
Where there are no answers, the pages do not say it: say so, and do not guess."""
UNLIKELY = "The pages do not say this clearly enough: best_guess is unlikely to be right. Do not state it as a fact."
NOTHING = "The pages do not say this."

Subject = Annotated[
    str,
    Field(description="A name, best the title of a page.", examples=["Marie Curie"], max_length=LONGEST),
]
Relation = Annotated[
    str,
    Field(description="A property in a few words.", examples=["place of birth"], max_length=LONGEST),
]
PageId = Annotated[
    str, Field(description="The id of a page, as search gives it.", examples=["S001"], max_length=LONGEST)
]


class Tools:
    """The tools that a model may call; it reads the docstrings of these methods."""

    def __init__(self, served: ServedKb, batcher: Batcher) -> None:
        self._served, self._batcher, self._filler = served, batcher, SlotFiller(served, batcher)

    async def search(
        self,
        query: Annotated[
            str,
            Field(
                description="A question, or words of the page.",
                examples=["Who discovered radium?"],
                max_length=LONGEST,
            ),
        ],
        limit: Annotated[int, Field(description="Pages at most.", ge=1, le=20)] = 5,
    ) -> FoundPages:
        """Find pages for a question or some words, each with the phrase that answers best; fetch reads a page.

        Example: {"query": "Who discovered radium?", "limit": 3}
        """
        with _refusals(self._served):
            (answers,) = await self._batcher.ask(self._served, [query], SearchOptions(limit, "page"))
        return FoundPages([_found(answer) for answer in answers])

    async def fetch(self, id: PageId) -> FetchedPage:
        """Read a page by its id, as the other tools give it.

        Example: {"id": "S001"}
        """
        if not self._served.has_page(id):
            raise ToolError(f"{self._served.name} has no page {id!r:.80}: take the id of one that search has found")
        page = self._served.page(id)
        return FetchedPage(page.id, page.title, _text(page), _url(page.id, page.metadata), dict(page.metadata))

    async def fill_slot(
        self,
        subject: Subject,
        relation: Relation,
        limit: Annotated[int, Field(description="Answers at most.", ge=1, le=10)] = 3,
    ) -> FilledSlot:
        """Say what the pages say of one property of one thing, with evidence. No answers: the pages do not say it.

        Example: {"subject": "Marie Curie", "relation": "place of birth"}
        """
        ((claims,),) = await self._claims([subject], [relation], "many")
        answers = [Fact.of(claim) for claim in claims if claim.accepted][:limit]
        guess = Fact.of(claims[0]) if claims and not answers else None
        return FilledSlot(subject, relation, answers, guess, "" if answers else UNLIKELY if guess else NOTHING)

    async def fill_table(
        self,
        subjects: Annotated[list[Subject], Field(min_length=1, max_length=MOST_SUBJECTS)],
        relations: Annotated[list[Relation], Field(min_length=1, max_length=MOST_RELATIONS)],
    ) -> FilledTable:
        """Fill a table of at most 200 cells, each with evidence; null where the pages do not say it.

        Example: {"subjects": ["Marie Curie", "Isaac Newton"], "relations": ["place of birth", "date of death"]}
        """
        cells = len(subjects) * len(relations)
        if cells > MOST_CELLS:
            raise ToolError(f"the table has {cells} cells, at most {MOST_CELLS} are filled at once: ask for fewer")
        rows = [
            FilledRow(subject, dict(zip(relations, map(Fact.best, claims), strict=True)))
            for subject, claims in zip(subjects, await self._claims(subjects, relations, "one"), strict=True)
        ]
        return FilledTable(rows, cells, sum(fact is not None for row in rows for fact in row.cells.values()))

    async def read(self, id: str) -> str:
        """Give the text of a page."""
        if not self._served.has_page(id):
            raise ResourceNotFoundError(f"{self._served.name} has no page {id!r:.80}")
        return _text(self._served.page(id))

    async def _claims(self, subjects: list[str], relations: list[str], values: Values) -> list[list[list[Claim]]]:
        """Ask for the claims of every relation of every subject."""
        with _refusals(self._served):
            refuse_long(subjects, relations)
            wanted = [relation_named(relation, values) for relation in relations]
            slots = [Slot(subject_of(subject), relation) for subject in subjects for relation in wanted]
            tokenizers = [self._served.kb.model.query_tokenizer]
            queries = [query for slot in slots for query in slot.queries]
            await asyncio.to_thread(refuse_unreadable, queries, tokenizers)
            claims = await self._filler.claims(slots)
        return [claims[first : first + len(wanted)] for first in range(0, len(claims), len(wanted))]


def server(served: ServedKb, batcher: Batcher) -> MCPServer:
    """Make an MCP server for a knowledge base; the batcher must run while it does."""
    examples = ", ".join(one.title for one in served.titles.spread(EXAMPLES))
    made = _Server(
        "kbq",
        title=f"{served.name} (kbq)",
        version=kbq.__version__,
        instructions=INSTRUCTIONS.format(name=served.name, pages=served.kb.counts.pages, titles=examples),
        log_level="WARNING",
    )
    tools = Tools(served, batcher)
    made.tool(title="Search", annotations=READ_ONLY)(tools.search)
    made.tool(title="Read a page", annotations=READ_ONLY)(tools.fetch)
    made.tool(title="Fill a slot", annotations=READ_ONLY)(tools.fill_slot)
    made.tool(title="Fill a table", annotations=READ_ONLY)(tools.fill_table)
    # An id is no path: it may have slashes and dots.
    by_id = ResourceSecurity(exempt_params=frozenset({"id"}))
    made.resource("kbq://page/{+id}", name="page", title="A page", mime_type="text/plain", security=by_id)(tools.read)
    return made


def applications(services: Services) -> list[Starlette]:
    """Make applications for MCP over HTTP: one route for the first knowledge base, and one for each by its name.

    The lifespan of each must run while it is asked. Only POST is answered: there are no sessions, so that nothing would
    ever come on the stream that a GET opens.
    """
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard looks at Host and Origin
    paths = {MCP: services.kbs.named()} | {f"{MCP}/kb/{one.name}": one for one in services.kbs}
    made = [
        server(one, services.batcher).streamable_http_app(
            streamable_http_path=path, json_response=True, stateless_http=True, transport_security=guarded
        )
        for path, one in paths.items()
    ]
    for route in (route for one in made for route in one.routes if isinstance(route, Route)):
        route.methods = {"POST"}
    return made


class _Server(MCPServer):
    """An MCP server that takes arguments as models write them, and refuses others in one sentence each."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        """Call a tool by its name. Raises ToolError if it does not take these arguments."""
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name in schemas:
            arguments = _as_declared(schemas[name], arguments)
        return await super().call_tool(name, arguments, context)


def _as_declared(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the declared types: null is the default, and a number is a text where a text is wanted.

    Raises ToolError if one is missing, unknown or out of its range.
    """
    declared = schema["properties"]
    for name in arguments:
        if name not in declared:
            raise ToolError(f"{name:.80} is unknown: choose from {', '.join(declared)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in schema.get("required", ()):
        if name not in given:
            raise ToolError(f"{name} is missing: give it")
    return {name: _declared_value(name, declared[name], value) for name, value in given.items()}


def _declared_value(name: str, declared: Mapping[str, Any], value: Any) -> Any:
    if declared["type"] == "array":
        return _declared_list(name, declared, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and value == value // 1:
        value = int(value)
    if declared["type"] == "string":
        text = str(value) if is_number else value
        if not isinstance(text, str):
            raise ToolError(f"{name} is {json.dumps(value):.80}: write a text")
        _refuse_size(f"{name} has {len(text):,} characters", len(text), declared, "minLength", "maxLength")
        return text
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None:
        raise ToolError(f"{name} is {json.dumps(value):.80}: write a whole number")
    _refuse_size(f"{name} is {number:,}", number, declared, "minimum", "maximum")
    return number


def _declared_list(name: str, declared: Mapping[str, Any], value: Any) -> list[Any]:
    if isinstance(value, str) and value.lstrip().startswith("["):  # some clients send a list as its JSON
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ToolError(f"{name} cannot be read: write a list") from None
    items = value if isinstance(value, list) else [value]
    _refuse_size(f"{name} has {len(items):,} items", len(items), declared, "minItems", "maxItems")
    return [_declared_value(f"{name}[{number}]", declared["items"], item) for number, item in enumerate(items)]


def _refuse_size(fact: str, size: int, declared: Mapping[str, Any], least: str, most: str) -> None:
    if size < declared.get(least, size):
        raise ToolError(f"{fact}, at least {declared[least]:,}")
    if size > declared.get(most, size):
        raise ToolError(f"{fact}, at most {declared[most]:,}")


@contextmanager
def _refusals(served: ServedKb) -> Iterator[None]:
    """Let the model read what kbq refuses."""
    try:
        yield
    except KbqError as error:
        problems = "; ".join(error.problems[:MOST_PROBLEMS])
        raise ToolError(served.hidden(f"{error}: {problems}" if problems else str(error))) from None


def _found(answer: Answer) -> FoundPage:
    first, last = answer.window(AROUND)
    url = _url(answer.page_id, answer.metadata)
    probability = None if answer.probability is None else round(answer.probability, 4)
    return FoundPage(answer.page_id, answer.title, url, answer.text, probability, answer.context[first:last])


def _text(page: Page) -> str:
    text = "\n\n".join(paragraph.text for paragraph in page.paragraphs)
    rest = f"\n\n[cut after {LONGEST_PAGE:,} of {len(text):,} characters]" if len(text) > LONGEST_PAGE else ""
    return text[:LONGEST_PAGE] + rest


def _url(page_id: str, metadata: Mapping[str, object]) -> str:
    """Return where the page was taken from, if its corpus says it; else the address of the resource."""
    return web_address(metadata) or f"kbq://page/{quote(page_id, safe='')}"
