"""Monitoring: metrics, as Prometheus reads them, and logs, as JSON lines on standard error."""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
AGAIN = 60.0  # seconds after which asyncio's events are logged again
BATCHES = (1, 2, 4, 8, 16, 32, 64)
STANDARD = {*vars(logging.makeLogRecord({})), "color_message"}  # what every record of a log has, or uvicorn adds


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("kbq_requests", "Requests answered.", ("route", "status"), registry=own)
        self.seconds = Histogram(
            "kbq_request_seconds", "From a request to its answer.", ("route",), registry=own, buckets=SECONDS
        )
        self.in_flight = Gauge("kbq_requests_in_flight", "Requests that are read or answered.", registry=own)
        self.waiting = Gauge("kbq_queue_queries", "Queries that wait.", registry=own)
        self.waited = Histogram("kbq_queue_seconds", "How long requests wait.", registry=own, buckets=SECONDS)
        self.batches = Histogram("kbq_batch_queries", "Queries searched together.", registry=own, buckets=BATCHES)
        self.searches = Histogram("kbq_search_seconds", "How long batches are searched.", registry=own, buckets=SECONDS)
        self.answers = Counter("kbq_queries", "Queries by what came of them.", ("kb", "outcome"), registry=own)
        self.dropped = Counter("kbq_dropped", "Requests given up before a search.", ("reason",), registry=own)
        self.reopened = Counter("kbq_reopened", "Changed knowledge bases.", ("kb", "outcome"), registry=own)
        self.pages = Gauge("kbq_pages", "Pages of a knowledge base.", ("kb",), registry=own)


class JsonLines(logging.Formatter):
    """Records of a log as JSON, one a line, with what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class NotAgain(logging.Filter):
    """Lets an event pass once a minute: asyncio logs a thousand times a second that no more files may be opened."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}  # when each event has passed last

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is logged."""
        event, now = record.getMessage().partition("\n")[0], time.monotonic()
        if now - self._passed.get(event, -AGAIN) < AGAIN:
            return False
        self._passed[event] = now
        return True


def log_as_json() -> None:
    """Write warnings to standard error, and every request of the service.

    The root logger must have a handler before the MCP library is used: it would give it one that opens files to print a
    traceback, and so fails, and the event loop with it, where no more files may be opened.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("kbq.serve").setLevel(logging.INFO)
    logging.getLogger("asyncio").addFilter(NotAgain())
