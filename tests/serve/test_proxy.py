"""A reverse proxy: Debian's nginx, with the configuration of the guide, between many clients and
the service.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import nginx
import pytest

from .conftest import Running, running
from .test_connections import connected
from .test_overload import said, until

HOST = "kbq.example"
PROXY_KEY = "a-key-of-sixteen-letters"
HEADERS = {"Host": HOST, "Authorization": f"Bearer {PROXY_KEY}"}
QUERY = {"queries": ["the river"], "k": 1, "rerank": 0}
GOOD, HOSTILE = 20, 50


def request(path: str, document: object = None, *, missing: int = 0) -> bytes:
    """A request with a key; `missing`: bytes of its body that are not sent."""
    body = b"" if document is None else json.dumps(document).encode()
    head = (
        f"{'GET' if document is None else 'POST'} {path} HTTP/1.1\r\nHost: "
        f"{HOST}\r\nContent-Type: application/json\r\n"
    )
    head += f"Authorization: Bearer {PROXY_KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head.encode() + body)[: -missing or None]


MANY = {"queries": [f"Marie {number}" for number in range(64)]}
SENT = {
    "nothing": b"",
    "part of the headers": b"GET / HTTP/1.1\r\nX: ",
    "part of a body": request("/v1/query", MANY, missing=10),
    "64 queries": request("/v1/query", MANY | {"k": 100}),
    "1 MB": request("/v1/query", {"queries": ["x" * 999_000]}),
    "a table": request(
        "/v1/fill",
        {
            "subjects": [f"Marie {n}" for n in range(30)],
            "relations": ["birth"],
            "min_probability": 0.0,
        },
    ),
    "many requests": request("/openapi.json") * 1000,
    "no HTTP": bytes(range(256)) * 100,
    "another key": request("/v1/query", MANY).replace(PROXY_KEY.encode(), b"another"),
}


@pytest.fixture(scope="module")
def proxied(
    kb_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, int]]:
    """A service, and the port of nginx before it."""
    if nginx.program() is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    settings = {"public_url": f"https://{HOST}", "keys": (PROXY_KEY,), "seconds": 120.0}
    with (
        running({"tiny": kb_folder}, **settings) as service,
        nginx.proxied(service.port, tmp_path_factory.mktemp("nginx")) as port,
    ):
        service.client.base_url = f"http://127.0.0.1:{service.port}"  # not the public address
        service.client.headers.update(HEADERS)
        yield service, port


@pytest.fixture
def client(proxied: tuple[Running, int]) -> Iterator[httpx2.Client]:
    transport = httpx2.HTTPTransport(local_address="127.0.3.1")
    base = f"http://127.0.0.1:{proxied[1]}"
    with httpx2.Client(transport=transport, base_url=base, headers=HEADERS, timeout=120) as client:
        yield client


def test_the_configuration_has_ten_lines() -> None:
    assert len(nginx.server_block(1, 2).splitlines()) + 2 <= 11  # and two lines of TLS


def test_what_the_service_answers_comes_through(
    proxied: tuple[Running, int], client: httpx2.Client
) -> None:
    service, _ = proxied
    answer = client.post("/v1/query", json=QUERY)
    assert answer.json()["results"] == service.query("the river", k=1, rerank=0)
    assert client.get("/reconcile").json()["view"]["url"].startswith(f"https://{HOST}/page/")
    assert client.get("/v1/kbs", headers={"Authorization": "Bearer no"}).status_code == 401
    assert client.get("/v1/kbs", headers={"Host": "evil.example"}).status_code == 421
    assert client.post("/v1/query", content=b"x" * 2_000_000).status_code == 413
    table = {"subjects": ["Marie", "Paris"], "relations": ["birth"], "min_probability": 0.0}
    lines = client.post("/v1/fill", json=table).raise_for_status().text.splitlines()
    assert [json.loads(line)["subject"] for line in lines[:-1]] == ["Marie", "Paris"]


def test_idle_and_slow_clients_do_not_reach_the_service(
    proxied: tuple[Running, int], client: httpx2.Client
) -> None:
    service, port = proxied
    with ExitStack() as stack:
        for number in range(400):
            connection = connected(port, stack)
            if number % 4 == 0:
                connection.sendall(SENT["part of a body"])
        assert client.post("/v1/query", json=QUERY).status_code == 200
        assert said(service, "kbq_requests_in_flight 1.0")  # the one that asks this


async def attacks(port: int, sent: bytes, address: str) -> None:
    """Send something, do not read, and hang up after a while; again and again."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, limit=1024, local_addr=(address, 0)
            )
            try:
                writer.write(sent)
                await asyncio.sleep(1)
            finally:
                writer.transport.abort()


@asynccontextmanager
async def hostile_clients(port: int) -> AsyncIterator[None]:
    kinds = list(SENT.values())
    attacking = [
        asyncio.create_task(attacks(port, kinds[number % len(kinds)], f"127.0.2.{number + 1}"))
        for number in range(HOSTILE)
    ]
    yield
    for one in attacking:
        one.cancel()
    await asyncio.wait(attacking)


async def asks(port: int, times: int, address: str) -> list[int]:
    transport, base = httpx2.AsyncHTTPTransport(local_address=address), f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(
        transport=transport, base_url=base, headers=HEADERS, timeout=120
    ) as client:
        return [(await client.post("/v1/query", json=QUERY)).status_code for _ in range(times)]


def test_good_clients_are_answered_beside_hostile_ones(
    proxied: tuple[Running, int], client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    service, port = proxied

    async def besieged() -> list[list[int]]:
        async with hostile_clients(port):
            await asyncio.sleep(1)
            return await asyncio.gather(
                *(asks(port, 3, f"127.0.1.{number + 1}") for number in range(GOOD))
            )

    assert asyncio.run(besieged()) == [[200] * 3] * GOOD
    until(lambda: said(service, "kbq_requests_in_flight 1.0"))
    assert client.get("/readyz").json()["status"] == "ready"
    assert [one for one in caplog.records if one.exc_info] == []


def test_without_a_proxy_the_service_answers_when_hostile_clients_are_gone(
    proxied: tuple[Running, int],
) -> None:
    service, _ = proxied

    async def besieged() -> None:
        async with hostile_clients(service.port):
            await asyncio.sleep(3)

    asyncio.run(besieged())
    answer: Any = service.client.post("/v1/query", json=QUERY)
    assert answer.status_code == 200
    until(lambda: said(service, "kbq_requests_in_flight 1.0"))
