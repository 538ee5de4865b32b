"""Connections: clients that are too many, half gone, or do not read; what precedes a request, and what ends one."""

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbq.errors import KbqError
from kbq.serve import bodies, connections, running
from kbq.serve.connections import SPARE, most_connections

from .conftest import Running, Serve
from .test_overload import busy, until
from .test_process import address_of, command

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ALIVE = b'{"status":"alive"}'


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path) -> Iterator[tuple[Running, ExitStack]]:
    """A service with room for three connections, and a stack for them."""
    monkeypatch.setattr(running, "most_connections", lambda: 3)
    with ExitStack() as stack:
        yield serve({"tiny": kb_folder}), stack


def connected(service: Running, stack: ExitStack, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=30))
    connection.sendall(sent)
    return connection


def is_over(connection: socket.socket) -> bool:
    """Whether the service has hung up."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


def document_of(connection: socket.socket) -> bytes:
    """An answer, which ends as JSON does."""
    answer = b""
    while not answer.endswith(b"}") and (more := connection.recv(65536)):
        answer += more
    return answer


def is_alive(connection: socket.socket) -> bool:
    """Whether the answer to `GET` comes."""
    return document_of(connection).endswith(ALIVE)


def send_for_ever(connection: socket.socket, sent: bytes) -> None:
    while True:
        connection.sendall(sent)


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the service hangs up."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


HALF = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


def test_who_has_not_sent_all_gives_way(crowded: tuple[Running, ExitStack]) -> None:
    service, stack = crowded
    slow = [connected(service, stack, HALF) for _ in range(2)]
    third = connected(service, stack, GET)
    assert is_alive(third)
    assert is_alive(connected(service, stack, GET))
    assert is_over(slow[0])
    third.sendall(GET)
    assert is_alive(third)


def test_who_has_waited_longest_gives_way(crowded: tuple[Running, ExitStack]) -> None:
    service, stack = crowded
    second, first = connected(service, stack), connected(service, stack, GET)
    assert is_alive(first)  # it has been answered, and waits from then on
    third, fourth = connected(service, stack, GET), connected(service, stack, GET)
    assert is_alive(third)
    assert is_alive(fourth)
    assert is_over(second)
    first.sendall(GET)
    assert is_alive(first)


def test_where_all_have_requests_more_are_refused(crowded: tuple[Running, ExitStack]) -> None:
    service, stack = crowded
    asked = b'{"queries":["the river"]}'
    head = (
        f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(asked)}"
    )
    with busy(service):
        waiting = [connected(service, stack, head.encode() + b"\r\n\r\n" + asked) for _ in range(3)]
        until(lambda: service.services.batcher.waiting == 3)
        for _ in range(3):
            refused = connected(service, stack)
            head_of_last, _, document = answer_of(refused).partition(b"\r\n\r\n")
            assert head_of_last.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert json.loads(document)["detail"] == "too many connections are open: try again later"
    for connection in waiting:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
        connection.close()
    assert service.client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_more_connections_than_descriptors_do_not_end_the_service(kb_folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))}
    with (
        command(str(kb_folder), "--port", "0", "--json", "--device", "cpu", **limited) as process,
        ExitStack() as stack,
    ):
        port = int(address_of(process).rstrip("/").rpartition(":")[2])
        for _ in range(1500):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        last = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        last.sendall(GET)
        assert is_alive(last)
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 512
        assert process.poll() is None


def test_the_limit_of_descriptors_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr("os.listdir", lambda _: ["0"] * 50)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    for given, found in (((1024, 1024), 1024 - 100 - SPARE), ((256, 10**6), 2000), ((10**6, 10**6), 2000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, given=given: given)
        assert most_connections() == found
    assert limits == [(1024, 1024), (2100 + SPARE, 10**6)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    with pytest.raises(KbqError, match="200 files may be open, 244 are needed: raise the limit"):
        most_connections()


def test_our_own_handler_logs_where_no_file_may_be_opened() -> None:
    code = """
import logging, os, resource
from kbq.serve.monitoring import log_as_json
log_as_json()
import mcp.server
mcp.server.MCPServer("x")
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
try:
    os.open("/", 0)
except OSError as error:
    logging.getLogger("asyncio").error("socket.accept() out of system resource", exc_info=error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stderr)["event"] == "socket.accept() out of system resource"


def test_a_client_that_has_closed_its_side_is_answered(service: Running) -> None:
    asked = b'{"queries":["Marie Curie [SEP] spouse"],"rerank":0}'
    head = (
        f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(asked)}"
    )
    for sent in (GET, head.encode() + b"\r\n\r\n" + asked):
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert answer_of(connection).startswith(b"HTTP/1.1 200 OK")


def test_line_ends_before_a_request_mean_nothing(service: Running) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        for before in (b"\r\n", b"\r\n\r\n", b"\n\n\r\n"):
            connection.sendall(before + GET)
            assert is_alive(connection)
        connection.sendall(b"\r\n")
        connection.sendall(b"\r\n")
        connection.sendall(GET)
        assert is_alive(connection)


def test_a_refusal_has_its_name(service: Running) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"hello\r\n\r\n")
        assert answer_of(connection).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("more", ["", "Expect: 100-continue\r\n"])
def test_who_is_refused_is_not_read_for_ever(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path, more: str
) -> None:
    monkeypatch.setattr(bodies, "RESTS", 0.2)
    service = serve({"tiny": kb_folder}, keys=("a-key-of-sixteen-letters",))
    head = f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(head.encode() + (b"" if more else b"{"))
        answer = answer_of(connection)
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized")
        assert b"connection: close" in answer
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        for _ in range(2):  # a whole body is read, and the connection stays open
            connection.sendall(head.replace(more, "").encode() + b"x" * 1000)
            assert document_of(connection).startswith(b"HTTP/1.1 401")


def test_all_requests_together_are_bounded(monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path) -> None:
    monkeypatch.setattr(bodies, "TOGETHER", 100_000)
    service = serve({"tiny": kb_folder})
    for _ in range(2):
        answer = service.client.post("/v1/query", json={"queries": ["x" * 200_000]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert service.client.post("/v1/query", json={"queries": ["the river"]}).status_code == 200


def test_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch, serve: Serve, kb_folder: Path) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    monkeypatch.setattr(connections, "SLOWEST", 10**9)
    service = serve({"tiny": kb_folder})
    one = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", service.port))
        with pytest.raises(ConnectionError):
            send_for_ever(connection, one)
    assert service.client.get("/healthz").status_code == 200
