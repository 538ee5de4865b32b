"""Tools: a knowledge base becomes an MCP server, where a language model looks up facts with their evidence."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver import ResourceSecurity
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
from kbq.serve.batcher import Batcher
from kbq.serve.bounds import LONGEST, MOST_RELATIONS, refuse_long
from kbq.serve.filling import SlotFiller
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.schemas import Fact, FetchedPage, FilledRow, FilledSlot, FilledTable, FoundPage, FoundPages
from kbq.serve.services import Services
from kbq.serve.views import web_address
from kbq.tables.cells import subject_of
from kbq.tables.claims import Claim
from kbq.tables.options import Values
from kbq.tables.relations import Slot, relation_named

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
    str, Field(description="A name, best the title of a page, such as Marie Curie.", max_length=LONGEST)
]
Relation = Annotated[str, Field(description="A property in a few words, such as place of birth.", max_length=LONGEST)]


class Tools:
    """The tools that a model may call; it reads the docstrings of these methods."""

    def __init__(self, served: ServedKb, batcher: Batcher) -> None:
        self._served, self._batcher, self._filler = served, batcher, SlotFiller(served, batcher)

    async def search(
        self,
        query: Annotated[str, Field(description="A question, or words of the page.", max_length=LONGEST)],
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
    ) -> FoundPages:
        """Find pages for a question or some words, each with the phrase that answers best; fetch reads a page."""
        with _refusals(self._served):
            (answers,) = await self._batcher.ask(self._served, [query], SearchOptions(limit, "page"))
        return FoundPages([_found(answer) for answer in answers])

    async def fetch(
        self, id: Annotated[str, Field(description="The id of a page.", max_length=LONGEST)]
    ) -> FetchedPage:
        """Read a page by its id, as the other tools give it."""
        if not self._served.has_page(id):
            raise ToolError(f"{self._served.name} has no page {id!r:.80}: take the id of one that search has found")
        page = self._served.page(id)
        return FetchedPage(page.id, page.title, _text(page), _url(page.id, page.metadata), dict(page.metadata))

    async def fill_slot(
        self, subject: Subject, relation: Relation, limit: Annotated[int, Field(ge=1, le=10)] = 3
    ) -> FilledSlot:
        """Say what the pages say of one property of one thing, with evidence. No answers: the pages do not say it."""
        ((claims,),) = await self._claims([subject], [relation], "many")
        answers = [Fact.of(claim) for claim in claims if claim.accepted][:limit]
        guess = Fact.of(claims[0]) if claims and not answers else None
        return FilledSlot(subject, relation, answers, guess, "" if answers else UNLIKELY if guess else NOTHING)

    async def fill_table(
        self,
        subjects: Annotated[list[Subject], Field(min_length=1, max_length=MOST_SUBJECTS)],
        relations: Annotated[list[Relation], Field(min_length=1, max_length=MOST_RELATIONS)],
    ) -> FilledTable:
        """Fill a table of at most 200 cells, each with evidence; null where the pages do not say it."""
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
    made = MCPServer(
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
