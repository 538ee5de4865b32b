"""Guard: what is done for every request: it is let in or refused, read whole and in time, answered in time, and logged.

What is refused never reaches the application. A client that hangs up takes its request back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from kbq.serve.access import OPEN, is_reconciliation, origin_headers, refuse_foreign, refuse_host, refuse_key
from kbq.serve.bounds import MOST_TEXT
from kbq.serve.problems import LateError, OverloadedError, RefusedError, response_to

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kbq.serve.batcher import Batcher
    from kbq.serve.metrics import Metrics
    from kbq.serve.settings import ServeSettings

QUERIES = "/v1/query"  # is refused before it is read where too many wait: thousands are refused in a second
TABLES = ("/v1/fill", "/table", "/table.json")  # have more time, since others have their turn meanwhile
TIMES = 20  # as much
DISCARDED = 64_000_000  # bytes of a refused request that are read, so that its client reads the answer
TOGETHER = 64_000_000  # bytes of all requests that are being read or answered
PATIENCE, RESTS = 10.0, 2.0  # seconds in which a request must have arrived, and what is left of one that is refused
CLOSE = {"Connection": "close"}  # what has not been read of a request is no other request
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
    since: float = field(default_factory=time.monotonic)
    held: int = 0  # bytes of its body
    is_read: bool = False  # the whole body
    status: int = 0  # 0: no answer has begun
    is_sent: bool = False  # the whole answer

    @property
    def route(self) -> str:
        """The path as it is declared, so that neither metrics nor logs grow with what is asked."""
        route = self.scope.get("route")
        return getattr(route, "path", None) or "other"


class Guard:
    """The outermost layer of the service."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, batcher: Batcher, metrics: Metrics) -> None:
        self._app, self._settings, self._batcher, self._metrics = app, settings, batcher, metrics
        self._held = 0  # bytes of all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; everything else, such as the beginning and the end of the service, is passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the answer to GET; the server leaves its body out
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        exchange = _Exchange(scope, headers, asked if ID.fullmatch(asked) else uuid.uuid4().hex)
        scope.setdefault("state", {})["request_id"] = exchange.id
        await self._answer(exchange, receive, self._sender(exchange, send))
        self._tell(exchange)

    async def _answer(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        scope = exchange.scope
        try:
            response = self._response_without_app(exchange)
            if response is None:
                body = await self._body(exchange, receive)
                await self._while_connected(exchange, body, receive, send)
                return
        except RefusedError as error:
            refused = error
        except _HungUpError:
            return
        except asyncio.CancelledError:
            raise
        except BaseException:  # also a panic of a library that is written in Rust
            log.exception("a request failed", extra={"request": exchange.id})
            refused = RefusedError(500, f"something has failed here: the log says more about request {exchange.id}")
        else:
            await response(scope, receive, send)
            return
        finally:
            self._held -= exchange.held
        if not exchange.status:
            if "Connection" not in refused.headers:
                refused.headers |= await _rest(exchange, receive)
            answer = response_to(refused, for_reconciliation=is_reconciliation(scope["path"]))
            await answer(scope, receive, send)

    def _response_without_app(self, exchange: _Exchange) -> Response | None:
        """What is answered where another origin only asks what it may do.

        Raises:
            RefusedError: the request is refused.
        """
        path, headers = str(exchange.scope["path"]), exchange.headers
        if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1
            raise RefusedError(400, "the request says in two ways how long it is", headers=CLOSE)
        if path in OPEN:
            return None
        refuse_host(self._settings, headers.get("host", ""))
        method, origin = exchange.scope["method"], headers.get("origin", "")
        if method == "OPTIONS" and "Access-Control-Allow-Origin" in origin_headers(self._settings, path, origin):
            return Response(status_code=204)
        if not is_reconciliation(path):  # which looks itself: some of it is for every page
            refuse_foreign(self._settings, headers, method == "GET")
        refuse_key(self._settings, path, headers, exchange.scope["query_string"].decode("latin-1"))
        if path == QUERIES:
            self._batcher.refuse_overload(1)
        return None

    def _sender(self, exchange: _Exchange, send: Send) -> Send:
        """Sends answers with the headers that all of them have."""
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

    async def _body(self, exchange: _Exchange, receive: Receive) -> bytes:
        """The body of a request, whole.

        Raises:
            RefusedError: it is too large, does not arrive in time, or others hold too much.
        """
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while not exchange.is_read:
                    chunks.append(await _chunk(exchange, receive))
                    exchange.held += len(chunks[-1])
                    self._held += len(chunks[-1])
                    if exchange.held > MOST_TEXT:
                        raise RefusedError(413, f"the request has more than {MOST_TEXT:,} bytes: send less at once")
                    if self._held > TOGETHER:
                        raise OverloadedError(1)
        except TimeoutError:
            sentence = f"the request did not arrive within {PATIENCE:g} seconds: send it at once"
            raise RefusedError(408, sentence, headers=CLOSE) from None
        return b"".join(chunks)

    async def _while_connected(self, exchange: _Exchange, body: bytes, receive: Receive, send: Send) -> None:
        """Let the application answer, and take the request back when its client hangs up.

        Raises:
            LateError: it was not answered in time.
        """
        bodies = [body]

        async def replayed() -> Message:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False} if bodies else await receive()

        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        seconds = self._settings.seconds * (TIMES if exchange.scope["path"] in TABLES else 1)
        answering = asyncio.ensure_future(self._app(exchange.scope, replayed, send))
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


class _HungUpError(Exception):
    """The client is gone before its request was read."""


async def _chunk(exchange: _Exchange, receive: Receive) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _HungUpError
    exchange.is_read = not message.get("more_body")
    return bytes(message.get("body", b""))


async def _rest(exchange: _Exchange, receive: Receive) -> dict[str, str]:
    """Read what is left of a request that is refused, for some seconds; the header that says whether this was all.

    A client that waits to be told to send its body is not told so.
    """
    size = 0
    if "expect" not in exchange.headers:
        try:
            async with asyncio.timeout(RESTS):
                while not exchange.is_read and size <= DISCARDED:
                    size += len(await _chunk(exchange, receive))
        except (TimeoutError, _HungUpError):
            pass
    return {} if exchange.is_read else CLOSE
