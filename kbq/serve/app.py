"""App: knowledge bases become a web application: its API, its pages, and how they refuse."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import kbq
from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.serve import api, decisions, pages, reconciliation, tools
from kbq.serve.access import OPEN, ServeSettings, is_reconciliation
from kbq.serve.batcher import Batcher
from kbq.serve.filling import TableFiller
from kbq.serve.guard import Guard
from kbq.serve.knowledge_bases import FIRST, KnowledgeBases
from kbq.serve.monitoring import Metrics
from kbq.serve.problems import RefusedError, response_to
from kbq.serve.schemas import RECORDS
from kbq.serve.services import Services
from kbq.serve.views import HERE
from kbq.tables.outputs import BROWSER

TAGS = {
    "asking": "Answers with evidence, one by one or as a table.",
    "pages": "The pages that answers come from.",
    "reviewing": "What people decide on the values of tables.",
    "service": "What is served, and how it is.",
}


class _App(FastAPI):
    """An application whose description says how a key is sent."""

    def openapi(self) -> dict[str, Any]:
        """Return the description of the API."""
        if self.openapi_schema is None:
            described = super().openapi()
            key = {"type": "http", "scheme": "bearer", "description": "A key, where the service needs one."}
            described["components"]["securitySchemes"] = {"key": key}
            described["components"]["schemas"] |= RECORDS
            described["security"] = [{"key": []}] if self.state.services.settings.keys else [{}, {"key": []}]
            for path in OPEN:
                described["paths"][path]["get"]["security"] = []
        return dict(self.openapi_schema or {})


def create_app(served: KnowledgeBases, settings: ServeSettings) -> FastAPI:
    """Make the application that serves these knowledge bases."""
    metrics = Metrics()
    batcher = Batcher(settings.queue, settings.seconds, metrics)
    app = _App(
        title="kbq", version=kbq.__version__, docs_url=None, redoc_url=None, lifespan=_running,
        description="Answers slot queries from knowledge bases of phrases, with evidence.",
        servers=[{"url": settings.public_url.rstrip("/") or "/"}],
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    app.state.services = Services(served, batcher, TableFiller(batcher), settings, metrics)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.add_exception_handler(KbqError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for router in (api.health, api.router, pages.router, reconciliation.router, decisions.router):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.mount("/shared", StaticFiles(directory=BROWSER), name="shared")  # with the page that `kbq fill` writes
    app.state.mcp = tools.applications(app.state.services)
    app.router.routes.extend(route for one in app.state.mcp for route in one.routes)
    return app


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    """Have every knowledge base answer before the first request, and watch their folders while the service runs."""
    services: Services = app.state.services
    if services.settings.decisions:
        decisions.check(services.settings.decisions, [one.name for one in services.kbs])
    async with services.batcher as batcher, AsyncExitStack() as running:
        for one in services.kbs:
            await batcher.call(lambda kb=one.kb: kb.query(FIRST, 1), deadline=float("inf"))  # type: ignore[misc]
        for one in app.state.mcp:
            await running.enter_async_context(one.router.lifespan_context(one))
        watching = asyncio.create_task(services.kbs.watch(batcher.call, services.metrics))
        yield
        watching.cancel()


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with a document for programs, and with a page for people."""
    services: Services = request.app.state.services
    refused = error if isinstance(error, KbqError) else RefusedError(500, str(error))
    path, accepted = request.url.path, request.headers.get("accept", "")
    for_reconciliation = is_reconciliation(path)
    if "text/html" in accepted and not (for_reconciliation or path.startswith("/v1/")):
        return pages.error_page(request, refused)
    return response_to(refused, services.kbs.hidden, for_reconciliation)


async def _invalid(request: Request, error: Exception) -> Response:
    """Refuse what its route does not take: the fields are named, but not what they hold."""
    problems = error.errors()[:MOST_PROBLEMS] if isinstance(error, RequestValidationError) else []
    if any(problem["type"] == "json_invalid" for problem in problems):
        return await _refused(request, RefusedError(400, "the request is not JSON: send one object {…}"))
    fields = {_field(problem["loc"]): _said(problem) for problem in problems}
    first = ": ".join(next(iter(fields.items()), ("the request", "it is invalid")))
    return await _refused(request, RefusedError(422, first, fields=fields))


SAID = {  # what the framework finds, in our words; names in braces are what it says of the limits
    "missing": "is missing: give it",
    "extra_forbidden": "is unknown: leave it out",
    "string_too_short": "is empty: write something",
    "string_too_long": "has more than {max_length:,} characters: shorten it",
    "too_short": "has no items: give at least {min_length:,}",
    "too_long": "has more than {max_length:,} items: give fewer",
    "greater_than_equal": "must be {ge:,} or more",
    "less_than_equal": "must be {le:,} or less",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object {{…}}",
    "model_type": "must be an object {{…}}",
    "model_attributes_type": "must be an object {{…}}",
    "literal_error": "must be one of {expected}",
}


def _said(problem: Mapping[str, Any]) -> str:
    """Say what is wrong with a field."""
    said = SAID.get(problem["type"])
    return said.format(**problem.get("ctx", {})) if said else str(problem["msg"])


def _field(place: tuple[object, ...]) -> str:
    """Return the name of a field, such as queries[3]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:]]
    return "".join(parts).removeprefix(".") or str(place[0] if place else "request")


GONE = {"/index.json": "POST /v1/query", "/pages.json": "/v1/titles", "/table.json": "POST /v1/fill"}


async def _http(request: Request, error: Exception) -> Response:
    """Refuse what the framework refuses, in our words."""
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None) or {}
    sentences = {
        400: "the request cannot be read: send JSON in UTF-8",
        404: "there is nothing at this address: /api lists what there is",
        405: f"{request.method} is not allowed here: use {headers.get('allow') or headers.get('Allow', 'GET')}",
    }
    sentence = sentences.get(status, str(getattr(error, "detail", "")))
    if request.url.path in GONE:
        sentence = f"this address is gone: use {GONE[request.url.path]}"
    return await _refused(request, RefusedError(status, sentence, headers=headers))
