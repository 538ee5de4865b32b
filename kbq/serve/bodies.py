"""Bodies: what clients send is read whole and in time; large ones wait in line, and refused ones are let go.

Requests are parsed, and refused, on the event loop, where everybody waits for it: so whatever costs it more than a
small query comes one after another, not too fast.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kbq.serve.bounds import MOST_TEXT
from kbq.serve.problems import OverloadedError, RefusedError
from kbq.serve.turns import CLIENT

if TYPE_CHECKING:
    from starlette.types import Message, Receive

TOGETHER = 64_000_000  # bytes of all requests that are being read or answered
SMALL, LARGE = 1000, 32_000  # bytes of a small body, and more than those of a large one
EACH, PACE = 0.01, 2_000_000  # seconds of its turn for any request, and bytes in a second
DISCARDED, LET_GO = 16_000_000, 4_000_000  # bytes of a refused body that are read, and in a second
PATIENCE, RESTS = 10.0, 2.0  # seconds for a request to arrive, and for the rest of a refused one
CLOSE = {"Connection": "close"}  # what has not been read of a request is no other request


class HungUpError(Exception):
    """The client is gone before its request was read."""


class Body:
    """The body of a request."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.size = 0  # bytes that are held
        self.is_read = False  # the whole body

    async def chunk(self) -> bytes:
        """Read the next bytes. Raises HungUpError if the client is gone."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise HungUpError
        self.is_read = not message.get("more_body")
        return bytes(message.get("body", b""))

    async def rest(self) -> dict[str, str]:
        """Read the rest of a refused request, for some seconds, so that its client reads the answer.

        A client that waits to be told to send its body must not be asked here.

        Returns:
            The header that closes the connection where this was not all.
        """
        size = 0
        try:
            async with asyncio.timeout(RESTS):
                while not self.is_read and size <= DISCARDED:
                    read = len(await self.chunk())
                    size += read
                    await asyncio.sleep(read / LET_GO)
        except (TimeoutError, HungUpError):
            pass
        return {} if self.is_read else CLOSE

    def replayed(self, content: bytes) -> Receive:
        """Return what gives the application the body, once, and then whatever else comes from the client."""
        bodies = [content]

        async def receive() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await self.receive()

        return receive


class Bodies:
    """All bodies that are held at once."""

    def __init__(self) -> None:
        self._held = 0  # bytes

    async def whole(self, body: Body) -> bytes:
        """Return the content of a body, which is held until `let_go`.

        Raises:
            RefusedError: it is too large, does not arrive in time, or others hold too much.
            HungUpError: the client is gone.
        """
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while not body.is_read:
                    chunks.append(await body.chunk())
                    body.size += len(chunks[-1])
                    self._held += len(chunks[-1])
                    if body.size > MOST_TEXT:
                        raise RefusedError(413, f"the request has more than {MOST_TEXT:,} bytes: send less at once")
                    if self._held > TOGETHER:
                        raise OverloadedError(1)
        except TimeoutError:
            sentence = f"the request did not arrive within {PATIENCE:g} seconds: send it at once"
            raise RefusedError(408, sentence, headers=CLOSE) from None
        return b"".join(chunks)

    def let_go(self, body: Body) -> None:
        """Forget a body: its request is over."""
        self._held -= body.size


class Line:
    """Requests that have their turn one after another; a client waits with one at a time, so that others can pass."""

    def __init__(self) -> None:
        self._next, self._free = asyncio.Lock(), 0.0  # the turn, and when it can be taken
        self._of_client = WeakValueDictionary[str, asyncio.Lock]()
        self.waiting = 0  # requests

    async def turn(self, size: int = 0) -> None:
        """Wait until a request with so many bytes may be handled: until those before it have been."""
        own = self._of_client.setdefault(CLIENT.get(), asyncio.Lock())
        self.waiting += 1
        try:
            async with own, self._next:
                await asyncio.sleep(self._free - time.monotonic())
                self._free = time.monotonic() + EACH + size / PACE
        finally:
            self.waiting -= 1
