"""Serving faults: count what becomes of requests when the service is stopped or killed, or its
pages change.

    python benchmarks/serving_faults.py [--rounds 5] [--kills 20] [--soak 1200]

64 clients ask a copy of the sample, without reranking. A request counts as lost if it was sent on
an open connection and no answer came.
"""

import asyncio
import json
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import httpx2
import reporting
from measuring import arguments, inputs
from service import Client, Load, Service, asked, connected, serving

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.storage.paths import PACKAGE

CLIENTS = 64
QUERIES = PACKAGE / "sample" / "queries.jsonl"
WAY = {"rerank": 0, "k": 3}
NEW = Page(
    "new",
    "Zorkville Observatory",
    ["The Zorkville Observatory was built in Zorkville by Ada Zork in 1999."],
)
PROBE = "Zorkville Observatory [SEP] founded by"
SEED = 0


def main() -> None:
    options = arguments(__doc__, rounds=5, kills=20, soak=1200.0)
    texts, figures = inputs(QUERIES), dict[str, object]()
    with tempfile.TemporaryDirectory() as folder:
        kb = Path(shutil.copytree(KnowledgeBase.sample(device="cpu").folder, Path(folder) / "kb"))
        figures["SIGTERM under load"] = [terminated(kb, texts) for _ in range(options.rounds)]
        figures["kill -9, then started again"] = killed(kb, texts, options.kills)
        figures["pages added while it is asked"] = changed(kb, texts, added, "pages")
        figures["replaced by a damaged one while it is asked"] = changed(
            kb, texts, damaged, "problem"
        )
    with serving("--device", "cpu") as service:
        figures["soak"] = soaked(service, texts, options.soak)
    reporting.write("serving_faults", figures, [QUERIES], SEED)


async def load_until(
    port: int, texts: Sequence[str], work: Callable[[], object], after: float
) -> Load:
    """Return what clients see until some work, which begins after some seconds in a thread, has
    ended.
    """
    load, queries, ended = Load(), cycle(texts), asyncio.Event()

    async def client_asks(client: Client) -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            status, _ = await client.post("/v1/query", {"queries": [next(queries)], **WAY})
            load.add(status if status or client.was_sent else -1, time.perf_counter() - begun)
            if not status:
                return

    async with connected(port, CLIENTS) as several:
        asking = [asyncio.create_task(client_asks(client)) for client in several]
        await asyncio.sleep(after)
        await asyncio.to_thread(work)
        ended.set()
        await asyncio.gather(*asking)
    return load


def terminated(kb: Path, texts: Sequence[str]) -> dict[str, object]:
    with serving(str(kb), "--device", "cpu") as service:
        times = []

        def stop() -> None:
            begun = time.perf_counter()
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(60)
            times.append(round(time.perf_counter() - begun, 2))

        load = asyncio.run(load_until(service.port, texts, stop, after=1.5))
        return named(load) | {
            "exit status": service.process.returncode,
            "seconds to its end": times[0],
        }


def named(load: Load) -> dict[str, object]:
    """Count what became of requests."""
    names = {"200": "answered", "0": "lost", "-1": "not accepted"}
    return {name: load.counts().get(status, 0) for status, name in names.items()} | {
        "refused": sum(count for status, count in load.counts().items() if status not in names)
    }


def killed(kb: Path, texts: Sequence[str], times: int) -> dict[str, object]:
    answers, seconds = set(), []
    for _ in range(times):
        begun = time.perf_counter()
        with serving(str(kb), "--device", "cpu") as service:
            seconds.append(time.perf_counter() - begun)
            answers.add(answered(service, texts[0]))
            source = random.Random(len(seconds))
            asyncio.run(
                load_until(service.port, texts, service.process.kill, after=source.random())
            )
    return {
        "times": times,
        "different first answers": len(answers),
        "seconds until it answers": round(sorted(seconds)[len(seconds) // 2], 2),
    }


def answered(service: Service, text: str) -> bytes:
    return httpx2.post(
        f"http://127.0.0.1:{service.port}/v1/query", json={"queries": [text]}, timeout=60
    ).content


def changed(
    kb: Path, texts: Sequence[str], change: Callable[[Path], object], fact: str
) -> dict[str, object]:
    """Return what clients see while the folder is changed, until the service reports another value
    of a fact.
    """
    with serving(str(kb), "--device", "cpu") as service:
        before, found = told(service), dict[str, object]()

        def change_and_wait() -> None:
            change(kb)
            begun = time.perf_counter()
            while (now := told(service))[fact] == before[fact] and time.perf_counter() - begun < 60:
                time.sleep(0.05)
            found.update(
                now | {"seconds until it is noticed": round(time.perf_counter() - begun, 2)}
            )

        load = asyncio.run(load_until(service.port, texts, change_and_wait, after=1.0))
        probe = json.loads(answered(service, PROBE))["results"][0]["answers"][0]
        return named(load) | found | {"the new page is found": probe["page_id"] == NEW.page_id}


def told(service: Service) -> dict[str, object]:
    """Return what the service reports about its knowledge base."""
    one = httpx2.get(f"http://127.0.0.1:{service.port}/v1/kbs", timeout=60).json()["kbs"][0]
    return {"pages": one["pages"], "problem": one["problem"]}


def added(kb: Path) -> None:
    KnowledgeBase.open(kb, device="cpu").update([NEW])


def damaged(kb: Path) -> None:
    """Replace the folder by a copy that has one page less, and one wrong byte."""
    copy = Path(shutil.copytree(kb, kb.with_name("copy")))
    KnowledgeBase.open(copy, device="cpu").delete("S001")
    path = copy / "shard-00000" / "vectors.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    kb.rename(kb.with_name("old"))
    copy.rename(kb)


def soaked(service: Service, texts: Sequence[str], seconds: float) -> dict[str, object]:
    """Ask for a long time, and compare memory and speed in the first tenth and the last."""
    parts, ends = [], time.monotonic() + seconds
    asked(service.port, texts, CLIENTS, 2000, **WAY)
    while not parts or time.monotonic() < ends:
        load = asked(service.port, texts, CLIENTS, 2000, **WAY)
        parts.append((load, service.megabytes(), service.descriptors()))
    tenth = max(1, len(parts) // 10)

    def over(some: Sequence[tuple[Load, float, int]]) -> dict[str, object]:
        return {
            "p99, ms": round(sum(load.percentile(0.99) for load, _, _ in some) / len(some), 1),
            "MB": some[-1][1],
            "descriptors": some[-1][2],
        }

    counts = sum((Counter(load.counts()) for load, _, _ in parts), Counter[str]())
    return {
        "seconds": round(sum(load.wall for load, _, _ in parts)),
        "requests by status": dict(counts),
        "first tenth": over(parts[:tenth]),
        "last tenth": over(parts[-tenth:]),
    }


if __name__ == "__main__":
    main()
