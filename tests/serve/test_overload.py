"""Overload: while the search is busy, the rest of the service answers, and nobody waits in vain."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import Running, Serve

QUERY = {"queries": ["the river"], "k": 1}
BODY = b'{"queries":["the river"]}'
HEAD = (
    "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    f"application/json\r\nContent-Length: {len(BODY)}"
)


@contextmanager
def busy(service: Running) -> Iterator[None]:
    """While the thread that searches does something else."""
    free, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert free.wait(30)

    working = asyncio.run_coroutine_threadsafe(
        service.services.batcher.call(work, math.inf), service.loop
    )
    assert begun.wait(30)
    try:
        yield
    finally:
        free.set()
        working.result(30)


def until(claim: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not claim():
        if time.monotonic() > ends:
            pytest.fail("it never held")
        time.sleep(0.001)  # so that the service has its turn


def said(service: Running, line: str) -> bool:
    return line in service.client.get("/metrics").text


def test_health_is_told_while_the_search_is_busy(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder})
    with busy(service):
        assert service.client.get("/healthz").status_code == 200
        assert service.client.get("/v1/pages/P1").status_code == 200


def test_who_waits_too_long_is_told(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, seconds=0.1)
    with busy(service):
        answer = service.client.post("/v1/query", json=QUERY)
    assert (answer.status_code, answer.headers["content-type"]) == (504, "application/problem+json")
    assert answer.json()["detail"].startswith("there was no answer within 0.1 seconds")
    assert said(service, 'kbq_dropped_total{reason="late"} 1.0')


def test_who_comes_too_late_is_told_at_once(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, queue=2)
    with busy(service):
        waiting = [threading.Thread(target=service.query, args=("Paris",)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        until(lambda: said(service, "kbq_queue_queries 2.0"))
        answer = service.client.post("/v1/query", json=QUERY)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"] == "too many queries wait: try again in 1 second"
        page = service.client.get("/", params={"q": "Paris"}, headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["retry-after"]) == (503, "1")
        assert "too many queries wait" in page.text
    for thread in waiting:
        thread.join()
    assert service.client.post("/v1/query", json=QUERY).status_code == 200


def test_who_hangs_up_is_forgotten(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder})
    with busy(service):
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(HEAD.encode() + b"\r\n\r\n" + BODY)
            until(lambda: said(service, "kbq_queue_queries 1.0"))
        until(lambda: said(service, 'kbq_requests_total{route="/v1/query",status="499"} 1.0'))
    assert said(service, "kbq_queue_queries 0.0")
    assert said(service, "kbq_batch_queries_count 0.0")
