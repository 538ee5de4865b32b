"""Cluster: what Ray costs beside one machine, and whether bytes and answers stay the same.

    OMP_NUM_THREADS=1 python benchmarks/cluster.py PAGES.jsonl QUERIES.jsonl WORK [--pages 100 300 1000] [--only …]

The nodes are processes of this machine with loopback addresses and a CPU each (`--only`: head, build, search
or throughput). On few cores, what they do side by side takes longer in all, so CPU seconds and equalities tell
something, and waiting times little. WORK is an empty folder.
"""

import gc
import os
import pickle
import re
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ray
import reporting
from measuring import arguments, inputs, records_of, wall_seconds, write_records

import kbq.cluster  # noqa: F401 - settings of Ray
from kbq.answers import SearchOptions
from kbq.array_types import Floats
from kbq.cluster.connection import connect
from kbq.cluster.searcher import RaySearcher, divided
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump import building
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.workers import encode_blocks
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.search import search_several

STORE = 300 * 2**20  # bytes of each node's object store
BLOCK, SHARD_ROWS = 2**15, 2_000
LARGE_SHARD_ROWS = 20_000  # of a corpus from which slopes and throughput are measured
UNITS, DEPTHS = ("phrase", "sentence", "paragraph", "page"), (1, 10, 100, 1000)
ALONE, TOGETHER, ROUNDS = 100, 64, 20
TICKS = os.sysconf("SC_CLK_TCK")
WORKING = r"^ray::(_|IDLE|looked_at)|multiprocessing.spawn"  # processes that encode, and `kbq build`


@contextmanager
def cluster(count: int) -> Iterator[Any]:
    """Start a cluster of so many nodes, each with one CPU; it ends with the block."""
    from ray.cluster_utils import Cluster

    os.environ |= {
        "RAY_worker_niceness": "0",  # else all others on a busy machine go before
        "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # else a command ends a minute after the head
    }

    def options(number: int) -> dict[str, Any]:
        return {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": f"127.0.0.{number + 2}"}

    nodes = None
    while nodes is None:
        with suppress(Exception):  # Ray gives a node 30 seconds to start, which on a busy machine can take longer
            starting = Cluster(initialize_head=True, head_node_args=options(0) | {"include_dashboard": False})
            for number in range(1, count):
                starting.add_node(**options(number))
            nodes = starting
    try:
        yield nodes
    finally:
        nodes.shutdown()


def build(pages: Path, folder: Path, address: str | None, block: int, rows: int) -> None:
    """Build a knowledge base in this process, with shards of so many rows."""
    building.SHARD_ROWS, building.BLOCK_CHARACTERS = rows, block
    KnowledgeBase.build(pages, folder, index="exact", ray=address, device="cpu")


def in_process(work: Callable[..., None], *given: Any) -> Any:
    """Start a process for work: one process can connect to Ray only once."""
    process = get_context("spawn").Process(target=work, args=given)
    process.start()
    return process


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Meter(threading.Thread):
    """Adds up the CPU seconds of this process's descendants while it runs.

    It looks often, because Ray's processes end without reporting their times.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun, self._last, self._is_over = descendants(), dict[int, tuple[str, float]](), threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        while not self._is_over.wait(0.1):
            self._look()

    def _look(self) -> None:
        for number, (name, seconds) in descendants().items():
            self._last[number] = name or self._last.get(number, ("", 0.0))[0], seconds  # who has ended has no name

    def seconds(self, others: str) -> tuple[float, float]:
        """Stop, and return the seconds spent in all, and those spent by processes with other names."""
        self._is_over.set()
        self.join()
        self._look()
        spent = {
            number: (name, last - self._begun.get(number, ("", 0.0))[1]) for number, (name, last) in self._last.items()
        }
        by_others = sum(seconds for name, seconds in spent.values() if not re.search(others, name))
        return sum(seconds for _, seconds in spent.values()), by_others


def descendants() -> dict[int, tuple[str, float]]:
    """Return names and CPU seconds of all descendants of this process."""
    parents, found = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        number = int(folder.name)
        parents[number], found[number] = int(fields[1]), (name, (int(fields[11]) + int(fields[12])) / TICKS)
    ours, more = {os.getpid()}, {os.getpid()}
    while more:
        more = {number for number, parent in parents.items() if parent in ours} - ours
        ours |= more
    return {number: found[number] for number in ours - {os.getpid()}}


def spent(work: Callable[..., None], *given: Any) -> dict[str, float]:
    """Return CPU seconds of work in a process: of all processes, and of those that serve a cluster."""
    meter, begun = Meter(), time.monotonic()
    meter.start()
    in_process(work, *given).join()
    waited = time.monotonic() - begun
    in_all, of_ray = meter.seconds(WORKING)
    return {"cpu_seconds": round(in_all, 1), "of_rays_processes": round(of_ray, 1), "seconds": round(waited, 1)}


def builds(corpora: Mapping[int, Path], work: Path) -> Iterator[dict[str, object]]:
    """Compare bytes and CPU seconds of builds in one process and on nodes."""
    sizes: list[dict[str, object]] = []
    for pages, corpus in corpora.items():
        rows = LARGE_SHARD_ROWS if sizes else SHARD_ROWS
        folder, clusters = work / f"one-{pages}", []
        alone = spent(build, corpus, folder, None, BLOCK, rows)
        reference = files(folder)
        for nodes in (1, 2) if sizes else (1, 2, 3):
            with cluster(nodes) as running:
                taken = spent(build, corpus, work / "many", running.address, BLOCK, rows)
            same = files(work / "many") == reference
            clusters.append({"nodes": nodes, "files": len(reference), "same_bytes": same, **taken})
            shutil.rmtree(work / "many")
        tokens = KnowledgeBase.open(folder, device="cpu").counts.tokens
        sizes.append({"tokens": tokens, "one_process": alone, "clusters": clusters})
        yield {"sizes": sizes}


class Recorded:
    """Workers that return recorded results, as if from another process, faster than any encoder."""

    count = 64

    def __init__(self, results: Sequence[bytes]) -> None:
        self._results = iter(results)

    def submit(self, task: Sequence[Page]) -> Future[bytes]:
        """Pickle the pages, as if to send them, and promise the next result."""
        pickle.dumps(task)
        future: Future[bytes] = Future()
        future.set_result(next(self._results))
        return future

    def result(self, future: Future[bytes]) -> EncodedParagraphs:
        """Unpickle the result."""
        encoded: EncodedParagraphs = pickle.loads(future.result())
        return encoded

    def dismiss(self) -> None:
        """Do nothing: there are no workers."""


def head(pages: Path, work: Path) -> dict[str, object]:
    """Return the CPU seconds of encoding, and of the head's share: all else before indexes and words."""
    model = Model.open("default", "cpu")
    results: list[bytes] = []
    begun = time.process_time()
    for _, encoded in encode_blocks(model, building._blocks(read_corpus(str(pages))), list):
        results.append(pickle.dumps(encoded))
    encoding = time.process_time() - begun
    begun = time.process_time()
    shards, _ = building.build_shards(
        read_corpus(str(pages)), model, work / "head", 0, lambda counts: None, lambda model: Recorded(results)
    )
    writing = time.process_time() - begun
    tokens = sum(shard.size.tokens for shard in shards)
    return {
        "tokens": tokens,
        "bytes_received": sum(map(len, results)),
        "encoding_cpu_seconds": round(encoding, 2),
        "head_cpu_seconds": round(writing, 3),
        "cores_that_it_feeds": round(encoding / writing),
    }


def searches(folder: Path, texts: Sequence[str]) -> dict[str, object]:
    """Compare answers and waiting times of one process and of 1, 2 and 4 actors, in turns."""
    near = KnowledgeBase.open(folder, device="cpu")
    vectors = near.model.in_row_units(*near.model.encode_queries(texts[:TOGETHER]))
    rows = []
    for count in (1, 2, 4):
        with cluster(count) as running:
            rows.append(farm(near, KnowledgeBase.open(folder, device="cpu", ray=running.address), texts, vectors))
            gc.collect()  # the actors end with the knowledge base
            ray.shutdown()
        print(rows[-1], file=sys.stderr, flush=True)
    return {"rows": near.counts.rows, "shards": len(near.shards), "farms": rows}


def farm(near: KnowledgeBase, far: KnowledgeBase, texts: Sequence[str], vectors: Floats) -> dict[str, object]:
    """Compare one process with some actors. Shape of `vectors`: (queries, 2, dim)."""
    compared = differing = 0
    for unit in UNITS:
        for k in DEPTHS:
            for backend in ("dense", "hybrid"):
                options = SearchOptions(k, unit, backend)  # type: ignore[arg-type]
                found = zip(near.search(texts[:20], options), far.search(texts[:20], options), strict=True)
                compared += 20
                differing += sum(one != other for one, other in found)
    handles = [actor.handle for actor in (far._cluster.actors if far._cluster else ())]
    return {
        "actors": len(handles),
        "answers_compared": compared,
        "answers_differing": differing,
        "empty_trip_ms": milliseconds(
            [wall_seconds(lambda: ray.get([h.open.remote() for h in handles])) for _ in range(ALONE)]
        ),
        "one_query_ms": in_turns(near, far, [vectors[number % TOGETHER][None] for number in range(ALONE)]),
        "batch_of_64_ms": in_turns(near, far, [vectors] * ROUNDS),
    }


def in_turns(near: KnowledgeBase, far: KnowledgeBase, batches: Sequence[Floats]) -> dict[str, dict[str, float]]:
    """Time searches of both in turns, as other processes change what a search takes."""
    assert far._cluster
    ways = {"one process": partial(search_several, near.search_context), "actors": far._cluster.search_several}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for batch in batches:
        for name, search in ways.items():
            taken[name].append(wall_seconds(partial(search, batch, [(10, "phrase")])))
    return {name: milliseconds(each) for name, each in taken.items()}


def throughput(folder: Path, texts: Sequence[str]) -> dict[str, object]:
    """Time batches of one actor and of two, each on a core of its own, in turns.

    The CPU seconds of the busiest actor tell how long a batch takes on cores that nothing else uses.
    """
    kb = KnowledgeBase.open(folder, device="cpu")
    vectors = kb.model.in_row_units(*kb.model.encode_queries(texts[:TOGETHER]))
    outcome: dict[str, object] = {"rows": kb.counts.rows, "shards": len(kb.shards)}
    with cluster(2) as running:
        nodes = connect(running.address).nodes
        farms = {}
        for count in (1, 2):
            groups = divided(folder, kb.manifest, kb.index, kb.shards, count, (), kb.model.config.length_penalty)
            farms[count] = RaySearcher(nodes, groups)
            farms[count].open()
            for core, actor in enumerate(farms[count].actors):
                ray.get(actor.handle.__ray_call__.remote(lambda search, core: os.sched_setaffinity(0, {core}), core))
        waited: dict[int, list[float]] = {0: [], 1: [], 2: []}  # 0: this process
        busiest: dict[int, list[float]] = {0: [], 1: [], 2: []}
        for _ in range(ROUNDS):
            alone = time.process_time()
            waited[0].append(wall_seconds(partial(search_several, kb.search_context, vectors, [(10, "phrase")])))
            busiest[0].append(time.process_time() - alone)
            for count, farm in farms.items():
                begun = cpu_of(farm)
                waited[count].append(wall_seconds(partial(farm.search_several, vectors, [(10, "phrase")])))
                busiest[count].append(max(after - before for after, before in zip(cpu_of(farm), begun, strict=True)))
        for count, name in enumerate(("one process", "1 actor", "2 actors")):
            outcome[name] = {"batch_of_64_ms": milliseconds(waited[count]), "cpu_ms": milliseconds(busiest[count])}
        farms.clear()
        gc.collect()
        ray.shutdown()
    return outcome


def cpu_of(farm: RaySearcher) -> list[float]:
    """Return the CPU seconds of each actor so far."""
    return list(ray.get([one.handle.__ray_call__.remote(lambda search: time.process_time()) for one in farm.actors]))


def milliseconds(taken: Sequence[float]) -> dict[str, float]:
    """Return the median, and the minimum, which other processes have disturbed least."""
    return {"median": round(1000 * statistics.median(taken), 2), "fewest": round(1000 * min(taken), 2)}


def main() -> None:
    options = arguments(__doc__, corpus=Path, queries=Path, work=Path, pages=(100, 300, 1000), only=None)
    options.work.mkdir(parents=True, exist_ok=True)
    corpora = {
        count: write_records(options.work / f"{count}.jsonl", records_of(options.corpus, count))
        for count in options.pages
    }
    least, most = (options.work / f"one-{count}" for count in (options.pages[0], options.pages[-1]))
    measurements: dict[str, Callable[[], Iterable[Mapping[str, object]]]] = {
        "head": lambda: [head(corpora[options.pages[0]], options.work)],
        "build": lambda: builds(corpora, options.work),
        "search": lambda: [searches(least, inputs(options.queries, 100))],
        "throughput": lambda: [throughput(most, inputs(options.queries, 100))],
    }
    for name in [options.only] if options.only else measurements:
        for figures in measurements[name]():
            data = [options.corpus, options.queries]
            reporting.write(f"cluster_{name}", {"ray": ray.__version__, **figures}, data, seed=0)


if __name__ == "__main__":
    main()
