"""Turns: the search thread takes requests in an order that keeps no client from its share of the time.

Each client has a queue for each kind of request: quick, small and large ones. A request enters behind what its queue
has had, by its cost; the queue that would then have had least is next, and its oldest request with it (self-clocked
fair queueing, Golestani 1994). Large requests are searched a few queries at a time. So a request waits for as many
others as there are clients, not for as many as they have sent. Behind a proxy all are one client, with three queues.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from kbq.answers import Result, SearchOptions
from kbq.kb import KnowledgeBase
from kbq.serve.bounds import cost, weight

CLIENT: ContextVar[str] = ContextVar("client", default="")  # who asks, see `client_of`
QUICK, SMALL = 0.5, 4.0  # cost of a quick request, and of a small one, at most, in plain queries
SHARES = (4, 2, 1)  # of the time, for quick, small and large requests
FORGETS = 4096  # queues of clients that are gone, at most


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """A request that waits for its turn: queries, or other work for the thread."""

    cost: float  # in plain queries
    outcome: asyncio.Future[Any]
    client: str = field(default_factory=CLIENT.get)
    since: float = field(default_factory=time.monotonic)
    rank: float = 0.0  # the lowest is next

    @property
    def kind(self) -> int:
        """Quick (0), small (1) or large (2)."""
        return (self.cost > QUICK) + (self.cost > SMALL)

    @property
    def is_large(self) -> bool:
        """Whether it is neither quick nor small."""
        return self.cost > SMALL

    @property
    def queue(self) -> tuple[str, int]:
        """Where it waits."""
        return self.client, self.kind

    @property
    def size(self) -> int:
        """As how many plain queries it counts in the queue."""
        return 0


@dataclass(slots=True, eq=False, kw_only=True)
class Work(Waiting):
    """Work other than a search that needs the thread."""

    work: Callable[[], object]


@dataclass(slots=True, eq=False, kw_only=True)
class Queries(Waiting):
    """Queries, all answered from one knowledge base, even if its folder changes between two parts of a request."""

    texts: Sequence[str]
    kb: KnowledgeBase
    options: SearchOptions
    spell: bool  # whether unknown words are named
    found: list[Result] = field(default_factory=list)  # of the first queries
    part: Sequence[str] = ()  # the queries that are searched now

    @property
    def left(self) -> Sequence[str]:
        """The queries that have not been searched yet."""
        return self.texts[len(self.found) :]

    @property
    def size(self) -> int:
        """As how many plain queries it counts in the queue."""
        return len(self.left) * weight(self.options)

    def take(self, room: float) -> float:
        """Choose the next queries that cost at most `room`, at least one; return what they cost."""
        self.part = self.left[: max(1, int(room / cost(1, self.options)))]
        return cost(len(self.part), self.options)

    def goes_with(self, first: Queries, room: float, queries: int) -> bool:
        """Whether all that is left can be searched with another request, which takes no larger kind along."""
        if self is first or self.kind > first.kind or self.kb is not first.kb or self.options != first.options:
            return False
        return len(self.left) <= queries and cost(len(self.left), self.options) <= room


class Turns:
    """The turns that each client has had, for each kind of request."""

    def __init__(self) -> None:
        self._now = 0.0  # the rank of what had its turn last
        self._last: dict[tuple[str, int], float] = {}  # the rank of what each client has asked for last

    def enter(self, request: Waiting, cost: float) -> None:
        """Rank a request behind the others of its client and kind, `cost` more."""
        request.rank = max(self._now, self._last.get(request.queue, 0.0)) + cost / SHARES[request.kind]
        self._last[request.queue] = request.rank
        if len(self._last) > FORGETS:
            self._last = {queue: rank for queue, rank in self._last.items() if rank > self._now}

    def next(self, waiting: Sequence[Waiting]) -> Waiting:
        """Return the request whose turn it is: the oldest of its client and kind, so that what has begun ends first."""
        first = min(waiting, key=lambda request: request.rank)
        oldest = min((one for one in waiting if one.queue == first.queue), key=lambda request: request.since)
        first.rank, oldest.rank = oldest.rank, first.rank
        self._now = max(self._now, oldest.rank)
        return oldest


def client_of(host: str) -> str:
    """Return who asks from an address; a whole IPv6 network of 64 bits is one client.

    >>> client_of("192.0.2.7"), client_of("2001:db8:1:2:3::4"), client_of("")
    ('192.0.2.7', '2001:db8:1:2::', '')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
