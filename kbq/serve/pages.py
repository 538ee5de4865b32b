"""Pages: the HTML pages of the service, made from templates."""

import asyncio
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, Response

import kbq
from kbq.answers import CONTEXT, Answer, percentage
from kbq.asking.searcher import Searcher
from kbq.corpus.pages import SAFE
from kbq.dump.page_directory import Titles
from kbq.errors import KbqError
from kbq.search.options import SearchOptions
from kbq.serve.api import ClientObject, KbName, QNumber, json_only, relations_asked
from kbq.serve.documents import documents_of
from kbq.serve.filling import Services, WithServices
from kbq.serve.knowledge_bases import OpenedKb
from kbq.serve.limits import LONGEST, MOST_CELLS, MOST_RELATIONS, refuse_more
from kbq.serve.problems import RefusedError, status_of, title_of
from kbq.storage.records import json_line
from kbq.storage.rows import SUFFIXES, sheets_of
from kbq.tables.claims import Claim, Source
from kbq.tables.deciding import Decider, by_hand
from kbq.tables.outputs import BROWSER, ntriples, quickstatements, views
from kbq.tables.relations import MARK, Relation, Slot, known_relations, preset, read_ids
from kbq.tables.tables import cell_text, read_table, subject_column, subject_of
from kbq.text.normal_forms import normalised, without_surrogates
from kbq.text.queries import SEPARATOR

# Probabilities from which an answer has a colour.
SURE = 0.75
LIKELY = 0.5
HERE = Path(__file__).parent

ANSWERS = 5
MORE_ANSWERS = 20
LISTED = 50  # pages
# Headings for people.
HEADINGS = {404: "This is not here", 413: "This is too much", 422: "This cannot be asked"}
MOST_SHOWN = 200_000  # cells of a table in a file
MOST_IDS = 10_000  # names with Q-numbers, in each of their forms
OTHER_ROUTES = [  # routes of other protocols
    {
        "method": "GET, POST",
        "path": "/reconcile",
        "summary": "OpenRefine: match names with pages, and fill columns.",
    },
    {
        "method": "POST",
        "path": "/mcp",
        "summary": "Language models: tools to search, read and fill, by MCP.",
    },
]
router = APIRouter(include_in_schema=False)
Words = Annotated[str, Field(max_length=LONGEST)]
Names = Annotated[list[str], Field(max_length=MOST_RELATIONS)]
Number = Annotated[int | None, Query(ge=0)]


def level_of(probability: float | None) -> str:
    """Return the word that stands for a probability in style sheets.

    >>> level_of(0.9), level_of(0.5), level_of(0.1), level_of(None)
    ('sure', 'likely', 'unlikely', 'unknown')
    """
    if probability is None:
        return "unknown"
    if probability >= SURE:
        return "sure"
    if probability >= LIKELY:
        return "likely"
    return "unlikely"


def evidence(answer: Answer) -> tuple[str, str]:
    """Return the parts of its paragraph before and after an answer."""
    first, last = answer.window(CONTEXT)
    before = answer.context[first : answer.start]
    if first:
        before = f"… {before}"
    after = answer.context[answer.end : last]
    if last < len(answer.context):
        after = f"{after} …"
    return before, after


def address_of(kb: str, page_id: str, paragraph: int, start: int, end: int) -> str:
    """Return the address of a place in a page."""
    place_in_page = urlencode({"kb": kb, "paragraph": paragraph, "start": start, "end": end})
    return f"/page/{quote(page_id, safe='', errors='replace')}?{place_in_page}#here"


def page_number(page_id: str) -> str:
    """Return the number of a page of a PDF, by its id, or "".

    >>> page_number("minutes.pdf#page=3"), page_number("S001")
    ('3', '')
    """
    number = re.search(r"#page=([0-9]+)$", page_id)
    return number[1] if number else ""


def web_address(metadata: Mapping[str, object]) -> str:
    """Return the address that a page was taken from, or "" if its corpus gives none that a browser
    may open.

    >>> web_address({"url": "https://example.org"}), web_address({"url": " javascript:alert(1)"}), web_address({})
    ('https://example.org', '', '')
    """
    url = metadata.get("url")
    try:
        if isinstance(url, str) and urlsplit(url).scheme in SAFE:
            return url
        return ""
    except ValueError:
        return ""


def rendered(template: str, view: Mapping[str, Any]) -> str:
    return without_surrogates(_templates.get_template(template).render(view))


_templates = Environment(
    loader=FileSystemLoader([HERE / "templates", BROWSER]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {
    "evidence": evidence,
    "level": level_of,
    "page_number": page_number,
    "percentage": percentage,
    "plain_json": json_line,
    "shell": shlex.quote,
    "shell_json": lambda content: shlex.quote(json_line(content)),
}
_templates.globals |= {"address_of": address_of, "version": kbq.__version__}


class QueryForm(BaseModel):
    """A property of something, or a question."""

    q: Words = ""
    subject: Words = ""
    relation: Words = ""
    kb: str = ""
    k: Annotated[int, Field(ge=1, le=MORE_ANSWERS)] = ANSWERS

    @property
    def text(self) -> str:
        """The query: a whole one, a subject with its relation, or a question."""
        subject = self.subject.strip()
        relation = self.relation.strip()
        return self.q.strip() or (
            f"{subject} [SEP] {relation}" if subject and relation else subject
        )


@router.get("/")
async def ask(
    request: Request, services: WithServices, form: Annotated[QueryForm, Query()]
) -> Response:
    """Ask for a property of something, or a question."""
    served = services.kbs.named(form.kb)
    text = form.text
    # A question has no relation.
    subject, relation = map(str.strip, [*SEPARATOR.split(text, maxsplit=1), ""][:2])
    view: dict[str, Any] = {
        "text": text,
        "subject": subject,
        "relation": relation,
        "k": form.k,
        "most": MORE_ANSWERS,
    }
    if not text:
        problem = "Write a subject." if form.relation.strip() else ""
        view |= {
            "relation": form.relation,
            "problem": problem,
            "answers": None,
            "examples": served.titles.spread(6),
        }
        return html_page("ask.html", request, services, served, view)

    request.state.queries = [text]  # kept for the log
    (result,) = await services.batcher.found(served, [text], SearchOptions(form.k))
    cards: dict[str, list[Answer]] = {}  # places of the same answer, best first
    for answer in result.answers:
        cards.setdefault(normalised(answer.text), []).append(answer)
    levels = [level_of(places[0].probability) for places in cards.values()]
    is_sure = bool(levels) and levels[0] not in ("unlikely", "unknown")
    shown = len(levels)
    if is_sure:
        shown = sum(level != "unlikely" for level in levels)
    view |= {
        "answers": list(cards.values()),
        "is_all": len(result.answers) < form.k,
        "shown": shown,
        "unknown_words": result.unknown_words,
    }

    return html_page("ask.html", request, services, served, view)


class PagesForm(BaseModel):
    """Pages whose titles have some words, or begin with some letters."""

    kb: str = ""
    words: Words = ""
    first: Annotated[int, Field(ge=0, le=2**31)] = 0


@router.get("/pages")
async def pages(
    request: Request, services: WithServices, form: Annotated[PagesForm, Query()]
) -> Response:
    """Look through the pages by their titles."""
    served = services.kbs.named(form.kb)
    names, count = await asyncio.to_thread(served.listed, form.words, form.first, LISTED)
    fields = {"kb": served.name, "words": form.words}

    def address(first: int) -> str:
        return f"/pages?{urlencode(fields | {'first': first})}"

    view = {
        "found": names,
        "count": count,
        "words": form.words,
        "first": form.first,
        "address": address,
    }

    return html_page("pages.html", request, services, served, view | {"step": LISTED})


@router.get("/page/{page_id:path}")
async def page(
    request: Request,
    page_id: str,
    services: WithServices,
    kb: str = "",
    paragraph: Number = None,
    start: Number = None,
    end: Number = None,
) -> Response:
    """Show a page, with a place in it marked."""
    served = services.kbs.named(kb)
    opened = served.page(page_id)
    view = {
        "page": opened,
        "marked": paragraph,
        "start": start or 0,
        "end": end or 0,
        "source": web_address(opened.metadata),
        "facts": {name: value for name, value in opened.metadata.items() if name != "url"},
    }
    return html_page("page.html", request, services, served, view)


class TableForm(BaseModel):
    """A table to fill: subjects, one a line, and relations, others with commas between them."""

    subjects: Annotated[str, Field(max_length=50_000)] = ""
    relation: Names = []
    others: Words = ""
    kb: str = ""


@router.get("/table")
async def table(
    request: Request, services: WithServices, form: Annotated[TableForm, Query()]
) -> Response:
    """Show the page whose script fills a table."""
    served = services.kbs.named(form.kb)
    relations = dict.fromkeys(
        [*form.relation, *filter(None, map(str.strip, form.others.split(",")))]
    )
    known = {relation.name for relation in known_relations()}
    suggested = {}
    for name in served.relations:
        suggestion = name
        if name in known:
            suggestion = f"{MARK}{name}"
        suggested[suggestion] = name
    suggested |= {
        name: name for name in relations if f"{MARK}{name.removeprefix(MARK)}" not in suggested
    }
    examples = [page.title for page in served.titles.spread(3)]
    keeps_decisions = services.settings.decisions is not None
    view: dict[str, Any] = {
        "subjects": form.subjects,
        "relations": relations,
        "most": MOST_CELLS,
        "suggested": suggested,
        "presets": _presets(),
        "keeps": keeps_decisions,
        "drawn": documents_of(served.kb.folder).is_dir(),
        "examples": examples,
    }

    return html_page("table.html", request, services, served, view)


@cache
def _presets() -> dict[str, list[str]]:
    """Return the relations of each preset, and each known relation by itself, as clients write
    them.
    """
    groups: list[str] = []
    for presets in known_relations().values():
        groups.extend(presets)
    names = [*dict.fromkeys(groups), *(relation.name for relation in known_relations())]
    return {
        f"{MARK}{name}": [f"{MARK}{relation.name}" for relation in preset(name)] for name in names
    }


@router.post("/table/read")
async def read(
    request: Request,
    services: WithServices,
    name: Annotated[str, Query(max_length=255)],
    sheet: Words = "",
    kb: str = "",
) -> dict[str, Any]:
    """Return the columns and rows of a table file as texts, read as `kbq fill` reads them.

    With them come the sheets of a workbook, the column that is likely to have the subjects, and
    what is to be said.
    """
    suffix = PurePath(name).suffix.lower().replace(".txt", ".csv")
    if suffix not in SUFFIXES:
        raise RefusedError(422, f"{name!r:.80} is no table: its name ends in {', '.join(SUFFIXES)}")
    titles = services.kbs.named(kb).kb.searcher.titles
    return await asyncio.to_thread(_read, await request.body(), suffix, sheet, titles)


def _read(content: bytes, suffix: str, sheet: str, titles: Titles) -> dict[str, Any]:
    """Return the cells of an uploaded table. Raises RefusedError if it cannot be read."""
    notes: list[str] = []
    with TemporaryDirectory() as folder:
        path = Path(folder, f"table{suffix}")
        path.write_bytes(content)
        try:
            sheets = sheets_of(path) if suffix == ".xlsx" else []
            chosen = sheet or next(iter(sheets), "")
            source: str | Path = path
            if chosen:
                source = f"{path}#{chosen}"
            table = read_table(source, notes.append)
        except KbqError as error:
            raise RefusedError(422, str(error).replace(str(path), "the file")) from None

    refuse_more("cells", len(table.rows) * len(table.columns), MOST_SHOWN)
    rows = []
    for row in table.rows:
        rows.append([cell_text(row.get(name)) for name in table.columns])
    return {
        "columns": table.columns,
        "rows": rows,
        "sheets": sheets,
        "sheet": chosen,
        "subject": subject_column(table, lambda text: bool(titles.pages(text))),
        "notes": [note.replace(str(path), "the file") for note in notes],
    }


@router.post("/table/ids")
async def ids(
    request: Request, name: Annotated[str, Query(max_length=255)]
) -> dict[str, dict[str, str]]:
    """Return the Q-numbers of names in a table, read as `kbq export --ids` reads it."""
    return {
        "ids": await asyncio.to_thread(_ids, await request.body(), PurePath(name).suffix.lower())
    }


def _ids(content: bytes, suffix: str) -> dict[str, str]:
    """Return the ids in an uploaded file. Raises RefusedError if it cannot be read."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"ids{suffix.replace('.txt', '.csv')}")
        path.write_bytes(content)
        try:
            numbers = read_ids(path)
        except KbqError as error:
            raise RefusedError(422, str(error).replace(str(path), "the file")) from None
    refuse_more("names", len(numbers), MOST_IDS)
    return numbers


class TypedValue(ClientObject):
    """A value that a person has typed."""

    subject: Words
    relation: Words
    value: Words


class TypedRequest(ClientObject):
    """Typed values of a table."""

    kb: KbName = None
    values: Annotated[list[TypedValue], Field(max_length=MOST_CELLS)]


@router.post("/table/typed", dependencies=[Depends(json_only)])
async def typed(asked: TypedRequest, services: WithServices) -> list[dict[str, Any]]:
    """Return typed values as facts, which `kbq fill --decisions` and `kbq export` would write so."""
    decider = Decider(services.kbs.named(asked.kb).kb.searcher.titles, 0.0, 0, {})

    def views_of(value: TypedValue) -> dict[str, Any]:
        relation = _one_relation(value.relation)
        normal = decider.normal(value.value, relation)
        return views(
            by_hand(Slot(subject_of(value.subject), relation), value.value, normal), relation, {}
        )[0]

    return await asyncio.to_thread(lambda: list(map(views_of, asked.values)))


def _one_relation(name: str) -> Relation:
    relation, *others = relations_asked(name, "one")
    if others:
        raise RefusedError(422, f"{name!r:.80} is several relations: give each by itself")
    return relation


class StandingValue(ClientObject):
    """A value that stands in a table: a claim, or the value that a person has typed."""

    relation: Words
    claim: dict[str, Any] | None = None
    typed: TypedValue | None = None


class ExportRequest(ClientObject):
    """Values that stand in a table, to be exported as `kbq export` does; `ids`: Q-numbers of names."""

    kb: KbName = None
    to: Literal["rdf", "quickstatements"]
    values: Annotated[list[StandingValue], Field(max_length=MOST_CELLS)]
    ids: Annotated[dict[str, QNumber], Field(max_length=MOST_IDS)] = {}  # noqa: RUF012


@router.post("/table/export", dependencies=[Depends(json_only)])
async def export(asked: ExportRequest, services: WithServices) -> dict[str, Any]:
    """Return the lines of an export, and what could not be written."""
    searcher = services.kbs.named(asked.kb).kb.searcher
    return await asyncio.to_thread(_exported, asked, searcher)


def _exported(asked: ExportRequest, searcher: Searcher) -> dict[str, Any]:
    """Return the values that a person accepted, in the forms of an export."""
    decider = Decider(searcher.titles, 0.0, 0, {})
    claims = list[Claim]()
    relations = dict[str, Relation]()
    for number, value in enumerate(asked.values):
        relation = _one_relation(value.relation)
        relations[relation.name] = relation
        try:
            if value.typed is not None:
                slot = Slot(subject_of(value.typed.subject), relation)
                typed = value.typed.value
                claims.append(by_hand(slot, typed, decider.normal(typed, relation)))
            else:
                claim = Claim.from_dict(value.claim or {})
                # An alternative comes without one.
                normal = claim.normal or decider.normal(claim.value, relation)
                claims.append(replace(claim, accepted=True, relation=relation.name, normal=normal))
        except ValueError as error:
            raise RefusedError(
                422, f"values[{number}] is no claim ({error}): send it as /v1/fill gave it"
            ) from None

    if asked.to == "rdf":
        return {
            "lines": list(ntriples(claims, relations.values(), asked.ids)),
            "left_out": [],
            "lacking": {},
        }

    source = Source(kbq.__version__, "", "", "", datetime.now(UTC).isoformat(timespec="seconds"))
    return quickstatements(claims, source, relations.values(), asked.ids)._asdict()


@router.get("/api")
async def endpoints(request: Request, services: WithServices) -> Response:
    """List the addresses for programs."""
    routes = []
    for path, methods in request.app.openapi()["paths"].items():
        for method, facts in methods.items():
            summary = str(facts.get("description", "")).split("\n\n")[0]
            routes.append({"method": method.upper(), "path": path, "summary": summary})

    served = services.kbs.named()
    has_several = len(list(services.kbs)) > 1
    examples = [page.title for page in served.titles.spread(2)]
    view = {
        "routes": [*routes, *OTHER_ROUTES],
        "address": services.address(request),
        "examples": examples,
        "relations": served.relations[:2],
        "of_kb": f"/kb/{served.name}" if has_several else "",
    }

    return html_page("api.html", request, services, served, view)


def error_page(request: Request, error: KbqError) -> Response:
    """Show a problem to a person."""
    services: Services = request.app.state.services
    status = status_of(error)
    view = {
        "title": HEADINGS.get(status) or title_of(status),
        "problem": services.kbs.hidden(str(error)),
    }
    answer = html_page("error.html", request, services, services.kbs.named(), view)
    answer.status_code = status
    answer.headers.update(getattr(error, "headers", {}))
    return answer


def html_page(
    name: str, request: Request, services: Services, served: OpenedKb, view: Mapping[str, Any]
) -> Response:
    """Answer with a page; `served` is the knowledge base that its head names."""
    edits = services.settings.edit is not None
    common = {"kb": served, "kbs": list(services.kbs), "path": request.url.path, "edits": edits}
    common["kb_problem"] = services.kbs.problem_of(served.name)
    return HTMLResponse(rendered(name, common | dict(view)))
