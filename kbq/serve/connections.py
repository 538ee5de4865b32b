"""Connections: HTTP/1.1 whose headers must arrive in time, and that refuses what is no HTTP with a problem document."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kbq.serve.guard import CLOSE, ENDS, HEADERS, PATIENCE
from kbq.serve.problems import RefusedError, response_to

LINGERS = 2.0  # seconds in which a refused client may hang up; a reset would take the answer from it (RFC 9112, 9.6)


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with a limit to its patience: a client that sends a byte a second is not waited for."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """As uvicorn makes it."""
        super().__init__(*args, **settings)
        self._limit: asyncio.TimerHandle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """A client has sent something: incomplete headers keep their limit, and who was refused is not heard."""
        if self._is_refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._arrived()
        elif self._limit is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self._arrived()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._limit = self.loop.call_later(PATIENCE, self._refuse, 408, "the request did not arrive in time")

    def _arrived(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def shutdown(self) -> None:
        """The service ends: the answer under way is the last on this connection, and says so."""
        if self.scope is not None:
            self.scope["state"][ENDS] = True
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._refuse(400, "this is no request of HTTP/1.1")

    def _refuse(self, status: int, sentence: str) -> None:
        refused = response_to(RefusedError(status, sentence, headers=HEADERS | CLOSE))
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reason = str(refused.status_code).encode()
            head = h11.Response(status_code=status, headers=refused.raw_headers, reason=reason)
            for event in (head, h11.Data(data=bytes(refused.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._is_refused = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGERS, self.transport.close)
        else:
            self.transport.close()
