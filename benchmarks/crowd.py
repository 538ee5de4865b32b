"""Crowd: many clients ask a service while its pages change; count what is lost, and compare memory
at both ends.

    python benchmarks/crowd.py KB [--clients 200] [--requests 20000]

The folder is copied, and updated when half of the requests are answered. Clients wait as they are
told when they are refused, and ask without reranking. A request is lost if it was sent on an open
connection and no answer came. At last the service is idle, and gets SIGTERM.
"""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import reporting
from measuring import arguments, inputs
from service import Client, Load, Service, asked, connected, serving
from serving_faults import NEW, QUERIES, WAY, named, told

from kbq.kb import KnowledgeBase

WARM = 500  # requests before the memory is looked at


def main() -> None:
    options = arguments(__doc__, kb=Path, clients=200, requests=20_000)
    texts = inputs(QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        kb = Path(shutil.copytree(options.kb, Path(folder) / "kb"))
        with serving(str(kb), "--device", "cpu") as service:
            figures = crowded(service, kb, texts, options.clients, options.requests)
            figures |= ended(service)
    reporting.write("crowd", {f"{options.clients} clients": figures}, [options.kb])


def crowded(
    service: Service, kb: Path, texts: Sequence[str], clients: int, requests: int
) -> dict[str, object]:
    """Ask, update the knowledge base meanwhile, and ask on until all requests are answered."""
    asked(service.port, texts, clients, WARM, patient=True, **WAY)
    before = service.megabytes(), service.descriptors()
    pages = told(service)["pages"]
    load = asyncio.run(load_with_change(service.port, kb, texts, clients, requests))
    after = service.megabytes(), service.descriptors()
    return named(load) | {
        "requests": requests,
        "per second": round(requests / load.wall, 1),
        "p50 and p99, ms": [load.percentile(0.5), load.percentile(0.99)],
        "MB before and after": [before[0], after[0]],
        "descriptors before and after": [before[1], after[1]],
        "pages before and after": [pages, told(service)["pages"]],
    }


async def load_with_change(
    port: int, kb: Path, texts: Sequence[str], count: int, requests: int
) -> Load:
    load, left, queries, half = Load(), iter(range(requests)), cycle(texts), asyncio.Event()

    async def client_asks(client: Client) -> None:
        for number in left:
            if number == requests // 2:
                half.set()
            status = 503
            while status == 503:
                begun = time.perf_counter()
                status, _ = await client.post("/v1/query", {"queries": [next(queries)], **WAY})
                load.add(status if status or client.was_sent else -1, time.perf_counter() - begun)
                if status == 503:
                    await asyncio.sleep(client.retry_after)

    async def change() -> None:
        await half.wait()
        await asyncio.to_thread(lambda: KnowledgeBase.open(kb, device="cpu").update([NEW]))

    async with connected(port, count) as several:
        begun = time.perf_counter()
        await asyncio.gather(change(), *map(client_asks, several))
        load.wall = time.perf_counter() - begun
    return load


def ended(service: Service) -> dict[str, object]:
    begun = time.perf_counter()
    service.process.send_signal(signal.SIGTERM)
    status = service.process.wait(60)
    return {
        "status after SIGTERM, idle": status,
        "seconds to its end": round(time.perf_counter() - begun, 2),
    }


if __name__ == "__main__":
    main()
