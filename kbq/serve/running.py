"""Running: a service listens, or speaks over standard input and output, until it is told to end."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from kbq.errors import KbqError
from kbq.serve.access import EVERYWHERE, ServeSettings
from kbq.serve.app import create_app
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb
from kbq.serve.monitoring import Metrics, log_as_json
from kbq.serve.tools import server

BACKLOG = 2048  # connections that wait to be accepted
UNTAKEN = 10.0  # seconds after which a connection ends whose client takes nothing of its answer
SWITCHES = 0.0005  # seconds after which the event loop lets the search go on: each of its steps waits for it
KEPT = 75  # seconds for which an idle connection stays open: longer than proxies keep theirs


def serve(served: KnowledgeBases, settings: ServeSettings, started: Callable[[str], None]) -> None:
    """Serve knowledge bases until SIGTERM or Ctrl-C; requests that have been accepted are answered first.

    `started`: called with the address when the service answers. Raises KbqError if the port is taken, or the address is
    not one of this machine.
    """
    listening = listen(settings)
    log_as_json()
    sys.setswitchinterval(SWITCHES)
    gc.collect()
    gc.freeze()  # later collections skip all that is there now, and nobody waits for them
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again when it has ended: that is no failure
        signal.signal(number, lambda *_: None)
    Server(create_app(served, settings), settings, lambda: started(address(settings, listening))).run([listening])


def serve_stdio(served: ServedKb) -> None:
    """Speak with a model's host over standard input and output until it closes them; a changed folder is reopened."""

    async def speak() -> None:
        log_as_json()
        async with Batcher() as batcher:
            watching = asyncio.create_task(KnowledgeBases([served]).watch(batcher.call, Metrics()))
            await server(served, batcher).run_stdio_async()
            watching.cancel()

    asyncio.run(speak())


class Server(uvicorn.Server):
    """A uvicorn server that says when it has started."""

    def __init__(self, app: FastAPI, settings: ServeSettings, started: Callable[[], None]) -> None:
        """A server for an application, not running yet."""
        super().__init__(
            uvicorn.Config(
                app, http="h11", ws="none", log_config=None, access_log=False, server_header=False, backlog=BACKLOG,
                timeout_keep_alive=KEPT, timeout_graceful_shutdown=max(1, int(settings.seconds)), lifespan="on",
                proxy_headers=False,
            )
        )  # fmt: skip
        self._told = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._told()


def listen(settings: ServeSettings) -> socket.socket:
    """Open a socket that listens at the address of the settings.

    Raises KbqError if it is taken, or not an address of this machine.
    """
    try:
        family = socket.getaddrinfo(settings.host or None, settings.port, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
        # asyncio does this for its own sockets: an answer is sent at once, even while its beginning is unacknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections inherit it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNTAKEN))
        return listening
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise KbqError(f"{settings.host}:{settings.port} cannot be served ({reason}): choose another --port") from None


def address(settings: ServeSettings, listening: socket.socket) -> str:
    """Return the address to open."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    local = f"http://{'127.0.0.1' if settings.host in EVERYWHERE else host}:{listening.getsockname()[1]}"
    return f"{settings.public_url.rstrip('/') or local}/"
