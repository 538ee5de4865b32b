"""Reconciliation: match names with pages by OpenRefine's protocol.

    /reconcile                  the manifest; with `queries` candidates, with `extend` cells of new
    columns /reconcile/suggest/entity   pages by the beginning of their title; also /property and
    /type
    /reconcile/properties       relations that can be asked for
    /reconcile/preview          a page as HTML, for a frame; /flyout the same in JSON

/reconcile/kb/NAME has the same for the knowledge base of that name. Source: Reconciliation Service
API 0.2 (reconciliation-api.github.io/specs/0.2).

Other cells of a row are compared with the claims of each page. Source of the weights: Wikidata's
service.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta

import kbq
from kbq.dump.page_directory import Pages, PageValue, Titles
from kbq.english.dates import DateValue
from kbq.english.statements import is_no_thing
from kbq.errors import KbqError
from kbq.serve.filling import Services, SlotFiller, WithServices
from kbq.serve.guard import RECONCILE, refuse_foreign
from kbq.serve.knowledge_bases import escaped_id, unescaped_id
from kbq.serve.limits import LONGEST, MOST_ANSWERS, MOST_ASKED, refuse_long, refuse_more
from kbq.serve.pages import rendered
from kbq.serve.problems import RefusedError
from kbq.serve.titles import NamedPage
from kbq.tables.claims import Claim, written
from kbq.tables.relations import Slot, relation_named
from kbq.tables.tables import cell_text, is_empty, subject_of
from kbq.tables.values import is_same

# Candidates of a name, by default and at most.
LIMIT = 5
MOST = 100
CHECKED = 3  # candidates with pages that are compared with other cells
# Weights of a name, and of a property on the page.
OF_NAME = 100
OF_PROPERTY = 40

TYPE = {"id": "page", "name": "Page"}
MOST_NAMES = 25  # names of one request
SUGGESTIONS = 20
DESCRIPTION = 160  # characters
# Size of a preview, in pixels.
WIDTH = 430
HEIGHT = 300
FRAMED = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; sandbox"
}
DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
Content = Literal["value", "probability", "sentence", "place"]
CONTENTS: dict[Content, str] = {
    "value": "Value",
    "probability": "Probability",
    "sentence": "Sentence",
    "place": "Page, paragraph, characters",
}


@dataclass(frozen=True, slots=True)
class Property:
    """Another cell of the row."""

    pid: str  # the name of a relation
    v: Any  # a text, number or truth value, a page as {"id": …, "name": …}, or a list of these


@dataclass(frozen=True, slots=True)
class Name:
    """A query of the protocol: a cell with a name."""

    query: str = ""
    limit: float = 0  # candidates; 0: LIMIT
    properties: list[Property] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PageCandidate:
    """A page that may be meant."""

    page: NamedPage
    agrees: Mapping[str, bool]  # whether the page agrees with each other cell that it mentions
    is_thing: bool = True  # neither a redirect nor a list of what a name may mean

    @property
    def score(self) -> float:
        """From 0 to 100."""
        weight = OF_NAME + OF_PROPERTY * len(self.agrees)
        return round(
            100 * (OF_NAME * self.page.likeness + OF_PROPERTY * sum(self.agrees.values())) / weight,
            1,
        )

    @property
    def rank(self) -> tuple[float, int]:
        """The order of candidates: of pages with the same score, the one that agrees with more
        cells is better.
        """
        return self.score, sum(self.agrees.values())


def name_of(query: object) -> Name:
    """Read a client's query. One that cannot be asked has no candidates, and others still have
    theirs.

    >>> name_of({"query": "Emma", "limit": None}), name_of({"query": 1984}).query, name_of(7).query
    (Name(query='Emma', limit=0, properties=[]), '', '')
    """
    given = {}
    if isinstance(query, dict):
        given = dict(query)
    text, limit, properties = (given.get(name) for name in ("query", "limit", "properties"))
    others = (
        [other for other in properties if isinstance(other, dict)]
        if isinstance(properties, list)
        else []
    )
    try:
        most = float(limit) if limit else 0
    except (TypeError, ValueError, OverflowError):
        most = 0

    return Name(
        text if isinstance(text, str) else "",
        most,
        [
            Property(other["pid"], other.get("v"))
            for other in others
            if isinstance(other.get("pid"), str)
        ],
    )


def _refuse_many_properties(names: Sequence[Name]) -> None:
    """Raise RefusedError if names come with more properties or values than are looked at."""
    properties = sum(len(name.properties) for name in names)
    refuse_more("properties of candidates", CHECKED * properties, MOST_ASKED)
    most_values = 0
    longest = 0
    for name in names:
        for condition in name.properties:
            longest = max(longest, len(condition.pid))
            if isinstance(condition.v, list):
                most_values = max(most_values, len(condition.v))
    refuse_more("values of one property", most_values, MOST_ANSWERS)
    refuse_more("letters in the name of a property", longest, LONGEST)


async def candidates(names: Sequence[Name], filler: SlotFiller) -> list[list[PageCandidate]]:
    """Find the candidates of each name, best first."""
    _refuse_many_properties(names)
    words = filler.served.words
    limits = [int(max(0, min(name.limit, MOST))) or LIMIT for name in names]
    pages = await asyncio.to_thread(
        lambda: [words.pages(name.query, limit) for name, limit in zip(names, limits, strict=True)]
    )
    asked = []

    for number, name in enumerate(names):
        others = [other for other in name.properties if not is_empty(other.v)]
        for page in pages[number][:CHECKED]:
            asked += [(number, page, other, relation_named(other.pid, "many")) for other in others]

    slots = [Slot(subject_of(page.title), relation) for _, page, _, relation in asked]
    claims = await filler.claims(slots, [page.page_id for _, page, _, _ in asked])
    agrees: dict[tuple[int, str], dict[str, bool]] = {}
    for (number, page, other, _), said in zip(asked, claims, strict=True):
        if any(claim.accepted for claim in said):
            agrees.setdefault((number, page.page_id), {})[other.pid] = _is_said(
                other.v, said, filler.served.kb.searcher.titles
            )

    known = filler.served.kb.searcher.pages
    of_names = [
        [
            PageCandidate(page, agrees.get((number, page.page_id), {}), _is_thing(page, known))
            for page in each
        ]
        for number, each in enumerate(pages)
    ]

    return [sorted(each, key=lambda one: one.rank, reverse=True) for each in of_names]


def _is_thing(page: NamedPage, pages: Pages) -> bool:
    """Whether a page that has the whole name is of a thing; of others it makes no difference."""
    return not page.has_name or not is_no_thing(page.title, pages.text_of(page.page_id, None) or "")


def is_match(candidates: Sequence[PageCandidate]) -> bool:
    """Whether the first candidate is certain: a thing that alone has the name, and contradicts no
    other cell.
    """
    best, *others = candidates
    is_named = best.page.has_name and best.is_thing
    return (
        is_named
        and all(best.agrees.values())
        and all(other.rank < best.rank for other in others[:1])
    )


def _is_said(value: Any, claims: Sequence[Claim], titles: Titles) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(
        claim.accepted and _is_value(stated, claim, titles) for stated in values for claim in claims
    )


def _is_value(value: Any, claim: Claim, titles: Titles) -> bool:
    """Return whether a claim says the value that a client gave."""
    if not isinstance(value, dict):
        return is_same(cell_text(value), claim, titles)
    ids = value.get("id"), unescaped_id(str(value.get("id")))
    is_page = isinstance(claim.normal, PageValue) and claim.normal.page_id in ids
    return is_page or ("name" in value and is_same(cell_text(value["name"]), claim, titles))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a column, described by `_described_settings`; OpenRefine may send numbers as
    texts.
    """

    limit: Annotated[int, Meta(ge=0)] = 1
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    content: Content = "value"


@dataclass(frozen=True, slots=True)
class Column:
    """A relation that becomes a column."""

    id: str
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def sent(cls, properties: Sequence[Any]) -> list[Self]:
        """Read a client's columns; a property that is null, or has no id, is left out."""
        named = (
            column
            for column in properties
            if isinstance(column, dict) and isinstance(column.get("id"), str)
        )
        return [
            cls(
                column["id"], column["settings"] if isinstance(column.get("settings"), dict) else {}
            )
            for column in named
        ]

    @property
    def chosen(self) -> Settings:
        """The settings, with defaults for empty fields. Raises KbqError if one has no meaning."""
        given = {name: value for name, value in self.settings.items() if value not in ("", None)}
        try:
            return msgspec.convert(given, Settings, strict=False)
        except msgspec.ValidationError as error:
            raise KbqError(f"the settings of {self.id!r:.80} have no meaning: {error}") from None


class _Reconciliation:
    """A request, and the knowledge base that answers it."""

    def __init__(self, request: Request, services: Services) -> None:
        self._request = request
        self._services = services
        self._served = services.kbs.named(request.path_params.get("name"))
        self._fields: Mapping[str, Any] = request.query_params
        self._filler = SlotFiller(self._served, services.batcher)

    async def service(self) -> Response:
        """Answer with the manifest, candidates, or cells of new columns."""
        is_read_only = self._request.method == "GET"
        if not is_read_only:
            self._fields = await self._request.form()
        if "queries" in self._fields or "extend" in self._fields:
            refuse_foreign(self._services.settings, self._request.headers, is_read_only)
        if "queries" in self._fields:
            return await self._candidates(self._read("queries"))
        if "extend" in self._fields:
            return await self._extension(self._read("extend"))
        if not is_read_only:
            raise RefusedError(
                400,
                "the request has neither queries nor extend: send one of them as a field of a form",
            )

        return self._manifest()

    def _read(self, field: str) -> dict[str, Any]:
        try:
            return msgspec.convert(json.loads(str(self._fields[field])), dict[str, Any])
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors, too
            raise RefusedError(
                400, f"{field} cannot be read: {error}: send JSON as the protocol has it"
            ) from None

    def _manifest(self) -> Response:
        """Return what the service offers, as OpenRefine reads it."""
        name = self._served.name
        root = self._services.address(self._request)
        path = self._request.url.path.rstrip("/")
        # A preview needs it, too.
        key = self._field("api_key") if self._services.settings.keys else ""
        with_key = f"&api_key={quote(key, safe='')}" if key else ""
        suggest = {
            kind: {"service_url": root, "service_path": f"{path}/suggest/{kind}"}
            for kind in ("entity", "property", "type")
        }
        suggest["entity"] |= {
            "flyout_service_url": root,
            "flyout_service_path": f"{path}/flyout?id=${{id}}",
        }
        service_address = f"{root}{path}"
        service: dict[str, object] = {
            "versions": ["0.1", "0.2"],
            "name": f"{name} (kbq)",
            "identifierSpace": f"{service_address}/pages/",
            "schemaSpace": f"{service_address}/relations/",
            "documentation": f"{root}/",
            "serviceVersion": kbq.__version__,
            "batchSize": MOST_NAMES,
            "defaultTypes": [TYPE],
        }
        preview = f"{service_address}/preview?id={{{{id}}}}{with_key}"
        shown: dict[str, object] = {
            "view": {"url": f"{root}/page/{{{{id}}}}?kb={name}"},
            "preview": {"url": preview, "width": WIDTH, "height": HEIGHT},
        }
        extend = {
            "propose_properties": {"service_url": root, "service_path": f"{path}/properties"},
            "property_settings": _described_settings(self._filler.min_probability),
        }
        manifest = service | shown | {"suggest": suggest, "extend": extend}
        if key:
            manifest["authentication"] = {"type": "apiKey", "name": "api_key", "in": "query"}

        return _json(manifest)

    async def _candidates(self, asked: Mapping[str, Any]) -> Response:
        """Return the pages that names may mean."""
        refuse_more("names", len(asked), MOST_NAMES)
        names = {key: name_of(query) for key, query in asked.items()}
        of_names = await candidates(list(names.values()), self._filler)
        results = {
            key: {
                "result": [
                    self._candidate(candidate, is_match(each) and candidate is each[0])
                    for candidate in each
                ]
            }
            for key, each in zip(names, of_names, strict=True)
        }
        return _json(results)

    def _candidate(self, candidate: PageCandidate, is_match: bool) -> dict[str, Any]:
        features = {"name": candidate.page.likeness, **candidate.agrees}
        return self._named(candidate.page.page_id) | {
            "type": [TYPE],
            "score": candidate.score,
            "match": is_match,
            "features": [{"id": name, "value": value} for name, value in features.items()],
        }

    def _named(self, page_id: str) -> dict[str, Any]:
        """Return a page's name and its first sentences."""
        page = self._served.page(page_id)
        first = ""
        if page.paragraphs:
            first = page.paragraphs[0].text[: 4 * DESCRIPTION]
        return {
            "id": escaped_id(page.page_id),
            "name": page.title,
            "description": shorten(first, DESCRIPTION, placeholder=" …"),
        }

    async def _extension(self, asked: Mapping[str, Any]) -> Response:
        """Return the cells of new columns: a list for each id, empty if nothing is likely enough.

        An id may be anything; if no page has it, its cells are empty.
        """
        ids = asked.get("ids")
        properties = asked.get("properties") or []
        if not (isinstance(ids, list) and isinstance(properties, list)):
            raise RefusedError(400, "extend cannot be read: send ids and properties, each a list")
        refuse_more("cells", len(ids) * len(properties), MOST_ASKED)
        refuse_more("rows and columns", max(len(ids), len(properties)), MOST_ASKED)
        ids = list(
            dict.fromkeys(given if isinstance(given, str) else json.dumps(given) for given in ids)
        )
        pages = {
            page_id: self._served.page(page_id) for page_id in ids if self._served.has_page(page_id)
        }
        columns = []

        for sent in Column.sent(properties):
            chosen = sent.chosen
            if chosen.limit == 1:
                named = relation_named(sent.id, "one")
            else:
                named = relation_named(sent.id, "many")
            columns.append((sent.id, replace(named, min_probability=chosen.probability), chosen))

        cells = [(page_id, *column) for page_id in pages for column in columns]
        refuse_long([page.title for page in pages.values()], [column for column, _, _ in columns])
        slots = [
            Slot(subject_of(pages[page_id].title), relation) for page_id, _, relation, _ in cells
        ]
        claims = await self._filler.claims(slots)
        rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for page_id in ids:
            rows[page_id] = {column: [] for column, _, _ in columns}
        for (page_id, column, _, chosen), said in zip(cells, claims, strict=True):
            accepted = [claim for claim in said if claim.accepted][: chosen.limit or None]
            rows[page_id][column] = [_cell(claim, chosen.content) for claim in accepted]

        return _json(
            {"meta": [{"id": column, "name": column} for column, _, _ in columns], "rows": rows}
        )

    async def suggested_pages(self) -> Response:
        """Suggest the page whose id is the prefix, and pages whose titles begin with it."""
        prefix = self._field("prefix")
        ids = []
        if self._served.has_page(prefix):
            ids.append(prefix)
        for page in self._served.titles.listed(prefix, 0, SUGGESTIONS)[0]:
            ids.append(page.page_id)
        return _json(
            {
                "result": [
                    self._named(page_id) | {"notable": [TYPE]} for page_id in dict.fromkeys(ids)
                ]
            }
        )

    async def suggested_relations(self) -> Response:
        """Suggest relations with these letters, and the letters themselves, as any relation can be
        asked for.
        """
        prefix = " ".join(self._field("prefix").split())
        names = [name for name in self._served.relations if prefix.casefold() in name.casefold()][
            :SUGGESTIONS
        ]
        names.sort(key=lambda name: not name.casefold().startswith(prefix.casefold()))
        return _json(
            {"result": _properties(dict.fromkeys([*names, *([prefix] if prefix else [])]))}
        )

    async def suggested_types(self) -> Response:
        return _json({"result": [TYPE]})

    async def proposed(self) -> Response:
        """Propose relations for new columns."""
        limit = self._field("limit")
        limits = {}
        if re.fullmatch("[0-9]{1,9}", limit):
            limits = {"limit": int(limit)}
        properties = _properties(self._served.relations[: limits.get("limit")])
        return _json({"type": self._field("type") or TYPE["id"], "properties": properties} | limits)

    async def preview(self) -> Response:
        """Show a page as HTML that may be framed by any other page, and can do nothing there."""
        return Response(self._rendered("preview.html"), headers=FRAMED, media_type="text/html")

    async def flyout(self) -> Response:
        """Show the same as a fragment of HTML."""
        return _json({"id": self._field("id"), "html": self._rendered("flyout.html")})

    def _rendered(self, template: str) -> str:
        return rendered(template, {"page": self._served.page(self._field("id"))})

    def _field(self, name: str) -> str:
        return str(self._fields.get(name, ""))


def _described_settings(min_probability: float) -> list[dict[str, Any]]:
    """Describe `Settings` for the protocol; by default a cell stays empty below `min_probability`."""
    names = "name", "label", "type", "default", "help_text"
    probability = "From 0 to 1: cells whose values are less likely right stay empty"
    settings: list[tuple[Any, ...]] = [
        (
            "limit",
            "Values",
            "number",
            1,
            "The most values of a cell; 0 for all that are likely enough",
        ),
        ("probability", "Probability", "number", min_probability, probability),
        ("content", "Content", "select", "value", "The value, its probability or its evidence"),
    ]
    described = [dict(zip(names, setting, strict=True)) for setting in settings]
    described[-1]["choices"] = [{"value": value, "name": name} for value, name in CONTENTS.items()]

    return described


def _cell(claim: Claim, content: Content) -> dict[str, Any]:
    """Return a claim as a cell that holds its value, sentence or place."""
    if content == "sentence":
        return {"str": claim.sentence}
    if content == "place":
        return {
            "str": (
                f"{claim.page_id}, paragraph {claim.paragraph}, characters "
                f"{claim.start}-{claim.end}"
            )
        }

    if content == "probability":
        if claim.probability is None:
            return {}
        return {"float": claim.probability}
    if isinstance(claim.normal, PageValue):
        return {"id": escaped_id(claim.normal.page_id), "name": claim.normal.title}
    # A date of OpenRefine is a moment: a year or a Julian date would become a day that no text
    # states.
    iso = written(claim, "iso")

    return (
        {"date": f"{iso}T00:00:00Z"}
        if isinstance(claim.normal, DateValue) and DAY.fullmatch(iso)
        else {"str": iso}
    )


def _properties(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"id": name, "name": name} for name in names]


def _json(document: Mapping[str, Any]) -> Response:
    """Return JSON in ASCII, as a client may have sent lone surrogates."""
    return Response(json.dumps(document), media_type="application/json")


def _endpoint(
    answer: Callable[[_Reconciliation], Awaitable[Response]],
) -> Callable[..., Awaitable[Response]]:
    async def answered(request: Request, services: WithServices) -> Response:
        return await answer(_Reconciliation(request, services))

    return answered


router = APIRouter(include_in_schema=False)
for _path, _answer in {
    "": _Reconciliation.service,
    "/": _Reconciliation.service,
    "/suggest/entity": _Reconciliation.suggested_pages,
    "/suggest/property": _Reconciliation.suggested_relations,
    "/suggest/type": _Reconciliation.suggested_types,
    "/properties": _Reconciliation.proposed,
    "/preview": _Reconciliation.preview,
    "/flyout": _Reconciliation.flyout,
}.items():
    for _base in (RECONCILE, f"{RECONCILE}/kb/{{name}}"):
        router.add_api_route(_base + _path, _endpoint(_answer), methods=["GET", "POST"])
