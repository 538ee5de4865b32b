"""What a second look gains and costs, and how far probabilities can be trusted, as tables."""

from typing import Any

from rendering import figures, interval, table

SETS = {
    "trex": "T-REx subset, zero-shot",
    "redocred": "Re-DocRED, unseen pages",
    "squad": "SQuAD dev, open",
    "sample": "sample",
}
SHOWN = ("0", "1", "2", "3", "5", "10", "20")
LOOKS = "10"  # the default
JUDGED = "hybrid, judged"  # in results/open_reading.json


def judged(result: str, name: str) -> list[float]:
    """The KILT-accuracy of a data set with a second look."""
    mean: list[float] = figures(result)[name]["looks"][LOOKS]["KILT-accuracy"][0]
    return mean


def second_look() -> str:
    """By how many phrases are judged: scores, and the CPU time of a query."""
    found = figures("second_look")
    rows = []
    for name, label in SETS.items():
        looks = found[name]["looks"]
        for score in ("em", "KILT-accuracy"):
            cells = [f"{looks[count][score][0][0]:.1f}" for count in SHOWN]
            gain = looks[LOOKS][score][1]
            rows.append([f"{label} ({found[name]['queries']:,})", score, *cells, f"+{interval(gain)}"])
        times = [f"{looks[count]['CPU ms']:.0f}" for count in SHOWN]
        rows.append(["", "CPU ms a query", *times, f"{ratio(looks):.1f}×"])
    return table(["data set (queries)", "phrases judged", *SHOWN, "10 against 0"], rows)


def ratio(looks: Any) -> float:
    return float(looks[LOOKS]["CPU ms"] / looks["0"]["CPU ms"])


def second_look_short() -> str:
    """What it gains, in a sentence or two."""
    found = figures("second_look")
    parts = [
        f"{label} {looks['0']['KILT-accuracy'][0][0]:.1f} → {looks[LOOKS]['KILT-accuracy'][0][0]:.1f}"
        for name, label in SETS.items()
        for looks in [found[name]["looks"]]
    ]
    trex = found["trex"]["looks"]
    return (
        f"KILT-accuracy without and with it: {'; '.join(parts)}.\n"
        f"A T-REx query takes {trex['0']['CPU ms']:.0f} ms of a CPU without it and {trex[LOOKS]['CPU ms']:.0f} ms with "
        "it, in batches: [what a second look gains](../results/confidence.md)."
    )


def trust() -> str:
    """How well probabilities tell right from wrong, and what stands beside them."""
    found = figures("trust")
    head = ["", *(f"{SETS[name]} ({found[name]['queries']:,})" for name in found)]
    probability = [one["probability"] for one in found.values()]
    rows = [
        ["without their pages", *(f"{one['without their pages']:,}" for one in found.values())],
        ["right", *(percent(one["right"]) for one in found.values())],
        ["AUROC", *(f"{one['AUROC']:.3f}" for one in probability)],
        ["AUROC, score of the search", *(f"{one['search score alone']['AUROC']:.3f}" for one in found.values())],
        ["AUROC, best single feature", *(best_feature(one["features"]) for one in found.values())],
        ["AURC", *(f"{one['AURC']:.3f}" for one in probability)],
        ["AUGRC", *(f"{one['AUGRC']:.3f}" for one in probability)],
        *(
            [f"coverage at {precision} precision", *(covered(one[f"coverage at {precision}"]) for one in probability)]
            for precision in ("90 %", "95 %")
        ),
        [
            "the same, score of the search, 90 %",
            *(covered(one["search score alone"]["coverage at 90 %"]) for one in found.values()),
        ],
        ["Brier", *(f"{one['Brier']:.3f}" for one in probability)],
        ["ECE", *(f"{one['ECE']:.3f}" for one in probability)],
        ["ECE of perfect probabilities", *(f"{one['ECE of a perfect one'][0]:.3f}" for one in probability)],
        ["MacroCE", *(f"{one['MacroCE']:.3f}" for one in probability)],
    ]
    above = [one.get("above the threshold of 0.9") for one in found.values()]
    if all(above):
        for label, name in (
            ("above the threshold of 90 %: answered", "answered"),
            ("right of these", "right of these"),
            ("answered of those without their pages", "answered without their pages"),
        ):
            rows.append([label, *(percent(one[name]) for one in above)])
    return table(head, rows)


def best_feature(features: Any) -> str:
    name, one = max(features.items(), key=lambda item: item[1]["AUROC"] or 0)
    return f"{one['AUROC']:.3f} ({name})"


def covered(share: list[float]) -> str:
    return f"{100 * share[0]:.0f} % ({100 * share[1]:.0f}–{100 * share[2]:.0f})"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
