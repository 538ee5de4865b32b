"""The process: `kbq serve` as it is typed: it says its address, answers what it has accepted, and
ends.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import Run

Refused = Callable[..., tuple[object, str]]
ROOT = Path(__file__).parents[2]


@contextmanager
def command(*words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`kbq serve` in a process of its own, which is killed at the end if it has not ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbq", "serve", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, **more,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    told = json.loads(process.stdout.readline())
    return str(told["address"])


@pytest.fixture
def refused(run: Run) -> Refused:
    """The status and the last line of a command that does not serve."""

    def serve(*words: str) -> tuple[object, str]:
        told = run("serve", *words)
        return told.status, told.err.strip().splitlines()[-1]

    return serve


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered_before_the_end(
    kb_folder: Path, number: signal.Signals
) -> None:
    with command(
        f"tiny={kb_folder}", "--port", "0", "--json", "--queue", "512", "--log-queries"
    ) as process:
        client = httpx2.Client(base_url=address_of(process), timeout=300)
        assert client.get("/readyz").json()["kbs"][0]["name"] == "tiny"
        found: list[Any] = []

        def ask() -> None:
            found.append(client.post("/v1/query", json={"queries": ["the river"] * 64, "k": 3}))

        asking = [threading.Thread(target=ask) for _ in range(8)]
        for thread in asking:
            thread.start()
        while (
            b"kbq_batch_queries_count 0.0" in client.get("/metrics").content
        ):  # until the search is under way
            pass
        process.send_signal(number)
        for thread in asking:
            thread.join()
        client.close()
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0
        answered = [answer for answer in found if answer.status_code == 200]
        assert len(answered) == 8
        assert all(len(answer.json()["results"]) == 64 for answer in answered)
        logged = [json.loads(line) for line in said.splitlines()]
        assert (
            sum(line.get("route") == "/v1/query" and line["status"] == 200 for line in logged) == 8
        )
        assert logged[-1]["queries"][0] == "the river"


@pytest.mark.slow
def test_queries_are_not_logged(kb_folder: Path) -> None:
    with command(str(kb_folder), "--port", "0", "--json", "--device", "cpu") as process:
        base = address_of(process)
        httpx2.post(f"{base}v1/query", json={"queries": ["the secret river"]}, timeout=300)
        httpx2.get(base, params={"q": "the secret river"}, timeout=300)
        httpx2.get(f"{base}v1/titles", params={"prefix": "secret"}, timeout=300)
        httpx2.post(f"{base}v1/query", json={"queries": ["secret " * 500]}, timeout=300)
        process.terminate()
        _, said = process.communicate(timeout=300)
        assert said.count('"event": "request"') == 4
        assert "secret" not in said


@pytest.mark.slow
def test_without_a_knowledge_base_the_sample_is_served() -> None:
    with command("--port", "0", "--device", "cpu") as process:
        assert process.stdout
        line = process.stdout.readline().strip()
        assert line.startswith("http://127.0.0.1:")
        assert line.endswith("/  serves sample")
        process.terminate()
        assert process.wait(60) == 0


def test_what_cannot_be_served_is_one_sentence(
    refused: Refused, kb_folder: Path, tmp_path: Path
) -> None:
    kb = str(kb_folder)
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = str(taken.getsockname()[1])
        status, said = refused(kb, "--port", port, "--device", "cpu")
        assert (status, said) == (
            1, f"error: 127.0.0.1:{port} cannot be served (Address already in use): choose another --port",
        )  # fmt: skip
    assert refused(kb, "--host", "0.0.0.0") == (
        2, "error: 0.0.0.0 can be reached by others: give an --api-key-file",
    )  # fmt: skip
    none = tmp_path / "none"
    assert refused(str(none)) == (
        1, f"error: {none} does not exist: make a knowledge base with `kbq build CORPUS {none}`",
    )  # fmt: skip
    assert refused(kb, kb) == (
        2,
        "Error: Invalid value for KB: two have one name: write NAME=FOLDER",
    )
    assert refused(f"a b={kb}")[1].startswith(
        "error: 'a b' cannot be the name of a knowledge base: write NAME="
    )
    assert refused(kb, "--model", "other=x")[1] == (
        "Error: Invalid value for --model: no knowledge base is named 'other': write NAME=FOLDER"
    )


def test_what_must_be_installed_is_said(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kbq.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert refused() == (
        1,
        "error: kbq serve needs further packages: pip install '.[serve]' in the checkout of kbq",
    )
