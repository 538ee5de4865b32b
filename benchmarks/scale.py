"""Scale: the tables of docs/scale.md; see tables.py.

What Wikipedia would cost is computed from the largest measured size, and every factor is shown.
"""

import math
from typing import Any

from rendering import earlier, figures, interval, table

MILLIONS = 770  # of kept tokens, as the DensePhrases papers count them
WIKIPEDIA_VECTORS, WIKIPEDIA_TOKENS = MILLIONS * 1e6, 3.1e9
CORPORA = ("trex", "wiki")
ENCODERS = {
    "encoder": "bf16, AMX",
    "encoder_bf16": "bf16, AVX-512",
    "encoder_float32": "float32, AVX-512",
}  # what the CPU multiplies with
GPU_BYTES, GPU_BYTES_PER_SECOND = 139 * 2**30, 4.8e12  # of one H200
MOVED_FOR_64, MOVED_FOR_ONE = 5200, 600  # bytes a row in GPU memory: its vector, products, their sums and maxima


def kinds() -> str:
    """Every index of two knowledge bases: what it costs, finds, and answers."""
    kept, everything = figures("index_kinds"), figures("index_kinds_all")
    first = f"{kept['vectors']:,} vectors of T-REx pages{earlier('index_kinds')}; KILT-accuracy with vectors alone:"
    second = f"{everything['vectors']:,} vectors, all tokens of T-REx and wiki pages{earlier('index_kinds_all')}:"
    return f"{first}\n\n{_kinds(kept)}\n\n{second}\n\n{_kinds(everything)}"


def _kinds(found: dict[str, Any]) -> str:
    columns = {
        "bytes a vector, beside the dump": "bytes per vector, beside the dump",
        "build, CPU s": "build and calibration, CPU seconds",
        "cells probed": "probes",
        "recall@10": "recall@10 of phrases, these queries",
        "recall@10 with BM25": "recall@10 of phrases, these queries, with BM25",
        "queries per CPU s, 64 at a time": "queries per CPU second, 64 at a time",
        "one at a time": "queries per CPU second, one at a time",
    }
    rows = []
    for name, values in found.items():
        if isinstance(values, dict):
            most, asked = (values[f"recall@10 of phrases{of}"] for of in (", calibration queries", " asked for"))
            reached = "" if most >= asked else f" ({most:g} with all cells)"
            scores = [interval(values[model]["KILT-accuracy"]) for model in ("untuned", "tuned")]
            rows.append([name + reached, *(f"{values[key]:g}" for key in columns.values()), *scores])
    return table(["index", *columns, "KILT-accuracy, untuned", "KILT-accuracy, tuned on 5,000"], rows)


def growth() -> str:
    """One row for each size."""
    rows = [
        [
            f"{row['rows'] / 1e6:.1f}",
            f"{row['dump, MB']:,}",
            *_milliseconds(row["exact"]),
            f"{row['compact']['MB']:,}",
            f"{row['compact']['build and calibration, CPU seconds']:,.0f}",
            f"{row['compact']['probes']}",
            *_milliseconds(row["compact"]),
        ]
        for row in figures("growth")["sizes"]
    ]
    exact, compact = ([f"{kind}: ms a query, 64 at a time", "one at a time"] for kind in ("exact", "compact"))
    built = ["compact: MB", "build, CPU s", "cells probed"]
    head = ["million vectors", "dump, MB", *exact, *built, *compact]
    return f"{table(head, rows)}\n\n![Cost against size, log-log](growth.png)"


def limit() -> str:
    """Exact search beside the product of its rows."""
    rows = [
        [
            f"{int(vectors.split()[0]):,} vectors",
            count,
            *(f"{values[name]:g}" for name in ("search, ms a query", "product, ms a query")),
            f"{values['search, times the product']:.1f}",
        ]
        for vectors, counts in figures("limit").items()
        for count, values in counts.items()
    ]
    return table(
        ["exact search, one thread", "queries", "ms a query", "rows times queries alone, ms", "search / product"], rows
    )


def _milliseconds(values: dict[str, Any]) -> list[str]:
    return [f"{values[name]:.3g}" for name in ("ms, 64 at a time", "ms, one at a time")]


def wikipedia() -> str:
    """All of English Wikipedia, from what was measured."""
    largest = figures("growth")["sizes"][-1]
    speed, with_tiles = (figures(name)["wiki"]["now"]["tokens per second"] for name in ("encoder_bf16", "encoder"))
    gpus = math.ceil(WIKIPEDIA_VECTORS * 384 / GPU_BYTES)
    each = WIKIPEDIA_VECTORS / gpus / GPU_BYTES_PER_SECOND
    alone, together = each * MOVED_FOR_ONE, each * MOVED_FOR_64
    tokens = f"{WIKIPEDIA_TOKENS / 1e9:g} billion"
    rows = [
        ["encoding, one core", f"{tokens} tokens / {speed:,} a second", _hours(WIKIPEDIA_TOKENS / speed)],
        ["the same with AMX", f"{tokens} tokens / {with_tiles:,} a second", _hours(WIKIPEDIA_TOKENS / with_tiles)],
        ["dump, with texts", *_bytes(largest["dump, MB"] * 1e6 / largest["rows"])],
        *(row for kind in ("compact", "tiny", "disk") for row in _index_of_wikipedia(kind)),
        ["exact search, one core", *_search_of_wikipedia("exact")],
        [
            "exact search, GPUs of 139 GiB",
            f"{MILLIONS} million × 384 bytes need {gpus}, each moves {MOVED_FOR_ONE} bytes a row for one query, "
            f"{MOVED_FOR_64:,} for 64, at {GPU_BYTES_PER_SECOND / 1e12} TB/s",
            f"{1000 * alone:.0f} ms for one query; {1000 * together:.0f} ms for 64, {64 / together:.0f} queries per s",
        ],
    ]
    return table(["all of English Wikipedia", "arithmetic", "result"], rows)


def _index_of_wikipedia(kind: str) -> list[list[str]]:
    """Its size, build and search."""
    measured = figures("index_kinds_all")
    found = measured[f"{kind}, recall 0.99"]
    build = found["build and calibration, CPU seconds"] * 1e6 / measured["vectors"]
    return [
        [f"{kind} index", *_bytes(found["bytes per vector, beside the dump"])],
        ["its build, one core", f"{MILLIONS} million × {build:.0f} CPU s a million", _hours(MILLIONS * build)],
        ["its search, one core, recall 0.99", *_search_of_wikipedia(f"{kind}, recall 0.99")],
    ]


def _search_of_wikipedia(name: str) -> tuple[str, str]:
    """Shards of one size are asked one after another, so that the time grows with the rows."""
    measured = figures("index_kinds_all")
    times = WIKIPEDIA_VECTORS / measured["vectors"]
    alone, together = (times / measured[name][f"queries per CPU second, {count} at a time"] for count in ("one", "64"))
    return (
        f"{times:.0f} times {measured['vectors'] / 1e6:.1f} million: {alone:.1f} s for one query, "
        f"{together:.2f} s for one of 64",
        f"{1 / together:.2g} queries per CPU s",
    )


def _bytes(each: float) -> tuple[str, str]:
    return f"{MILLIONS} million × {each:.0f} bytes", f"{WIKIPEDIA_VECTORS * each / 1e9:,.0f} GB"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.0f} hours"


def encoder() -> str:
    found = figures("encoder_bf16")
    rows = [
        [products, *row]
        for name, products in ENCODERS.items()
        for corpus in CORPORA
        for row in _encodings(figures(name)[corpus], corpus)
    ]
    query = found["one query, ms"]
    text = (
        f"All with {found['threads']} thread; a CPU without 16-bit products encodes in float32. The encoders of the "
        f"default model{earlier('encoder_bf16')} take {found['model on the disk, MB']:.0f} MB on the disk and "
        f"{found['model in memory, MB']} MB in memory; one query takes {query['p50']} ms with bf16 and AVX-512 "
        f"in the median ({query['p95']} ms at most in 19 of 20 cases)."
    )
    speeds = ["tokens per second", "fastest product, GFLOP/s", "share of it"]
    return f"{table(['multiplied in', 'windows', 'how', *speeds, 'padding', 'cosine to float32'], rows)}\n\n{text}"


def _encodings(values: dict[str, Any], corpus: str) -> list[list[str]]:
    """Both ways of encoding the windows of a corpus."""
    windows = f"{corpus}: {values['windows']:,} of {values['tokens'] / values['windows']:.0f} tokens"
    return [
        [
            windows,
            described,
            f"{values[way]['tokens per second']:,}",
            f"{values['fastest product, GFLOP/s']:,}",
            f"{values[way]['share of the fastest product, percent']:.0f} %",
            f"{values['padding, percent']:g} %",
            f"{values[way]['mean cosine to float32']:.5f}",
        ]
        for way, described in (("before", "autocast, plain attention"), ("now", "as kbq encodes"))
    ]


def mapped() -> str:
    """Search with less memory than the knowledge base is large."""
    found = figures("mapped")
    ways = [found["all memory"], found["little memory"]]
    counts = list(ways[0]["exact"])
    costs = [f"{name} a query, {count}" for count in counts for name in ("ms", "MB read")]
    rows = [
        [f"{way['memory free, MB']:,}", kind, *(f"{cost:g}" for count in counts for cost in way[kind][count].values())]
        for way in ways
        for kind in ("exact", "disk", "tiny")
    ]
    size, same = found["vectors and indexes, MB"] / 1000, "the same" if found["same hits"] else "other"
    text = (
        f"{found['vectors']:,} vectors with a disk and a tiny index take {size:.1f} GB, all on the disk when "
        f"the first query comes; both ways give {same} hits. The process holds {ways[1]['own memory, MB']} MB, or "
        f"{ways[1]['with tiny, MB']} MB with tiny: its codes, which are read before the first query, and the hits that "
        "it scores again. With much memory the system reads ahead: it reads more at first and nothing later."
    )
    return f"{table(['memory free, MB', 'index', *costs], rows)}\n\n{text}"


def pages() -> str:
    """What pages cost beside their vectors."""
    columns = {
        "pages": "{:,}",
        "tokens": "{:,}",
        "shards": "{}",
        "build, CPU seconds": "{:,}",
        "own, MB": "{:,}",
        "append of a page, CPU seconds": "{}",
        "MB without vectors": "{:,}",
        "opening, CPU ms": "{}",
        "words alone, CPU ms a query": "{}",
    }
    rows = [[shape.format(row[name]) for name, shape in columns.items()] for row in figures("many_pages")["sizes"]]
    return table([name.replace("own, MB", "peak memory of the build, MB") for name in columns], rows)


def robustness() -> str:
    """Memory of builds, and kills."""
    memory, kills = figures("memory"), figures("kills")
    rows = [
        [
            name,
            f"{row['text, MB']:g}",
            f"{row['tokens']:,}",
            f"{row['vectors, MB']:g}",
            f"{row['own, MB']:,}",
            f"{row['peak memory, MB']:,}",
        ]
        for name, row in memory.items()
    ]
    indexing = kills["killed"].get("while an index was built", 0)
    text = (
        f"A build was killed with SIGKILL at {kills['kills']} random moments, {indexing} of them while an index was "
        "built, and resumed: "
        f"{kills['resumed with the same bytes']} times the result was the same bytes as without a kill, index included."
    )
    head = [
        "corpus",
        "text, MB",
        "tokens",
        "vectors, MB",
        "peak memory of the build, MB",
        "with mapped files, MB",
    ]
    return f"{table(head, rows)}\n\n{text}"
