"""Batcher: one thread searches as many waiting queries together as fit, as soon as it is free.

A single query is searched at once. Requests that were given up are left out, and those that would
wait for too long are refused at once: on a slow machine all would be late otherwise, each searched
when its time is nearly over. The answers to a query are the same whatever is searched beside it.
Small and large requests wait in two lines: small ones have four fifths of the time. Large ones are
searched in parts, shorter ones while there are small requests, so that nobody waits for long.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

from kbq.answers import Answer, Result
from kbq.kb import KnowledgeBase
from kbq.search.options import SearchOptions
from kbq.serve.knowledge_bases import OpenedKb
from kbq.serve.limits import cost, weight
from kbq.serve.metrics import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.serve.settings import SERVICE
from kbq.text.queries import Query

T = TypeVar("T")
SMALL = 4.0  # highest cost of a small request, in plain queries
# Cost of those that are searched together, and of small ones before a large one has its turn.
TOGETHER = 16.0
PART = 4.0  # cost of a part of a large one while small ones come
# Share of a request's time after which its search should have ended, to be taken on.
LONGEST_WAIT = 0.5
RECENT = 1.0  # seconds after a small request or its answer in which more are expected
log = logging.getLogger("kbq.serve")


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiting:
    """A request that waits for its turn: a search or other work for the thread."""

    cost: float  # cost in plain queries
    outcome: asyncio.Future[Any]
    since: float = field(default_factory=time.monotonic)
    work: Callable[[], object] | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class _Queries(_Waiting):
    """Queries, all answered from one knowledge base, even if its folder changes between two parts."""

    texts: Sequence[str]
    kb: KnowledgeBase
    options: SearchOptions
    queries: Sequence[Query] = ()  # the texts, once they have been checked
    results: list[Result] = field(default_factory=list)  # those of the first queries
    part: Sequence[str] = ()  # the texts that are searched now

    @property
    def left(self) -> Sequence[str]:
        """The texts that have not been searched yet."""
        return self.texts[len(self.results) :]

    @property
    def searched_now(self) -> Sequence[Query]:
        """The queries of the part."""
        return self.queries[len(self.results) : len(self.results) + len(self.part)]

    @property
    def size(self) -> int:
        """How many plain queries it counts as in the queue."""
        return len(self.left) * weight(self.options)

    def with_unknown_words(self) -> list[Result]:
        """Return the results, each with the words of its query that no page has."""
        searcher = self.kb.searcher
        return [
            replace(result, unknown_words=searcher.unknown_words(query))
            for query, result in zip(self.queries, self.results, strict=True)
        ]


class Batcher:
    """The queue and the one thread that searches, which runs within `async with`."""

    def __init__(
        self,
        queue: int = SERVICE.queue,
        seconds: float = SERVICE.seconds,
        metrics: Metrics | None = None,
    ) -> None:
        """`queue`: queries that wait at most. `seconds`: for a request, unless its caller names
        another deadline.
        """
        self._most = queue
        self._seconds = seconds
        self._metrics = metrics or Metrics()
        self._small = deque[_Waiting]()
        self._large = deque[_Waiting]()
        self._small_had = 0.0  # the cost of the small ones since a large one has had its turn
        # Last time that a small request came or was answered: clients often follow up.
        self._small_at = -math.inf
        self._since = math.inf  # when the thread began its present work
        self._searching = 0.0  # cost of what is searched now
        self._batch: Sequence[_Waiting] = ()  # what is searched now
        # Seconds for each plain query in the last two searches; the faster one counts, as a first
        # one loads files.
        self._paces = deque[float](maxlen=2)
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
        return _size(self._small) + _size(self._large)

    @property
    def problem(self) -> str:
        """Why queries are not answered; empty if they are."""
        if self._running is None or self._running.done():
            return "the search has ended"
        seconds = time.monotonic() - self._since
        return (
            f"the search has been busy for {seconds:.0f} seconds" if seconds > self._seconds else ""
        )

    async def ask(
        self, kb: OpenedKb, texts: Sequence[str], options: SearchOptions
    ) -> list[list[Answer]]:
        """Return the answers to each text, as `KnowledgeBase.query` does.

        Raises QueryError if a text cannot be asked or the options do not fit, OverloadedError if
        too many queries wait, and LateError if there was no answer in time.
        """
        request = await self._answered(kb.kb, texts, options)
        return [result.likely for result in request.results]

    async def found(
        self,
        kb: OpenedKb,
        texts: Sequence[str],
        options: SearchOptions,
        part: KnowledgeBase | None = None,
    ) -> list[Result]:
        """Return the results of each text, with unlikely answers and unknown words; raise the same
        errors as `ask`.

        `part`: some pages of the knowledge base, see `OpenedKb.part`; by default all.
        """
        asked = part or kb.kb
        request = await self._answered(asked, texts, options)
        for result in request.results:
            outcome = "none"
            if result.likely:
                outcome = "answered"
            self._metrics.answers.labels(kb.name, outcome).inc()
        return await asyncio.to_thread(request.with_unknown_words)

    async def _answered(
        self, kb: KnowledgeBase, texts: Sequence[str], options: SearchOptions
    ) -> _Queries:
        """Return a request for some texts once it has its results."""
        request = _Queries(
            outcome=asyncio.get_running_loop().create_future(),
            texts=tuple(texts),
            cost=cost(len(texts), options),
            kb=kb,
            options=options,
        )
        if not texts:
            return request
        waiting = _size(self._line_of(request))
        wait = self._wait_of(request)
        is_too_much = waiting + request.size > self._most or wait > LONGEST_WAIT * self._seconds
        if waiting and is_too_much:  # a request alone is never too many
            self._metrics.dropped.labels("queue full").inc()
            # By then there is room; refusals take time, too.
            raise OverloadedError(max(1, math.ceil(wait / 2)))

        if request.cost <= SMALL:
            self._small_at = request.since
        await self._outcome(request)
        return request

    def _wait_of(self, request: _Queries) -> float:
        """Return the seconds until a request will have been searched, behind those of its line."""
        line = self._line_of(request)
        # A large request whose part is searched now comes first again.
        parted = [queued for queued in _unanswered(self._batch) if self._line_of(queued) is line]
        costs = self._searching + request.cost
        costs += sum(cost(len(queued.left) - len(queued.part), queued.options) for queued in parted)
        costs += sum(cost(len(queued.left), queued.options) for queued in _unanswered(line))
        if len(self._paces) != self._paces.maxlen:
            return 0.0
        return costs * min(self._paces)

    async def call(
        self, work: Callable[[], T], deadline: float | None = None, costs: float = SMALL
    ) -> T:
        """Return the outcome of other work on the thread that searches, which alone may use the
        encoders.

        `deadline`: of `time.monotonic`; LateError says that it has passed. `costs`: in plain
        queries.
        """
        future = asyncio.get_running_loop().create_future()
        outcome: T = await self._outcome(_Waiting(outcome=future, work=work, cost=costs), deadline)
        return outcome

    async def _outcome(self, request: _Waiting, deadline: float | None = None) -> Any:
        """Let a request wait in its line, and return its outcome unless it takes too long."""
        self._line_of(request).append(request)
        self._metrics.waiting.set(self.waiting)
        self._wake.set()
        if deadline is None:
            limit = time.monotonic() + self._seconds
        else:
            limit = deadline
        try:
            async with asyncio.timeout_at(limit):
                return await request.outcome
        except TimeoutError:
            if not request.outcome.cancelled():
                raise
            self._metrics.dropped.labels("late").inc()
            raise LateError(max(0.0, round(limit - request.since, 1))) from None

    def _line_of(self, request: _Waiting) -> deque[_Waiting]:
        if request.cost > SMALL:
            return self._large
        return self._small

    async def _run(self) -> None:
        """Search batch after batch, as long as the service lives."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            await asyncio.sleep(0)  # requests that have arrived meanwhile come along
            batch = self._next_batch()
            self._metrics.waiting.set(self.waiting)
            if not batch:
                self._wake.clear()
                continue

            for request in batch:
                self._metrics.waited.observe(time.monotonic() - request.since)
            self._since = time.monotonic()
            self._batch = batch
            self._searching = sum(
                cost(len(queued.part), queued.options)
                for queued in batch
                if isinstance(queued, _Queries)
            )
            try:
                outcomes = await loop.run_in_executor(self._thread, _outcomes, batch)
            except Exception as error:  # nothing that happens keeps the next batch from its turn
                log.exception("a batch failed")
                outcomes = [error] * len(batch)

            if queries := sum(
                len(request.part) for request in batch if isinstance(request, _Queries)
            ):
                self._metrics.batches.observe(queries)
                self._metrics.searches.observe(time.monotonic() - self._since)
                if not any(isinstance(outcome, Exception) for outcome in outcomes):
                    # What was refused took no search, so it tells no pace.
                    self._paces.append((time.monotonic() - self._since) / self._searching)

            self._since = math.inf
            self._searching = 0.0
            self._batch = ()
            for request, outcome in zip(batch, outcomes, strict=True):
                self._give(request, outcome)

    def _next_batch(self) -> list[_Waiting]:
        """Take the request whose turn it is, or a part of it, and others from its line that fit."""
        for line in (self._small, self._large):
            while line and line[0].outcome.done():  # given up
                line.popleft()

        is_small = bool(self._small) and (self._small_had < TOGETHER or not self._large)
        line = self._small if is_small else self._large
        if not line:
            return []
        first = line.popleft()
        if is_small:
            self._small_had += first.cost
        else:
            self._small_had = 0.0
        if not isinstance(first, _Queries):
            return [first]
        is_alone = time.monotonic() - self._small_at > RECENT
        room = TOGETHER if is_small or is_alone else PART
        first.part = first.left[: max(1, int(room / cost(1, first.options)))]
        batch: list[_Waiting] = [first]
        queries = len(first.part)

        for request in list(line):
            if not isinstance(request, _Queries) or request.outcome.done():
                continue
            together = queries + len(request.left)
            if (
                request.kb is first.kb
                and request.options == first.options
                and cost(together, first.options) <= room
            ):
                request.part = request.left
                queries = together
                line.remove(request)
                batch.append(request)
                self._small_had += request.cost if is_small else 0.0

        return batch

    def _give(self, request: _Waiting, outcome: Any) -> None:
        """Give a request its outcome or, after a part, make it the first of its line again."""
        if isinstance(request, _Queries) and request.cost <= SMALL:
            self._small_at = time.monotonic()
        if isinstance(request, _Queries) and not isinstance(outcome, Exception):
            request.results += outcome
            if request.left and not request.outcome.done():
                self._line_of(request).appendleft(request)
                return
            outcome = request.results

        if request.outcome.done():
            return
        if isinstance(outcome, Exception):
            request.outcome.set_exception(outcome)
        else:
            request.outcome.set_result(outcome)


def _unanswered(requests: Iterable[_Waiting]) -> list[_Queries]:
    """Return the queries of some requests whose sender still waits."""
    return [
        request
        for request in requests
        if isinstance(request, _Queries) and not request.outcome.done()
    ]


def _size(line: deque[_Waiting]) -> int:
    return sum(
        queued.size for queued in line if isinstance(queued, _Queries) and not queued.outcome.done()
    )


def _outcomes(batch: Sequence[_Waiting]) -> list[Any]:
    queries = [request for request in batch if isinstance(request, _Queries)]
    return (
        _searched(queries)
        if queries
        else [_outcome_of(request.work) for request in batch if request.work]
    )


def _searched(batch: Sequence[_Queries]) -> list[Any]:
    """Search queries together, except those that cannot be asked; return the outcome of each
    request.
    """
    searcher = batch[0].kb.searcher
    options = batch[0].options
    problems = list(map(_checked, batch))
    queries: list[Query] = []
    for request, problem in zip(batch, problems, strict=True):
        if problem is None:
            queries += request.searched_now

    results = _outcome_of(lambda: iter(list(searcher.results(queries, options)) if queries else ()))
    if isinstance(results, Exception):
        return [problem or results for problem in problems]
    return [
        problem or list(islice(results, len(request.part)))
        for request, problem in zip(batch, problems, strict=True)
    ]


def _checked(request: _Queries) -> Exception | None:
    """Check all texts of a request before the first of them is searched; return what is wrong."""
    if not request.queries:
        checked = _outcome_of(partial(request.kb.searcher.check, request.options, request.texts))
        if isinstance(checked, Exception):
            return checked
        request.queries = checked
    return None


def _outcome_of(work: Callable[[], T]) -> T | Exception:
    """Return the value or the exception of some work, so that no request fails for another or ends
    the thread.

    Anything that a future cannot raise, such as a panic of a library in Rust, becomes a
    RuntimeError.
    """
    try:
        return work()
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        unexpected = RuntimeError(f"{type(error).__name__}: {error}")
        unexpected.__cause__ = error
        return unexpected
