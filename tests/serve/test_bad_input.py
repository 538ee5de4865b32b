"""Bad input: whatever is sent, the answer is a problem document with the right status, and the
service goes on.
"""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kbq.errors import KbqError
from kbq.serve.problems import document, without_paths

from .conftest import Running, Serve

QUERY = "/v1/query"
JSON = {"Content-Type": "application/json"}


def query(**fields: Any) -> dict[str, Any]:
    return {
        "content": json.dumps({"queries": ["Marie Curie [SEP] spouse"]} | fields).encode(),
        "headers": JSON,
    }


def body(content: bytes, kind: str = "application/json") -> dict[str, Any]:
    return {"content": content, "headers": {"Content-Type": kind}}


LONG_NAMES = [f"{number}" + "x" * 4_000 for number in range(50)]
CASES: dict[str, tuple[str, str, dict[str, Any], int, str]] = {
    "not JSON": ("POST", QUERY, body(b"{"), 400, "the request is not JSON"),
    "nothing": ("POST", QUERY, body(b""), 422, "is missing: give it"),
    "no object": ("POST", QUERY, body(b"[]"), 422, "must be an object {…}"),
    "not UTF-8": ("POST", QUERY, body(b'{"queries": ["\xff"]}'), 400, "UTF-8"),
    "nested too deeply": ("POST", QUERY, body(b"[" * 100_000), 400, ""),
    "a number of 10,000 digits": ("POST", QUERY, body(b'{"k": ' + b"9" * 10_000 + b"}"), 400, ""),
    "another content type": ("POST", QUERY, body(b"queries=x", "text/plain"), 415, "send application/json"),
    "a form": ("POST", QUERY, {"data": {"queries": "x"}}, 415, "send application/json"),
    "no content type": ("POST", QUERY, {"content": b"{}"}, 415, "send application/json"),
    "10 MB": ("POST", QUERY, body(b" " * 10_000_000), 413, "1,000,000 bytes"),
    "10 MB in pieces": ("POST", QUERY, body(iter([b" " * 1_000_000] * 10)), 413, "1,000,000 bytes"),  # type: ignore[arg-type]
    "10,000 queries": ("POST", QUERY, query(queries=["x"] * 10_000), 422, "queries: has more than 64 items"),
    "64 deep rerankings": ("POST", QUERY, query(queries=["x"] * 64, rerank=100), 422, "as long as 640: ask 6"),
    "64 with a reader": ("POST", QUERY, query(queries=["x"] * 64, reader="default"), 422, "as long as 512: ask 8"),
    "a table of long queries": (
        "POST", "/v1/fill", body(json.dumps({"subjects": LONG_NAMES, "relations": LONG_NAMES[:20]}).encode()), 422,
        "characters in its queries, at most 1,000,000",
    ),
    "two lengths": (
        "POST", QUERY, {"content": b"{}", "headers": JSON | {"Transfer-Encoding": "chunked", "Content-Length": "2"}},
        400, "in two ways",
    ),
    "a preset as a typed value's relation": (
        "POST", "/table/typed", body(b'{"values": [{"subject": "s", "relation": "@people", "value": "v"}]}'),
        422, "several relations",
    ),
    "a query of 100 kB": ("POST", QUERY, query(queries=["ok", "x" * 100_000]), 422, "queries[1]: has more than"),
    "a query of too many tokens": ("POST", QUERY, query(queries=["born " * 800]), 422, "tokens, the encoder reads"),
    "no query": ("POST", QUERY, query(queries=[]), 422, "queries: "),
    "a query that is none": ("POST", QUERY, query(queries=["x", 5]), 422, "queries[1]: "),
    "a blank query": ("POST", QUERY, query(queries=["  "]), 422, "the query is empty"),
    "NUL alone": ("POST", QUERY, query(queries=["\0"]), 422, "the query is empty"),
    "a lone surrogate": ("POST", QUERY, body(b'{"queries": ["\\ud800"]}'), 422, "queries[0]: "),
    "two separators": ("POST", QUERY, query(queries=["a [SEP] b [SEP] c"]), 422, 'has 2 "[SEP]"'),
    "several that cannot be asked": ("POST", QUERY, query(queries=["?", "x", "?"]), 422, "2 of 3 queries cannot be"),
    "an unknown field": ("POST", QUERY, query(kk=1), 422, "kk: "),
    "k = 0": ("POST", QUERY, query(k=0), 422, "k: "),
    "k = 10⁹": ("POST", QUERY, query(k=10**9), 422, "k: "),
    "k as a text": ("POST", QUERY, query(k="5"), 422, "k: "),
    "k = NaN": ("POST", QUERY, body(b'{"queries": ["x"], "min_probability": NaN}'), 422, "min_probability: "),
    "an unknown unit": ("POST", QUERY, query(unit="word"), 422, "unit: "),
    "units that do not fit": ("POST", QUERY, query(unit="phrase", backend="bm25"), 422, "BM25 finds no phrase"),
    "a backend that is not there": ("POST", QUERY, query(backend="sparta"), 422, "sparta"),
    "a reader by its path": ("POST", QUERY, query(reader="/etc"), 422, "reader: "),
    "an unknown knowledge base": ("POST", QUERY, query(kb="none"), 404, "there is no knowledge base 'none'"),
    "a knowledge base by its path": ("POST", QUERY, query(kb="../../etc"), 404, "there is no knowledge base"),
    "an unknown page": ("GET", "/v1/pages/none", {}, 404, "no page 'none'"),
    "a path as a page": ("GET", "/v1/pages/..%2f..%2f..%2fetc%2fpasswd", {}, 404, "no page '../../../etc/passwd'"),
    "a path as a file": ("GET", "/static/..%2f..%2fapi.py", {}, 404, "nothing at this address"),
    "a byte that is no text": ("GET", "/v1/pages/%ff%00", {}, 404, "no page"),
    "an unknown address": ("GET", "/nothing", {}, 404, "nothing at this address"),
    "a method that is not allowed": ("GET", QUERY, {}, 405, "use POST"),
    "a method that is unknown": ("BREW", QUERY, {}, 405, "use POST"),
    "a prefix that is too long": ("GET", "/v1/titles?prefix=" + "x" * 5000, {}, 422, "prefix: "),
    "a limit of titles": ("GET", "/v1/titles?limit=1000000", {}, 422, "limit: "),
    "a table of too many cells": ("POST", "/v1/fill", body(json.dumps(
        {"subjects": [str(n) for n in range(999)], "relations": ["a", "b"]}).encode()), 422, "1,998 cells"),
    "a table without relations": ("POST", "/v1/fill", body(b'{"subjects": ["x"], "relations": []}'), 422, "relations"),
    "a relation that is the subject": (
        "POST", "/v1/fill", body(b'{"subjects": ["x"], "relations": ["subject"]}'), 422, "is the column of subjects"),
    "a relation that is a file": (
        "POST", "/v1/fill", body(b'{"subjects": ["a [SEP] b"], "relations": ["/etc/x.toml"]}'), 422, "no subject can"),
    "another Host": ("GET", "/v1/kbs", {"headers": {"Host": "evil.example"}}, 421, "'evil.example' is not a name"),
    "a Host that is none": ("GET", "/v1/kbs", {"headers": {"Host": "[::1"}}, 400, "names no Host"),
    "a Host with a user": ("GET", "/v1/kbs", {"headers": {"Host": "evil.example@localhost"}}, 400, "names no Host"),
    "a Host with a path": ("GET", "/v1/kbs", {"headers": {"Host": "localhost/evil"}}, 400, "names no Host"),
    "a place that is none": ("GET", "/page/S001?start=-1", {}, 422, "start: "),
    "too many answers": ("GET", "/?q=x&k=1000", {}, 422, "k: "),
}  # fmt: skip


def is_problem(answer: httpx2.Response, status: int, words: str) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = answer.json()
    assert problem["status"] == status
    assert words.lower() in problem["detail"].lower()
    assert "Traceback" not in answer.text
    assert "/root/" not in answer.text
    assert "site-packages" not in answer.text


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_a_problem(service: Running, case: str) -> None:
    method, path, settings, status, words = CASES[case]
    is_problem(service.client.request(method, path, **settings), status, words)


def test_a_relation_is_no_file_of_the_server(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "relations.toml"
    path.write_text('[secret]\nquery = ["hidden words"]\n')
    asked = {"values": [{"subject": "s", "relation": str(path), "value": "v"}]}
    answer = service.client.post("/table/typed", json=asked)
    assert answer.status_code == 200
    assert "secret" not in answer.text
    asked["values"][0]["relation"] = str(tmp_path / "none.toml")
    assert (
        service.client.post("/table/typed", json=asked).text.replace("none.toml", "relations.toml")
        == answer.text
    )


def test_the_service_goes_on(service: Running) -> None:
    (found,) = service.query("Marie\0Curie [SEP] place of birth", k=1)
    assert found["answers"][0]["text"] == "Warsaw"


def test_single_problems_are_listed(service: Running) -> None:
    problem = service.client.post(QUERY, **query(k=0, z=1, queries=["x", ""])).json()
    assert [one["field"] for one in problem["errors"]] == ["k", "queries[1]", "z"]
    problem = service.client.post(QUERY, **query(queries=["?", "x", "?"])).json()
    assert [one["problem"].split(":")[0] for one in problem["errors"]] == ["query 1", "query 3"]


def test_single_problems_name_fields_too() -> None:
    error = KbqError(
        "2 rows cannot be asked",
        ["row 1: leave --min-probability out", "row 2: see `kbq fill --empty`"],
    )
    assert document(error, str)["errors"] == [
        {"problem": "row 1: leave min_probability=… out"},
        {"problem": "row 2: see `kbq fill --empty`"},
    ]
    assert error.typed_problems[0] == "row 1: leave --min-probability out"


def test_a_person_reads_a_page(service: Running) -> None:
    answer = service.client.get("/page/none", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "sample has no page &#39;none&#39;" in answer.text


# What is no proper HTTP, and clients that are slow or gone


@pytest.fixture
def connection(service: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connected:
        yield connected


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """The status and the body of an answer, after which the server hangs up."""
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
        b"GET / HTTP/1.1\r\n" + b"x" * 80_000,
    ],
)
def test_what_is_no_http_is_refused(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    assert answer_of(connection) == (400, "Invalid HTTP request received.")


def test_http_1_0_without_host_is_refused(connection: socket.socket) -> None:
    connection.sendall(b"GET /v1/kbs HTTP/1.0\r\n\r\n")
    status, problem = answer_of(connection)
    assert (status, json.loads(problem)["detail"]) == (400, "the request names no Host: send one")


def test_http_1_0_is_answered(connection: socket.socket) -> None:
    connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert b"".join(iter(lambda: connection.recv(65536), b"")).endswith(b'{"status":"alive"}')


PART_OF_A_BODY = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


def test_a_body_is_not_waited_for(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, seconds=0.2)
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
        connection.sendall(PART_OF_A_BODY)
        status, problem = answer_of(connection)
    assert (status, json.loads(problem)["detail"][:19]) == (504, "there was no answer")


@pytest.mark.parametrize("more", [b"", b"Expect: 100-continue\r\n"])
def test_the_body_of_a_refused_request_is_not_read(connection: socket.socket, more: bytes) -> None:
    connection.sendall(PART_OF_A_BODY.replace(b"localhost\r\n", b"evil.example\r\n" + more))
    assert answer_of(connection)[0] == 421


def test_a_client_that_hangs_up_does_no_harm(service: Running) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(PART_OF_A_BODY)
    assert service.query("Marie Curie [SEP] spouse", k=1)[0]["answers"][0]["text"]


def test_no_place_of_a_knowledge_base_is_shown(
    serve: Serve, kb_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(kb_folder, tmp_path / "of a secret" / "my kb"))
    service = serve({"tiny": folder})
    answer = service.client.post(QUERY, **query(backend="bm25"))
    is_problem(answer, 422, "tiny has no BM25 index")
    for problem in (answer, service.client.post(QUERY, **query(min_probability=0.5))):
        assert problem.status_code == 422
        assert "secret" not in problem.text
        assert str(tmp_path.parent) not in problem.text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/root/kbs/my kb is damaged", "my kb is damaged"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("'/a/b/c.npy': and/or 1/2", "'c.npy': and/or 1/2"),
    ],
)
def test_no_path_of_the_server_is_shown(said: str, shown: str) -> None:
    assert without_paths(said) == shown
