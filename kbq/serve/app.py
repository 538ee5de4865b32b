"""App: assemble the web application, which runs until it is told to end."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import kbq
from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.serve import api, decisions, documents, editing, pages, reconciliation, tools
from kbq.serve.api import RECORDS
from kbq.serve.batcher import Batcher
from kbq.serve.decisions import DecisionsFolder
from kbq.serve.filling import Services, TableFiller
from kbq.serve.guard import DESCRIPTION, OPEN, Guard, is_reconciliation
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb, make_ready
from kbq.serve.log_lines import log_as_json
from kbq.serve.metrics import Metrics
from kbq.serve.pages import HERE
from kbq.serve.problems import RefusedError, field_problems, response_to
from kbq.serve.settings import EVERYWHERE, ServeSettings
from kbq.serve.tools import server
from kbq.storage.records import json_line
from kbq.tables.outputs import BROWSER

TAGS = {
    "asking": "Answers with evidence, one by one or as a table.",
    "pages": "The pages that answers come from.",
    "reviewing": "What people decide on the values of tables.",
    "service": "What is served, and how it is.",
}

BACKLOG = 2048  # connections that wait to be accepted
# Seconds after which the event loop lets the search go on: each of its steps waits for it.
SWITCHES = 0.0005
KEPT = 75  # seconds for which an idle connection stays open: longer than proxies keep theirs


class _App(FastAPI):
    """An application whose description says how to send a key."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            described = super().openapi()
            key = {
                "type": "http",
                "scheme": "bearer",
                "description": "A key, where the service needs one.",
            }
            described["components"]["securitySchemes"] = {"key": key}
            described["components"]["schemas"] |= RECORDS
            described["security"] = (
                [{"key": []}] if self.state.services.settings.keys else [{}, {"key": []}]
            )
            for path in OPEN:
                described["paths"][path]["get"]["security"] = []

        return dict(self.openapi_schema or {})

    @cached_property
    def described(self) -> bytes:
        """The description as JSON, kept because writing it takes longer than an answer."""
        return json_line(self.openapi()).encode()


def create_app(
    served: KnowledgeBases, settings: ServeSettings, started: Callable[[], None] = lambda: None
) -> FastAPI:
    """Make the application that serves these knowledge bases; it calls `started` when it can
    answer.
    """
    metrics = Metrics()
    batcher = Batcher(settings.queue, settings.seconds, metrics)
    tags = [{"name": name, "description": text} for name, text in TAGS.items()]
    app = _App(
        title="kbq",
        version=kbq.__version__,
        openapi_url=None,
        lifespan=_running,
        description="Answers slot queries from knowledge bases of phrases, with evidence.",
        servers=[{"url": settings.public_url.rstrip("/") or "/"}],
        openapi_tags=tags,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = Services(served, batcher, TableFiller(batcher), settings, metrics)
    app.state.started = started
    app.state.decisions = DecisionsFolder(settings.decisions)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.add_exception_handler(KbqError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)

    for router in (
        api.health,
        api.router,
        pages.router,
        documents.router,
        reconciliation.router,
        decisions.router,
    ):
        app.include_router(router)

    if settings.edit is not None:
        app.state.editor = editing.Editor(settings.edit, app.state.services)
        app.include_router(editing.router)

    app.add_route(DESCRIPTION, _description)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    # Shared with the page that `kbq fill` writes.
    app.mount("/shared", StaticFiles(directory=BROWSER), name="shared")
    app.state.drawer = documents.Drawer()
    app.state.mcp = tools.applications(app.state.services)
    for application in app.state.mcp:
        app.router.routes.extend(application.routes)

    return app


async def _description(request: Request) -> Response:
    return Response(request.app.described, media_type="application/json")


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    """Have every knowledge base answer before the first request, and watch their folders while the
    service runs.
    """
    services: Services = app.state.services
    await asyncio.to_thread(app.state.decisions.repair, [served.name for served in services.kbs])
    async with services.batcher as batcher, AsyncExitStack() as running:
        for opened in services.kbs:
            await batcher.call(partial(make_ready, opened.kb), deadline=float("inf"))
        running.enter_context(app.state.drawer)
        for opened in app.state.mcp:
            await running.enter_async_context(opened.router.lifespan_context(opened))
        watching = asyncio.create_task(services.kbs.watch(batcher.call, services.metrics))
        app.state.started()  # the socket listens already
        yield
        watching.cancel()
        if services.settings.edit is not None:
            await app.state.editor.close()


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with a document for programs, and with a page for people."""
    services: Services = request.app.state.services
    if isinstance(error, KbqError):
        refused = error
    else:
        refused = RefusedError(500, str(error))
    path = request.url.path
    accepted = request.headers.get("accept", "")
    for_reconciliation = is_reconciliation(path)
    if "text/html" in accepted and not (for_reconciliation or path.startswith("/v1/")):
        return pages.error_page(request, refused)
    return response_to(refused, services.kbs.hidden, for_reconciliation)


async def _invalid(request: Request, error: Exception) -> Response:
    """Refuse a request that its route does not take, and name its fields, but not their values."""
    problems: Sequence[Any] = []
    if isinstance(error, RequestValidationError):
        problems = error.errors()[:MOST_PROBLEMS]
    if any(problem["type"] == "json_invalid" for problem in problems):
        return await _refused(
            request, RefusedError(400, "the request is not JSON: send one object {…}")
        )
    fields = field_problems(
        [{**problem, "loc": problem["loc"][1:] or problem["loc"]} for problem in problems]
    )
    first = ": ".join(next(iter(fields.items()), ("the request", "it is invalid")))
    return await _refused(request, RefusedError(422, first, fields=fields))


async def _http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    headers = getattr(error, "headers", None) or {}
    sentences = {
        400: "the request cannot be read: send JSON in UTF-8",
        404: "there is nothing at this address: /api lists what there is",
        405: (
            f"{request.method} is not allowed here: use "
            f"{headers.get('allow') or headers.get('Allow', 'GET')}"
        ),
    }
    sentence = sentences.get(status, str(getattr(error, "detail", "")))
    return await _refused(request, RefusedError(status, sentence, headers=headers))


def serve(served: KnowledgeBases, settings: ServeSettings, started: Callable[[str], None]) -> None:
    """Serve knowledge bases until SIGTERM or Ctrl-C; accepted requests are answered first.

    `started` is called with the address when the service answers. Raises KbqError if the port is
    taken, or the address is not one of this machine.
    """
    listening = listen(settings)
    log_as_json()
    sys.setswitchinterval(SWITCHES)
    gc.collect()
    gc.freeze()  # later collections skip all that is there now, and nobody waits for them
    # Uvicorn raises them again at its end, which is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    app = create_app(served, settings, lambda: started(address(settings, listening)))
    server_of(app, settings).run([listening])


def serve_stdio(served: ServedKb) -> None:
    """Speak with a model's host over standard input and output until it closes them; reopen a
    changed folder.
    """

    async def speak() -> None:
        log_as_json()
        async with Batcher() as batcher:
            watching = asyncio.create_task(KnowledgeBases([served]).watch(batcher.call, Metrics()))
            await server(served, batcher).run_stdio_async()
            watching.cancel()

    asyncio.run(speak())


def server_of(app: FastAPI, settings: ServeSettings) -> uvicorn.Server:
    """Return a server that tells as little of itself as it can."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEPT,
            timeout_graceful_shutdown=max(1, int(settings.seconds)),
            lifespan="on",
            proxy_headers=False,
        )
    )


def listen(settings: ServeSettings) -> socket.socket:
    """Open a socket that listens at the address of the settings.

    Raises KbqError if it is taken, or not an address of this machine.
    """
    try:
        family = socket.getaddrinfo(settings.host or None, settings.port, flags=socket.AI_PASSIVE)[
            0
        ][0]
        listening = socket.create_server(
            (settings.host, settings.port), family=family, backlog=BACKLOG
        )
        # asyncio does this for its own sockets: an answer is sent at once, even while its beginning
        # is unacknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno and error.errno > 0:
            reason = os.strerror(error.errno)
        else:
            reason = str(error.strerror)
        raise KbqError(
            f"{settings.host}:{settings.port} cannot be served ({reason}): choose another --port"
        ) from None


def address(settings: ServeSettings, listening: socket.socket) -> str:
    """Return the address at which a person opens the service."""
    if ":" in settings.host:
        host = f"[{settings.host}]"
    else:
        host = settings.host
    if settings.host in EVERYWHERE:
        host = "127.0.0.1"
    local = f"http://{host}:{listening.getsockname()[1]}"
    return f"{settings.public_url.rstrip('/') or local}/"
