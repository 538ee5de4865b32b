"""What a tuned query encoder gains and forgets, as tables and a picture, from results/forgetting*.json.

python benchmarks/keeping.py
"""

from typing import Any

from rendering import figures, table

SETS = {
    "trex": ("T-REx dev", "KILT-accuracy"),
    "sample": ("sample", "em"),
    "redocred": ("Re-DocRED, unseen pages", "KILT-accuracy"),
    "squad": ("SQuAD dev, open", "em"),
    "linking": ("entity linking", "KILT-accuracy"),
}
LOOKS = {"second look 0": "the search alone", "second look 10": "with its reranker"}


def cell(run: dict[str, Any], look: str, name: str) -> str:
    """The score after tuning, and what was gained or lost, with half of its 95 % interval."""
    mean, gain, low, high = run[look][name][SETS[name][1]]
    return f"{mean:.1f} ({gain:+.1f} ±{(high - low) / 2:.1f})"


def forgetting() -> str:
    """Runs with 5,000 triples, with and without reranking."""
    rows = []
    for name, run in figures("forgetting").items():
        size, seed = name.split(":")[:2]
        for look, label in LOOKS.items():
            if look in run:
                cells = [cell(run, look, each) for each in SETS]
                rows.append([f"{int(size):,}, seed {seed}", f"{run['keep']:g}", label, *cells])
    heads = [f"{label}, {score}" for label, score in SETS.values()]
    return table(["triples", "keep", "answered by", *heads], rows)


def forgetting_curve() -> str:
    """Fewer triples, on a sample of the queries, with and without reranking."""
    rows = []
    for name, run in figures("forgetting_curve").items():
        size = f"{int(name.split(':')[0]):,}"
        for look, label in LOOKS.items():
            rows.append([size, label, *(cell(run, look, each) for each in SETS)])
            size = ""
    return table(["triples", "answered by", *(f"{label}, {score}" for label, score in SETS.values())], rows)


def forgetting_keep() -> str:
    """Other values of `keep`, on a sample of the queries."""
    rows = []
    for run in kept_runs():
        agreement = run["answered as before"][run["dev"].index(max(run["dev"]))]
        asked = [each for each in SETS if each in run["second look 0"]]
        cells = [cell(run, "second look 0", each) for each in asked]
        rows.append([f"{run['keep']:g}", f"{agreement:.0f}", *cells])
    heads = [f"{SETS[each][0]}, {SETS[each][1]}" for each in asked]
    return table([f"keep, {KEEP_AT:,} triples", "other queries as before, %", *heads], rows)


def forgetting_linking() -> str:
    """What tuning on mentions does to them and to slots."""
    (run,) = figures("forgetting_linking").values()
    heads = [f"{label}, {score}" for label, score in SETS.values()]
    return table(["mentions", *heads], [[f"{run['triples']:,}", *(cell(run, "second look 0", each) for each in SETS)]])


def kept_runs() -> list[dict[str, Any]]:
    """Runs that differ in `keep` and in their seeds."""
    runs = [run for name, run in figures("forgetting_keep").items() if int(name.split(":")[0]) == KEEP_AT]
    return sorted(runs, key=lambda run: float(run["keep"]))


def forgetting_short() -> str:
    """What is gained and lost by 5,000 triples, with and without keeping, in a sentence."""
    runs = figures("forgetting")
    kept = next(run for name, run in runs.items() if run["keep"])
    lost = next(run for name, run in runs.items() if not run["keep"])

    def said(run: dict[str, Any]) -> str:
        parts = [(label, run["second look 0"][name][score]) for name, (label, score) in SETS.items()]
        return ", ".join(f"{label} {values[0] - values[1]:.1f} → {values[0]:.1f}" for label, values in parts)

    return (
        f"With 5,000 T-REx triples, without reranking (at most 1,200 queries of each set): {said(kept)}.\n"
        f"From the triples alone (`--keep 0`): {said(lost)}."
    )


def merging() -> str:
    """Two query encoders, each tuned on half of the relations, and both in one."""
    found = figures("merging")
    names = {
        "untuned": "no triples",
        "a": f"{found['queries']:,} of half a",
        "b": f"{found['queries']:,} of half b",
        "merged": "both, merged",
    }
    halves = {f"half {half}": (f"T-REx dev, half {half}", "KILT-accuracy") for half in "ab"}
    sets = halves | {name: SETS[name] for name in SETS if name in found["untuned"]["second look 0"]}
    rows = [
        [label, answered, *(f"{found[name][look][each][score]:.1f}" for each, (_, score) in sets.items())]
        for name, label in names.items()
        for look, answered in LOOKS.items()
    ]
    return table(["tuned on", "answered by", *(f"{label}, {score}" for label, score in sets.values())], rows)


def merging_short() -> str:
    """What is kept of both, in a sentence."""
    found = figures("merging")
    of_half = {
        name: [found[name]["second look 10"][f"half {half}"]["KILT-accuracy"] for half in "ab"]
        for name in ("untuned", "a", "b", "merged")
    }
    return (
        f"Two query encoders, tuned on {found['queries']:,} triples of either half of T-REx's relations, take their "
        f"own half from {of_half['untuned'][0]:.1f} to {of_half['a'][0]:.1f} and from {of_half['untuned'][1]:.1f} to "
        f"{of_half['b'][1]:.1f};\nmerged, they have {of_half['merged'][0]:.1f} and {of_half['merged'][1]:.1f} "
        "([what fine-tuning gains](../results/finetuning.md#several-tunings-in-one))."
    )


def draw() -> None:
    """The curves: T-REx against the other sets over `keep`, and both over the number of triples."""
    from plotting import picture

    with picture("forgetting", 2) as (left, right):
        for axes, chosen, label in (
            (left, kept_runs(), "keep"),
            (right, list(figures("forgetting_curve").values()), "triples"),
        ):
            places = [run["keep"] if label == "keep" else run["triples"] for run in chosen]
            for name, (title, score) in SETS.items():
                gains: dict[float, list[float]] = {}
                for place, run in zip(places, chosen, strict=True):
                    if name not in run["second look 0"]:
                        continue
                    gains.setdefault(place, []).append(run["second look 0"][name][score][1])
                means = [(place, sum(gains[place]) / len(gains[place])) for place in sorted(gains)]
                if not means:
                    continue
                axes.plot(*zip(*means, strict=True), marker="o", label=title)
            axes.axhline(0, color="grey", linewidth=0.8)
            axes.set_xlabel("keep" if label == "keep" else "triples tuned on")
            axes.set_ylabel("gain, points")
        right.set_xscale("log")


KEEP_AT = 1000  # triples of the runs with several values of `keep`

if __name__ == "__main__":
    draw()
