"""Routes: the addresses of the Reconciliation Service API 0.2, as OpenRefine asks them.

    /reconcile                  the manifest; with `queries` candidates, with `extend` cells of new columns
    /reconcile/suggest/entity   pages by the beginning of their title; also /property and /type
    /reconcile/properties       relations that could be asked for
    /reconcile/preview          a page as HTML, for a frame; /flyout the same in JSON

The same behind /reconcile/kb/NAME for the knowledge base of that name. Source: reconciliation-api.github.io/specs/0.2.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from textwrap import shorten
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Request, Response

import kbq
from kbq.serve.access import RECONCILE, refuse_foreign
from kbq.serve.bounds import MOST_ASKED, refuse_more
from kbq.serve.filling import SlotFiller
from kbq.serve.problems import RefusedError
from kbq.serve.reconciliation.candidates import Candidate, candidates, is_match, name_of
from kbq.serve.reconciliation.extension import Extension, described_settings, extended
from kbq.serve.services import Services, WithServices
from kbq.serve.views import rendered

T = TypeVar("T", dict[str, Any], Extension)
TYPE = {"id": "page", "name": "Page"}
MOST_NAMES = 25  # of one request
SUGGESTIONS = 20
DESCRIPTION = 160  # characters
WIDTH, HEIGHT = 430, 300  # of a preview, in pixels
FRAMED = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; sandbox"}


class _Asked:
    """A request, and what it is answered from."""

    def __init__(self, request: Request, services: Services) -> None:
        self._request, self._services = request, services
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
            return await self._candidates(self._read("queries", dict[str, Any]))
        if "extend" in self._fields:
            return await self._extension(self._read("extend", Extension))
        if not is_read_only:
            raise RefusedError(400, "the request has neither queries nor extend: send one of them as a field of a form")
        return self._manifest()

    def _read(self, field: str, type: type[T]) -> T:
        """Read the JSON in a field of the form."""
        try:
            read: T = msgspec.convert(json.loads(str(self._fields[field])), type, strict=False)
            return read
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors, too
            raise RefusedError(400, f"{field} cannot be read: {error}: send JSON as the protocol has it") from None

    def _manifest(self) -> Response:
        """Say what the service can do, and where, for those that register it."""
        name, root, path = self._served.name, self._services.address(self._request), self._request.url.path.rstrip("/")
        key = self._field("api_key") if self._services.settings.keys else ""  # which a preview needs, too
        with_key = f"&api_key={quote(key, safe='')}" if key else ""
        suggest = {
            kind: {"service_url": root, "service_path": f"{path}/suggest/{kind}"}
            for kind in ("entity", "property", "type")
        }
        suggest["entity"] |= {"flyout_service_url": root, "flyout_service_path": f"{path}/flyout?id=${{id}}"}
        manifest = {
            "versions": ["0.1", "0.2"],
            "name": f"{name} (kbq)",
            "identifierSpace": f"{root}{path}/pages/",
            "schemaSpace": f"{root}{path}/relations/",
            "documentation": f"{root}/",
            "serviceVersion": kbq.__version__,
            "batchSize": MOST_NAMES,
            "defaultTypes": [TYPE],
            "view": {"url": f"{root}/page/{{{{id}}}}?kb={name}"},
            "preview": {"url": f"{root}{path}/preview?id={{{{id}}}}{with_key}", "width": WIDTH, "height": HEIGHT},
            "suggest": suggest,
            "extend": {
                "propose_properties": {"service_url": root, "service_path": f"{path}/properties"},
                "property_settings": described_settings(self._filler.min_probability),
            },
        }
        if key:
            manifest["authentication"] = {"type": "apiKey", "name": "api_key", "in": "query"}
        return _json(manifest)

    async def _candidates(self, asked: Mapping[str, Any]) -> Response:
        refuse_more("names", len(asked), MOST_NAMES)
        names = {key: name_of(one) for key, one in asked.items()}
        found = await candidates(list(names.values()), self._filler)
        results = {
            key: {"result": [self._candidate(one, is_match(each) and one is each[0]) for one in each]}
            for key, each in zip(names, found, strict=True)
        }
        return _json(results)

    def _candidate(self, one: Candidate, is_match: bool) -> dict[str, Any]:
        features = {"name": one.page.likeness, **one.agrees}
        return self._named(one.page.page_id) | {
            "type": [TYPE],
            "score": one.score,
            "match": is_match,
            "features": [{"id": name, "value": value} for name, value in features.items()],
        }

    def _named(self, page_id: str) -> dict[str, Any]:
        page = self._served.page(page_id)
        first = page.paragraphs[0].text[: 4 * DESCRIPTION] if page.paragraphs else ""
        return {"id": page.id, "name": page.title, "description": shorten(first, DESCRIPTION, placeholder=" …")}

    async def _extension(self, request: Extension) -> Response:
        refuse_more("cells", len(request.ids) * len(request.properties), MOST_ASKED)
        refuse_more("rows and columns", max(len(request.ids), len(request.properties)), MOST_ASKED)
        pages = [self._served.page(page_id) for page_id in dict.fromkeys(request.ids) if self._served.has_page(page_id)]
        return _json(await extended(request, pages, self._filler))

    async def suggested_pages(self) -> Response:
        """Suggest pages whose title begins with the prefix, and the page that has it for its id."""
        prefix = self._field("prefix")
        ids = [prefix] if self._served.has_page(prefix) else []
        ids += [title.page_id for title in self._served.titles.beginning_with(prefix, SUGGESTIONS)]
        return _json({"result": [self._named(page_id) | {"notable": [TYPE]} for page_id in dict.fromkeys(ids)]})

    async def suggested_relations(self) -> Response:
        """Suggest relations with these letters, and the letters themselves: any relation can be asked for."""
        prefix = " ".join(self._field("prefix").split())
        found = [name for name in self._served.relations if prefix.casefold() in name.casefold()][:SUGGESTIONS]
        found.sort(key=lambda name: not name.casefold().startswith(prefix.casefold()))
        return _json({"result": _properties(dict.fromkeys([*found, *([prefix] if prefix else [])]))})

    async def suggested_types(self) -> Response:
        """Suggest the one type."""
        return _json({"result": [TYPE]})

    async def proposed(self) -> Response:
        """Propose relations for new columns."""
        limit = self._field("limit")
        wanted = {"limit": int(limit)} if limit.isdecimal() and limit.isascii() else {}
        properties = _properties(self._served.relations[: wanted.get("limit")])
        return _json({"type": self._field("type") or TYPE["id"], "properties": properties} | wanted)

    async def preview(self) -> Response:
        """Show a page as HTML, which may be in a frame of any other page, and can do nothing there."""
        return Response(self._rendered("preview.html"), headers=FRAMED, media_type="text/html")

    async def flyout(self) -> Response:
        """Show the same as a part of a page."""
        return _json({"id": self._field("id"), "html": self._rendered("flyout.html")})

    def _rendered(self, template: str) -> str:
        return rendered(template, {"page": self._served.page(self._field("id"))})

    def _field(self, name: str) -> str:
        return str(self._fields.get(name, ""))


def _properties(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"id": name, "name": name} for name in names]


def _json(document: Mapping[str, Any]) -> Response:
    """Return JSON in ASCII: halves of characters, which a client may have sent, are escaped."""
    return Response(json.dumps(document), media_type="application/json")


def _endpoint(answer: Callable[[_Asked], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    async def answered(request: Request, services: WithServices) -> Response:
        return await answer(_Asked(request, services))

    return answered


router = APIRouter(include_in_schema=False)
for _path, _answer in {
    "": _Asked.service,
    "/": _Asked.service,
    "/suggest/entity": _Asked.suggested_pages,
    "/suggest/property": _Asked.suggested_relations,
    "/suggest/type": _Asked.suggested_types,
    "/properties": _Asked.proposed,
    "/preview": _Asked.preview,
    "/flyout": _Asked.flyout,
}.items():
    for _base in (RECONCILE, f"{RECONCILE}/kb/{{name}}"):
        router.add_api_route(_base + _path, _endpoint(_answer), methods=["GET", "POST"])
