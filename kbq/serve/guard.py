"""Guard: every request is let in or refused, read whole and in time, answered in time, and logged.

The application never sees a refused request. A client that hangs up takes its request back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from kbq.serve.access import OPEN, is_reconciliation, origin_headers, refuse_foreign, refuse_host, refuse_key
from kbq.serve.bodies import CLOSE, LARGE, SMALL, Bodies, Body, HungUpError, Line
from kbq.serve.problems import LateError, RefusedError, response_to
from kbq.serve.turns import CLIENT, client_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kbq.serve.access import ServeSettings
    from kbq.serve.batcher import Batcher
    from kbq.serve.monitoring import Metrics

QUERIES = "/v1/query"  # refused unread where too many wait: thousands are refused in a second
TABLES = ("/v1/fill", "/table", "/table.json")  # have more time, since others have their turn meanwhile
TIMES = 20  # as much
REFUSING = 1.0  # seconds that a refusal waits in line at most
MOST_REFUSED = 100  # refusals that wait at once: each holds a connection
ENDS = "ends"  # in the state of a request: the service ends, and so does its connection
ID = re.compile(r"[\w-]{1,64}", re.ASCII)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
log = logging.getLogger("kbq.serve")


@dataclass(slots=True)
class _Exchange:
    """One request and its answer."""

    scope: Scope
    headers: Headers
    id: str
    body: Body
    since: float = field(default_factory=time.monotonic)
    status: int = 0  # 0: no answer has begun
    is_sent: bool = False  # the whole answer

    @property
    def route(self) -> str:
        """The path as it is declared, so that metrics and logs do not grow with every address that is asked."""
        route = self.scope.get("route")
        return getattr(route, "path", None) or "other"

    @property
    def is_small(self) -> bool:
        """Whether it takes as little of the event loop as a query."""
        path = self.scope["path"]
        return path in OPEN or (path == QUERIES and self.body.size <= SMALL)


class Guard:
    """The outermost layer of the service, a middleware of ASGI."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, batcher: Batcher, metrics: Metrics) -> None:
        self._app, self._settings, self._batcher, self._metrics = app, settings, batcher, metrics
        self._bodies, self._line, self._refusals = Bodies(), Line(), Line()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; pass on everything else, such as the start and the end of the service."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the answer to GET; the server leaves its body out
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        exchange = _Exchange(scope, headers, asked if ID.fullmatch(asked) else uuid.uuid4().hex, Body(receive))
        scope.setdefault("state", {})["request_id"] = exchange.id
        CLIENT.set(client_of(scope["client"][0] if scope.get("client") else ""))
        await self._answer(exchange, self._sender(exchange, send))
        self._tell(exchange)

    async def _answer(self, exchange: _Exchange, send: Send) -> None:
        scope, body = exchange.scope, exchange.body
        try:
            if self._is_preflight(exchange):
                await Response(status_code=204)(scope, body.receive, send)
                return
            content = await self._bodies.whole(body)
            await self._while_connected(exchange, body.replayed(content), send)
            return
        except RefusedError as error:
            refused = error
        except HungUpError:
            return
        except asyncio.CancelledError:
            raise
        except BaseException:  # also a panic of a library that is written in Rust
            log.exception("a request failed", extra={"request": exchange.id})
            refused = RefusedError(500, f"something has failed here: the log says more about request {exchange.id}")
        finally:
            self._bodies.let_go(body)
        if not exchange.status:
            if self._batcher.is_asked and scope["path"] not in OPEN and self._refusals.waiting < MOST_REFUSED:
                with suppress(TimeoutError):
                    async with asyncio.timeout(REFUSING):
                        await self._refusals.turn()
            if "Connection" not in refused.headers:  # who waits to be told to send a body is not told so
                refused.headers |= CLOSE if "expect" in exchange.headers else await body.rest()
            answer = response_to(refused, for_reconciliation=is_reconciliation(scope["path"]))
            await answer(scope, body.receive, send)

    def _is_preflight(self, exchange: _Exchange) -> bool:
        """Let a request in; say whether another origin only asks what it may do, which needs no application.

        Raises:
            RefusedError: the request is refused.
        """
        path, method, headers = str(exchange.scope["path"]), exchange.scope["method"], exchange.headers
        if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1
            raise RefusedError(400, "the request says in two ways how long it is", headers=CLOSE)
        if path in OPEN:
            return False
        refuse_host(self._settings, headers.get("host", ""))
        origin = headers.get("origin", "")
        if method == "OPTIONS" and "Access-Control-Allow-Origin" in origin_headers(self._settings, path, origin):
            return True
        if method == "POST" or not is_reconciliation(path):  # which looks itself: some of it is for every page
            refuse_foreign(self._settings, headers, method == "GET")
        refuse_key(self._settings, path, headers, exchange.scope["query_string"].decode("latin-1"))
        if path == QUERIES:
            self._batcher.refuse_overload(1)
        return False

    def _sender(self, exchange: _Exchange, send: Send) -> Send:
        """Return what sends answers with the headers that all of them have."""
        path, origin = str(exchange.scope["path"]), exchange.headers.get("origin", "")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                if "frame-ancestors 'none'" not in answer["Content-Security-Policy"]:  # what may be shown in a frame
                    del answer["X-Frame-Options"]
                answer.update(origin_headers(self._settings, path, origin))
                answer["X-Request-Id"] = exchange.id
                if self._settings.keys and path not in OPEN:
                    answer.setdefault("Cache-Control", "no-store")
                if exchange.scope["state"].get(ENDS):
                    answer["Connection"] = "close"
            elif not message.get("more_body"):
                exchange.is_sent = True
            await send(message)

        return send_with_headers

    def _tell(self, exchange: _Exchange) -> None:
        seconds, status = time.monotonic() - exchange.since, exchange.status or 499
        self._metrics.requests.labels(exchange.route, str(status)).inc()
        self._metrics.seconds.labels(exchange.route).observe(seconds)
        facts: dict[str, object] = {"request": exchange.id, "method": exchange.scope["method"], "route": exchange.route}
        facts |= {"status": status, "seconds": round(seconds, 4)}
        queries = exchange.scope["state"].get("queries") if self._settings.log_queries else None
        log.info("request", extra=facts | ({"queries": queries} if queries else {}))

    async def _while_connected(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        """Let the application answer, and take the request back when its client hangs up.

        Raises:
            LateError: it was not answered in time.
        """

        async def answer() -> None:
            if exchange.body.size > LARGE or (self._batcher.is_asked and not exchange.is_small):
                await self._line.turn(exchange.body.size)
            await self._app(exchange.scope, receive, send)

        async def hung_up() -> None:
            while (await exchange.body.receive())["type"] != "http.disconnect":
                pass

        seconds = self._settings.seconds * (TIMES if exchange.scope["path"] in TABLES else 1)
        answering = asyncio.ensure_future(answer())
        watching = asyncio.ensure_future(hung_up())
        try:
            await asyncio.wait((answering, watching), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answering.done() or exchange.is_sent:
                await answering
                return
            is_late = not watching.done()
            answering.cancel()
            await asyncio.wait((answering,))
            if is_late:
                self._metrics.dropped.labels("late").inc()
                raise LateError(seconds)
        finally:
            answering.cancel()
            watching.cancel()
