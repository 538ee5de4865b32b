"""Device codes: time the search of random codes on an accelerator, and compare real ones with exact search.

`python benchmarks/accelerator.py codes` runs this. Codes are made where they are searched, so that 770 million take
seconds; cells have equal sizes. The last part needs `--corpus`, about a million rows of real text.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from measuring import wall_seconds

from kbq.answers import BuiltKind
from kbq.corpus.readers import read_corpus
from kbq.dump.building import SHARD_ROWS
from kbq.index.base import CPU
from kbq.index.cells import LEAST_HITS, clusters_for, load_faiss
from kbq.index.factory import CODES, open_index
from kbq.index.gpu_codes import GpuCells, Packing
from kbq.kb import KnowledgeBase
from kbq.search.building_indexes import own_queries
from kbq.search.search import SearchContext, search

if TYPE_CHECKING:
    from accelerator import Run

DIM, TOGETHER = 384, 64  # of vectors, and queries that are asked together
PROBES = {"compact": 144, "tiny": 176}  # that 9.7 million rows need for a recall of 0.99; results/index_kinds_all.json
GROUPS = 12  # of shards, each of which is searched by itself
REAL_QUERIES = 500


def random_cells(kind: BuiltKind, rows: int, device: torch.device) -> list[GpuCells]:
    """Make groups of shards of random codes, as `GpuCells` has them once they are loaded."""
    each = min(SHARD_ROWS, rows)
    shards, cells, codes = -(-rows // each), clusters_for(each), CODES[kind]
    kept = codes.kept(DIM)
    packing = Packing.of_nibbles(kept // codes.together)
    blocks = -(-each // cells // packing.rows)
    made = GpuCells.__new__(GpuCells)
    made.device, made._packing, made._probes = device, packing, PROBES[kind]
    count = shards * cells * blocks
    made._codes = torch.randint(0, 256, (count * packing.bytes,), dtype=torch.uint8, device=device)
    made._numbers = torch.arange(count * packing.rows, dtype=torch.int64, device=device).remainder_(each).int()
    made._shards, made._cells, made._findable = np.arange(shards), [cells] * shards, [each] * shards
    made._counts = torch.full((shards, cells), blocks, device=device)
    made._firsts = (torch.arange(shards * cells, device=device) * blocks).view(shards, cells)
    made._means = torch.randn(shards, cells, kept, device=device)
    made._rotations = torch.randn(shards, DIM, kept, dtype=torch.float64, device=device)
    made._centroids = torch.randn(shards, packing.values, 16, codes.together, device=device)
    step = max(1, -(-shards // GROUPS))
    return [made.within(first, first + step) for first in range(0, shards, step)]


def sizes(run: "Run") -> list[tuple[str, int]]:
    """Vectors that are searched together: a start and an end for each query."""
    return [("two together", 4), ("one", 2)] if run.small else [(f"{TOGETHER} together", 2 * TOGETHER), ("one", 2)]


def searched(run: "Run", found: dict[str, Any], kind: BuiltKind, rows: int) -> None:
    """Time the candidates of 64 queries and of one, with as many codes as the device holds."""
    begun = time.monotonic()
    groups = random_cells(kind, rows, run.device)
    found |= {"rows": rows, "groups": len(groups), "seconds to make": round(time.monotonic() - begun, 1)}
    vectors = np.random.default_rng(0).standard_normal((2 * TOGETHER, DIM), np.float32)
    wanted = CODES[kind].overfetch * max(10, LEAST_HITS // len(groups))

    def candidates(some: np.ndarray) -> None:
        for group in groups:
            group.search(some, wanted)

    for name, size in sizes(run):
        found[f"candidates, {name}, ms"] = run.milliseconds(partial(candidates, vectors[:size]))
    if run.device.type == "cuda":
        found["GB on the device, at most"] = round(torch.cuda.max_memory_allocated(run.device) / 1e9, 2)


def searched_by_faiss(run: "Run", found: dict[str, Any], rows: int) -> None:
    """Time faiss's own index of as many random codes: on the GPU if this faiss has one, else on the CPU."""
    faiss, codes = load_faiss(), CODES["compact"]
    kept, cells = codes.kept(DIM), clusters_for(rows)
    source = np.random.default_rng(0)
    means = faiss.IndexFlatIP(kept)
    means.add(source.standard_normal((cells, kept), np.float32))
    index = faiss.IndexIVFPQ(means, kept, cells, kept, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = index.is_trained = True
    faiss.copy_array_to_vector(source.standard_normal(kept * 16).astype(np.float32), index.pq.centroids)
    numbers = np.arange(rows, dtype=np.int64)
    packed = source.integers(0, 256, (rows, index.code_size), np.uint8)
    for cell, part in enumerate(np.array_split(numbers, cells)):
        index.invlists.add_entries(cell, len(part), faiss.swig_ptr(part), faiss.swig_ptr(packed[part]))
    index.ntotal, searching, where = rows, index, "CPU"
    if run.device.type == "cuda" and hasattr(faiss, "StandardGpuResources"):
        resources, options = faiss.StandardGpuResources(), faiss.GpuClonerOptions()
        options.indicesOptions, options.useFloat16LookupTables = faiss.INDICES_32_BIT, True
        begun = time.monotonic()
        searching, where = faiss.index_cpu_to_gpu(resources, run.device.index or 0, index, options), "GPU"
        found["seconds to load"] = round(time.monotonic() - begun, 1)
    found |= {"rows": rows, "where": where}
    searching.nprobe = PROBES["compact"]
    vectors = source.standard_normal((2 * TOGETHER, kept), np.float32)
    wanted = min(2048, codes.overfetch * LEAST_HITS)  # faiss finds no more on a GPU
    for name, size in sizes(run):
        found[f"candidates, {name}, ms"] = run.milliseconds(partial(searching.search, vectors[:size], wanted))


def compared(run: "Run", found: dict[str, Any], corpus: str) -> None:
    """Build a knowledge base of real text, and compare what codes find on the device, on a CPU, and exactly."""
    pages = list(itertools.islice(read_corpus(corpus), 20 if run.small else None))
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(pages, Path(folder) / "kb", device=str(run.device), index="exact", bm25=False)
        found["rows"] = kb.counts.rows
        kinds: Sequence[BuiltKind] = ("compact", "tiny")
        for kind in kinds:
            kb = kb.index_vectors(kind)  # measures the recall by the device's index
            found[f"{kind}: recall measured on the device, probes"] = [round(kb.index.recall, 4), kb.index.probes]
            found |= same_as_cpu(run, kb, kind)


def same_as_cpu(run: "Run", kb: KnowledgeBase, kind: BuiltKind) -> dict[str, Any]:
    texts = own_queries(kb.searcher.shards, kb.model, 20 if run.small else REAL_QUERIES, seed=1)
    vectors = kb.model.in_row_units(*kb.model.encode_queries(texts))
    shards = kb.searcher.shards
    opened = {"CPU": open_index(shards, kb.index, CPU)}
    found: dict[str, Any] = {}
    seconds = wall_seconds(lambda: opened.update(device=open_index(shards, kb.index, run.device)))
    hits = {name: search(SearchContext(shards, index), vectors, 10, "phrase") for name, index in opened.items()}
    equal = sum(map(list.__eq__, hits["CPU"], hits["device"]))
    found[f"{kind}: seconds to load"] = round(seconds, 1)
    found[f"{kind}: queries with the hits of the CPU, of {len(texts)}"] = equal
    return found


def parts(run: "Run", corpus: str | None) -> list[tuple[str, Callable[["Run", dict[str, Any]], None]]]:
    """Return what to measure, by name, the quickest first."""
    size = (lambda rows: 400) if run.small else (lambda rows: rows)
    has_room = run.small or (run.device.type == "cuda" and torch.cuda.mem_get_info(run.device)[1] > 60e9)
    listed: list[tuple[str, Callable[[Run, dict[str, Any]], None]]] = [
        ("codes: compact, 46.5 million", partial(searched, kind="compact", rows=size(46_500_000))),
        ("codes: faiss, 4.2 million", partial(searched_by_faiss, rows=size(4_200_000))),
    ]
    if has_room:
        listed.append(("codes: tiny, 770 million", partial(searched, kind="tiny", rows=size(770_000_000))))
    if corpus:
        listed.append(("codes: real rows", partial(compared, corpus=corpus)))
    return listed
