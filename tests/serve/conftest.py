"""Fixtures: a service in this process, at a port of its own, with the sample or with knowledge
bases of a test.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from browsing import PATIENCE

from kbq.kb import KnowledgeBase
from kbq.serve.app import address, create_app, listen, server_of
from kbq.serve.filling import Services
from kbq.serve.knowledge_bases import Folder, open_knowledge_bases
from kbq.serve.settings import ServeSettings
from kbq.tables.fill import Filling

Serve = Callable[..., "Running"]


class Running:
    """A service that runs: its address, a client, and what is behind it."""

    def __init__(self, folders: dict[str, Path], **settings: Any) -> None:
        chosen = ServeSettings(**{"port": 0, "seconds": 300.0} | settings)
        self._socket, started = listen(chosen), threading.Event()
        kbs = open_knowledge_bases({name: Folder(path) for name, path in folders.items()})
        app = create_app(kbs, chosen, started.set)
        self.services: Services = app.state.services
        self.address = address(chosen, self._socket).rstrip("/")
        self.port = int(self._socket.getsockname()[1])
        self._server = server_of(app, chosen)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert started.wait(300)
        self.client = httpx2.Client(base_url=self.address, timeout=300)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve([self._socket])

    def query(self, *texts: str, **options: Any) -> list[dict[str, Any]]:
        """The documents of some queries."""
        answer = self.client.post("/v1/query", json={"queries": list(texts), **options})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    def stop(self) -> None:
        """End, as SIGTERM would."""
        self.client.close()
        self._server.should_exit = True
        self._thread.join(60)
        self._server.force_exit = True  # a browser may keep a connection
        self._thread.join(60)
        self._socket.close()
        assert not self._thread.is_alive(), self._what_runs()

    def _what_runs(self) -> str:
        """Where each thread of this process and each task of the service is."""
        places = [
            f"thread {thread}:\n{''.join(traceback.format_stack(sys._current_frames()[thread.ident]))}"
            for thread in threading.enumerate()
            if thread.ident in sys._current_frames()
        ]
        return "\n".join([*places, *map(str, asyncio.all_tasks(self.loop))])


@contextmanager
def running(folders: dict[str, Path], **settings: Any) -> Iterator[Running]:
    service = Running(folders, **settings)
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services, which end with the test."""
    with ExitStack() as stack:
        yield lambda folders, **settings: stack.enter_context(running(folders, **settings))


@pytest.fixture(scope="session")
def service(sample: KnowledgeBase) -> Iterator[Running]:
    """A service with the sample."""
    with running({"sample": sample.folder}) as one:
        yield one


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until this is set, the service fills no more than the first cells of a table."""
    released, batches = threading.Event(), Filling.batches

    def held_batches(self: Filling, *arguments: Any) -> Any:
        for number, batch in enumerate(batches(self, *arguments)):
            assert number == 0 or released.wait(PATIENCE / 1000)
            yield batch

    monkeypatch.setattr(Filling, "batches", held_batches)
    yield released
    released.set()
