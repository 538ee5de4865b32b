"""Problems: report errors as problem documents (RFC 9457).

A request counts by what it expands to: a name with three properties of three pages is nine queries.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import Response

from kbq.errors import MOST_PROBLEMS, KbqError, KnowledgeBaseError, ModelError
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.text.normal_forms import without_surrogates

TYPE = "application/problem+json"
_TEXTS = {name: {"type": "string"} for name in ("title", "detail")}
_ERROR = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("field", "problem")},
}
SCHEMA = {
    "type": "object",
    "properties": {
        **_TEXTS,
        "status": {"type": "integer"},
        "errors": {"type": "array", "items": _ERROR},
    },
}
# Part of the OpenAPI document.
DESCRIBED = {"description": "A problem (RFC 9457).", "content": {TYPE: {"schema": SCHEMA}}}
# Words of RFC 9110; Python has older ones.
PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}
_PATH = re.compile(r"(?<![\w.:/<])/(?:[\w.@+~-]+/)+[\w.@+~-]*")

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
AGAIN = 60.0  # seconds without one of asyncio's events, after which it is logged again
BATCHES = (1, 2, 4, 8, 16, 32, 64)
# What every record of a log has, or uvicorn adds.
STANDARD = {*vars(logging.makeLogRecord({})), "color_message"}

LONGEST = 4096  # characters of a query, a subject, a relation, a name
# Limits of a request that is answered at once: queries, and answers of each.
MOST_QUERIES = BATCH
MOST_ANSWERS = 100
# Limits of a table that is filled a few cells at a time.
MOST_CELLS = 1000
MOST_RELATIONS = 60
MOST_PAGES = 1000  # pages that a request may choose
MOST_ASKED_OF_TABLE = 4000  # queries: a relation may have several wordings
# Queries of a request of reconciliation or of a tool, which is answered as a whole.
MOST_ASKED = 300
# Characters of all queries of a request together, and bytes of the request itself.
MOST_TEXT = 1_000_000
MOST_FIELDS = 100  # fields of an object in a request; all that it can have are fewer
MOST_ANSWERED = 8_000_000  # characters of an answer
READING = 8  # plain queries that a query with a reader counts as
UNREAD = 1 / 8  # and one without reranking


class RefusedError(KbqError):
    """A request that is refused; `status` is that of HTTP."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`fields`: what is wrong with each field of the request; `headers`: of the response."""
        super().__init__(message)
        self.status = status
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})


class OverloadedError(RefusedError):
    """More queries wait than the service takes on."""

    def __init__(self, seconds: int) -> None:
        sentence = f"too many queries wait: try again in {seconds} second{'s' * (seconds > 1)}"
        super().__init__(503, sentence, headers={"Retry-After": str(seconds)})


class LateError(RefusedError):
    """A request that was not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            504, f"there was no answer within {seconds:g} seconds: try again later, or ask for less"
        )


def status_of(error: KbqError) -> int:
    """Return the status of an error, which is the request's fault or that of the server's files."""
    if isinstance(error, RefusedError):
        return error.status
    is_ours = isinstance(error, KnowledgeBaseError | ModelError) and not error.is_usage
    return 500 if is_ours else 422


def document(error: KbqError, hidden: Callable[[str], str]) -> dict[str, object]:
    """Return an error as a problem document, with all single problems and their fields.

    `hidden` takes the places on this machine out of a text.
    """
    status = status_of(error)
    found: dict[str, object] = {
        "title": title_of(status),
        "status": status,
        "detail": hidden(str(error)),
    }
    fields: Iterable[tuple[str, str]] = ()
    if isinstance(error, RefusedError):
        fields = error.fields.items()
    errors = [{"field": name, "problem": problem} for name, problem in fields]
    errors += [{"problem": hidden(problem)} for problem in error.problems]
    if errors:
        return found | {"errors": errors[:MOST_PROBLEMS]}
    return found


def title_of(status: int) -> str:
    return PHRASES.get(status) or HTTPStatus(status).phrase


def response_to(
    error: KbqError, hidden: Callable[[str], str] = str, for_reconciliation: bool = False
) -> Response:
    """Answer with a problem document (see `document`), or in the form that clients of
    reconciliation expect.
    """
    content = (
        {"status": "error", "message": hidden(str(error))}
        if for_reconciliation
        else document(error, hidden)
    )
    headers = error.headers if isinstance(error, RefusedError) else None
    media_type = "application/json" if for_reconciliation else TYPE
    return Response(
        without_surrogates(json.dumps(content, ensure_ascii=False)),
        status_of(error),
        headers,
        media_type,
    )


SAID = {  # the framework's findings in our words; names in braces are its limits
    "missing": "is missing: give it",
    "extra_forbidden": "is unknown: leave it out",
    "string_too_short": "is empty: write something",
    "string_too_long": "has more than {max_length:,} characters: shorten it",
    "too_short": "has no items: give at least {min_length:,}",
    "too_long": "has more than {max_length:,} items: give fewer",
    "greater_than_equal": "must be {ge:,} or more",
    "less_than_equal": "must be {le:,} or less",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "greater_than": "must be more than {gt:,}",
    "less_than": "must be less than {lt:,}",
    "string_pattern_mismatch": "must have the form {pattern}",
    "string_unicode": "must be a text of whole characters: take halves of surrogate pairs out",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object {{…}}",
    "model_type": "must be an object {{…}}",
    "model_attributes_type": "must be an object {{…}}",
    "literal_error": "must be one of {expected}",
}


def field_problems(errors: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return pydantic's errors in our words, by field, such as queries[3]."""
    problems = {}
    for error in errors:
        parts = []
        for part in error["loc"]:
            if isinstance(part, int):
                parts.append(f"[{part}]")
            else:
                parts.append(f".{part}")
        said = SAID.get(error["type"])
        if said:
            sentence = said.format(**error.get("ctx", {}))
        else:
            sentence = str(error["msg"])
        problems["".join(parts).removeprefix(".") or "the request"] = sentence
    return problems


def without_paths(text: str) -> str:
    """Shorten every absolute path in a text to its last part, so that nobody learns where the
    server's files lie.

    >>> without_paths("/srv/kbs/people has no words, see https://example.org/a/b: add them to '/srv/kbs'")
    "people has no words, see https://example.org/a/b: add them to 'kbs'"
    """
    return _PATH.sub(lambda path: PurePath(path[0]).name, text)


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "kbq_requests", "Requests answered.", ("route", "status"), registry=own
        )
        self.seconds = Histogram(
            "kbq_request_seconds",
            "From a request to its answer.",
            ("route",),
            registry=own,
            buckets=SECONDS,
        )
        self.in_flight = Gauge(
            "kbq_requests_in_flight", "Requests that are read or answered.", registry=own
        )
        self.waiting = Gauge("kbq_queue_queries", "Queries that wait.", registry=own)
        self.waited = Histogram(
            "kbq_queue_seconds", "How long requests wait.", registry=own, buckets=SECONDS
        )
        self.batches = Histogram(
            "kbq_batch_queries", "Queries searched together.", registry=own, buckets=BATCHES
        )
        self.searches = Histogram(
            "kbq_search_seconds", "How long batches are searched.", registry=own, buckets=SECONDS
        )
        self.answers = Counter(
            "kbq_queries", "Queries by what came of them.", ("kb", "outcome"), registry=own
        )
        self.dropped = Counter(
            "kbq_dropped", "Requests given up before a search.", ("reason",), registry=own
        )
        self.reopened = Counter(
            "kbq_reopened", "Changed knowledge bases.", ("kb", "outcome"), registry=own
        )
        self.pages = Gauge("kbq_pages", "Pages of a knowledge base.", ("kb",), registry=own)


class JsonLines(logging.Formatter):
    """Format records of a log as lines of JSON, with the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Log warnings and every request of the service to standard error.

    The root logger must have a handler before the MCP library is used: the library's own opens
    files to print a traceback, and so fails, and the event loop with it, where no more files may be
    opened.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("kbq.serve").setLevel(logging.INFO)
    passed: dict[str, float] = {}  # when each event was logged last

    # Asyncio says a thousand times a second that no file can be opened.
    def is_new(record: logging.LogRecord) -> bool:
        event = record.getMessage().partition("\n")[0]
        now = time.monotonic()
        last = passed.get(event, -AGAIN)
        passed[event] = now
        return now - last >= AGAIN

    logging.getLogger("asyncio").addFilter(is_new)


def weight(options: SearchOptions) -> int:
    """Return how many plain queries one with these options counts as, by the time that it takes."""
    batches = -(-(options.rerank or 0) // N_RERANKED)
    if options.reader:
        return max(batches, READING)
    return max(1, batches)


def cost(queries: int, options: SearchOptions) -> float:
    """Return the cost of queries in plain ones: `weight` each, and less without reranking."""
    if options.rerank == 0 and not options.reader:
        return queries * UNREAD
    return queries * weight(options)


def refuse_more(things: str, count: int, most: int, status: int = 413) -> None:
    """Raise RefusedError if a request asks for too many things."""
    if count > most:
        raise RefusedError(
            status,
            f"the request has {count:,} {things}, at most {most:,} are taken: send several "
            "requests",
        )


def refuse_costly(queries: int, options: SearchOptions) -> None:
    """Raise RefusedError for more queries than are searched together, counted by their cost."""
    each = weight(options)
    if queries * each > MOST_QUERIES:
        raise RefusedError(
            422,
            f"{queries} queries with a reader or such deep reranking take as long as "
            f"{queries * each:,}: ask {MOST_QUERIES // each} at once",
        )


def refuse_long(subjects: Sequence[str], wordings: Sequence[str]) -> None:
    """Raise RefusedError if a table has too many queries (each subject with each wording) or too
    long ones.
    """
    refuse_more("queries", len(subjects) * len(wordings), MOST_ASKED_OF_TABLE, 422)
    size = sum(map(len, subjects)) * len(wordings) + sum(map(len, wordings)) * len(subjects)
    refuse_more("characters in its queries", size, MOST_TEXT, 422)
