"""Access: keys, hosts, origins, the headers of every answer, and where a service listens."""

import base64
from pathlib import Path
from typing import Any

import pytest

from kbq.errors import KbqError
from kbq.serve.guard import read_keys
from kbq.serve.settings import ServeSettings

from .conftest import Running, Serve

KEY = "0123456789abcdef"
PATHS = [
    "/", "/table", "/page/S001", "/api", "/v1/kbs", "/v1/titles", "/metrics", "/static/style.css",
]  # fmt: skip


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.fixture
def locked(serve: Serve, kb_folder: Path) -> Running:
    return serve({"tiny": kb_folder}, keys=("another-key-0123456789", KEY))


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
def test_without_a_key_nothing_is_told(locked: Running, path: str) -> None:
    answer = locked.client.get(path)
    assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (401, "a key is needed")
    assert answer.headers["www-authenticate"] == 'Basic realm="kbq", charset="UTF-8"'


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {KEY}", 200), (f"bearer  {KEY}", 200), (basic(KEY), 200), (f"Bearer {KEY[:-1]}", 401),
        (basic(""), 401), ("Bearer", 401), ("Basic %%%", 401), (KEY, 401), ("Bearer é", 401),
        (f"Bearer \xa0{KEY}", 401), (f"Bearer {KEY}\x85", 401),
    ],
)  # fmt: skip
def test_a_key_opens(locked: Running, authorization: str, status: int) -> None:
    answer = locked.client.get(
        "/v1/kbs", headers=[(b"Authorization", authorization.encode("latin-1"))]
    )
    assert answer.status_code == status


def test_health_needs_no_key_and_no_host_but_tells_no_names(locked: Running) -> None:
    for headers in ({"Host": "10.0.0.7", "Authorization": f"Bearer {KEY}"}, {}):
        assert locked.client.get("/healthz", headers=headers).json() == {"status": "alive"}
        assert locked.client.get("/readyz", headers=headers).json() == {"status": "ready"}
    told = locked.client.get("/readyz", headers={"Authorization": f"Bearer {KEY}"}).json()
    assert told == {"status": "ready", "kbs": [{"name": "tiny", "problem": ""}]}


def test_what_needs_a_key_is_kept_nowhere(locked: Running, service: Running) -> None:
    for path in ("/v1/kbs", "/", "/static/style.css"):
        assert (
            locked.client.get(path, headers={"Authorization": basic(KEY)}).headers["cache-control"]
            == "no-store"
        )
        assert "cache-control" not in service.client.get(path).headers


@pytest.mark.parametrize("path", [*PATHS, "/healthz", "/readyz", "/reconcile"])
def test_head_is_get_without_its_body(service: Running, path: str) -> None:
    head, get = service.client.head(path), service.client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


FOREIGN = {"Origin": "https://evil.example"}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
LINK = FRAME | {"Sec-Fetch-Dest": "document"}
OPENREFINE = {
    "Origin": "http://127.0.0.1:3333",
    "Sec-Fetch-Site": "same-site",
    "Sec-Fetch-Mode": "cors",
}
QUERIES = {"queries": '{"q0": {"query": "Marie Curie"}}'}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize(
    ("method", "path", "sent", "headers", "status"),
    [
        ("POST", "/reconcile", {"data": QUERIES}, FOREIGN, 403),
        ("POST", "/reconcile", {"data": QUERIES}, {"Origin": "null"}, 403),
        ("POST", "/reconcile", {"data": QUERIES}, LINK, 403),
        ("POST", "/reconcile", {"data": QUERIES}, OPENREFINE, 200),
        ("POST", "/reconcile", {"data": QUERIES}, {}, 200),
        ("GET", "/reconcile", {"params": QUERIES}, IMAGE, 403),
        ("GET", "/reconcile", {}, FOREIGN, 200),
        ("GET", "/reconcile/suggest/entity", {"params": {"prefix": "m"}}, FOREIGN, 200),
        ("GET", "/reconcile/preview", {"params": {"id": "S001"}}, FRAME, 200),
        ("GET", "/", {"params": {"q": "Marie"}}, IMAGE, 403),
        ("GET", "/", {"params": {"q": "Marie Curie [SEP] spouse"}}, LINK, 200),
        ("GET", "/table", {}, FRAME, 403),
        ("POST", "/v1/fill", {"json": {}}, FOREIGN, 403),
        ("POST", "/mcp", {"json": PING}, FOREIGN, 403),
        ("POST", "/mcp", {"json": PING}, OPENREFINE, 200),
        ("GET", "/mcp", {}, {}, 405),
    ],
)  # fmt: skip
def test_pages_of_other_sites_start_no_work(
    service: Running,
    method: str,
    path: str,
    sent: dict[str, Any],
    headers: dict[str, str],
    status: int,
) -> None:
    accepted = {"Accept": "application/json, text/event-stream"}
    answer = service.client.request(method, path, headers=accepted | headers, **sent)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert "start the service with `--allow-origin`" in answer.text


def test_a_key_in_the_address_is_for_reconciliation_alone(locked: Running) -> None:
    assert locked.client.get("/v1/kbs", params={"api_key": KEY}).status_code == 401
    assert locked.client.get("/reconcile", params={"api_key": KEY}).status_code != 401
    assert locked.client.get("/reconcile", params={"api_key": "wrong"}).status_code == 401


def test_every_answer_has_the_headers(service: Running) -> None:
    for path in [*PATHS, "/healthz", "/openapi.json", "/nothing"]:
        headers = service.client.get(path).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_origins_that_are_allowed(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, allow_origin=("https://a.example",))
    for origin, allowed in (
        ("https://a.example", "https://a.example"),
        ("https://b.example", None),
    ):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = service.client.options("/v1/query", headers=asked)
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.status_code == (200 if allowed else 400)
        answer = service.client.get("/v1/kbs", headers={"Origin": origin})
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.headers["vary"] == "Origin"
    assert service.client.get("/v1/kbs").headers["vary"] == "Origin"
    asked = {"Origin": "https://c.example", "Access-Control-Request-Method": "POST"}
    assert (
        service.client.options("/reconcile", headers=asked).headers["access-control-allow-origin"]
        == "*"
    )
    assert service.client.get("/reconcile").headers["access-control-allow-origin"] == "*"


def test_the_public_name_is_one_of_the_service(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, public_url="https://kbq.example/")
    assert service.address == "https://kbq.example"
    client = service.client
    for host, status in (
        ("kbq.example", 200),
        ("KBQ.example:443", 200),
        ("127.0.0.1:1", 200),
        ("kbq.example.org", 421),
    ):
        answer = client.get(f"http://127.0.0.1:{service.port}/api", headers={"Host": host})
        assert answer.status_code == status
    assert (
        "curl https://kbq.example/v1/query"
        in client.get(f"http://127.0.0.1:{service.port}/api").text
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "can be reached by others: give an --api-key-file"),
        ({"host": "192.0.2.1"}, "can be reached by others: give an --api-key-file"),
        ({"host": "0.0.0.0", "keys": (KEY,)}, "needs --public-url"),
        ({"public_url": "kbq.example"}, "--public-url is 'kbq.example'"),
        ({"public_url": "https://kbq.example/sub"}, "write scheme and host"),
        ({"allow_origin": ("*",)}, "--allow-origin is '*'"),
    ],
)
def test_what_would_not_be_safe_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(KbqError) as refused:
        ServeSettings(**settings)  # type: ignore[arg-type]
    assert words in refused.value.typed
    assert refused.value.is_usage


def test_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# of the team\n{KEY}  # Ada\n\nanother-key-0123456789\n")
    assert read_keys(tmp_path / "keys") == (KEY, "another-key-0123456789")
    for text, words in (
        ("", "has no key"),
        ("short\n", "keys:1: a key has at least 16"),
        ("é" * 20, "keys:1: a key"),
    ):
        (tmp_path / "keys").write_text(text, "utf-8")
        with pytest.raises(KbqError, match=words):
            read_keys(tmp_path / "keys")
