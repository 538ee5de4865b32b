"""Cluster: compare answers and waiting times of one process with those of actors of Ray that search
the shards.

    python benchmarks/cluster.py PAGES.jsonl QUERIES.jsonl WORK [--pages 300]

The nodes are processes of this machine with loopback addresses and a CPU each. On few cores they
slow each other down, so equalities say something, and waiting times little. WORK is an empty
folder.
"""

import gc
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
import reporting
from measuring import arguments, inputs, records_of, wall_seconds, write_records

import kbq.cluster  # noqa: F401 - settings of Ray
from kbq.array_types import Floats
from kbq.dump import resumable_build
from kbq.kb import KnowledgeBase
from kbq.search.options import SearchOptions
from kbq.search.search import search_several
from kbq.text.queries import Query

STORE = 300 * 2**20  # bytes of each node's object store
BLOCK, SHARD_ROWS = 2**15, 2_000
UNITS, DEPTHS = ("phrase", "sentence", "paragraph", "page"), (1, 10, 100, 1000)
ALONE, TOGETHER, ROUNDS = 100, 64, 20


@contextmanager
def cluster(count: int) -> Iterator[Any]:
    """Start a cluster of so many nodes, each with one CPU, and stop it at the end."""
    from ray.cluster_utils import Cluster

    os.environ |= {
        "RAY_worker_niceness": "0",  # otherwise workers yield to all other processes
        # Otherwise a command ends a minute after the head.
        "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    }
    head, *others = (
        {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": f"127.0.0.{number + 2}"}
        for number in range(count)
    )
    nodes = Cluster(initialize_head=True, head_node_args=head | {"include_dashboard": False})
    try:
        for options in others:
            nodes.add_node(**options)
        yield nodes
    finally:
        nodes.shutdown()


def searches(folder: Path, texts: Sequence[str]) -> dict[str, object]:
    """Compare answers and waiting times of one process and of 1, 2 and 4 actors, in turns."""
    near = KnowledgeBase.open(folder, device="cpu")
    vectors = near.model.in_row_units(*near.model.encode_queries(texts[:TOGETHER]))
    rows = []
    for count in (1, 2, 4):
        with cluster(count) as running:
            rows.append(
                farm(
                    near,
                    KnowledgeBase.open(folder, device="cpu", ray=running.address),
                    texts,
                    vectors,
                )
            )
            gc.collect()  # the actors end with the knowledge base
            ray.shutdown()
    return {"rows": near.counts.rows, "shards": len(near.searcher.shards), "farms": rows}


def farm(
    near: KnowledgeBase, far: KnowledgeBase, texts: Sequence[str], vectors: Floats
) -> dict[str, object]:
    """Compare one process with some actors. Shape of `vectors`: (queries, 2, dim)."""
    compared = differing = 0
    for unit in UNITS:
        for k in DEPTHS:
            for backend in ("dense", "hybrid"):
                options = SearchOptions(k, unit, backend)  # type: ignore[arg-type]
                found = zip(
                    near.searcher.search(list(map(Query.of, texts[:20])), options),
                    far.searcher.search(list(map(Query.of, texts[:20])), options),
                    strict=True,
                )
                compared += 20
                differing += sum(one != other for one, other in found)
    handles = [
        actor.handle for actor in (far.searcher._cluster.actors if far.searcher._cluster else ())
    ]
    return {
        "actors": len(handles),
        "answers_compared": compared,
        "answers_differing": differing,
        "empty_trip_ms": milliseconds(
            [
                wall_seconds(lambda: ray.get([h.open.remote() for h in handles]))
                for _ in range(ALONE)
            ]
        ),
        "one_query_ms": in_turns(
            near, far, [vectors[number % TOGETHER][None] for number in range(ALONE)]
        ),
        "batch_of_64_ms": in_turns(near, far, [vectors] * ROUNDS),
    }


def in_turns(
    near: KnowledgeBase, far: KnowledgeBase, batches: Sequence[Floats]
) -> dict[str, dict[str, float]]:
    """Time searches of both in turns, so that other processes disturb both alike."""
    assert far.searcher._cluster
    ways = {
        "one process": partial(search_several, near.searcher.search_context),
        "actors": far.searcher._cluster.search_several,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for batch in batches:
        for name, search in ways.items():
            taken[name].append(wall_seconds(partial(search, batch, [(10, "phrase")])))
    return {name: milliseconds(each) for name, each in taken.items()}


def milliseconds(taken: Sequence[float]) -> dict[str, float]:
    """Return the median, and the minimum, which other processes disturbed least."""
    return {
        "median": round(1000 * statistics.median(taken), 2),
        "fewest": round(1000 * min(taken), 2),
    }


def main() -> None:
    options = arguments(__doc__, corpus=Path, queries=Path, work=Path, pages=300)
    options.work.mkdir(parents=True, exist_ok=True)
    pages = write_records(options.work / "pages.jsonl", records_of(options.corpus, options.pages))
    resumable_build.SHARD_ROWS, resumable_build.BLOCK_CHARACTERS = SHARD_ROWS, BLOCK
    kb = KnowledgeBase.build(pages, options.work / "kb", index="exact", device="cpu")
    figures = searches(kb.folder, inputs(options.queries, 100))
    reporting.write(
        "cluster_search",
        {"ray": ray.__version__, **figures},
        [options.corpus, options.queries],
        seed=0,
    )


if __name__ == "__main__":
    main()
