"""What is served, how fast, and what goes wrong, as tables."""

from typing import Any

from rendering import figures, table

WAYS = {"with a second look": "with reranking, the default", "without": "`rerank: 0`"}
PER_CPU = "queries per CPU second"
MEASURES = (PER_CPU, "queries per second", "p50, ms", "p99, ms")
BATCH, ALONE = "library, 64 at a time", "library, one at a time"


def serving_short() -> str:
    """What a user gets, in a few sentences."""
    found = figures("serving")
    rate = {kind: one[PER_CPU] for kind, one in found["with a second look"].items() if isinstance(one, dict)}
    ours, crowd = rate["service, 64 clients"], figures("serving_crowd")["who wait as they are told"]
    return (
        f"On the T-REx subset (20,763 pages), 64 clients get {ours:.0f} answers per CPU second, "
        f"{ours / rate[BATCH]:.0%} of what the library gives 64 at a time,\nand {ours / rate[ALONE]:.1f} times "
        f"what it gives one at a time.\nOf 1,000 clients at once, those beyond the queue are refused, and "
        f"{crowd['answered per CPU second']:.0f} per CPU second are answered (without reranking):\n"
        "[how it is served](../results/serving.md)."
    )


def serving() -> str:
    """Throughput and latency, and how these compare."""
    found = figures("serving")
    rows, shares = [], []
    for way, label in WAYS.items():
        measured = {kind: one for kind, one in found[way].items() if isinstance(one, dict)}
        for kind, one in measured.items():
            rows.append([label if kind == BATCH else "", kind, *(f"{one[name]:,.1f}" for name in MEASURES)])
        ours = (measured[f"service, {count} clients"][PER_CPU] for count in (8, 64, 256))
        shares.append([label, *(f"{one / measured[BATCH][PER_CPU]:.0%}" for one in ours)])
    head = [
        "share of the library's batch throughput",
        "8 clients",
        "64",
        "256",
    ]
    return "\n\n".join((table([f"{found['queries']} queries", "", *MEASURES], rows), table(head, shares)))


def in_turn() -> str:
    """One query at a time, by the library and by the service."""
    kinds = [f"{kind}, lowest tenth and median, ms" for kind in ("library", "service")]
    rows = []
    for way, found in figures("serving_in_turn").items():
        times = [" and ".join(f"{one:.1f}" for one in found[kind]) for kind in kinds]
        rows.append([WAYS[way], *times, f"{found['median of the differences, ms']:.1f}"])
    return table(["the sample, one client", *kinds, "median of the differences, ms"], rows)


def crowd() -> str:
    """Many more clients than the queue takes."""
    rows = []
    for kind, found in figures("serving_crowd").items():
        counts = [f"{found['answers by status'].get(status, 0):,}" for status in ("200", "503", "0")]
        facts = ("p50 and p99 of a refusal, ms", "p50 and p99 of an answer, ms", "MB before and after")
        pairs = [" and ".join(f"{one:,.0f}" for one in found[fact]) for fact in facts]
        rows.append([kind, *counts, f"{found['answered per CPU second']:.0f}", *pairs])
    head = ["1,000 clients", "answered", "503", "lost", "answered per CPU second"]
    return table([*head, "p50 and p99 of a refusal, ms", "of an answer, ms", "MB before and after"], rows)


def faults() -> str:
    """What became of requests."""
    found = figures("serving_faults")
    added, damaged = found["pages added while it is asked"], found["replaced by a damaged one while it is asked"]
    rows = [
        *stopped(found["SIGTERM under load"], found["kill -9, then started again"]),
        ["pages are added", f"{changed(added)}, then new pages are found"],
        ["a damaged folder takes its place", f"{changed(damaged)}, and refused: the old one goes on"],
        soaked(found["soak"]),
    ]
    return table(["64 clients ask while", "what becomes of their requests"], rows)


def stopped(ended: list[dict[str, Any]], killed: dict[str, Any]) -> list[list[str]]:
    answered, lost = (sum(one[name] for one in ended) for name in ("answered", "lost"))
    longest, status = max(one["seconds to its end"] for one in ended), {one["exit status"] for one in ended}
    count = killed["different first answers"]
    answers = "the first answer is always the same" if count == 1 else f"{count} different first answers"
    again = f"{killed['seconds until it answers']:.1f} s"
    return [
        [
            f"SIGTERM, {len(ended)} times",
            f"{answered:,} answered, {lost} lost; it ends within {longest:.1f} s, with status {max(status)}",
        ],
        [
            f"kill -9 and a new start, {killed['times']} times",
            f"{answers}; {again} after its start (the median)",
        ],
    ]


def changed(one: dict[str, Any]) -> str:
    seconds = one["seconds until it is noticed"]
    return f"{one['answered']:,} answered, {one['lost']} lost, {one['refused']} refused; noticed after {seconds:.1f} s"


def soaked(soak: dict[str, Any]) -> list[str]:
    first, last, counts = soak["first tenth"], soak["last tenth"], soak["requests by status"]
    answered = counts.get("200", 0)
    facts = [f"{first[name]:,.0f} and {last[name]:,.0f} {name}" for name in ("MB", "descriptors")]
    facts.append(f"p99 {first['p99, ms']:,.0f} and {last['p99, ms']:,.0f} ms")
    return [
        f"{soak['seconds'] / 60:.0f} minutes pass",
        f"{answered:,} answered, {sum(counts.values()) - answered} not; in the first tenth and the last: "
        f"{'; '.join(facts)}",
    ]
