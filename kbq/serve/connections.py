"""Connections: HTTP/1.1 from clients that are slow, gone, or too many; anything else gets a problem document.

uvicorn's `limit_concurrency` counts connections only once a request has arrived, and nothing in uvicorn ends one that
sends or reads too slowly. So they are counted and timed here.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kbq.errors import KbqError
from kbq.serve.bodies import CLOSE, PATIENCE
from kbq.serve.guard import ENDS, HEADERS
from kbq.serve.problems import RefusedError, response_to, title_of

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

MOST, FEWEST = 2000, 16  # connections at once: more are not needed, with fewer there is no service
AT_ONCE = 16  # connections that asyncio accepts in one turn of its loop; after four turns, others have given way
SPARE = 8 * AT_ONCE  # descriptors for these, and for whatever else a process opens
LINGERS = 2.0  # seconds in which a refused client may hang up; a reset would take the answer from it (RFC 9112, 9.6)
LISTENS = 1.0  # seconds for which a client is answered that has closed its side: it may be gone, which looks the same
SLOWEST = 50_000  # bytes a second that a client reads at least


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with limits to its patience.

    Headers must arrive in time, and answers be read in time. Where there are too many connections, the client that has
    kept the service waiting longest, to send a request or to read an answer, gives its place to the new one; if all
    requests are being answered, the new one is refused.
    """

    def __init__(self, *args: Any, most: int, waiting: dict[PatientProtocol, None], **settings: Any) -> None:
        """As uvicorn makes it.

        Args:
            most: connections of this service at once.
            waiting: those of them whose clients have something to do, longest first; to begin with, an empty one.
        """
        super().__init__(*args, **settings)
        self._most, self._waiting = most, waiting
        self._arriving: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a client."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` says that something was not taken at once
        self._await_headers()
        while len(self.connections) > self._most and self._waiting:
            next(iter(self._waiting))._give_way()
        if len(self.connections) > self._most:
            self._refuse(503, "too many connections are open: try again later")
        self._waiting[self] = None

    def data_received(self, data: bytes) -> None:
        """Take what a client has sent: incomplete headers keep their limit, and who was refused is not heard."""
        if self._is_refused:
            return
        if self.conn.their_state is h11.IDLE and data[:1] in b"\r\n" and not self.conn.trailing_data[0]:
            data = data.lstrip(b"\r\n")  # RFC 9112, 2.2: line ends before a request mean nothing
        if not data:
            return
        super().data_received(data)
        if not self._is_sending:
            self._waiting.pop(self, None)
        if self.conn.their_state is not h11.IDLE:
            self._arrived()
        elif self._arriving is None:
            self._await_headers()

    @property
    def _is_sending(self) -> bool:
        """Whether its client has not sent a whole request."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def on_response_complete(self) -> None:
        """Let the client ask again, once an answer is written."""
        super().on_response_complete()
        if self._is_sending and not self.transport.is_closing():
            self._waiting[self] = None

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that has closed its side, if that does not take long."""
        cycle = self.cycle
        if self._is_refused or cycle is None or cycle.response_complete or cycle.more_body:
            return None
        cycle.keep_alive = False
        self.loop.call_later(LISTENS, self._give_up, cycle)
        return True

    def _give_up(self, cycle: RequestResponseCycle) -> None:
        if not cycle.response_complete:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Give a client that has not taken all at once as long as a slow connection needs."""
        super().pause_writing()
        seconds = PATIENCE + self.transport.get_write_buffer_size() / SLOWEST
        self._reading = self.loop.call_later(seconds, self.transport.abort)
        self._waiting[self] = None

    def resume_writing(self) -> None:
        """Go on with a client that has taken all."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
        if not self._is_sending:
            self._waiting.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that is gone."""
        self._arrived()
        if self._reading is not None:
            self._reading.cancel()
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._arriving = self.loop.call_later(PATIENCE, self._refuse, 408, "the request did not arrive in time")

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def shutdown(self) -> None:
        """End with the service: the answer under way is the last on this connection, and says so."""
        if self.scope is not None:
            self.scope["state"][ENDS] = True
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._refuse(400, "this is no request of HTTP/1.1")

    def _give_way(self) -> None:
        """Leave the place of this connection to another client."""
        self._waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    def _refuse(self, status: int, sentence: str) -> None:
        again = {"Retry-After": "1"} if status == 503 else {}
        refused = response_to(RefusedError(status, sentence, headers=HEADERS | CLOSE | again))
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reason = title_of(status).encode()
            head = h11.Response(status_code=status, headers=refused.raw_headers, reason=reason)
            for event in (head, h11.Data(data=bytes(refused.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._is_refused = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGERS, self.transport.close)
        else:
            self.transport.close()


def most_connections() -> int:
    """Return how many connections the process may have, with all open files counted twice: they may be reopened.

    Raises:
        KbqError: the limit of descriptors leaves none.
    """
    try:
        import resource
    except ImportError:  # on Windows, which has no such limit
        return MOST
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/dev/fd"))  # noqa: PTH208 (numbers, not paths)
    needed = 2 * opened + SPARE
    if allowed < needed + MOST:
        allowed = needed + MOST if most == resource.RLIM_INFINITY else min(most, needed + MOST)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    if allowed < needed + FEWEST:
        raise KbqError(f"{allowed} files may be open, {needed + FEWEST} are needed: raise the limit (ulimit -n)")
    return min(MOST, allowed - needed)
