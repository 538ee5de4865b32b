"""Device codes: time the search of random codes on an accelerator, and compare real ones with exact
search.

`python benchmarks/accelerator.py codes` runs this. Codes are made where they are searched, so that
770 million take seconds; cells have equal sizes. faiss's index of as many codes is timed beside.
The last part needs `--corpus`, about a million rows of real text, such as T-REx's pages.
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
from kbq.dump.resumable_build import SHARD_ROWS
from kbq.index import gpu_codes
from kbq.index.base import CPU
from kbq.index.cells import LEAST_HITS, clusters_for, load_faiss
from kbq.index.factory import CODES, open_index
from kbq.index.gpu_codes import GpuCells, Packing
from kbq.kb import KnowledgeBase
from kbq.maintain.indexes import own_queries
from kbq.search.search import SearchContext, search

if TYPE_CHECKING:
    from accelerator import Run

TOGETHER = 64  # queries
# That 9.7 million rows need for a recall of 0.99; results/index_kinds_all.json.
PROBES = {
    "compact": 144,
    "tiny": 176,
}
GROUPS = 12  # of shards, each of which is searched by itself
REAL_QUERIES = 500
FAISS_DEEPEST = 2048  # rows that faiss finds on a GPU
# Of `BLOCKS` and `STEP` in `gpu_codes.py`.
SHAPES = (
    (1, 8),
    (2, 8),
    (4, 8),
    (8, 8),
    (4, 4),
    (4, 16),
)
NEEDS = 60e9  # bytes of a GPU for 770 million codes, with what makes and searches them


def dim_of(run: "Run") -> int:
    """Of vectors: few values where an interpreter looks them up one by one."""
    return 24 if run.small else 384


def sizes(run: "Run") -> list[tuple[str, int]]:
    """Vectors that are searched together: a start and an end for each query."""
    return (
        [("two together", 4), ("one", 2)]
        if run.small
        else [(f"{TOGETHER} together", 2 * TOGETHER), ("one", 2)]
    )


def random_cells(kind: BuiltKind, rows: int, dim: int, device: torch.device) -> list[GpuCells]:
    """Make groups of shards of random codes, as `GpuCells` has them once they are loaded."""
    each = min(SHARD_ROWS, rows)
    shards, cells, codes = -(-rows // each), clusters_for(each), CODES[kind]
    kept = codes.kept(dim)
    packing = Packing.of_nibbles(kept // codes.together)
    blocks = -(-each // cells // packing.rows)
    made = GpuCells.__new__(GpuCells)
    made.device, made._packing, made._probes = device, packing, PROBES[kind]
    count = shards * cells * blocks
    made._codes = torch.randint(0, 256, (count * packing.bytes,), dtype=torch.uint8, device=device)
    made._numbers = (
        torch.arange(count * packing.rows, dtype=torch.int64, device=device).remainder_(each).int()
    )
    made._shards, made._cells, made._findable = np.arange(shards), [cells] * shards, [each] * shards
    made._counts = torch.full((shards, cells), blocks, device=device)
    made._firsts = (torch.arange(shards * cells, device=device) * blocks).view(shards, cells)
    made._means = torch.randn(shards, cells, kept, device=device)
    made._rotations = torch.randn(shards, dim, kept, dtype=torch.float64, device=device)
    made._centroids = torch.randn(shards, packing.values, 16, codes.together, device=device)
    step = max(1, -(-shards // GROUPS))
    return [made.within(first, first + step) for first in range(0, shards, step)]


def search_of(run: "Run", kind: BuiltKind, rows: int) -> Callable[[np.ndarray], None]:
    """Return what finds the candidates of some vectors in random codes, one group of shards after
    the other.
    """
    groups = random_cells(kind, rows, dim_of(run), run.device)
    wanted = CODES[kind].overfetch * max(10, LEAST_HITS // len(groups))

    def candidates(some: np.ndarray) -> None:
        for group in groups:
            group.search(some, wanted)

    return candidates


def random_vectors(run: "Run", dim: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2 * TOGETHER, dim), np.float32)


def searched(run: "Run", found: dict[str, Any], kind: BuiltKind, rows: int) -> None:
    """Time the candidates of 64 queries and of one, with as many codes as the device holds."""
    run.forget_peak()
    begun = time.monotonic()
    candidates, vectors = search_of(run, kind, rows), random_vectors(run, dim_of(run))
    found |= {"rows": rows, "seconds to make": round(time.monotonic() - begun, 1)}
    for name, size in sizes(run):
        found[f"candidates, {name}, ms"] = run.milliseconds(partial(candidates, vectors[:size]))
    found |= run.peak()


def shaped(run: "Run", found: dict[str, Any], rows: int) -> None:
    """Time the blocks that a program of the kernel scores at a time, and the values whose codes it
    looks up.
    """
    candidates, vectors = search_of(run, "compact", rows), random_vectors(run, dim_of(run))
    before = gpu_codes.BLOCKS, gpu_codes.STEP
    try:
        for gpu_codes.BLOCKS, gpu_codes.STEP in SHAPES[-2:] if run.small else SHAPES:
            shape = f"{gpu_codes.BLOCKS} blocks, {gpu_codes.STEP} values"
            for name, size in sizes(run):
                found[f"{shape}, {name}, ms"] = run.milliseconds(
                    partial(candidates, vectors[:size])
                )
    finally:
        gpu_codes.BLOCKS, gpu_codes.STEP = before


def searched_by_faiss(run: "Run", found: dict[str, Any], rows: int) -> None:
    """Time faiss's own index of as many random codes: on the GPU if this faiss has one, else on the
    CPU.
    """
    faiss, codes = load_faiss(), CODES["compact"]
    searching = random_faiss_index(faiss, codes.kept(dim_of(run)), rows)
    found |= {"rows": rows, "faiss": faiss.__version__, "where": "CPU"}
    if run.device.type == "cuda" and hasattr(faiss, "GpuIndexIVFPQ"):
        free, begun = torch.cuda.mem_get_info(run.device)[0], time.monotonic()
        searching = on_gpu(faiss, searching, run.device)
        found |= {"where": "GPU", "seconds to load": round(time.monotonic() - begun, 1)}
        found["GB on the device"] = round((free - torch.cuda.mem_get_info(run.device)[0]) / 1e9, 2)
    searching.nprobe = PROBES["compact"]
    vectors = random_vectors(run, searching.d)
    wanted = min(FAISS_DEEPEST, codes.overfetch * LEAST_HITS)
    for name, size in sizes(run):
        found[f"candidates, {name}, ms"] = run.milliseconds(
            partial(searching.search, vectors[:size], wanted)
        )


def random_faiss_index(faiss: Any, dim: int, rows: int) -> Any:
    """Make an index of faiss with a four-bit code for each of `dim` values, in cells of equal
    sizes.
    """
    source, cells = np.random.default_rng(0), clusters_for(rows)
    means = faiss.IndexFlatIP(dim)
    means.add(source.standard_normal((cells, dim), np.float32))
    index = faiss.IndexIVFPQ(means, dim, cells, dim, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = index.is_trained = True
    faiss.copy_array_to_vector(
        source.standard_normal(dim * 16).astype(np.float32), index.pq.centroids
    )
    numbers = np.arange(rows, dtype=np.int64)
    packed = source.integers(0, 256, (rows, index.code_size), np.uint8)
    for cell, part in enumerate(np.array_split(numbers, cells)):
        index.invlists.add_entries(
            cell, len(part), faiss.swig_ptr(part), faiss.swig_ptr(packed[part])
        )
    index.ntotal = rows
    return index


def on_gpu(faiss: Any, index: Any, device: torch.device) -> Any:
    """Copy an index to a GPU. Codes of four bits need its interleaved layout; cuVS takes no numbers
    of 32 bits.
    """
    wanted = faiss.GpuIndexIVFPQConfig()
    wanted.device = device.index or 0
    wanted.interleavedLayout = wanted.useFloat16LookupTables = True
    if not getattr(wanted, "use_cuvs", False):
        wanted.indicesOptions = faiss.INDICES_32_BIT
    return faiss.GpuIndexIVFPQ(faiss.StandardGpuResources(), index, wanted)


def compared(run: "Run", found: dict[str, Any], corpus: str) -> None:
    """Build a knowledge base of real text, and compare what codes find on the device, on a CPU, and
    exactly.
    """
    pages = list(itertools.islice(read_corpus(corpus), 20 if run.small else None))
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(
            pages, Path(folder) / "kb", device=str(run.device), index="exact", bm25=False
        )
        found["rows"] = kb.counts.rows
        kinds: Sequence[BuiltKind] = ("compact", "tiny")
        for kind in kinds:
            asked = own_queries(kb.searcher.shards, kb.model, 10) if run.small else ()
            kb = kb.index_vectors(kind, queries=asked)  # measures the recall by the device's index
            found[f"{kind}: recall measured on the device, probes"] = [
                round(kb.index.recall, 4),
                kb.index.probes,
            ]
            found |= same_as_cpu(run, kb, kind)


def same_as_cpu(run: "Run", kb: KnowledgeBase, kind: BuiltKind) -> dict[str, Any]:
    texts = own_queries(kb.searcher.shards, kb.model, 20 if run.small else REAL_QUERIES, seed=1)
    vectors = kb.model.in_row_units(*kb.model.encode_queries(texts))
    shards = kb.searcher.shards
    opened = {"CPU": open_index(shards, kb.index, CPU)}
    found: dict[str, Any] = {}
    seconds = wall_seconds(lambda: opened.update(device=open_index(shards, kb.index, run.device)))
    hits = {
        name: search(SearchContext(shards, index), vectors, 10, "phrase")
        for name, index in opened.items()
    }
    equal = sum(map(list.__eq__, hits["CPU"], hits["device"]))
    found[f"{kind}: seconds to load"] = round(seconds, 1)
    found[f"{kind}: queries with the hits of the CPU, of {len(texts)}"] = equal
    return found


def parts(
    run: "Run", corpus: str | None
) -> list[tuple[str, Callable[["Run", dict[str, Any]], None]]]:
    """Return what to measure, by name, the quickest first."""
    size = (lambda rows: 80) if run.small else (lambda rows: rows)  # two cells
    has_room = run.small or (
        run.device.type == "cuda" and torch.cuda.mem_get_info(run.device)[0] > NEEDS
    )
    listed: list[tuple[str, Callable[[Run, dict[str, Any]], None]]] = [
        ("codes: compact, 46.5 million", partial(searched, kind="compact", rows=size(46_500_000))),
        ("codes: compact, 4.2 million", partial(searched, kind="compact", rows=size(4_200_000))),
        ("codes: faiss, 4.2 million", partial(searched_by_faiss, rows=size(4_200_000))),
        ("codes: shapes of the kernel, 4.2 million", partial(shaped, rows=size(4_200_000))),
    ]
    if has_room:
        listed.append(
            ("codes: tiny, 770 million", partial(searched, kind="tiny", rows=size(770_000_000)))
        )
    if corpus:
        listed.append(("codes: real rows", partial(compared, corpus=corpus)))
    return listed
