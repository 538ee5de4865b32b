"""Service: run `kbq serve` in a process of its own, and ask it with clients that each have a
connection.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from measuring import megabytes

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Service:
    """A running service."""

    process: subprocess.Popen[str]
    port: int

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that all its threads have taken so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self) -> float:
        """Return its memory without mapped files, in MiB like all earlier figures."""
        return round(megabytes(self.process.pid) / 1.024, 1)

    def descriptors(self) -> int:
        """Return how many files and connections it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def serving(*words: str) -> Iterator[Service]:
    """Run `kbq serve`, and kill it at the end if it has not ended."""
    command = [sys.executable, "-m", "kbq", "serve", *words, "--port", "0", "--json"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout
            address = json.loads(process.stdout.readline())["address"]
            yield Service(process, int(address.rstrip("/").rpartition(":")[2]))
        finally:
            process.kill()


@dataclass
class Load:
    """The seconds of each answer by its status, which is 0 if none came, and the seconds of the
    whole.
    """

    seconds: dict[int, list[float]] = field(default_factory=dict)
    wall: float = 0.0

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    @property
    def answered(self) -> int:
        return len(self.seconds.get(200, []))

    def percentile(self, share: float, status: int = 200) -> float:
        """Return a percentile in milliseconds."""
        ordered = sorted(self.seconds.get(status, [0.0]))
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

    def counts(self) -> dict[str, int]:
        return {str(status): len(times) for status, times in sorted(self.seconds.items())}


class Client:
    """One connection, kept open."""

    retry_after = 0.0  # seconds that the last answer said to wait
    was_sent = False  # whether the last request reached an open connection

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, document: object) -> tuple[int, bytes]:
        """Return the status and the body of an answer, or 0 if the connection ended before."""
        self.was_sent = False
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            body = json.dumps(document).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            self.was_sent = True
            headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(headers.partition("content-length: ")[2].partition("\r\n")[0])
            answer = await reader.readexactly(length)
            self.retry_after = float(
                headers.partition("retry-after: ")[2].partition("\r\n")[0] or 0
            )
            if "connection: close" in headers:
                self.close()
            return int(headers.split()[1]), answer
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0, b""

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[Client]]:
    """Make clients, and close their connections at the end."""
    made = [Client(port) for _ in range(count)]
    try:
        yield made
    finally:
        for client in made:
            client.close()


def asked(
    port: int,
    texts: Sequence[str],
    count: int,
    requests: int,
    patient: bool = False,
    **options: object,
) -> Load:
    """Let clients share requests, one at a time each; patient ones wait as they are told when they
    are refused.
    """

    async def ask() -> Load:
        load, left, queries = Load(), iter(range(requests)), cycle(texts)

        async def client_asks(client: Client) -> None:
            for _ in left:
                begun = time.perf_counter()
                status, _ = await client.post("/v1/query", {"queries": [next(queries)], **options})
                load.add(status, time.perf_counter() - begun)
                if patient and status == 503:
                    await asyncio.sleep(client.retry_after)

        async with connected(port, count) as several:
            begun = time.perf_counter()
            await asyncio.gather(*map(client_asks, several))
            load.wall = time.perf_counter() - begun
        return load

    return asyncio.run(ask())
