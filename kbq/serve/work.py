"""Work: what waits for the thread that searches, and what comes of it there."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from kbq.serve.bounds import MOST_SUGGESTIONS, SUGGESTING, cost, weight
from kbq.serve.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbq.answers import Result, SearchOptions
    from kbq.kb import KnowledgeBase

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting(Turn):
    """What waits in the queue, and what will come of it."""

    outcome: asyncio.Future[Any]

    @property
    def size(self) -> int:
        """As how many plain queries it counts in the queue."""
        return 0

    def part(self, room: float) -> Part:
        """What can be done of it for so much, or the least that can be done."""
        return Part(self, self.cost)


@dataclass(slots=True, eq=False, kw_only=True)
class Queries(Waiting):
    """Queries, which are searched together with others of the same knowledge base and options.

    One request is answered from one knowledge base, also where the folder changes between its parts.
    """

    texts: Sequence[str]
    kb: KnowledgeBase
    options: SearchOptions
    spell: bool  # whether unknown words are named
    found: list[Result] = field(default_factory=list)  # of the first ones

    @property
    def left(self) -> Sequence[str]:
        """The queries that have not been searched yet."""
        return self.texts[len(self.found) :]

    @property
    def size(self) -> int:
        """As how many plain queries it counts in the queue."""
        return len(self.left) * weight(self.options)

    def part(self, room: float) -> Part:
        """The next queries that cost so much at most, at least one."""
        texts = self.left[: max(1, int(room / cost(1, self.options)))]
        return Part(self, cost(len(texts), self.options), texts)


@dataclass(slots=True, eq=False, kw_only=True)
class Work(Waiting):
    """Anything else that needs the thread."""

    work: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Part:
    """What is done now of what waits: some of its queries or, of other work, all."""

    waiting: Waiting
    cost: float
    texts: Sequence[str] = ()

    @property
    def is_rest(self) -> bool:
        """Whether nothing is left."""
        return not isinstance(self.waiting, Queries) or len(self.texts) == len(self.waiting.left)


def go_together(one: Waiting, other: Waiting) -> bool:
    """Whether the other request can be searched with one; none takes a larger kind along."""
    if not (isinstance(one, Queries) and isinstance(other, Queries)) or other.kind > one.kind:
        return False
    return one.kb is other.kb and one.options == other.options


def outcomes(batch: Sequence[Part]) -> list[Any]:
    """What comes of each part of a batch: its outcome, or the exception that it raises."""
    first = batch[0].waiting
    if isinstance(first, Queries):
        return _searched(first.kb, first.options, batch)
    return [_outcome_of(part.waiting.work) for part in batch if isinstance(part.waiting, Work)]


def _searched(kb: KnowledgeBase, options: SearchOptions, batch: Sequence[Part]) -> list[Any]:
    """`outcomes` for queries: those that can be asked are searched together."""
    problems = [_outcome_of(partial(_refuse, part.waiting)) for part in batch]
    texts = [text for part, problem in zip(batch, problems, strict=True) if not problem for text in part.texts]
    found = _outcome_of(lambda: iter(list(kb.results(texts, options)) if texts else ()))
    if isinstance(found, Exception):
        return [problem or found for problem in problems]
    return [
        problem or _outcome_of(partial(_unknown_words_named, part.waiting, list(islice(found, len(part.texts)))))
        for part, problem in zip(batch, problems, strict=True)
    ]


def _refuse(request: Waiting) -> None:
    """Refuse a request whose texts cannot be asked, before the first of them is searched."""
    if isinstance(request, Queries) and not request.found:
        request.kb.check(request.options, request.texts)


def _unknown_words_named(request: Waiting, results: list[Result]) -> list[Result]:
    if not isinstance(request, Queries) or not request.spell:
        return results
    return [replace(one, unknown_words=request.kb.unknown_words(one.query, lambda: False)) for one in results]


def suggested(kb: KnowledgeBase, found: Sequence[Result]) -> list[Result]:
    """The same with what may be meant by unknown words: by the first ones, as far as there is time."""
    words, ends = count(), time.monotonic() + SUGGESTING

    def may_suggest() -> bool:
        return next(words) < MOST_SUGGESTIONS and time.monotonic() < ends

    return [replace(one, unknown_words=kb.unknown_words(one.query, may_suggest)) for one in found]


def _outcome_of(work: Callable[[], T]) -> T | Exception:
    """What some work returns, or what it raises: one request does not fail for another, and none ends the thread.

    What a future cannot raise, and what is no `Exception`, such as a panic of a library in Rust, becomes one.
    """
    try:
        return work()
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        unexpected = RuntimeError(f"{type(error).__name__}: {error}")
        unexpected.__cause__ = error
        return unexpected
