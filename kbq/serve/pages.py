"""Pages: what a person sees in a browser, rendered here."""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, Response

from kbq.answers import SearchOptions
from kbq.errors import KbqError
from kbq.serve import api
from kbq.serve.bounds import LONGEST, MOST_CELLS, MOST_RELATIONS, refuse_more
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.problems import RefusedError, status_of, title_of
from kbq.serve.services import Services, WithServices
from kbq.serve.views import (
    asked_text,
    cards_of,
    level_of,
    marked_paragraphs,
    rendered,
    rows_of,
    slot_of_text,
    web_address,
)
from kbq.storage.rows import SUFFIXES
from kbq.tables.cells import shown
from kbq.tables.relations import MARK, known_relations, preset
from kbq.tables.tables import read_table

ANSWERS, MORE_ANSWERS = 5, 20
LISTED = 50  # pages
HEADINGS = {404: "This is not here", 413: "This is too much", 422: "This cannot be asked"}  # for people
WITHOUT_SCRIPT = 100  # cells that are filled before a page is sent
MOST_SHOWN = 200_000  # cells of a table in a file
router = APIRouter(include_in_schema=False)
Words = Annotated[str, Field(max_length=LONGEST)]
Names = Annotated[list[str], Field(max_length=MOST_RELATIONS)]
Number = Annotated[int | None, Query(ge=0)]


class QueryForm(BaseModel):
    """A property of something, or a question."""

    q: Words = ""
    subject: Words = ""
    relation: Words = ""
    kb: str = ""
    k: Annotated[int, Field(ge=1, le=MORE_ANSWERS)] = ANSWERS

    @property
    def text(self) -> str:
        """The query."""
        return asked_text(self.q, self.subject, self.relation)


@router.get("/")
async def ask(request: Request, services: WithServices, form: Annotated[QueryForm, Query()]) -> Response:
    """Ask for a property of something, or a question."""
    served, text = services.kbs.named(form.kb), form.text
    subject, relation = slot_of_text(text)
    view: dict[str, Any] = {"text": text, "subject": subject, "relation": relation, "k": form.k, "most": MORE_ANSWERS}
    if not text:
        problem = "Write a subject." if form.relation.strip() else ""
        view |= {"relation": form.relation, "problem": problem, "answers": None, "examples": served.titles.spread(6)}
        return _page("ask.html", request, services, served, view)
    request.state.queries = [text]  # for the log
    (found,) = await services.batcher.found(served, [text], SearchOptions(form.k))
    cards = cards_of(found.answers)
    levels = [level_of(places[0].probability) for places in cards]
    is_sure = bool(levels) and levels[0] not in ("unlikely", "unknown")
    shown = sum(level != "unlikely" for level in levels) if is_sure else len(levels)
    view |= {
        "answers": cards,
        "is_all": len(found.answers) < form.k,
        "shown": shown,
        "unknown_words": found.unknown_words,
    }
    return _page("ask.html", request, services, served, view)


class PagesForm(BaseModel):
    """Pages whose titles begin with some letters."""

    kb: str = ""
    begins: Words = ""
    first: Annotated[int, Field(ge=0, le=2**31)] = 0


@router.get("/pages")
async def pages(request: Request, services: WithServices, form: Annotated[PagesForm, Query()]) -> Response:
    """Look through the pages by their titles."""
    served = services.kbs.named(form.kb)
    found, count = await asyncio.to_thread(served.titles.listed, form.begins, form.first, LISTED)
    fields = {"kb": served.name, "begins": form.begins}

    def address(first: int) -> str:
        return f"/pages?{urlencode(fields | {'first': first})}"

    view = {"found": found, "count": count, "begins": form.begins, "first": form.first, "address": address}
    return _page("pages.html", request, services, served, view | {"step": LISTED})


@router.get("/page/{page_id:path}")
async def page(
    request: Request, page_id: str, services: WithServices, kb: str = "", paragraph: Number = None,
    start: Number = None, end: Number = None,
) -> Response:  # fmt: skip
    """Show a page, with a place in it marked."""
    served = services.kbs.named(kb)
    found = served.page(page_id)
    view = {
        "page": found,
        "paragraphs": marked_paragraphs(found, paragraph, start, end),
        "source": web_address(found.metadata),
        "facts": {name: value for name, value in found.metadata.items() if name != "url"},
    }
    return _page("page.html", request, services, served, view)


class TableForm(BaseModel):
    """A table to fill: subjects, one a line, and relations, others with commas between them."""

    subjects: Annotated[str, Field(max_length=50_000)] = ""
    relation: Names = []
    others: Words = ""
    kb: str = ""
    fill: bool = False

    @property
    def names(self) -> list[str]:
        """The subjects."""
        return rows_of(self.subjects)

    @property
    def relations(self) -> list[str]:
        """All relations, each once."""
        return list(dict.fromkeys([*self.relation, *rows_of(self.others, ",")]))


@router.get("/table")
async def table(request: Request, services: WithServices, form: Annotated[TableForm, Query()]) -> Response:
    """Fill a table: the script of the page asks; where there is none, the table is filled here."""
    served = services.kbs.named(form.kb)
    view: dict[str, Any] = {"subjects": form.names, "relations": form.relations, "filled": None, "most": MOST_CELLS}
    known = {relation.name for relation in known_relations()}
    view["suggested"] = {f"{MARK}{name}" if name in known else name: name for name in served.relations}
    view["suggested"] |= {
        name: name for name in form.relations if f"{MARK}{name.removeprefix(MARK)}" not in view["suggested"]
    }
    view["presets"] = _presets()
    view["keeps"] = services.settings.decisions is not None
    view["examples"] = [one.title for one in served.titles.spread(3)]
    if form.fill:
        if len(form.names) * len(form.relations) > WITHOUT_SCRIPT:
            raise RefusedError(422, f"without a script, {WITHOUT_SCRIPT} cells are filled at most: ask for fewer")
        cells, view["filled"] = await _filled(services, form)
        view["claims"] = {(cell["subject"], cell["relation"]): cell["claims"] for cell in cells}
    return _page("table.html", request, services, served, view)


@cache
def _presets() -> dict[str, list[str]]:
    """Return the relations of each preset, and each known relation by itself, as they are asked for."""
    groups = dict.fromkeys(group for groups in known_relations().values() for group in groups)
    names = [*groups, *(relation.name for relation in known_relations())]
    return {f"{MARK}{name}": [f"{MARK}{one.name}" for one in preset(name)] for name in names}


@router.post("/table/read")
async def read(request: Request, name: Annotated[str, Query(max_length=255)]) -> dict[str, Any]:
    """Give the columns and rows of a table in a file, which `kbq fill` would read so, as texts."""
    suffix = PurePath(name).suffix.lower().replace(".txt", ".csv")
    if suffix not in SUFFIXES:
        raise RefusedError(422, f"{name!r:.80} is no table: its name ends in {', '.join(SUFFIXES)}")
    return await asyncio.to_thread(_read, await request.body(), suffix)


def _read(content: bytes, suffix: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"table{suffix}")
        path.write_bytes(content)
        try:
            table = read_table(path)
        except KbqError as error:
            raise RefusedError(422, str(error).replace(str(path), "the file")) from None
    refuse_more("cells", len(table.rows) * len(table.columns), MOST_SHOWN)
    return {"columns": table.columns, "rows": [[shown(row.get(name)) for name in table.columns] for row in table.rows]}


async def _filled(services: Services, form: TableForm) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the cells of a table with their claims, and the filled table."""
    if not form.names or not form.relations:
        raise RefusedError(422, "a table needs subjects, one a line, and relations")
    refuse_more("relations", len(form.relations), MOST_RELATIONS, 422)
    refuse_more("characters in a name", max(map(len, form.names + form.relations)), LONGEST, 422)
    asked = api.AskedTable(subjects=form.names, relations=[*form.relations], kb=services.kbs.named(form.kb).name)
    *cells, last = [line async for line in await api.filled(asked, services)]
    if "problem" in last:
        raise RefusedError(last["problem"]["status"], last["problem"]["detail"])
    return cells, last


@router.get("/api")
async def endpoints(request: Request, services: WithServices) -> Response:
    """List the addresses for programs."""
    paths = request.app.openapi()["paths"]
    routes = [
        {"method": method.upper(), "path": path, "summary": str(facts.get("description", "")).split("\n\n")[0]}
        for path, methods in paths.items()
        for method, facts in methods.items()
    ]
    view = {"routes": routes, "address": services.address(request)}
    return _page("api.html", request, services, services.kbs.named(), view)


def error_page(request: Request, error: KbqError) -> Response:
    """Show a problem to a person."""
    services: Services = request.app.state.services
    status = status_of(error)
    view = {"title": HEADINGS.get(status) or title_of(status), "problem": services.kbs.hidden(str(error))}
    answer = _page("error.html", request, services, services.kbs.named(), view)
    answer.status_code = status
    answer.headers.update(getattr(error, "headers", {}))
    return answer


def _page(name: str, request: Request, services: Services, served: ServedKb, view: Mapping[str, Any]) -> Response:
    """Answer with a template, given what all of them show."""
    common = {"kb": served, "kbs": list(services.kbs), "path": request.url.path}
    return HTMLResponse(rendered(name, common | dict(view)))
