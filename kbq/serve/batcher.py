"""Batcher: requests wait in one queue; one thread searches as many as it finds there together, as soon as it is free.

Nobody waits for a batch to fill: a query alone is searched alone. What has been given up is left out when a batch is
formed. The answers to a query are the same whatever is searched beside it, so nobody notices the others.

Who is next is decided by `turns`. As long as there are quick or small requests, others are searched in small parts, so
that nobody waits for long.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbq.search.search import BATCH
from kbq.serve.bounds import cost
from kbq.serve.metrics import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.serve.settings import QUEUE, SECONDS
from kbq.serve.turns import CLIENT, SMALL, Turns
from kbq.serve.work import Part, Queries, Waiting, Work, go_together, outcomes, suggested

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbq.answers import Answer, Result, SearchOptions
    from kbq.serve.knowledge_bases import ServedKb

T = TypeVar("T")
LONGEST_WAIT = 60  # seconds that a client is told to wait at most
AT_ONCE = 0.05  # seconds of a query, before any has been timed
TOGETHER = 16.0  # cost of a batch that begins with a quick or a small request, at most
PART = 4.0  # and of a large one while there are others, which wait for it
RECENT = 1.0  # seconds for which others are expected after they have come
OFFERS = 1.0  # seconds in which it is known what unknown words perhaps mean, or it is not told
log = logging.getLogger("kbq.serve")


class Batcher:
    """The queue and the one thread that searches; an asynchronous context in which it runs."""

    def __init__(self, queue: int = QUEUE, seconds: float = SECONDS, metrics: Metrics | None = None) -> None:
        """A batcher that is not running yet.

        Args:
            queue: how many queries wait at most.
            seconds: after which a request is given up that says nothing else.
        """
        self._most, self._seconds, self._metrics = queue, seconds, metrics or Metrics()
        self._queue: list[Waiting] = []
        self._queries: Counter[tuple[bool, str]] = Counter()  # in the queue, as plain ones: of large requests or not
        self._turns = Turns()
        self._others = -math.inf  # when a quick or a small request came last
        self._since = math.inf  # when the thread began with what it does now
        self._per_query = AT_ONCE  # seconds
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "search")
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self._thread.shutdown()

    @property
    def waiting(self) -> int:
        """How many queries wait."""
        return sum(self._queries.values())

    @property
    def is_asked(self) -> bool:
        """Whether quick or small requests have come lately."""
        return time.monotonic() - self._others < RECENT

    @property
    def problem(self) -> str:
        """Why queries are not answered; empty: they are."""
        if self._running is None or self._running.done():
            return "the search has ended"
        seconds = time.monotonic() - self._since
        return f"the search has been busy for {seconds:.0f} seconds" if seconds > self._seconds else ""

    async def ask(
        self, kb: ServedKb, texts: Sequence[str], options: SearchOptions, deadline: float | None = None
    ) -> list[list[Answer]]:
        """The answers to each text, as `KnowledgeBase.query` gives them.

        Args:
            deadline: of `time.monotonic`, when the request is given up.

        Raises:
            QueryError: a text cannot be asked, or the options do not fit.
            OverloadedError: too many queries wait.
            LateError: the deadline has passed.
        """
        return [one.likely for one in await self._found(kb, texts, options, deadline, spell=False)]

    async def found(self, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[Result]:
        """`ask`, with answers that are less likely than asked for, too, and with unknown words.

        What may be meant by these is looked up when the answers are there, for some words and some time.
        """
        opened = kb.kb  # that which is searched: another may take its place meanwhile
        found = await self._found(kb, texts, options, None, spell=True)
        unknown = [one for one in found if one.unknown_words]
        if not unknown:
            return found
        try:
            more = await self.call(partial(suggested, opened, unknown), time.monotonic() + OFFERS)
        except LateError:  # others wait: it was an offer
            return found
        by_text = {one.query: one for one in more}
        return [by_text.get(one.query, one) for one in found]

    async def _found(
        self, kb: ServedKb, texts: Sequence[str], options: SearchOptions, deadline: float | None, spell: bool
    ) -> list[Result]:
        if not texts:
            return []
        future = asyncio.get_running_loop().create_future()
        costs = cost(len(texts), options)
        request = Queries(outcome=future, texts=tuple(texts), cost=costs, kb=kb.kb, options=options, spell=spell)
        self.refuse_overload(request.size, request.is_large)
        found: list[Result] = await self._outcome(request, deadline)
        return found

    def refuse_overload(self, queries: int, is_large: bool = False) -> None:
        """Refuse so many more queries where too many of large requests wait, or of others.

        A request alone is never too many. Clients that have none in the queue are refused where there are twice as
        many, so that no other keeps them out.

        Raises:
            OverloadedError: says when to try again.
        """
        waiting = sum(count for (of_large, _), count in self._queries.items() if of_large == is_large)
        most = self._most if self._queries[is_large, CLIENT.get()] else 2 * self._most
        if waiting and waiting + queries > most:
            self._metrics.dropped.labels("queue full").inc()
            raise OverloadedError(min(LONGEST_WAIT, max(1, math.ceil(self.waiting * self._per_query))))

    async def call(self, work: Callable[[], T], deadline: float | None = None, costs: float = SMALL) -> T:
        """What some other work returns, done by the thread that searches: nothing else may use an encoder meanwhile.

        Args:
            costs: about as much as so many plain queries.

        Raises:
            LateError: the deadline has passed before.
        """
        future = asyncio.get_running_loop().create_future()
        outcome: T = await self._outcome(Work(outcome=future, work=work, cost=costs), deadline)
        return outcome

    async def _outcome(self, request: Waiting, deadline: float | None) -> Any:
        self._enter(request)
        if isinstance(request, Queries) and not request.is_large:
            self._others = request.since
        self._wake.set()
        limit = time.monotonic() + self._seconds if deadline is None else deadline
        try:
            async with asyncio.timeout_at(limit):
                return await request.outcome
        except TimeoutError:
            if not request.outcome.cancelled():
                raise
            self._metrics.dropped.labels("late").inc()
            raise LateError(max(0.0, round(limit - request.since, 1))) from None

    def _enter(self, request: Waiting) -> None:
        self._turns.enter(request, min(PART, request.cost))
        self._queue.append(request)
        self._count(request, request.size)

    def _count(self, request: Waiting, queries: int) -> None:
        self._queries[request.is_large, request.client] += queries
        self._queries += Counter()  # without those who wait for nothing
        self._metrics.waiting.set(self.waiting)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            await asyncio.sleep(0)  # what has arrived meanwhile comes along
            batch = self._next_batch()
            if not batch:
                self._wake.clear()
                continue
            self._since = time.monotonic()
            try:
                came = await loop.run_in_executor(self._thread, outcomes, batch)
            except Exception as error:  # whatever happens, the next batch has its turn
                log.exception("a batch failed")
                came = [error] * len(batch)
            self._took(batch, time.monotonic() - self._since)
            self._since = math.inf
            for part, outcome in zip(batch, came, strict=True):
                self._give(part.waiting, outcome)

    def _give(self, request: Waiting, outcome: Any) -> None:
        """Give a request what came of it or, where that was a part, let it wait for the next one."""
        if isinstance(request, Queries) and not isinstance(outcome, Exception):
            request.found += outcome
            if len(request.found) < len(request.texts) and not request.outcome.done():
                self._enter(request)
                return
            outcome = request.found
        if request.outcome.done():
            return
        if isinstance(outcome, Exception):
            request.outcome.set_exception(outcome)
        else:
            request.outcome.set_result(outcome)

    def _next_batch(self) -> list[Part]:
        """The request whose turn it is, or a part of it, and others that go with it; they leave the queue."""
        waiting = []
        for request in self._queue:
            if request.outcome.done():  # given up
                self._count(request, -request.size)
            else:
                waiting.append(request)
        first = self._turns.next(waiting)
        if first is None:
            self._queue, self._turns = [], Turns()
            return []
        room = self._room(first)
        batch = [first.part(room)]
        room, queries = room - batch[0].cost, BATCH - len(batch[0].texts)
        for request in sorted(waiting, key=lambda one: one.rank):
            part = request.part(room)
            if request is first or not go_together(first, request) or not part.is_rest:
                continue
            if part.cost <= room and len(part.texts) <= queries:
                batch.append(part)
                room, queries = room - part.cost, queries - len(part.texts)
        taken = {part.waiting for part in batch}
        self._queue = [request for request in waiting if request not in taken]
        for part in batch:
            self._count(part.waiting, -part.waiting.size)
            self._metrics.waited.observe(time.monotonic() - part.waiting.since)
        return batch

    def _room(self, first: Waiting) -> float:
        """What a batch may cost that begins with a request."""
        if not first.is_large:
            return TOGETHER
        return PART if self.is_asked else BATCH

    def _took(self, batch: Sequence[Part], seconds: float) -> None:
        queries = sum(len(part.texts) for part in batch)
        if queries:
            self._metrics.batches.observe(queries)
            self._metrics.searches.observe(seconds)
            self._per_query += (seconds / queries - self._per_query) / 8
