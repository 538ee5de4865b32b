"""Work: what waits for the thread that searches, and what comes of it there."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from kbq.serve.bounds import MOST_SUGGESTIONS, SUGGESTING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbq.answers import Result, SearchOptions
    from kbq.kb import KnowledgeBase
    from kbq.serve.knowledge_bases import ServedKb

T = TypeVar("T")
SMALL = 4  # plain queries of a small request, at most


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """What waits in the queue, and what will come of it."""

    outcome: asyncio.Future[Any]
    since: float = field(default_factory=time.monotonic)
    texts: Sequence[str] = ()
    weight: int = 1  # of each query: as how many plain ones it counts

    @property
    def size(self) -> int:
        """As how many plain queries it counts."""
        return len(self.texts) * self.weight

    @property
    def is_small(self) -> bool:
        """Whether it is a few plain queries."""
        return 0 < self.size <= SMALL


@dataclass(slots=True, eq=False, kw_only=True)
class Queries(Waiting):
    """Queries, which are searched together with others of the same knowledge base and options."""

    kb: ServedKb
    options: SearchOptions


@dataclass(slots=True, eq=False, kw_only=True)
class Work(Waiting):
    """Anything else that needs the thread."""

    work: Callable[[], object]


def go_together(one: Waiting, other: Waiting) -> bool:
    """Whether the other request can be searched with one; small requests take no large ones along."""
    if not (isinstance(one, Queries) and isinstance(other, Queries)) or other.is_small < one.is_small:
        return False
    return one.kb is other.kb and one.options == other.options


def outcomes(batch: Sequence[Waiting]) -> list[Any]:
    """What comes of each request of a batch: its outcome, or the exception that it raises."""
    queries = [request for request in batch if isinstance(request, Queries)]
    if queries:
        return _searched(queries[0].kb.kb, queries[0].options, queries)
    return [_outcome_of(request.work) for request in batch if isinstance(request, Work)]


def _searched(kb: KnowledgeBase, options: SearchOptions, batch: Sequence[Queries]) -> list[Any]:
    """`outcomes` for queries: those that can be asked are searched together."""
    problems = [_outcome_of(partial(kb.refuse, request.texts, options)) for request in batch]
    texts = [text for request, problem in zip(batch, problems, strict=True) if not problem for text in request.texts]
    found = _outcome_of(lambda: iter(list(kb.results(texts, options)) if texts else ()))
    if isinstance(found, Exception):
        return [problem or found for problem in problems]
    return [
        problem or _outcome_of(partial(_unknown_words_named, kb, list(islice(found, len(request.texts)))))
        for request, problem in zip(batch, problems, strict=True)
    ]


def _unknown_words_named(kb: KnowledgeBase, results: Sequence[Result]) -> list[Result]:
    return [replace(one, unknown_words=kb.unknown_words(one.query, lambda: False)) for one in results]


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
