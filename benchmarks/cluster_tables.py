"""Cluster tables: what results/cluster_*.json say, as Markdown; no Ray is needed."""

from collections.abc import Sequence

from rendering import figures, table
from scale import WIKIPEDIA_TOKENS, WIKIPEDIA_VECTORS

NODES, CORES = 4, 16  # of the example
ALL = NODES * CORES
NETWORK = 10e9 / 8  # bytes per second


def cluster_builds() -> str:
    """CPU seconds and bytes on one machine and on nodes."""
    sizes = figures("cluster_build")["sizes"]
    most = max(each["nodes"] for size in sizes for each in size["clusters"])
    alone = _slope([(size["tokens"], size["one_process"]["cpu_seconds"]) for size in sizes])
    first = [f"{size['one_process']['cpu_seconds']:.1f}" for size in sizes]
    rows = [["one process, no Ray", *first, f"{alone:.0f}", "", ""]]
    for nodes in range(1, most + 1):
        by_size = [next((each for each in size["clusters"] if each["nodes"] == nodes), None) for size in sizes]
        spent = [f"{each['cpu_seconds']:.1f} ({each['of_rays_processes']:.1f})" if each else "" for each in by_size]
        pairs = [(size["tokens"], each) for size, each in zip(sizes, by_size, strict=True) if each]
        slope = ["", ""]
        if len(pairs) > 1:
            whole = _slope([(tokens, each["cpu_seconds"]) for tokens, each in pairs])
            of_ray = _slope([(tokens, each["of_rays_processes"]) for tokens, each in pairs])
            slope = [f"{whole:.0f} ({of_ray:.0f})", f"{whole / alone:.2f}× ({of_ray / alone:.2f}×)"]
        done = [each for each in by_size if each]
        same = sum(each["files"] for each in done if each["same_bytes"])
        rows.append(
            [f"{nodes} node{'s' * (nodes > 1)}", *spent, *slope, f"{same} of {sum(each['files'] for each in done)}"]
        )
    head = ["CPU seconds", *(f"{size['tokens']:,} tokens" for size in sizes), "each further million tokens"]
    return table([*head, "beside one process", "files with the same bytes"], rows)


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """CPU seconds for a million tokens more, between the smallest and the largest corpus."""
    (few, less), (many, more) = points[0], points[-1]
    return 1e6 * (more - less) / (many - few)


def cluster_kills() -> str:
    """Builds that went on, or were resumed, after a kill."""
    found = {what: outcome for what, outcome in figures("cluster_kills").items() if what != "ray"}
    rows = [[what, str(outcome["killed"]), str(outcome["same_bytes"])] for what, outcome in found.items()]
    return table(["killed", "builds", "same bytes"], rows)


def cluster_searches() -> str:
    """What actors add to a search."""
    found = figures("cluster_search")
    rows = []
    for farm in found["farms"]:
        trip = farm["empty_trip_ms"]
        pairs = [farm[name] for name in ("one_query_ms", "batch_of_64_ms")]
        rows.append(
            [
                str(farm["actors"]),
                f"{farm['answers_differing']} of {farm['answers_compared']:,}",
                f"{trip['median']:.1f} ({trip['fewest']:.1f})",
                *(
                    f"{pair[name]['median']:.1f} ({pair[name]['fewest']:.1f})"
                    for pair in pairs
                    for name in ("one process", "actors")
                ),
            ]
        )
    head = ["actors", "answers that differ", "empty trip, ms", "one query, one process", "one query, actors"]
    return table([*head, "64 queries, one process", "64 queries, actors"], rows)


def cluster_throughput() -> str:
    """Batches of one actor and of two, each on a core of its own."""
    found = figures("cluster_throughput")
    rows = []
    for name in ("one process", "1 actor", "2 actors"):
        waited, spent = found[name]["batch_of_64_ms"], found[name]["cpu_ms"]
        rows.append([name, f"{waited['median']:.0f} ({waited['fewest']:.0f})", f"{spent['fewest']:.0f}"])
    head = [f"{found['rows']:,} vectors", "64 queries, ms", "fewest CPU ms of the process or the busiest actor"]
    return table(head, rows)


def cluster_wikipedia() -> str:
    """All of English Wikipedia on several machines, from what was measured."""
    rows = [*_encoding(), *_index()]
    return table([f"all of English Wikipedia, {NODES} nodes of {CORES} cores", "arithmetic", "result"], rows)


def _encoding() -> list[list[str]]:
    found, tokens = figures("cluster_head"), f"{WIKIPEDIA_TOKENS / 1e9:g} billion tokens"
    speed = round(found["tokens"] / found["encoding_cpu_seconds"])
    received, head = (
        WIKIPEDIA_TOKENS / found["tokens"] * found[name] for name in ("bytes_received", "head_cpu_seconds")
    )
    return [
        ["encoding", f"{tokens} / {speed:,} a second / {ALL} cores", _hours(WIKIPEDIA_TOKENS / speed / ALL)],
        ["what the head does meanwhile", f"{tokens} × {1e6 * head / WIKIPEDIA_TOKENS:.2f} µs", _hours(head)],
        ["what the head receives", f"{received / 1e9:.0f} GB at 10 Gbit/s", f"{received / NETWORK / 60:.0f} minutes"],
    ]


def _index() -> list[list[str]]:
    measured, millions = figures("index_kinds_all"), WIKIPEDIA_VECTORS / 1e6
    compact = measured["compact, recall 0.99"]
    build = compact["build and calibration, CPU seconds"] * 1e6 / measured["vectors"]
    size = compact["bytes per vector, beside the dump"] * millions / 1000
    speed = compact["queries per CPU second, 64 at a time"] * measured["vectors"] / WIKIPEDIA_VECTORS
    return [
        [
            "compact index, with its recall as if that were shared, too",
            f"{millions:.0f} million × {build:.0f} CPU s a million / {ALL} cores",
            f"{build * millions / ALL / 60:.0f} minutes",
        ],
        ["its memory, each node", f"{size:.0f} GB / {NODES}", f"{size / NODES:.0f} GB"],
        [
            "its search, 64 at a time",
            f"{speed:.2g} queries per CPU s × {ALL} cores",
            f"{speed * ALL:.0f} queries per s",
        ],
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours"
