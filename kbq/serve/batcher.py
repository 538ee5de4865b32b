"""Batcher: requests wait in one queue; one thread searches as many as it finds there together, as soon as it is free.

Nobody waits for a batch to fill: a query alone is searched alone. What has been given up is left out when a batch is
formed. The answers to a query are the same whatever is searched beside it, so nobody notices the others.

Requests of few queries have half of the time, and a queue of their own, as long as some wait: whoever asks for much
does not keep others waiting, however many do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbq.search.search import BATCH
from kbq.serve.bounds import SUGGESTING, weight
from kbq.serve.metrics import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.serve.settings import QUEUE, SECONDS
from kbq.serve.work import SMALL, Queries, Waiting, Work, go_together, outcomes, suggested

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbq.answers import Answer, Result, SearchOptions
    from kbq.serve.knowledge_bases import ServedKb

T = TypeVar("T")
LONGEST_WAIT = 60  # seconds that a client is told to wait at most
AT_ONCE = 0.05  # seconds of a query, before any has been timed
LEAD = 5.0  # seconds that one kind of request may be ahead of the other, at most: what is longer ago is forgotten
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
        self._queue: deque[Waiting] = deque()
        self._queries = {True: 0, False: 0}  # in the queue, as plain ones; True: those of small requests
        self._lead = 0.0  # seconds that large requests have had more than small ones
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
        return [one.likely for one in await self._found(kb, texts, options, deadline)]

    async def found(self, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[Result]:
        """`ask`, with answers that are less likely than asked for, too, and with unknown words.

        What may be meant by these is looked up when the answers are there, for some words and some time.
        """
        found = await self._found(kb, texts, options, None)
        opened, unknown = kb.kb, [one for one in found if one.unknown_words]
        if not unknown:
            return found
        try:
            more = await self.call(partial(suggested, opened, unknown), time.monotonic() + 2 * SUGGESTING)
        except LateError:  # others wait: it was an offer
            return found
        by_text = {one.query: one for one in more}
        return [by_text.get(one.query, one) for one in found]

    async def _found(
        self, kb: ServedKb, texts: Sequence[str], options: SearchOptions, deadline: float | None
    ) -> list[Result]:
        if not texts:
            return []
        future = asyncio.get_running_loop().create_future()
        each = weight(options)
        request = Queries(outcome=future, texts=tuple(texts), weight=each, kb=kb, options=options)
        self.refuse_overload(request.size)
        found: list[Result] = await self._outcome(request, deadline)
        return found

    def refuse_overload(self, queries: int) -> None:
        """Refuse so many more queries where too many of the kind wait; a request alone is never too many.

        Raises:
            OverloadedError: says when to try again.
        """
        waiting = self._queries[queries <= SMALL]
        if waiting and waiting + queries > self._most:
            self._metrics.dropped.labels("queue full").inc()
            raise OverloadedError(min(LONGEST_WAIT, max(1, math.ceil(self.waiting * self._per_query))))

    async def call(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """What some other work returns, done by the thread that searches: nothing else may use an encoder meanwhile.

        Raises:
            LateError: the deadline has passed before.
        """
        future = asyncio.get_running_loop().create_future()
        outcome: T = await self._outcome(Work(outcome=future, work=work), deadline)
        return outcome

    async def _outcome(self, request: Waiting, deadline: float | None) -> Any:
        self._queue.append(request)
        self._count(request, request.size)
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

    def _count(self, request: Waiting, queries: int) -> None:
        self._queries[request.is_small] += queries
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
            for request, outcome in zip(batch, came, strict=True):
                if request.outcome.done():
                    continue
                if isinstance(outcome, Exception):
                    request.outcome.set_exception(outcome)
                else:
                    request.outcome.set_result(outcome)

    def _next_batch(self) -> list[Waiting]:
        """The request whose turn it is, and others that go with it; they leave the queue."""
        batch: list[Waiting] = []
        left: deque[Waiting] = deque()
        room, is_small = BATCH, self._is_turn_of_small()
        for request in self._queue:
            if request.outcome.done():  # given up
                self._count(request, -request.size)
            elif go_together(batch[0], request) and request.size <= room if batch else request.is_small == is_small:
                batch.append(request)
                room -= request.size
            else:
                left.append(request)
        self._queue = left
        for request in batch:
            self._count(request, -request.size)
            self._metrics.waited.observe(time.monotonic() - request.since)
        return batch

    def _is_turn_of_small(self) -> bool:
        """Whether the next batch begins with a small request: they are behind, or one of them came first."""
        kinds = [request.is_small for request in self._queue if not request.outcome.done()]
        return any(kinds) and (self._lead > 0 or (self._lead == 0 and kinds[0]) or all(kinds))

    def _took(self, batch: Sequence[Waiting], seconds: float) -> None:
        lead = self._lead + (-seconds if batch[0].is_small else seconds)
        self._lead = max(-LEAD, min(LEAD, lead))
        queries = sum(request.size for request in batch)
        if queries:
            self._metrics.batches.observe(sum(len(request.texts) for request in batch))
            self._metrics.searches.observe(seconds)
            self._per_query += (seconds / queries - self._per_query) / 8
