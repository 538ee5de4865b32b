"""Batcher: requests wait in one queue; one thread searches as many as it finds there together, as soon as it is free.

Nobody waits for a batch to fill: a query alone is searched alone. What has been given up is left out when a batch is
formed. The answers to a query are the same whatever is searched beside it, so nobody notices the others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbq.answers import is_likely
from kbq.model.queries import refuse_unreadable
from kbq.search.search import BATCH
from kbq.serve.metrics import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.serve.settings import QUEUE, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbq.answers import Answer, SearchOptions
    from kbq.kb import KnowledgeBase
    from kbq.serve.knowledge_bases import ServedKb

T = TypeVar("T")
LONGEST_WAIT = 60  # seconds that a client is told to wait at most
AT_ONCE = 0.05  # seconds of a query, before any has been timed


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a query, likely or not; words that no page has, each with what was perhaps meant."""

    text: str
    answers: list[Answer]
    unknown_words: dict[str, str | None]
    is_exact: bool


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiting:
    """What waits in the queue, and what will come of it."""

    outcome: asyncio.Future[Any]
    since: float = field(default_factory=time.monotonic)
    texts: Sequence[str] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class _Queries(_Waiting):
    """Queries, which are searched together with others of the same knowledge base and options."""

    kb: ServedKb
    options: SearchOptions
    spell: bool  # whether unknown words are looked for


@dataclass(slots=True, eq=False, kw_only=True)
class _Work(_Waiting):
    """Anything else that needs the thread."""

    work: Callable[[], object]


class Batcher:
    """The queue and the one thread that searches; an asynchronous context in which it runs."""

    def __init__(self, queue: int = QUEUE, seconds: float = SECONDS, metrics: Metrics | None = None) -> None:
        """A batcher that is not running yet.

        Args:
            queue: how many queries wait at most.
            seconds: after which a request is given up that says nothing else.
        """
        self._most, self._seconds, self._metrics = queue, seconds, metrics or Metrics()
        self._queue: deque[_Waiting] = deque()
        self._queries = 0  # in the queue
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
        found = await self.found(kb, texts, options, deadline, spell=False)
        return [[answer for answer in one.answers if is_likely(answer, options.min_probability)] for one in found]

    async def found(
        self,
        kb: ServedKb,
        texts: Sequence[str],
        options: SearchOptions,
        deadline: float | None = None,
        spell: bool = True,
    ) -> list[Found]:
        """`ask`, with answers that are less likely than asked for, too, and with unknown words."""
        if not texts:
            return []
        self.refuse_overload(len(texts))
        future = asyncio.get_running_loop().create_future()
        request = _Queries(outcome=future, texts=tuple(texts), kb=kb, options=options, spell=spell)
        found: list[Found] = await self._outcome(request, deadline)
        return found

    def refuse_overload(self, queries: int) -> None:
        """Refuse so many more queries where too many wait; a request alone is never too many.

        Raises:
            OverloadedError: says when to try again.
        """
        if self._queries and self._queries + queries > self._most:
            self._metrics.dropped.labels("queue full").inc()
            raise OverloadedError(min(LONGEST_WAIT, max(1, math.ceil(self._queries * self._per_query))))

    async def call(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """What some other work returns, done by the thread that searches: nothing else may use an encoder meanwhile.

        Raises:
            LateError: the deadline has passed before.
        """
        future = asyncio.get_running_loop().create_future()
        outcome: T = await self._outcome(_Work(outcome=future, work=work), deadline)
        return outcome

    async def _outcome(self, request: _Waiting, deadline: float | None) -> Any:
        self._queue.append(request)
        self._count(len(request.texts))
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

    def _count(self, queries: int) -> None:
        self._queries += queries
        self._metrics.waiting.set(self._queries)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            await asyncio.sleep(0)  # what has arrived meanwhile comes along
            batch = self._next_batch()
            if not batch:
                self._wake.clear()
                continue
            begun = time.monotonic()
            outcomes = await loop.run_in_executor(self._thread, _done, batch)
            self._took(batch, time.monotonic() - begun)
            for request, outcome in zip(batch, outcomes, strict=True):
                if request.outcome.done():
                    continue
                if isinstance(outcome, Exception):
                    request.outcome.set_exception(outcome)
                else:
                    request.outcome.set_result(outcome)

    def _next_batch(self) -> list[_Waiting]:
        """The request that has waited longest, and others that go with it; they leave the queue."""
        batch: list[_Waiting] = []
        left: deque[_Waiting] = deque()
        room = BATCH
        for request in self._queue:
            if request.outcome.done():  # given up
                self._count(-len(request.texts))
            elif not batch or (_go_together(batch[0], request) and len(request.texts) <= room):
                batch.append(request)
                room -= len(request.texts)
            else:
                left.append(request)
        self._queue = left
        for request in batch:
            self._count(-len(request.texts))
            self._metrics.waited.observe(time.monotonic() - request.since)
        return batch

    def _took(self, batch: Sequence[_Waiting], seconds: float) -> None:
        queries = sum(len(request.texts) for request in batch)
        if queries:
            self._metrics.batches.observe(queries)
            self._metrics.searches.observe(seconds)
            self._per_query += (seconds / queries - self._per_query) / 8


def _go_together(one: _Waiting, other: _Waiting) -> bool:
    """Whether both can be searched together."""
    if not (isinstance(one, _Queries) and isinstance(other, _Queries)):
        return False
    return one.kb is other.kb and one.options == other.options


def _done(batch: Sequence[_Waiting]) -> list[Any]:
    """What comes of each request of a batch: its outcome, or the exception that it raises."""
    queries = [request for request in batch if isinstance(request, _Queries)]
    if queries:
        return _searched(queries[0].kb.kb, queries[0].options, queries)
    return [_outcome_of(request.work) for request in batch if isinstance(request, _Work)]


def _searched(kb: KnowledgeBase, options: SearchOptions, batch: Sequence[_Queries]) -> list[Any]:
    """`_done` for queries: those that can be asked are searched together."""
    problems = [_outcome_of(partial(_refuse, kb, request)) for request in batch]
    texts = [text for request, problem in zip(batch, problems, strict=True) if not problem for text in request.texts]
    found = _outcome_of(lambda: iter(kb.search(texts, options) if texts else ()))
    if isinstance(found, Exception):
        return [problem or found for problem in problems]
    return [
        problem or _outcome_of(partial(_found, kb, request, list(islice(found, len(request.texts)))))
        for request, problem in zip(batch, problems, strict=True)
    ]


def _refuse(kb: KnowledgeBase, request: _Queries) -> None:
    kb.check(request.options, request.texts)
    refuse_unreadable(request.texts, kb.query_tokenizers(request.options))


def _found(kb: KnowledgeBase, request: _Queries, answers: Sequence[list[Answer]]) -> list[Found]:
    return [
        Found(text, found, kb.unknown_words(text) if request.spell else {}, kb.is_exact(request.options))
        for text, found in zip(request.texts, answers, strict=True)
    ]


def _outcome_of(work: Callable[[], T]) -> T | Exception:
    """What some work returns, or what it raises: one request does not fail for another."""
    try:
        return work()
    except Exception as error:
        return error
