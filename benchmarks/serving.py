"""Serving: measure throughput and latency of `kbq serve` beside the library, in one run.

    python benchmarks/serving.py KB QUERIES.jsonl [--count 512] [--rounds 2] [--crowd | --in-turn]

The library searches in this process, 64 queries at a time and one at a time. The service runs in a
process of its own. Clients need part of the machine, too, so compare queries per CPU second of the
process that searches. Rounds alternate, and the best of each kind counts, since other processes can
only slow it down. `--crowd` asks with 1,000 clients at once, without reranking; `--in-turn` asks
library and service in turns, query by query.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import reporting
from measuring import arguments, inputs
from service import Client, Service, asked, serving

from kbq.kb import KnowledgeBase
from kbq.search.options import SearchOptions
from kbq.search.search import BATCH
from kbq.text.queries import Query

CLIENTS = (1, 8, 64, 256)
CROWD = 1000
WARM_UP = 64
PATIENT = "600"  # seconds for a request, as the machine may be busy
WAYS = {"with a second look": {}, "without": {"rerank": 0}}
Figures = dict[str, float]


def main() -> None:
    options = arguments(
        __doc__, kb=Path, queries=Path, count=512, rounds=2, crowd=False, in_turn=False
    )
    texts, name = inputs(options.queries, options.count), "serving"
    figures: dict[str, object] = {}
    with serving(str(options.kb), "--device", "cpu", "--seconds", PATIENT) as service:
        if options.crowd:
            name = "serving_crowd"
            figures["who wait as they are told"] = overload(service, texts, 3 * CROWD, True)
            figures["who do not"] = overload(service, texts, 10 * CROWD, False)
        elif options.in_turn:
            name, kb = "serving_in_turn", KnowledgeBase.open(options.kb, device="cpu")
            figures |= {
                way: in_turn(kb, service, texts, asked_for) for way, asked_for in WAYS.items()
            }
        else:
            kb = KnowledgeBase.open(options.kb, device="cpu")
            figures["queries"] = len(texts)
            for way, asked_for in WAYS.items():
                rounds = [measured(kb, service, texts, asked_for) for _ in range(options.rounds)]
                figures[way] = {kind: best([one[kind] for one in rounds]) for kind in rounds[0]}
    reporting.write(name, figures, [options.kb, options.queries], 0)


def measured(
    kb: KnowledgeBase, service: Service, texts: Sequence[str], way: dict[str, int]
) -> dict[str, Figures]:
    """Measure the library and the service, each once."""
    found = {
        "library, 64 at a time": library(kb, texts, SearchOptions(**way), BATCH),
        "library, one at a time": library(kb, texts, SearchOptions(**way), 1),
    }
    asked(service.port, texts[:WARM_UP], 8, WARM_UP, **way)
    return found | {
        f"service, {count} clients": clients(service, texts, count, way) for count in CLIENTS
    }


def library(kb: KnowledgeBase, texts: Sequence[str], options: SearchOptions, size: int) -> Figures:
    kb.searcher.search(list(map(Query.of, texts[:WARM_UP])), options)
    taken, cpu, wall = [], time.process_time(), time.perf_counter()
    for first in range(0, len(texts), size):
        begun = time.perf_counter()
        kb.searcher.search(list(map(Query.of, texts[first : first + size])), options)
        taken.append(time.perf_counter() - begun)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return figures_of(
        len(texts),
        cpu,
        wall,
        1000 * statistics.median(taken),
        1000 * sorted(taken)[int(0.99 * len(taken))],
    )


def clients(service: Service, texts: Sequence[str], count: int, way: dict[str, int]) -> Figures:
    cpu = service.cpu_seconds()
    load = asked(service.port, texts, count, len(texts), **way)
    if load.counts() != {"200": len(texts)}:
        raise RuntimeError(f"{count} clients were answered with {load.counts()}")
    cpu = service.cpu_seconds() - cpu
    return figures_of(len(texts), cpu, load.wall, load.percentile(0.5), load.percentile(0.99))


def figures_of(queries: int, cpu: float, wall: float, median: float, slowest: float) -> Figures:
    return {
        "queries per CPU second": round(queries / cpu, 1),
        "queries per second": round(queries / wall, 1),
        "p50, ms": round(median, 1),
        "p99, ms": round(slowest, 1),
    }


def best(rounds: Sequence[Figures]) -> Figures:
    """Return the highest rate and the shortest time of some rounds."""
    return {name: (min if "ms" in name else max)(one[name] for one in rounds) for name in rounds[0]}


def in_turn(
    kb: KnowledgeBase, service: Service, texts: Sequence[str], way: dict[str, int]
) -> dict[str, object]:
    """Time queries of the library and of the service in turns, so that other processes disturb both
    alike.
    """
    options, taken = SearchOptions(**way), list[tuple[float, float]]()

    async def ask() -> None:
        client = Client(service.port)
        for text in (*texts[:WARM_UP], *texts):
            begun = time.perf_counter()
            kb.searcher.search([Query.of(text)], options)
            between = time.perf_counter()
            await client.post("/v1/query", {"queries": [text], **way})
            taken.append((1000 * (between - begun), 1000 * (time.perf_counter() - between)))
        client.close()

    asyncio.run(ask())
    pairs = taken[WARM_UP:]
    ours, theirs = (
        [round(one, 1) for one in statistics.quantiles(times, n=10)]
        for times in zip(*pairs, strict=True)
    )
    return {
        "queries": len(pairs),
        "library, lowest tenth and median, ms": [ours[0], ours[4]],
        "service, lowest tenth and median, ms": [theirs[0], theirs[4]],
        "median of the differences, ms": round(
            statistics.median(one - other for other, one in pairs), 1
        ),
    }


def overload(
    service: Service, texts: Sequence[str], requests: int, patient: bool
) -> dict[str, object]:
    """Ask with many more clients than the queue takes; the others are refused at once."""
    before, cpu = service.megabytes(), service.cpu_seconds()
    load = asked(service.port, texts, CROWD, requests, patient, rerank=0)
    cpu = service.cpu_seconds() - cpu
    return {
        "answers by status": load.counts(),
        "answered per second": round(load.answered / load.wall, 1),
        "answered per CPU second": round(load.answered / cpu, 1),
        "p50 and p99 of a refusal, ms": [load.percentile(share, 503) for share in (0.5, 0.99)],
        "p50 and p99 of an answer, ms": [load.percentile(share) for share in (0.5, 0.99)],
        "MB before and after": [before, service.megabytes()],
    }


if __name__ == "__main__":
    main()
