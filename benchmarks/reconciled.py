"""Which names are matched, and what new columns hold, as tables."""

from rendering import figures, table

KINDS = {"sample": "sample", "large": "T-REx subset"}
HEADS = {
    "names": "names",
    "matched rightly": "matched rightly",
    "matched wrongly": "matched wrongly",
    "first candidate right": "first candidate right",
    "among the candidates": "a candidate right",
    "matched wrongly without the page": "matched without their page",
}


def reconciliation_short() -> str:
    """What a user gets, in a few sentences."""
    found = figures("reconciliation")
    cells, seconds = found["cells of known value"], found["session"]["seconds for the columns, and of the CPU"]
    return (
        f"For 100 names of the sample and three columns, the service takes {seconds[1]:.0f} seconds of one CPU. Of "
        f"{cells['cells']} cells whose values are known, {percent(cells['filled'], cells['cells'])} are filled,\n"
        f"{percent(cells['right'], cells['filled'])} of these rightly, letter by letter: "
        "[which names are matched](../results/serving.md#openrefine)."
    )


def reconciliation() -> str:
    """Names by their kind."""
    found = figures("reconciliation")
    rows = []
    for kind, label in KINDS.items():
        label = f"{label}, {found[kind]['pages']:,} pages"
        for variant, one in found[kind]["names"].items():
            rows.append([label, variant, *(f"{one[count]:,}" for count in HEADS)])
            label = ""
    return table(["titles", "as they are asked", *HEADS.values()], rows)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
