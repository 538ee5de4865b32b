"""Guard: one middleware that admits or refuses requests, by the service's settings."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware

from kbq.errors import KbqError
from kbq.serve.limits import MOST_TEXT
from kbq.serve.problems import LateError, OverloadedError, RefusedError, response_to
from kbq.serve.settings import ServeSettings
from kbq.storage.lines import read_lines
from kbq.storage.reading import LARGEST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kbq.serve.metrics import Metrics

SHORTEST_KEY = 16  # characters
# Routes for those who watch over the process: without key, whatever the Host.
OPEN = ("/healthz", "/readyz")
# What OpenRefine asks: it can send no header, and is asked from any origin.
RECONCILE = "/reconcile"

# These routes get 20 times the timeout, since others have their turn meanwhile.
TABLES = ("/v1/fill",)
TIMES = 20
# How the addresses begin that take documents, which are larger and take longer than requests do.
EDITING = "/new/"
IN_FLIGHT = 256  # requests that are read or answered at once
# Bytes of an answer that are handed over at once: more wait until the client has taken them.
PIECE = 65_536
ID = re.compile(r"[\w-]{1,64}", re.ASCII)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src "
        "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
DESCRIPTION = "/openapi.json"  # is the same for every knowledge base
SCHEMES = 'Basic realm="kbq", charset="UTF-8"'
log = logging.getLogger("kbq.serve")


def read_keys(path: Path) -> tuple[str, ...]:
    """Read the keys of a file, one per line; # starts a comment.

    Raises KbqError if it cannot be read, or has no key or a short one.
    """
    keys = []
    for number, line in read_lines(str(path)):
        key = line.partition("#")[0].strip()
        if key and (len(key) < SHORTEST_KEY or not (key.isascii() and key.isprintable())):
            raise KbqError(
                f"{path}:{number}: a key has at least {SHORTEST_KEY} letters and digits: make it "
                "longer"
            )
        keys += [key] if key else []

    if not keys:
        raise KbqError(
            f"{path} has no key: write one, of at least {SHORTEST_KEY} letters and digits"
        )

    return tuple(keys)


def is_reconciliation(path: str) -> bool:
    return path == RECONCILE or path.startswith(f"{RECONCILE}/")


@dataclass(slots=True)
class _Exchange:
    """One request and its answer."""

    scope: Scope
    headers: Headers
    id: str
    since: float = field(default_factory=time.monotonic)
    status: int = 0  # 0: no answer has begun
    is_sent: bool = False  # the whole answer


class Guard:
    """The outermost layer of the service; the application never sees a refused request."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._in_flight = 0
        cors = partial(
            CORSMiddleware,
            self._answer,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization",),
        )
        self._for_all = cors(allow_origins=("*",))
        self._for_some = cors(allow_origins=settings.allow_origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cors = self._for_some
        if is_reconciliation(scope["path"]):
            cors = self._for_all
        await cors(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit or refuse a request; count and log its answer."""
        if scope["method"] == "HEAD":  # the answer to GET; the server leaves its body out
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        if not ID.fullmatch(asked):
            asked = uuid.uuid4().hex
        exchange = _Exchange(scope, headers, asked)
        send = self._sender(exchange, send)
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)

        try:
            self._refuse(exchange)
            await self._within_time(exchange, receive, send)
        except RefusedError as error:
            if not exchange.status:
                error.headers["Connection"] = "close"  # the rest of the body is no other request
                await response_to(error, for_reconciliation=is_reconciliation(scope["path"]))(
                    scope, receive, send
                )
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)
            self._tell(exchange)

    def _refuse(self, exchange: _Exchange) -> None:
        """Raise RefusedError unless a request may be answered."""
        headers = exchange.headers
        path = exchange.scope["path"]
        method = exchange.scope["method"]
        if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1
            raise RefusedError(400, "the request says in two ways how long it is")
        if path in OPEN:
            return
        if self._in_flight > IN_FLIGHT:
            raise OverloadedError(1)
        refuse_host(self._settings, headers.get("host", ""))
        # Its other routes check this themselves.
        if method == "POST" or not is_reconciliation(path):
            refuse_foreign(self._settings, headers, method == "GET")
        refuse_key(self._settings, path, headers, exchange.scope["query_string"].decode("latin-1"))

    async def _within_time(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        """Read the body, then let the application answer until the client hangs up. Raises
        RefusedError.
        """
        seconds = self._settings.seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                is_editing = self._settings.edit is not None and exchange.scope["path"].startswith(
                    EDITING
                )
                longest = MOST_TEXT
                if is_editing:
                    longest = LARGEST
                content = await self._read(receive, longest)
                if content is not None:
                    if is_editing or exchange.scope["path"] in TABLES:
                        seconds *= TIMES
                    limit.reschedule(exchange.since + seconds)
                    await self._while_connected(exchange, content, receive, send)
        except TimeoutError:
            self._metrics.dropped.labels("late").inc()
            raise LateError(seconds) from None

    async def _read(self, receive: Receive, most: int) -> bytes | None:
        """Return the body of a request, or None if the client hangs up. Raises RefusedError if it
        is too large.
        """
        content = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            content += message.get("body", b"")
            more = message.get("more_body", False)
            if len(content) > most:
                raise RefusedError(
                    413, f"the request has more than {most:,} bytes: send less at once"
                )

        return bytes(content)

    async def _while_connected(
        self, exchange: _Exchange, content: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer a request, and stop if its client goes away."""
        bodies = [content]

        async def replayed() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()

        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        answering = asyncio.ensure_future(self._called(exchange, replayed, send))
        watching = asyncio.ensure_future(hung_up())
        watching.add_done_callback(lambda _: exchange.is_sent or answering.cancel())
        try:
            await answering
        except asyncio.CancelledError:
            if not watching.done():  # it is this request that is cancelled
                raise
        finally:
            answering.cancel()
            watching.cancel()

    async def _called(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        """Answer a request; an unexpected error is logged, and said in one sentence."""
        try:
            await self._app(exchange.scope, receive, send)
        except (asyncio.CancelledError, RefusedError):
            raise
        except BaseException:  # also a panic of a library that is written in Rust
            log.exception("a request failed", extra={"request": exchange.id})
            sentence = f"something has failed here: the log says more about request {exchange.id}"
            raise RefusedError(500, sentence) from None

    def _sender(self, exchange: _Exchange, send: Send) -> Send:
        """Return a function that sends an answer piece by piece, with the headers that all answers
        have.
        """
        path = str(exchange.scope["path"])

        async def send_pieces(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                # May be shown in a frame.
                if "frame-ancestors 'none'" not in answer["Content-Security-Policy"]:
                    del answer["X-Frame-Options"]
                answer["X-Request-Id"] = exchange.id
                if is_reconciliation(path):
                    answer["Access-Control-Allow-Origin"] = "*"  # some clients send no Origin
                if self._settings.keys and path not in OPEN:
                    answer.setdefault("Cache-Control", "no-store")

            body = memoryview(message.get("body", b""))
            while len(body) > PIECE:
                await send({**message, "body": bytes(body[:PIECE]), "more_body": True})
                body = body[PIECE:]

            exchange.is_sent = message["type"] == "http.response.body" and not message.get(
                "more_body"
            )
            if body:
                message = {**message, "body": bytes(body)}
            await send(message)

        return send_pieces

    def _tell(self, exchange: _Exchange) -> None:
        """Log and count a request that was answered."""
        scope = exchange.scope
        seconds = time.monotonic() - exchange.since
        status = exchange.status or 499
        # The declared path: metrics stay few.
        route = getattr(scope.get("route"), "path", None) or "other"
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        facts: dict[str, object] = {
            "request": exchange.id,
            "method": scope["method"],
            "route": route,
        }
        facts |= {"status": status, "seconds": round(seconds, 4)}
        queries = None
        if self._settings.log_queries:
            queries = scope.get("state", {}).get("queries")
        if queries:
            facts |= {"queries": queries}
        log.info("request", extra=facts)


def refuse_host(settings: ServeSettings, host: str) -> None:
    """Raise RefusedError for any name but the service's own: a site elsewhere may point its name at
    this address.
    """
    name = "" if set(host) & set("/?#@\\") else _name_of(f"//{host}")  # only a name and a port
    if not name:
        raise RefusedError(400, "the request names no Host: send one")
    if name not in settings.hosts:
        raise RefusedError(
            421, f"{name!r:.80} is not a name of this service: start it with `--public-url`"
        )


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def refuse_foreign(settings: ServeSettings, headers: Headers, is_read_only: bool) -> None:
    """Raise RefusedError for requests by pages of other sites, except where somebody follows a link
    (a GET).

    Pages of this machine, such as OpenRefine's, are not foreign.
    """
    origin = headers.get("origin", "")
    if origin and (origin in settings.allow_origin or _name_of(origin) in settings.hosts):
        return
    is_link = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    if origin or (headers.get("sec-fetch-site") == "cross-site" and not (is_read_only and is_link)):
        raise RefusedError(
            403,
            f"a page of {origin or 'another site'!r:.80} asks: start the service with "
            "`--allow-origin`",
        )


def refuse_key(settings: ServeSettings, path: str, headers: Headers, query: str) -> None:
    """Raise RefusedError if a key is needed, and there is none or a wrong one.

    It is a bearer token, or the password of a browser; for reconciliation alone it may be `api_key`
    in the address.
    """
    if not settings.keys or path == DESCRIPTION:
        return
    given = _key_of(headers.get("authorization", ""))
    if not given and is_reconciliation(path):
        given = parse_qs(query).get("api_key", [""])[0].encode("utf-8", "replace")
    # All are compared, whole: how long this takes tells nothing of them.
    if not sum(hmac.compare_digest(given, key.encode()) for key in settings.keys):
        raise RefusedError(
            401,
            "a key is wrong" if given else "a key is needed: send it as Authorization: Bearer KEY",
            headers={"WWW-Authenticate": SCHEMES},
        )


def _key_of(authorization: str) -> bytes:
    """Return the key in a header, of a bearer or as a password."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip(" \t").encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
