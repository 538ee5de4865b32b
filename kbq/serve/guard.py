"""Guard: what is done for every request: it is let in or refused, read whole and in time, counted, timed and logged.

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

from kbq.serve.access import is_reconciliation, origin_headers, refuse_host, refuse_key
from kbq.serve.problems import RefusedError, response_to

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kbq.serve.batcher import Batcher
    from kbq.serve.metrics import Metrics
    from kbq.serve.settings import ServeSettings

QUERIES = "/v1/query"  # is refused before it is read where too many wait: thousands are refused in a second
LARGEST = 1_000_000  # bytes of a request
DISCARDED = 64_000_000  # bytes of a larger one that are read, so that its client reads the answer
PATIENCE = 10.0  # seconds in which a request must have arrived
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
            refused = self._refusal(exchange)
            if refused is None:
                body = await _body(exchange.headers, receive)
                await _while_connected(self._app, exchange, body, receive, send)
                return
        except RefusedError as error:
            refused = response_to(error, for_reconciliation=is_reconciliation(scope["path"]))
        except _HungUpError:
            return
        except Exception:
            log.exception("a request failed", extra={"request": exchange.id})
            if exchange.status:
                return
            sentence = f"something has failed here: the log says more about request {exchange.id}"
            refused = response_to(RefusedError(500, sentence), for_reconciliation=is_reconciliation(scope["path"]))
        await refused(scope, receive, send)

    def _refusal(self, exchange: _Exchange) -> Response | None:
        """The answer to a request that is not passed on: it is refused, or asks what another origin may do."""
        path, headers = str(exchange.scope["path"]), exchange.headers
        refuse_host(self._settings, path, headers.get("host", ""))
        if exchange.scope["method"] == "OPTIONS" and origin_headers(self._settings, path, headers.get("origin", "")):
            return Response(status_code=204)
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


class _HungUpError(Exception):
    """The client is gone before its request was read."""


async def _body(headers: Headers, receive: Receive) -> bytes:
    """The body of a request, whole.

    Raises:
        RefusedError: it is too large, or does not arrive in time.
    """
    chunks: list[bytes] = []
    size, is_complete = 0, False
    try:
        async with asyncio.timeout(PATIENCE):
            while not is_complete and size <= DISCARDED:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _HungUpError
                size += len(message.get("body", b""))
                if size <= LARGEST:
                    chunks.append(message.get("body", b""))
                is_complete = not message.get("more_body")
    except TimeoutError:
        raise RefusedError(
            408, f"the request did not arrive within {PATIENCE:g} seconds: send it at once", headers=CLOSE
        ) from None
    if size > LARGEST:
        raise RefusedError(413, f"the request has more than {LARGEST:,} bytes: send less at once", headers=CLOSE)
    return b"".join(chunks)


async def _while_connected(app: ASGIApp, exchange: _Exchange, body: bytes, receive: Receive, send: Send) -> None:
    """Let the application answer, and take the request back when its client hangs up."""
    bodies = [body]

    async def replayed() -> Message:
        return {"type": "http.request", "body": bodies.pop(), "more_body": False} if bodies else await receive()

    async def hung_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answering = asyncio.ensure_future(app(exchange.scope, replayed, send))
    watching = asyncio.ensure_future(hung_up())
    try:
        await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and not exchange.is_sent:
            answering.cancel()
            await asyncio.wait((answering,))
        else:
            await answering
    finally:
        answering.cancel()
        watching.cancel()
