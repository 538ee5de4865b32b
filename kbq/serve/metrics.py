"""Metrics: what a service counts for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


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
