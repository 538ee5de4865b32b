"""Connections: clients that are too many, or do not read, while there is no proxy between them and
the service.
"""

import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbq.serve import guard

from .conftest import Serve
from .test_overload import BODY, HEAD, busy, said, until
from .test_process import address_of, command

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ALIVE = b'{"status":"alive"}'


def is_alive(connection: socket.socket) -> bool:
    """Whether the answer to `GET` comes."""
    answer = b""
    while not answer.endswith(b"}") and (more := connection.recv(65536)):
        answer += more
    return answer.endswith(ALIVE)


def connected(port: int, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))


@pytest.mark.slow
def test_idle_connections_do_not_end_the_service_which_answers_when_they_are_gone(
    kb_folder: Path,
) -> None:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))}
    with (
        command(str(kb_folder), "--port", "0", "--json", "--device", "cpu", **limited) as process,
        ExitStack() as last,
    ):
        port = int(address_of(process).rstrip("/").rpartition(":")[2])
        with ExitStack() as stack:
            for _ in range(1000):
                connected(port, stack)
            waiting = connected(port, last)
            waiting.sendall(GET)
        assert is_alive(waiting)
        process.terminate()
        _, log = process.communicate(timeout=300)
        assert process.returncode == 0
        assert log.count("Too many open files") == 1  # said once, and not a thousand times


def test_our_own_handler_logs_where_no_file_may_be_opened() -> None:
    code = """
import logging, os, resource
from kbq.serve.log_lines import log_as_json
log_as_json()
import mcp.server
mcp.server.MCPServer("x")
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for _ in range(3):
    try:
        os.open("/", 0)
    except OSError as error:
        logging.getLogger("asyncio").error("socket.accept() out of system resource", exc_info=error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stderr)["event"] == "socket.accept() out of system resource"


def test_requests_in_flight_are_bounded(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path
) -> None:
    monkeypatch.setattr(guard, "IN_FLIGHT", 3)
    service = serve({"tiny": kb_folder})
    with busy(service), ExitStack() as stack:
        for _ in range(3):
            connected(service.port, stack).sendall(HEAD.encode() + b"\r\n\r\n" + BODY)
        until(lambda: service.services.batcher.waiting == 3)
        answer = service.client.get("/v1/kbs")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert service.client.get("/healthz").status_code == 200
    assert service.client.get("/v1/kbs").status_code == 200


def test_a_request_whose_answer_nobody_takes_is_given_up(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path
) -> None:
    monkeypatch.setattr(guard, "PIECE", 5000)
    service = serve({"tiny": kb_folder}, seconds=1.0)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
        until(lambda: said(service, 'kbq_dropped_total{reason="late"} 1.0'))
        until(lambda: said(service, "kbq_requests_in_flight 1.0"))  # the one that asks this


def test_an_answer_is_in_flight_until_its_client_has_taken_it(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "PIECE", 5000)
    service = serve({"tiny": kb_folder})
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
        # With the one that asks this, two, again and again.
        until(lambda: all(said(service, "kbq_requests_in_flight 2.0") for _ in range(10)))
    until(lambda: said(service, "kbq_requests_in_flight 1.0"))
    assert [one for one in caplog.records if one.exc_info] == []
    whole = service.client.get("/openapi.json")
    assert whole.json()["info"]["title"] == "kbq"
