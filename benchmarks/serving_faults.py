"""Serving faults: what happens to requests when the service is stopped, killed, changed, or beset by hostile clients.

    python benchmarks/serving_faults.py [--rounds 5] [--kills 20] [--soak 1200]
    python benchmarks/serving_faults.py --siege 1200 [--clients 200]

The sample, copied, is asked by 64 clients without reranking. A request counts as lost if its connection was open,
it had been sent, and no answer came. With `--siege`, good clients ask alone and beside as many hostile ones;
the service may have 1,024 files open, and 2,000 connections are opened at the end. Clients load the machine, too, so
as many harmless ones are measured as well.
"""

import asyncio
import json
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import reporting
from measuring import arguments, inputs
from service import Client, Load, Service, asked, connected, serving

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.storage.files import PACKAGE

CLIENTS = 64
QUERIES = PACKAGE / "sample" / "queries.jsonl"
WAY = {"rerank": 0, "k": 3}
NEW = Page("new", "Zorkville Observatory", ["The Zorkville Observatory was built in Zorkville by Ada Zork in 1999."])
PROBE = "Zorkville Observatory [SEP] founded by"
SEED = 0
ROUNDS = 3  # of a siege
Beside = Literal["nobody", "harmless", "hostile"]


def main() -> None:
    options = arguments(__doc__, rounds=5, kills=20, soak=1200.0, siege=0.0, clients=200)
    if options.siege:
        reporting.write("serving_siege", besieged(inputs(QUERIES), options.siege, options.clients), [QUERIES], SEED)
        return
    texts, figures = inputs(QUERIES), dict[str, object]()
    with tempfile.TemporaryDirectory() as folder:
        kb = Path(shutil.copytree(KnowledgeBase.sample(device="cpu").folder, Path(folder) / "kb"))
        figures["SIGTERM under load"] = [terminated(kb, texts) for _ in range(options.rounds)]
        figures["kill -9, then started again"] = killed(kb, texts, options.kills)
        figures["pages added while it is asked"] = changed(kb, texts, added, "pages")
        figures["replaced by a damaged one while it is asked"] = changed(kb, texts, damaged, "problem")
    with serving("--device", "cpu") as service:
        figures["soak"] = soaked(service, texts, options.soak)
    reporting.write("serving_faults", figures, [QUERIES], SEED)


def serve(kb: Path) -> tuple[str, ...]:
    return (str(kb), "--device", "cpu")


async def load_until(port: int, texts: Sequence[str], work: Callable[[], object], after: float) -> Load:
    """Return what clients see from before some work, which is done in a thread, to its end."""
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
    with serving(*serve(kb)) as service:
        times = []

        def stop() -> None:
            begun = time.perf_counter()
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(60)
            times.append(round(time.perf_counter() - begun, 2))

        load = asyncio.run(load_until(service.port, texts, stop, after=1.5))
        return named(load) | {"exit status": service.process.returncode, "seconds to its end": times[0]}


def named(load: Load) -> dict[str, object]:
    """Count what came of requests."""
    names = {"200": "answered", "0": "lost", "-1": "not accepted"}
    return {name: load.counts().get(status, 0) for status, name in names.items()} | {
        "refused": sum(count for status, count in load.counts().items() if status not in names)
    }


def killed(kb: Path, texts: Sequence[str], times: int) -> dict[str, object]:
    answers: Counter[str] = Counter()
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        with serving(*serve(kb)) as service:
            seconds.append(time.perf_counter() - begun)
            answers[first_answer(service, texts[0])] += 1
            source = random.Random(len(seconds))
            asyncio.run(load_until(service.port, texts, service.process.kill, after=source.random()))
    return {
        "times": times,
        "different first answers": len(answers),
        "seconds until it answers": round(sorted(seconds)[len(seconds) // 2], 2),
    }


def first_answer(service: Service, text: str) -> str:
    status, body = asyncio.run(Client(service.port).post("/v1/query", {"queries": [text]}))
    return f"{status} {body.decode()}"


def changed(kb: Path, texts: Sequence[str], change: Callable[[Path], object], fact: str) -> dict[str, object]:
    """Return what clients see while the folder is changed, until the service says something else of it."""
    with serving(*serve(kb)) as service:
        before, found = told(service), dict[str, object]()

        def change_and_wait() -> None:
            change(kb)
            begun = time.perf_counter()
            while (now := told(service))[fact] == before[fact] and time.perf_counter() - begun < 60:
                time.sleep(0.05)
            found.update(now | {"seconds until it is noticed": round(time.perf_counter() - begun, 2)})

        load = asyncio.run(load_until(service.port, texts, change_and_wait, after=1.0))
        probe = json.loads(first_answer(service, PROBE).partition(" ")[2])["results"][0]["answers"][0]
        return (
            named(load)
            | found
            | {
                "the new page is found": probe["page_id"] == NEW.id,
            }
        )


def told(service: Service) -> dict[str, object]:
    """Return what the service says of its knowledge base."""

    async def get() -> dict[str, object]:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"GET /v1/kbs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        one = json.loads(answer.partition(b"\r\n\r\n")[2])["kbs"][0]
        return {"pages": one["pages"], "problem": one["problem"]}

    return asyncio.run(get())


def added(kb: Path) -> None:
    KnowledgeBase.open(kb, device="cpu").update([NEW])


def damaged(kb: Path) -> None:
    """Put a copy that has one page less, and one other byte, in the place of the folder."""
    copy = Path(shutil.copytree(kb, kb.with_name("copy")))
    KnowledgeBase.open(copy, device="cpu").delete("S001")
    path = copy / "shard-00000" / "vectors.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    kb.rename(kb.with_name("old"))
    copy.rename(kb)


def soaked(service: Service, texts: Sequence[str], seconds: float) -> dict[str, object]:
    """Ask for a long time; return memory and speed in the first tenth and the last."""
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


def besieged(texts: Sequence[str], seconds: float, clients: int) -> dict[str, object]:
    """Return what good clients see alone, beside as many harmless ones, and beside hostile ones, in turns.

    In the first half of the time each client has an address of its own, in the second all have the same.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with serving("--device", "cpu", files=1024) as service:

        def facts() -> dict[str, object]:
            return {"MB": service.megabytes(), "descriptors": service.descriptors()}

        asyncio.run(warmed(service.port))
        asked(service.port, texts, clients, 4 * clients, **WAY)
        start, tries, found = facts(), Counter[str](), dict[str, object]()
        for has_own in (True, False):
            loads: dict[Beside, Load] = {"nobody": Load(), "harmless": Load(), "hostile": Load()}
            for _ in range(ROUNDS):  # in turns, since the machine may have other work now and then
                for beside, load in loads.items():
                    share = 2 if beside == "hostile" else 1
                    work = asked_beside(service.port, texts, clients, beside, seconds / 8 / ROUNDS * share, has_own)
                    more, done = asyncio.run(work)
                    load.take(more)
                    tries += done if beside == "hostile" else Counter()
            p99 = {beside: load.percentile(0.99) for beside, load in loads.items()}
            found["each client at its own address" if has_own else "all at one address"] = {
                "beside nobody": seen(loads["nobody"]),
                "beside harmless clients": seen(loads["harmless"]),
                "beside hostile clients": seen(loads["hostile"]),
                "p99 beside hostile ones, times that beside nobody": round(p99["hostile"] / p99["nobody"], 2),
                "p99 beside hostile ones, times that beside harmless ones": round(p99["hostile"] / p99["harmless"], 2),
                "at the end": facts(),
            }
        crowd = asyncio.run(crowded(service, 2000))
        time.sleep(30)  # what is cut off after some seconds is cut off by then
        return {
            "clients": clients,
            "at the start": start,
            **found,
            "what hostile clients did": dict(sorted(tries.items())),
            "2,000 connections": crowd,
            "at the end": facts(),
            "has ended": service.process.poll() is not None,
        }


async def warmed(port: int) -> None:
    """Ask for what is read or made when it is first needed, which belongs to the start."""
    for kind in ("asks 64 queries", "asks for unknown words", "reconciles 100 properties", "sends 1 MB"):
        await attacked(port, HOSTILE[kind], "127.0.0.1")


def seen(load: Load) -> dict[str, object]:
    return {
        "seconds": round(load.wall),
        "requests by status": load.counts(),
        "p50, ms": load.percentile(0.5),
        "p99, ms": load.percentile(0.99),
    }


async def crowded(service: Service, count: int) -> dict[str, object]:
    """Open as many connections that say nothing, and return what a good client sees beside them."""
    idle = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(count)]
    begun = time.perf_counter()
    status, _ = await Client(service.port).post("/v1/query", {"queries": ["Marie Curie [SEP] spouse"], **WAY})
    found = {"a query's status": status, "its ms": round(1000 * (time.perf_counter() - begun), 1)}
    found["descriptors"] = service.descriptors()
    for _, writer in idle:
        writer.close()
    return found


async def asked_beside(
    port: int, texts: Sequence[str], clients: int, beside: Beside, seconds: float, has_own: bool
) -> tuple[Load, Counter[str]]:
    """Return what good clients see for some seconds beside as many others, and how often these did what.

    Args:
        has_own: each client has an address of its own.
    """
    load, tries, queries, ends = Load(), Counter[str](), cycle(texts), time.monotonic() + seconds
    own = [f"127.{1 + number // 200}.0.{1 + number % 200}" for number in range(2 * clients)]
    addresses = own if has_own else ["127.0.0.1"] * 2 * clients

    async def client_asks(client: Client) -> None:
        while time.monotonic() < ends:
            begun = time.perf_counter()
            status, _ = await client.post("/v1/query", {"queries": [next(queries)], **WAY})
            load.add(status, time.perf_counter() - begun)
            if status != 200:
                await asyncio.sleep(max(client.retry_after, 0.1))

    async def client_attacks(kind: str, hostile: Hostile, address: str) -> None:
        while time.monotonic() < ends:
            tries[kind] += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(min(30, max(0.1, ends - time.monotonic()))):
                    await attacked(port, hostile, address)
            await asyncio.sleep(0.1)

    kinds = {"nobody": {}, "harmless": HARMLESS, "hostile": HOSTILE}[beside]
    begun = time.perf_counter()
    async with connected(port, clients, addresses) as several:
        others = [
            client_attacks(kind, kinds[kind], address)
            for kind, address in zip(islice(cycle(kinds), clients), addresses[clients:], strict=False)
        ]
        await asyncio.gather(*map(client_asks, several), *others)
    load.wall = time.perf_counter() - begun
    return load, tries


@dataclass(frozen=True)
class Hostile:
    """What a hostile client sends at once, and then now and then, and what it does with the answer."""

    sent: bytes
    then: bytes = b""
    every: float = 1.0  # seconds
    ends: Literal["reads", "does not read", "closes its side", "hangs up"] = "does not read"


async def attacked(port: int, hostile: Hostile, address: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10, local_addr=(address, 0))
    try:
        writer.write(hostile.sent)
        if hostile.ends == "hangs up":
            return
        if hostile.ends == "closes its side":
            writer.write_eof()
        if hostile.ends != "does not read":
            await reader.read()
            return
        while not writer.is_closing():
            writer.write(hostile.then)
            await asyncio.sleep(hostile.every)
    finally:
        writer.transport.abort()


def post(path: str, document: object, host: str = "localhost", more: str = "") -> bytes:
    """Make a request; a text is sent as a form, anything else as JSON."""
    body, kind = (document, "x-www-form-urlencoded") if isinstance(document, str) else (json.dumps(document), "json")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/{kind}\r\n{more}"
    return f"{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()


def form(**fields: object) -> str:
    return urlencode({name: json.dumps(value) for name, value in fields.items()})


UNKNOWN = [f"zx{first}{last}quortily" for first in "aeiou" for last in "bcdfghjklmnpqrstvwz"]
WORDS = [" ".join(UNKNOWN[(number + place) % len(UNKNOWN)] for place in range(18)) for number in range(64)]
MANY = {"queries": [f"Marie Curie [SEP] number {number}" for number in range(64)]}
NAME = {"query": "Marie Curie", "properties": [{"pid": f"property {number}", "v": "x"} for number in range(100)]}
TABLE = {"subjects": [f"Marie Curie {number}" for number in range(48)], "relations": [f"r {n}" for n in range(20)]}
EVIL = "Origin: https://evil.example\r\n"
GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
HARMLESS = {"asks a query": Hostile(post("/v1/query", {"queries": ["Marie Curie [SEP] spouse"], **WAY}), ends="reads")}
HOSTILE = {
    "is idle": Hostile(b""),
    "sends headers slowly": Hostile(b"GET / HTTP/1.1\r\nX: ", b"x"),
    "sends a body slowly": Hostile(post("/v1/query", MANY)[:-100], b" "),
    "is refused, and goes on slowly": Hostile(post("/v1/query", MANY, "evil.example")[:-100], b" "),
    "is refused, and goes on fast": Hostile(post("/v1/query", MANY, "evil.example")[:-100], b" " * 10**6, 0.05),
    "asks for unknown words": Hostile(post("/v1/query", {"queries": WORDS, **WAY}), ends="reads"),
    "asks 64 queries": Hostile(post("/v1/query", MANY), ends="reads"),
    "asks for six deep rerankings": Hostile(
        post("/v1/query", {"queries": MANY["queries"][:6], "rerank": 100}), ends="reads"
    ),
    "asks 64 queries and closes its side": Hostile(post("/v1/query", MANY), ends="closes its side"),
    "asks 64 queries and hangs up": Hostile(post("/v1/query", MANY), ends="hangs up"),
    "reconciles 100 properties": Hostile(post("/reconcile", form(queries={"q": NAME})), ends="reads"),
    "reconciles 2,000 properties": Hostile(
        post("/reconcile", form(queries={"q": NAME | {"properties": NAME["properties"] * 20}})), ends="reads"
    ),
    "is a page of another site": Hostile(post("/reconcile", form(queries={"q": NAME}), more=EVIL), ends="reads"),
    "fills a table and does not read": Hostile(post("/v1/fill", TABLE)),
    "asks for pages and does not read": Hostile(GET.format("/openapi.json").encode() * 1000),
    "opens a stream": Hostile(GET.format("/mcp").replace("\r\n\r\n", "\r\nAccept: text/event-stream\r\n\r\n").encode()),
    "sends no HTTP": Hostile(bytes(range(256)) * 100, b"\x00", ends="reads"),
    "sends 1 MB": Hostile(post("/v1/query", {"queries": ["x" * 999_000]}), ends="reads"),
}


if __name__ == "__main__":
    main()
