"""Pages: what a person sees in a browser; each is rendered here, and has its JSON at the same address with .json."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

import kbq
from kbq.answers import SearchOptions
from kbq.corpus.pages import Page
from kbq.errors import KbqError
from kbq.serve import api
from kbq.serve.bounds import LONGEST, MOST_CELLS, MOST_RELATIONS, refuse_more
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.problems import RefusedError, status_of, title_of
from kbq.serve.services import Services, WithServices
from kbq.serve.views import asked_text, cards, claim_cells, marked_paragraphs, rows_of, slot_of_text, web_address
from kbq.storage.lines import without_surrogates
from kbq.tables.review import BROWSER

HERE = Path(__file__).parent
ANSWERS, MORE_ANSWERS = 5, 20
LISTED = 50  # pages
HEADINGS = {404: "This is not here", 413: "This is too much", 422: "This cannot be asked"}  # for people
WITHOUT_SCRIPT = 100  # cells that are filled before a page is sent
router = APIRouter(include_in_schema=False)
templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
Words = Annotated[str, Query(max_length=LONGEST)]
Lines = Annotated[str, Query(max_length=50_000)]
Names = Annotated[list[str], Query(max_length=MOST_RELATIONS)]
Number = Annotated[int | None, Query(ge=0)]


def static_files() -> StaticFiles:
    """The style sheet, the scripts and the icon."""
    return StaticFiles(directory=HERE / "static")


def shared_files() -> StaticFiles:
    """The scripts that the page has in common with the file that `kbq fill` writes for review."""
    return StaticFiles(directory=BROWSER)


@router.get("/")
async def ask(
    request: Request, services: WithServices, q: Words = "", subject: Words = "", relation: Words = "",
    kb: str = "", k: Annotated[int, Query(ge=1, le=MORE_ANSWERS)] = ANSWERS,
) -> Response:  # fmt: skip
    """Ask for a property of something, or a question."""
    served, text = services.kbs.named(kb), asked_text(q, subject, relation)
    shown = slot_of_text(text)
    view: dict[str, Any] = {"text": text, "subject": shown[0], "relation": shown[1], "k": k, "most": MORE_ANSWERS}
    if not text:
        view |= {"relation": relation, "problem": "Write a subject." if relation.strip() else ""}
        return _page("ask.html", request, services, served, view | {"cards": None, "examples": served.some_titles(6)})
    (found,) = await services.found(request, served, [text], SearchOptions(k))
    view |= {"cards": cards(served.name, found.answers), "unknown_words": found.unknown_words}
    return _page("ask.html", request, services, served, view)


@router.get("/index.json")
async def ask_json(
    request: Request, services: WithServices, q: Words = "", subject: Words = "", relation: Words = "", kb: str = "",
    k: Annotated[int, Query(ge=1, le=MORE_ANSWERS)] = ANSWERS,
) -> Response:  # fmt: skip
    """The answers of the page as JSON; without a query, what is served."""
    text = asked_text(q, subject, relation)
    if not text:
        return api.as_json(await api.knowledge_bases(services))
    return await api.query(request, api.AskedQueries(queries=[text], k=k, kb=kb or None), services)


@router.get("/pages")
async def pages(
    request: Request, services: WithServices, kb: str = "", begins: Words = "", where: Names = [],  # noqa: B006
    first: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:  # fmt: skip
    """Look through the pages: their titles, and what they have in common."""
    served = services.kbs.named(kb)
    found = await asyncio.to_thread(served.listed, begins, where, first, LISTED)

    def address(*, without: str = "", having: str = "", at: int = 0) -> str:
        kept = [one for one in where if one != without] + [having] * bool(having)
        fields = [("kb", served.name), ("begins", begins), *(("where", one) for one in kept), ("first", str(at or ""))]
        return f"/pages?{urlencode([(name, value) for name, value in fields if value])}"

    view = {"found": found, "begins": begins, "where": where, "address": address, "step": LISTED}
    return _page("pages.html", request, services, served, view)


@router.get("/pages.json")
async def pages_json(
    services: WithServices, kb: str = "", begins: Words = "", where: Names = [],  # noqa: B006
    first: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> dict[str, Any]:  # fmt: skip
    """The same as JSON."""
    found = await asyncio.to_thread(services.kbs.named(kb).listed, begins, where, first, LISTED)
    return {
        "count": found.count,
        "first": found.first,
        "pages": [one._asdict() for one in found.pages],
        "facets": {one.field: dict(one.values) for one in found.facets},
    }


@router.get("/page/{page_id:path}")
async def page(
    request: Request, page_id: str, services: WithServices, kb: str = "", paragraph: Number = None,
    start: Number = None, end: Number = None,
) -> Response:  # fmt: skip
    """A page, with a place in it marked."""
    served = services.kbs.named(kb)
    found, is_json = _page_of(served, page_id)
    if is_json:
        return api.as_json(api.page_document(found))
    view = {
        "page": found,
        "paragraphs": marked_paragraphs(found, paragraph, start, end),
        "source": web_address(found.metadata),
        "facts": {name: value for name, value in found.metadata.items() if name != "url"},
    }
    return _page("page.html", request, services, served, view)


def _page_of(served: ServedKb, page_id: str) -> tuple[Page, bool]:
    """A page, and whether it is wanted as JSON; the id of a page may end in .json itself."""
    try:
        return served.page(page_id), False
    except RefusedError:
        if not page_id.endswith(".json"):
            raise
        return served.page(page_id.removesuffix(".json")), True


@router.get("/table")
async def table(
    request: Request, services: WithServices, subjects: Lines = "", relation: Names = [], others: Words = "",  # noqa: B006
    kb: str = "", fill: bool = False,
) -> Response:  # fmt: skip
    """Fill a table: the script of the page asks; where there is none, the table is filled here."""
    served = services.kbs.named(kb)
    names, relations = rows_of(subjects), list(dict.fromkeys([*relation, *rows_of(others, ",")]))
    suggested = list(dict.fromkeys([*served.relations, *relations]))
    view: dict[str, Any] = {"subjects": names, "relations": relations, "suggested": suggested, "filled": None}
    view |= {"most": MOST_CELLS, "keeps": services.settings.decisions is not None}
    view["examples"] = [one.title for one in served.some_titles(3)]
    if fill:
        if len(names) * len(relations) > WITHOUT_SCRIPT:
            raise RefusedError(422, f"without a script, {WITHOUT_SCRIPT} cells are filled at most: ask for fewer")
        view["filled"] = await _filled(services, served, names, relations)
        view["claims"] = claim_cells(served.name, view["filled"]["cells"])
    return _page("table.html", request, services, served, view)


@router.get("/table.json")
async def table_json(
    services: WithServices, subjects: Lines = "", relation: Names = [], others: Words = "", kb: str = ""  # noqa: B006
) -> dict[str, Any]:  # fmt: skip
    """The filled table as JSON, with its claims."""
    names, relations = rows_of(subjects), [*relation, *rows_of(others, ",")]
    return await _filled(services, services.kbs.named(kb), names, relations)


async def _filled(services: Services, served: ServedKb, names: list[str], relations: list[str]) -> dict[str, Any]:
    """A whole filled table, with its cells by subject and relation."""
    if not names or not relations:
        raise RefusedError(422, "a table needs subjects, one a line, and relations")
    for things, given, most in (("subjects", names, MOST_CELLS), ("relations", relations, MOST_RELATIONS)):
        refuse_more(things, len(given), most, 422)
        refuse_more("characters in one of its " + things, max(map(len, given)), LONGEST, 422)
    asked = api.AskedTable(subjects=names, relations=[*relations], kb=served.name)
    lines = [line async for line in await api.filled(asked, services)]
    if "problem" in lines[-1]:
        raise RefusedError(lines[-1]["problem"]["status"], lines[-1]["problem"]["detail"])
    return lines[-1] | {"cells": lines[:-1]}


@router.get("/api")
async def endpoints(request: Request, services: WithServices) -> Response:
    """What there is for programs."""
    paths = request.app.openapi()["paths"]
    routes = [
        {"method": method.upper(), "path": path, "summary": str(facts.get("description", "")).split("\n\n")[0]}
        for path, methods in paths.items()
        for method, facts in methods.items()
    ]
    view = {"routes": routes, "address": services.address(request)}
    return _page("api.html", request, services, services.kbs.named(), view)


def error_page(request: Request, error: KbqError) -> Response:
    """A problem as a person reads it."""
    services: Services = request.app.state.services
    served, status = next(iter(services.kbs)), status_of(error)
    view = {"title": HEADINGS.get(status) or title_of(status), "problem": services.kbs.hidden(str(error))}
    answer = _page("error.html", request, services, served, view)
    answer.status_code = status
    answer.headers.update(getattr(error, "headers", {}))
    return answer


def _page(name: str, request: Request, services: Services, served: ServedKb, view: Mapping[str, Any]) -> Response:
    """A template with what all of them have."""
    common = {
        "kb": served,
        "kbs": list(services.kbs),
        "version": kbq.__version__,
        "path": request.url.path,
        "query": request.url.query,
    }
    return HTMLResponse(without_surrogates(templates.get_template(name).render(common | dict(view))))
