"""App: assemble the web application, keep people's decisions, and run the service until it is told to end.

Decisions count in the order in which they arrive, whatever the clocks of the browsers say. A browser sends a decision
again, with the same id, until it knows that it is kept.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import kbq
from kbq.errors import MOST_PROBLEMS, KbqError, for_commands
from kbq.serve import api, editing, pages, reconciliation, tools
from kbq.serve.api import RECORDS, ClientObject, KbName, json_only
from kbq.serve.batcher import Batcher
from kbq.serve.filling import Services, TableFiller, WithServices
from kbq.serve.guard import DESCRIPTION, EVERYWHERE, OPEN, Guard, ServeSettings, is_reconciliation
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb, make_ready
from kbq.serve.pages import HERE
from kbq.serve.problems import DESCRIBED, Metrics, RefusedError, field_problems, log_as_json, response_to
from kbq.serve.tools import server
from kbq.storage.files import lock, make_folders, open_to_grow, sync_folder, sync_open, writing_to
from kbq.storage.records import json_line
from kbq.tables.deciding import LONGEST, decision_of
from kbq.tables.outputs import BROWSER

MOST, MOST_BYTES = 500, 1_000_000  # decisions that are sent at once, and bytes of those that come back
LONGEST_FILE = 200_000_000  # bytes: a million decisions
LARGEST = 2**53  # of the numbers of a place
PATIENCE = 10.0  # seconds
NAMES = ("subject", "relation", "value", "decision", "time", "reviewer", "id")
PLACE: dict[str, type] = {"page_id": str, "paragraph": int, "start": int, "end": int}
LOG = logging.getLogger("kbq.serve")
decisions_router = APIRouter(
    prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED}
)

TAGS = {
    "asking": "Answers with evidence, one by one or as a table.",
    "pages": "The pages that answers come from.",
    "reviewing": "What people decide on the values of tables.",
    "service": "What is served, and how it is.",
}

BACKLOG = 2048  # connections that wait to be accepted
SWITCHES = 0.0005  # seconds after which the event loop lets the search go on: each of its steps waits for it
KEPT = 75  # seconds for which an idle connection stays open: longer than proxies keep theirs


class NotKeptError(RefusedError):
    """Decisions that cannot be written."""

    def __init__(self, message: str) -> None:
        super().__init__(507, message)


class DecisionsRequest(ClientObject):
    """Somebody's decisions, and the byte of the file from which everybody's decisions are wanted."""

    kb: KbName = None
    since: Annotated[int, Field(ge=0)] = 0
    decisions: Annotated[list[dict[str, Any]], Field(default_factory=list, max_length=MOST)]


class KeptDecisions(BaseModel):
    """Decisions in the order in which they arrived, and the byte behind them; `more`: there are others there."""

    decisions: list[dict[str, Any]]
    next: int
    more: bool


@decisions_router.post("/decisions", tags=["reviewing"])
async def exchange(given: DecisionsRequest, services: WithServices) -> KeptDecisions:
    """Keep decisions, each {subject, relation, value, decision}, and return those that have arrived since.

    A decision whose `id` is already there behind `since` is not kept again.
    """
    folder = services.settings.decisions
    if folder is None:
        raise RefusedError(404, "decisions are not kept here: start `kbq serve --decisions FOLDER`")
    lines = []
    for number, fields in enumerate(given.decisions):
        try:
            lines.append(_line(fields))
        except KbqError as error:
            raise RefusedError(422, f"decisions[{number}] {error}") from None
    return await asyncio.to_thread(_exchanged, _path(folder, services.kbs.named(given.kb).name), lines, given.since)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.decisions.jsonl"


def _line(fields: dict[str, Any]) -> bytes:
    """Return the line of a decision, with only the fields that `kbq fill`, `finetune` and `calibrate` read."""
    decision = decision_of(fields)
    line: dict[str, Any] = {
        "subject": decision.subject, "relation": decision.relation, "value": decision.value,
        "decision": decision.choice, "time": decision.time, "reviewer": decision.reviewer,
    }  # fmt: skip
    line |= {"id": decision.id} if decision.id else {}
    line |= {name: fields[name] for name, kind in PLACE.items() if type(fields.get(name)) is kind}
    for name, value in line.items():
        if name in PLACE and not (len(value) <= LONGEST if isinstance(value, str) else 0 <= value <= LARGEST):
            raise KbqError(f"has a {name} that is too long, or no number of a place: leave it out")
    line |= {"object": decision.value, "page": line.get("page_id", "")}
    return json_line(line).encode("utf-8", "backslashreplace") + b"\n"


def _exchanged(path: Path, lines: Sequence[bytes], since: int) -> KeptDecisions:
    """Append lines, which are on the disk when this returns, and read those behind a place."""
    with _alone(path) as file:
        file.seek(max(0, since - 1))
        first = since if since and file.read(1) == b"\n" else 0  # where no line begins, the file has been replaced
        if lines:
            _append(file, path, lines, first)
        end = file.seek(0, os.SEEK_END)
        file.seek(first)
        read = file.read(MOST_BYTES) + file.readline()
    whole = read[: read.rfind(b"\n") + 1]
    decisions = [found for line in whole.splitlines() if (found := _read(line))]
    return KeptDecisions(decisions=decisions, next=first + len(whole), more=first + len(read) < end)


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """Open a file, made if need be, that nobody else writes to meanwhile."""
    with writing_to(path, NotKeptError):
        make_folders(path.parent)
        is_new = not path.exists()
        with open_to_grow(path) as file:
            if is_new:
                sync_folder(path.parent)
            until = time.monotonic() + PATIENCE
            while not lock(file.fileno()):  # others hold it for milliseconds
                if time.monotonic() > until:
                    raise RefusedError(
                        503, f"another process has been writing to {path.name} for {PATIENCE:g} seconds: send it again"
                    )
                time.sleep(0.005)
            yield file


def _append(file: BinaryIO, path: Path, lines: Sequence[bytes], first: int) -> None:
    """Append the lines that are not yet behind a place. Either all of them reach the disk, or none does."""
    there = {found.get("id") for line in _whole_lines(file, path, first).splitlines() if (found := _read(line))}
    new = [line for line in dict.fromkeys(lines) if json.loads(line).get("id", "") not in there]
    end = file.seek(0, os.SEEK_END)
    if new and end > LONGEST_FILE:
        raise NotKeptError(f"{path.name} has more than {LONGEST_FILE:,} bytes: no more decisions are kept in it")
    left, handle = memoryview(b"".join(new)), file.fileno()
    try:
        while left:  # unbuffered: what is left of it must not be written later
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)  # a full disk has taken a part of them
        raise


def _whole_lines(file: BinaryIO, path: Path, first: int) -> bytes:
    """Return the lines behind a place; move the torn line that a crash has left to a file beside.

    A kill leaves the beginning of a line, a power cut zeros in place of bytes that had not reached the disk.
    """
    file.seek(first)
    read = file.read()
    whole = read[: read.rfind(b"\n", 0, read.find(b"\0") if b"\0" in read else None) + 1]
    if len(whole) < len(read):
        beside = path.with_name(f"{path.name}.torn")
        with open_to_grow(beside) as other:
            other.seek(0, os.SEEK_END)
            other.write(read[len(whole) :] + b"\n")
            sync_open(other)
        file.truncate(first + len(whole))
        sync_open(file)
        LOG.warning("%s ended in a torn line, which is in %s now", path.name, beside.name)
    return whole


def _read(line: bytes) -> dict[str, Any] | None:
    """Return the decision in a line of the file, or None if somebody has written something else into it."""
    try:
        fields = json.loads(line)
        decision_of(fields)
    except (ValueError, AttributeError, KbqError):
        return None
    return {name: fields[name] for name in NAMES if fields.get(name) or name == "value"}


class _App(FastAPI):
    """An application whose description says how to send a key."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            described = super().openapi()
            key = {"type": "http", "scheme": "bearer", "description": "A key, where the service needs one."}
            described["components"]["securitySchemes"] = {"key": key}
            described["components"]["schemas"] |= RECORDS
            described["security"] = [{"key": []}] if self.state.services.settings.keys else [{}, {"key": []}]
            for path in OPEN:
                described["paths"][path]["get"]["security"] = []
        return dict(self.openapi_schema or {})

    @cached_property
    def described(self) -> bytes:
        """The description as JSON, kept because writing it takes longer than an answer."""
        return json_line(self.openapi()).encode()


def create_app(served: KnowledgeBases, settings: ServeSettings, started: Callable[[], None] = lambda: None) -> FastAPI:
    """Make the application that serves these knowledge bases; it calls `started` when it can answer."""
    metrics = Metrics()
    batcher = Batcher(settings.queue, settings.seconds, metrics)
    app = _App(
        title="kbq", version=kbq.__version__, openapi_url=None, lifespan=_running,
        description="Answers slot queries from knowledge bases of phrases, with evidence.",
        servers=[{"url": settings.public_url.rstrip("/") or "/"}],
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    app.state.services, app.state.started = Services(served, batcher, TableFiller(batcher), settings, metrics), started
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.add_exception_handler(KbqError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for router in (api.health, api.router, pages.router, reconciliation.router, decisions_router):
        app.include_router(router)
    if settings.edit is not None:
        app.state.editor = editing.Editor(settings.edit, app.state.services)
        app.include_router(editing.router)
    app.add_route(DESCRIPTION, _description)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.mount("/shared", StaticFiles(directory=BROWSER), name="shared")  # with the page that `kbq fill` writes
    app.state.mcp = tools.applications(app.state.services)
    app.router.routes.extend(route for one in app.state.mcp for route in one.routes)
    return app


async def _description(request: Request) -> Response:
    return Response(request.app.described, media_type="application/json")


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    """Have every knowledge base answer before the first request, and watch their folders while the service runs."""
    services: Services = app.state.services
    if folder := services.settings.decisions:
        for path in filter(Path.exists, (_path(folder, one.name) for one in services.kbs)):
            with _alone(path) as file:
                _whole_lines(file, path, 0)
    async with services.batcher as batcher, AsyncExitStack() as running:
        for one in services.kbs:
            await batcher.call(partial(make_ready, one.kb), deadline=float("inf"))
        for one in app.state.mcp:
            await running.enter_async_context(one.router.lifespan_context(one))
        watching = asyncio.create_task(services.kbs.watch(batcher.call, services.metrics))
        app.state.started()  # the socket listens already
        yield
        watching.cancel()
        if services.settings.edit is not None:
            await app.state.editor.close()


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
    """Refuse a request that its route does not take, and name its fields, but not their values."""
    problems = error.errors()[:MOST_PROBLEMS] if isinstance(error, RequestValidationError) else []
    if any(problem["type"] == "json_invalid" for problem in problems):
        return await _refused(request, RefusedError(400, "the request is not JSON: send one object {…}"))
    fields = field_problems([{**problem, "loc": problem["loc"][1:] or problem["loc"]} for problem in problems])
    first = ": ".join(next(iter(fields.items()), ("the request", "it is invalid")))
    return await _refused(request, RefusedError(422, first, fields=fields))


async def _http(request: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None) or {}
    sentences = {
        400: "the request cannot be read: send JSON in UTF-8",
        404: "there is nothing at this address: /api lists what there is",
        405: f"{request.method} is not allowed here: use {headers.get('allow') or headers.get('Allow', 'GET')}",
    }
    sentence = sentences.get(status, str(getattr(error, "detail", "")))
    return await _refused(request, RefusedError(status, sentence, headers=headers))


def serve(served: KnowledgeBases, settings: ServeSettings, started: Callable[[str], None]) -> None:
    """Serve knowledge bases until SIGTERM or Ctrl-C; accepted requests are answered first.

    `started` is called with the address when the service answers. Raises KbqError if the port is taken, or the address
    is not one of this machine.
    """
    listening = listen(settings)
    log_as_json()
    sys.setswitchinterval(SWITCHES)
    gc.collect()
    gc.freeze()  # later collections skip all that is there now, and nobody waits for them
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again at its end, which is no failure
        signal.signal(number, lambda *_: None)
    app = create_app(served, settings, lambda: started(address(settings, listening)))
    with for_commands(False):  # clients of HTTP know fields, not options
        server_of(app, settings).run([listening])


def serve_stdio(served: ServedKb) -> None:
    """Speak with a model's host over standard input and output until it closes them; reopen a changed folder."""

    async def speak() -> None:
        log_as_json()
        async with Batcher() as batcher:
            watching = asyncio.create_task(KnowledgeBases([served]).watch(batcher.call, Metrics()))
            await server(served, batcher).run_stdio_async()
            watching.cancel()

    with for_commands(False):
        asyncio.run(speak())


def server_of(app: FastAPI, settings: ServeSettings) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", log_config=None, access_log=False, server_header=False, backlog=BACKLOG,
            timeout_keep_alive=KEPT, timeout_graceful_shutdown=max(1, int(settings.seconds)), lifespan="on",
            proxy_headers=False,
        )
    )  # fmt: skip


def listen(settings: ServeSettings) -> socket.socket:
    """Open a socket that listens at the address of the settings.

    Raises KbqError if it is taken, or not an address of this machine.
    """
    try:
        family = socket.getaddrinfo(settings.host or None, settings.port, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
        # asyncio does this for its own sockets: an answer is sent at once, even while its beginning is unacknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise KbqError(f"{settings.host}:{settings.port} cannot be served ({reason}): choose another --port") from None


def address(settings: ServeSettings, listening: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    local = f"http://{'127.0.0.1' if settings.host in EVERYWHERE else host}:{listening.getsockname()[1]}"
    return f"{settings.public_url.rstrip('/') or local}/"
