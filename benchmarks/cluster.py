"""Cluster: what Ray costs beside one machine, and whether bytes and answers stay the same, whatever is killed.

    OMP_NUM_THREADS=1 python benchmarks/cluster.py PAGES.jsonl QUERIES.jsonl WORK [--pages 100] [--kills 2] [--only …]

The nodes are processes of this machine with loopback addresses and a CPU each. On few cores, what they do side by side
takes longer in all, so CPU seconds and equalities tell something, and waiting times little. WORK is an empty folder.
"""

import argparse
import gc
import json
import os
import pickle
import random
import shutil
import signal
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
from measuring import inputs

import kbq.cluster  # noqa: F401 - settings of Ray
from kbq.answers import SearchOptions
from kbq.array_types import Floats
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump import building
from kbq.dump.manifest import STATE
from kbq.dump.workers import Encoded, encode_blocks
from kbq.encoding.model import Model
from kbq.kb import KnowledgeBase
from kbq.system.lines import read_json_lines

STORE = 300 * 2**20  # bytes of each node's object store
BLOCK, SHARD_ROWS = 2**15, 2_000
SMALL_BLOCK = 2**12  # where builds are killed
UNITS, DEPTHS = ("phrase", "sentence", "paragraph", "page"), (1, 10, 100, 1000)
ALONE, TOGETHER, ROUNDS = 100, 64, 20
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def cluster(count: int) -> Iterator[Any]:
    """A cluster of this number of nodes, with a CPU each, that ends with the block."""
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


def build(pages: Path, folder: Path, address: str | None, block: int, workers: int = 1) -> None:
    """Build a knowledge base in this process."""
    building.SHARD_ROWS, building.BLOCK_CHARACTERS = SHARD_ROWS, block
    KnowledgeBase.build(pages, folder, index="exact", ray=address, workers=workers, device="cpu")


def in_process(work: Callable[..., None], *given: Any) -> Any:
    """A new process that does this: Ray is connected to once in a process."""
    process = get_context("spawn").Process(target=work, args=given)
    process.start()
    return process


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Meter(threading.Thread):
    """Adds up the CPU seconds of all processes that this one has started, and of theirs, while it runs.

    It looks often, as Ray's processes end without leaving their times to anybody.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun, self._last, self._is_over = descendants(), dict[int, float](), threading.Event()

    def run(self) -> None:
        """Look, until it is over."""
        while not self._is_over.wait(0.1):
            self._last |= descendants()

    def seconds(self) -> float:
        """End, and say what was spent."""
        self._is_over.set()
        self.join()
        self._last |= descendants()
        return sum(last - self._begun.get(number, 0.0) for number, last in self._last.items())


def descendants() -> dict[int, float]:
    """CPU seconds of all processes that this one has started, and of theirs."""
    parents, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(stat.parent.name)
        parents[number], seconds[number] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    ours, more = {os.getpid()}, {os.getpid()}
    while more:
        more = {number for number, parent in parents.items() if parent in ours} - ours
        ours |= more
    return {number: seconds[number] for number in ours - {os.getpid()}}


def spent(work: Callable[..., None], *given: Any) -> float:
    """CPU seconds of a new process that does this, and of all others meanwhile."""
    meter = Meter()
    meter.start()
    in_process(work, *given).join()
    return round(meter.seconds(), 1)


def builds(pages: Path, work: Path) -> dict[str, object]:
    """Bytes and CPU seconds on one machine, in one process, and on 1, 2 and 3 nodes."""
    one = spent(build, pages, work / "one", None, BLOCK)
    reference = files(work / "one")
    rows = []
    for nodes in (1, 2, 3):
        with cluster(nodes) as running:
            seconds = spent(build, pages, work / "many", running.address, BLOCK)
        same = files(work / "many") == reference
        rows.append({"nodes": nodes, "files": len(reference), "same_bytes": same, "cpu_seconds": seconds})
        shutil.rmtree(work / "many")
    tokens = KnowledgeBase.open(work / "one", device="cpu").counts.tokens
    return {"tokens": tokens, "one_process_cpu_seconds": one, "clusters": rows}


class Recorded:
    """Workers that give what has been encoded before, as it comes from another process: faster than any encoder."""

    count = 64

    def __init__(self, results: Sequence[bytes]) -> None:
        self._results = iter(results)

    def submit(self, task: Sequence[Page]) -> Future[bytes]:
        """Send the pages to nobody."""
        pickle.dumps(task)
        future: Future[bytes] = Future()
        future.set_result(next(self._results))
        return future

    def result(self, future: Future[bytes]) -> Encoded:
        """Read what was received."""
        encoded: Encoded = pickle.loads(future.result())
        return encoded

    def dismiss(self) -> None:
        """There is nobody."""


def head(pages: Path, work: Path) -> dict[str, object]:
    """CPU seconds of encoding, and of all else that a build does before indexes and words: the head's share."""
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


def kills(pages: Path, work: Path, count: int, source: random.Random) -> Iterator[dict[str, dict[str, int]]]:
    """Builds on three nodes of which something is killed at a random moment; how many have the same bytes so far."""
    build(pages, work / "whole", None, SMALL_BLOCK)
    reference = files(work / "whole")
    outcome = {what: {"killed": 0, "same_bytes": 0} for what in ("worker", "kbq build", "node", "head node")}

    def judge(what: str) -> None:
        outcome[what]["killed"] += 1
        outcome[what]["same_bytes"] += files(work / "killed") == reference
        shutil.rmtree(work / "killed", ignore_errors=True)

    for _ in range(count):
        with cluster(3) as running:
            struck("worker", pages, work / "killed", running, source)
            judge("worker")
            struck("kbq build", pages, work / "killed", running, source)
            in_process(build, pages, work / "killed", running.address, SMALL_BLOCK).join()
            judge("kbq build")
            struck("head node", pages, work / "killed", running, source)
        with cluster(3) as running:
            in_process(build, pages, work / "killed", running.address, SMALL_BLOCK).join()
            judge("head node")
            struck("node", pages, work / "killed", running, source)
            judge("node")
        yield outcome


def struck(what: str, pages: Path, folder: Path, running: Any, source: random.Random) -> None:
    """A build in which something is killed."""
    process = in_process(build, pages, folder, running.address, SMALL_BLOCK)
    until = source.randint(1, 20)  # pages
    while process.is_alive() and written(folder) < until:
        time.sleep(0.01)
    if not process.is_alive():
        raise SystemExit(f"the build ended before the {what} was killed: use more pages")
    if what == "worker":
        os.kill(source.choice(workers_of(running)), signal.SIGKILL)
    elif what == "node":
        node = running.list_all_nodes()[source.randint(1, 2)]
        running.remove_node(node, allow_graceful=False)
    elif what == "head node":
        running.remove_node(running.head_node, allow_graceful=False)
    else:
        process.kill()
    process.join()


def written(folder: Path) -> int:
    """How many pages are on the disk."""
    try:
        return int(json.loads((folder / STATE).read_text())["pages"])
    except (OSError, ValueError):
        return 0


def workers_of(running: Any) -> list[int]:
    """The processes of a cluster that encode, or wait to."""
    raylets = {info.process.pid for node in running.list_all_nodes() for info in node.all_processes["raylet"]}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            name = (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent in raylets and name.startswith(("ray::_encode", "ray::IDLE")):
            found.append(int(folder.name))
    return found


def searches(folder: Path, texts: Sequence[str]) -> dict[str, object]:
    """Answers and waiting times of one process and of 1, 2 and 4 actors, in turns."""
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
    """One process beside some actors. Shape of `vectors`: (queries, 2, dim)."""
    compared = differing = 0
    for unit in UNITS:
        for k in DEPTHS:
            for backend in ("dense", "hybrid"):
                options = SearchOptions(k, unit, backend)  # type: ignore[arg-type]
                found = zip(near.search(texts[:20], options), far.search(texts[:20], options), strict=True)
                compared += 20
                differing += sum(one != other for one, other in found)
    handles = [actor.handle for actor in far._search.__self__.actors]  # type: ignore[attr-defined]
    return {
        "actors": len(handles),
        "answers_compared": compared,
        "answers_differing": differing,
        "empty_trip_ms": milliseconds(
            [seconds(lambda: ray.get([h.open.remote() for h in handles])) for _ in range(ALONE)]
        ),
        "one_query_ms": in_turns(near, far, [vectors[number % TOGETHER][None] for number in range(ALONE)]),
        "batch_of_64_ms": in_turns(near, far, [vectors] * ROUNDS),
    }


def in_turns(near: KnowledgeBase, far: KnowledgeBase, batches: Sequence[Floats]) -> dict[str, dict[str, float]]:
    """How long each takes over some searches, one after the other, as other processes change what that is."""
    taken: dict[str, list[float]] = {"one process": [], "actors": []}
    for batch in batches:
        for name, kb in (("one process", near), ("actors", far)):
            taken[name].append(seconds(partial(kb._search, batch, [(10, "phrase")], ())))
    return {name: milliseconds(each) for name, each in taken.items()}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def milliseconds(taken: Sequence[float]) -> dict[str, float]:
    """The fewest are least disturbed by other processes."""
    return {"median": round(1000 * statistics.median(taken), 2), "fewest": round(1000 * min(taken), 2)}


def some(pages: Path, path: Path, count: int) -> Path:
    """A corpus of as many pages, drawn at random."""
    records = random.Random(0).sample([record for _, record in read_json_lines(str(pages))], count)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--only", choices=("head", "build", "search", "kills"), help="leave out the others")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    pages = some(options.corpus, options.work / "pages.jsonl", options.pages)
    few = some(options.corpus, options.work / "few.jsonl", 40)
    measurements: dict[str, Callable[[], Iterable[Mapping[str, object]]]] = {
        "head": lambda: [head(pages, options.work)],
        "build": lambda: [builds(pages, options.work)],
        "search": lambda: [searches(options.work / "one", inputs(options.queries, 100))],
        "kills": lambda: kills(few, options.work, options.kills, random.Random(0)),
    }
    for name in [options.only] if options.only else measurements:
        for figures in measurements[name]():
            data = [options.corpus, options.queries]
            reporting.write(f"cluster_{name}", {"ray": ray.__version__, **figures}, data, seed=0)


if __name__ == "__main__":
    main()
