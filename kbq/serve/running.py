"""Running: an application becomes a process that listens, logs as JSON lines, and ends when it is told to."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import uvicorn

from kbq.errors import KbqError
from kbq.serve.app import create_app
from kbq.serve.connections import PatientProtocol
from kbq.serve.settings import EVERYWHERE, ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kbq.serve.knowledge_bases import KnowledgeBases

BACKLOG = 2048  # connections that wait to be accepted
KEPT = 75  # seconds for which an idle connection stays open: longer than proxies keep theirs
STANDARD = {*vars(logging.makeLogRecord({})), "color_message"}  # what every record of a log has, or uvicorn adds


def serve(served: KnowledgeBases, settings: ServeSettings, started: Callable[[str], None]) -> None:
    """Serve knowledge bases until SIGTERM or Ctrl-C; requests that have been accepted are answered first.

    Args:
        started: called with the address when the service answers.

    Raises:
        KbqError: the port is taken, or the address is not one of this machine.
    """
    listening = listen(settings)
    log_as_json()
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again when it has ended: that is no failure
        signal.signal(number, lambda *_: None)
    server = Server(create_app(served, settings), settings, lambda: started(address(settings, listening)))
    server.run([listening])


class Server(uvicorn.Server):
    """uvicorn, which says when it has started."""

    def __init__(self, app: FastAPI, settings: ServeSettings, started: Callable[[], None]) -> None:
        """A server for an application, not running yet."""
        seconds = max(1, int(settings.seconds))
        super().__init__(
            uvicorn.Config(
                app, http=PatientProtocol, ws="none", log_config=None, access_log=False, server_header=False,
                backlog=BACKLOG, timeout_keep_alive=KEPT, timeout_graceful_shutdown=seconds, lifespan="on",
                proxy_headers=False,
            )
        )  # fmt: skip
        self._told = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._told()


def listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens at the address of the settings.

    Raises:
        KbqError: it is taken, or not an address of this machine.
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
    """The address to open."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    local = f"http://{'127.0.0.1' if settings.host in EVERYWHERE else host}:{listening.getsockname()[1]}"
    return f"{settings.public_url.rstrip('/') or local}/"


class JsonLines(logging.Formatter):
    """Records of a log as JSON, one a line, with what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Write what the service and uvicorn log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("kbq.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
