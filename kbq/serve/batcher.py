"""Batcher: requests wait in one queue; one thread searches as many as it finds there together, as soon as it is free.

Nobody waits for a batch to fill: a query alone is searched alone. Requests that were given up are left out of the next.
The answers to a query are the same whatever is searched beside it, so nobody notices the others. While there are quick
or small requests, large ones are searched in small parts, so that nobody waits for long; see `turns`.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any, Self, TypeVar

from kbq.answers import Answer, Result, SearchOptions
from kbq.kb import KnowledgeBase
from kbq.search.search import BATCH
from kbq.serve.access import QUEUE, SECONDS
from kbq.serve.bounds import MOST_SUGGESTIONS, SUGGESTING, cost
from kbq.serve.knowledge_bases import ServedKb
from kbq.serve.monitoring import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.serve.turns import CLIENT, SMALL, Queries, Turns, Waiting, Work

T = TypeVar("T")
LONGEST_WAIT = 60  # seconds that a client is told to wait at most
AT_ONCE = 0.05  # seconds of a query, before any has been timed
TOGETHER = 16.0  # cost of a batch that begins with a quick or a small request, at most
PART = 4.0  # and of a large one while there are others, which wait for it
RECENT = 1.0  # seconds for which others are expected after they have come
OFFERS = 1.0  # seconds in which similar words are found for unknown ones, or are left out
log = logging.getLogger("kbq.serve")


class Batcher:
    """The queue and the one thread that searches, which runs within `async with`."""

    def __init__(self, queue: int = QUEUE, seconds: float = SECONDS, metrics: Metrics | None = None) -> None:
        """`queue`: queries that wait at most. `seconds`: for a request, unless its caller names another deadline."""
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
        """Why queries are not answered; empty if they are."""
        if self._running is None or self._running.done():
            return "the search has ended"
        seconds = time.monotonic() - self._since
        return f"the search has been busy for {seconds:.0f} seconds" if seconds > self._seconds else ""

    async def ask(self, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """Return the answers to each text, as `KnowledgeBase.query` gives them.

        Raises QueryError if a text cannot be asked or the options do not fit, OverloadedError if too many queries wait,
        and LateError if there was no answer in time.
        """
        return [one.likely for one in await self._results(kb.kb, texts, options, spell=False)]

    async def found(self, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[Result]:
        """Return the results of each text, with unlikely answers and unknown words; raises what `ask` does.

        Similar words are looked up after the answers are there, for some words and some time.
        """
        opened = kb.kb  # another may take its place meanwhile
        found = await self._results(opened, texts, options, spell=True)
        for one in found:
            self._metrics.answers.labels(kb.name, "answered" if one.likely else "none").inc()
        unknown = [one for one in found if one.unknown_words]
        if not unknown:
            return found
        try:
            spelled = await self.call(partial(_with_suggestions, opened, unknown), time.monotonic() + OFFERS)
        except LateError:  # others wait: it was an offer
            return found
        by_text = {one.query: one for one in spelled}
        return [by_text.get(one.query, one) for one in found]

    async def _results(
        self, kb: KnowledgeBase, texts: Sequence[str], options: SearchOptions, spell: bool
    ) -> list[Result]:
        if not texts:
            return []
        request = Queries(
            outcome=asyncio.get_running_loop().create_future(), texts=tuple(texts), cost=cost(len(texts), options),
            kb=kb, options=options, spell=spell,
        )  # fmt: skip
        self.refuse_overload(request.size, request.is_large)
        if not request.is_large:
            self._others = request.since
        results: list[Result] = await self._outcome(request)
        return results

    def refuse_overload(self, queries: int, is_large: bool = False) -> None:
        """Refuse more queries where too many of large requests wait, or of others.

        A request alone is never too many. Clients that have none in the queue are refused where there are twice as
        many, so that no other keeps them out. The OverloadedError says when to try again.
        """
        waiting = sum(count for (of_large, _), count in self._queries.items() if of_large == is_large)
        most = self._most if self._queries[is_large, CLIENT.get()] else 2 * self._most
        if waiting and waiting + queries > most:
            self._metrics.dropped.labels("queue full").inc()
            raise OverloadedError(min(LONGEST_WAIT, max(1, math.ceil(self.waiting * self._per_query))))

    async def call(self, work: Callable[[], T], deadline: float | None = None, costs: float = SMALL) -> T:
        """Return what other work returns, done by the thread that searches: nothing else may use an encoder meanwhile.

        `deadline`: of `time.monotonic`; LateError says that it has passed. `costs`: as much as so many plain queries.
        """
        future = asyncio.get_running_loop().create_future()
        outcome: T = await self._outcome(Work(outcome=future, work=work, cost=costs), deadline)
        return outcome

    async def _outcome(self, request: Waiting, deadline: float | None = None) -> Any:
        """Let a request wait for its turn, and return what comes of it."""
        self._enter(request)
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
                outcomes = await loop.run_in_executor(self._thread, _outcomes, batch)
            except Exception as error:  # whatever happens, the next batch has its turn
                log.exception("a batch failed")
                outcomes = [error] * len(batch)
            self._time(batch, time.monotonic() - self._since)
            self._since = math.inf
            for request, outcome in zip(batch, outcomes, strict=True):
                self._give(request, outcome)

    def _next_batch(self) -> list[Waiting]:
        """Take the request whose turn it is, or a part of it, and others that go with it, from the queue."""
        waiting = []
        for request in self._queue:
            if request.outcome.done():  # given up
                self._count(request, -request.size)
            else:
                waiting.append(request)
        if not waiting:
            self._queue, self._turns = [], Turns()
            return []
        first = self._turns.next(waiting)
        batch = [first]
        if isinstance(first, Queries):
            room = self._room(first)
            room -= first.take(room)
            queries = BATCH - len(first.part)
            for request in sorted(waiting, key=lambda one: one.rank):
                if isinstance(request, Queries) and request.goes_with(first, room, queries):
                    room -= request.take(room)
                    queries -= len(request.part)
                    batch.append(request)
        taken = set(batch)
        self._queue = [request for request in waiting if request not in taken]
        for request in batch:
            self._count(request, -request.size)
            self._metrics.waited.observe(time.monotonic() - request.since)
        return batch

    def _room(self, first: Queries) -> float:
        """Return what a batch may cost that begins with a request."""
        if not first.is_large:
            return TOGETHER
        return PART if self.is_asked else BATCH

    def _time(self, batch: Sequence[Waiting], seconds: float) -> None:
        queries = sum(len(request.part) for request in batch if isinstance(request, Queries))
        if queries:
            self._metrics.batches.observe(queries)
            self._metrics.searches.observe(seconds)
            self._per_query += (seconds / queries - self._per_query) / 8

    def _give(self, request: Waiting, outcome: Any) -> None:
        """Give a request what came of it or, where that was a part, let it wait for the next one."""
        if isinstance(request, Queries) and not isinstance(outcome, Exception):
            request.found += outcome
            if request.left and not request.outcome.done():
                self._enter(request)
                return
            outcome = request.found
        if request.outcome.done():
            return
        if isinstance(outcome, Exception):
            request.outcome.set_exception(outcome)
        else:
            request.outcome.set_result(outcome)


def _outcomes(batch: Sequence[Waiting]) -> list[Any]:
    """Return the outcome of each request of a batch, or the exception that it raises."""
    queries = [request for request in batch if isinstance(request, Queries)]
    return _searched(queries) if queries else [_outcome_of(one.work) for one in batch if isinstance(one, Work)]


def _searched(batch: Sequence[Queries]) -> list[Any]:
    """Search queries together, those that can be asked; return the outcome of each."""
    kb, options = batch[0].kb, batch[0].options
    problems = [_outcome_of(partial(_refuse, request)) for request in batch]
    texts = [text for request, problem in zip(batch, problems, strict=True) if not problem for text in request.part]
    found = _outcome_of(lambda: iter(list(kb.results(texts, options)) if texts else ()))
    if isinstance(found, Exception):
        return [problem or found for problem in problems]
    return [
        problem or _outcome_of(partial(_unknown_words_named, request, list(islice(found, len(request.part)))))
        for request, problem in zip(batch, problems, strict=True)
    ]


def _refuse(request: Queries) -> None:
    """Refuse a request whose texts cannot be asked, before the first of them is searched."""
    if not request.found:
        request.kb.check(request.options, request.texts)


def _unknown_words_named(request: Queries, results: list[Result]) -> list[Result]:
    if not request.spell:
        return results
    return [replace(one, unknown_words=request.kb.unknown_words(one.query, lambda: False)) for one in results]


def _with_suggestions(kb: KnowledgeBase, results: Sequence[Result]) -> list[Result]:
    """Add to the first unknown words what may be meant by them, as far as there is time."""
    words, ends = count(), time.monotonic() + SUGGESTING

    def may_suggest() -> bool:
        return next(words) < MOST_SUGGESTIONS and time.monotonic() < ends

    return [replace(one, unknown_words=kb.unknown_words(one.query, may_suggest)) for one in results]


def _outcome_of(work: Callable[[], T]) -> T | Exception:
    """Return what some work returns or raises: one request does not fail for another, and none ends the thread.

    Anything that a future cannot raise, such as a panic of a library in Rust, becomes a RuntimeError.
    """
    try:
        return work()
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        unexpected = RuntimeError(f"{type(error).__name__}: {error}")
        unexpected.__cause__ = error
        return unexpected
