"""Turns: which of the requests that wait is next, so that nobody takes the time of the others, whatever he asks for.

Each client has a queue for each kind of request: quick, small and large ones. A request enters behind what its queue
has had, by its cost; the queue that would then have had least is next, and its oldest request with it (self-clocked
fair queueing, Golestani 1994). Large requests have their turn for some queries at a time. So a request waits for as
many others as there are clients, not for as many as they have sent. Behind a proxy all are one client, and the kinds
alone are told apart.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

CLIENT: ContextVar[str] = ContextVar("client", default="")  # who asks, see `client_of`
QUICK, SMALL = 0.5, 4.0  # cost of a quick request, and of a small one, at most, in plain queries
SHARES = (4, 2, 1)  # of the time, for quick, small and large requests
FORGETS = 4096  # queues of clients that are gone, at most

T = TypeVar("T", bound="Turn")


@dataclass(slots=True, eq=False, kw_only=True)
class Turn:
    """What waits for its turn."""

    cost: float  # in plain queries
    client: str = field(default_factory=CLIENT.get)
    since: float = field(default_factory=time.monotonic)
    rank: float = 0.0  # the lowest is next

    @property
    def kind(self) -> int:
        """Whether it is quick (0), small (1) or large (2)."""
        return (self.cost > QUICK) + (self.cost > SMALL)

    @property
    def is_large(self) -> bool:
        """Whether it is neither quick nor small."""
        return self.cost > SMALL

    @property
    def queue(self) -> tuple[str, int]:
        """Where it waits."""
        return self.client, self.kind


class Turns:
    """What each client has had, for each kind of request."""

    def __init__(self) -> None:
        self._now = 0.0  # the rank of what had its turn last
        self._last: dict[tuple[str, int], float] = {}  # the rank of what each client has asked for last

    def enter(self, turn: Turn, cost: float) -> None:
        """Give a request its rank: behind the others of its client and kind, `cost` more."""
        turn.rank = max(self._now, self._last.get(turn.queue, 0.0)) + cost / SHARES[turn.kind]
        self._last[turn.queue] = turn.rank
        if len(self._last) > FORGETS:
            self._last = {queue: rank for queue, rank in self._last.items() if rank > self._now}

    def next(self, waiting: Sequence[T]) -> T | None:
        """The one whose turn it is: the oldest of its client and kind, so that what has begun ends first."""
        if not waiting:
            return None
        first = min(waiting, key=lambda turn: turn.rank)
        oldest = min((turn for turn in waiting if turn.queue == first.queue), key=lambda turn: turn.since)
        first.rank, oldest.rank = oldest.rank, first.rank
        self._now = max(self._now, oldest.rank)
        return oldest


def client_of(host: str) -> str:
    """Who asks from an address: of IPv6, everybody of a network of 64 bits is one.

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
