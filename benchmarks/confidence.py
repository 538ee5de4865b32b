"""What reranking gains and costs, and how far probabilities can be trusted, as tables."""

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


def scores(name: str) -> dict[str, list[float]]:
    """The scores of a data set with reranking, each with its interval."""
    found = figures("second_look")[name]["looks"][LOOKS]
    return {score: found[score][0] for score in ("em", "Rprec", "KILT-accuracy")}


def second_look() -> str:
    """What ten phrases gain, for all queries; then the same by how many are judged, for some of them."""
    gained = []
    for name, label in SETS.items():
        found = figures("second_look")[name]
        for score in ("em", "KILT-accuracy"):
            without, judged = (found["looks"][count][score] for count in ("0", LOOKS))
            gained.append(
                [f"{label} ({found['queries']:,})", score, interval(without[0]), interval(judged[0]), gain(judged[1])]
            )
            label = "the same"
        times = (f"{found['looks'][count]['CPU ms']:.0f}" for count in ("0", LOOKS))
        gained.append(["", "CPU ms a query", *times, ""])
    rows = []
    for name, label in SETS.items():
        found = figures("second_look_curve")[name]
        looks = found["looks"]
        cells = [f"{looks[count]['KILT-accuracy'][0][0]:.1f}" for count in SHOWN]
        rows.append([f"{label} ({found['queries']:,})", "KILT-accuracy", *cells])
        rows.append(["", "CPU ms a query", *(f"{looks[count]['CPU ms']:.0f}" for count in SHOWN)])
    first = table(["data set (queries)", "score", "without", "ten phrases judged", "gain"], gained)
    return "\n\n".join([first, table(["data set (queries)", "phrases judged", *SHOWN], rows)])


def gain(value: list[float]) -> str:
    return f"{value[0]:+.1f} ±{(value[2] - value[1]) / 2:.1f}"


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
        "it, in batches: [what reranking gains](../results/confidence.md)."
    )


def trust_short() -> str:
    """What a probability is good for, in a sentence or two."""
    one = figures("trust")["trex"]
    with_probability, with_score = (one[name]["coverage at 90 %"][0] for name in ("probability", "search score alone"))
    above = one["above the threshold of 0.9"]
    lost = 100 * above["answered without their pages"]
    return (
        f"Probabilities: {one['without their pages']} of {one['queries']:,} T-REx queries had lost the pages that "
        f"answer them. With the best threshold, {100 * with_probability:.0f} % of all can be\n"
        f"answered with 90 % precision ({100 * with_score:.0f} % by the score of the search). With the threshold "
        f"({above['threshold']:.2f}) for which the calibration promises 90 %,\n"
        f"{100 * above['answered']:.0f} % are answered, {100 * above['right of these']:.0f} % of these rightly, and "
        f"{lost:.0f} % of those without pages: [how sure it is](docs/results/confidence.md).\n{unsaid_short()}"
    )


def trust() -> str:
    """How well probabilities tell right from wrong, and what stands beside them."""
    found = figures("trust")
    names = SETS | {"impossible": "the same, and what subjects cannot have", "knowledgenet": "KnowledgeNet, fold 4"}
    head = ["", *(f"{names[name]} ({one['queries']:,})" for name, one in found.items())]
    probability = [one["probability"] for one in found.values()]
    rows = [
        ["of these, without their pages", *(f"{one['without their pages']:,}" for one in found.values())],
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
    for label, name in (
        ("above the threshold of 90 %: answered", "answered"),
        ("right of these", "right of these"),
        ("answered of those without their pages", "answered without their pages"),
        ("answered of those with no answer", "answered where nothing is right"),
    ):
        rows.append([label, *(percent(one["above the threshold of 0.9"][name]) for one in found.values())])
    return table(head, rows)


UNSAID = ("stated", "filled at 0.5", "right of these", "recall of the stated", "unsaid cells filled")
TABLES = {"tables": "unseen pages of Re-DocRED", "knowledgenet": "KnowledgeNet, fold 4"}


def unsaid() -> str:
    """Tables most of whose cells are not stated."""
    found = figures("unsaid")
    head = ["", *(f"{TABLES[name]} ({one['cells']:,})" for name, one in found.items())]
    rows = [[label, *(percent(one[label]) for one in found.values())] for label in UNSAID]
    rows.append(["AUROC", *(f"{one['AUROC']:.3f}" for one in found.values())])
    for precision in ("90%", "95%"):
        label = f"coverage at {precision} precision"
        rows.append([label.replace("%", " %"), *(percent(one[label] or 0.0) for one in found.values())])
    rows += [[label, *(f"{one[label]:.3f}" for one in found.values())] for label in ("ECE", "ECE of a perfect one")]
    return table(head, rows)


def unsaid_by_relation() -> str:
    """The relations of Re-DocRED's tables with ten stated cells or more."""
    rows = [
        [name, str(one["cells"]), *(percent(one[label]) if one[label] is not None else "–" for label in UNSAID)]
        for name, one in sorted(figures("unsaid")["tables"]["by relation"].items())
        if one["stated"] * one["cells"] >= 9.5
    ]
    return table(["relation", "cells", *UNSAID], rows)


def unsaid_short() -> str:
    """What a table is like today, in two sentences."""
    found = figures("unsaid")["tables"]
    stated, right, wrong = (percent(found[name]) for name in ("stated", "right of these", "unsaid cells filled"))
    return (
        f"What no text says is kbq's weakest point: of {found['cells']:,} cells of tables, {stated} are stated; "
        f"of what is filled at 0.5,\n{right} is right, and {wrong} of the unsaid cells are filled: "
        "[what the text does not say](docs/results/confidence.md#what-the-text-does-not-say)."
    )


def promises() -> str:
    """How often a calibration promised a precision, kept it, and what was answered above its threshold."""
    rows = []
    for name, one in figures("promise").items():
        label = f"{SETS[name]} ({one['queries']:,})"
        for precision in ("0.9", "0.95"):
            found = one[precision]
            ranges = (
                f"{middle:.0f} % ({low:.0f}–{high:.0f})" for low, middle, high in (found["answered"], found["right"])
            )
            broken = found["promised"] - found["kept"]
            share = f" ({100 * broken / found['promised']:.1f} %)" if found["promised"] else ""
            counts = str(found["promised"]), f"{broken}{share}"
            rows.append([label, f"{100 * float(precision):.0f} %", *counts, *ranges])
            label = ""
    head = [
        "data set (queries)",
        "precision",
        "promised, of 200 times",
        "not kept, of these",
        "answered above the threshold",
    ]
    return table([*head, "right of these"], rows)


def ingredients() -> str:
    """What each part of teaching is worth: the means of the seeds, and beside them how far each is from "all"."""
    found = figures("ingredients")
    sets, parts = list(found["search alone"]), found["parts"]
    rows = [["the search alone", *(f"{found['search alone'][name]:.1f}" for name in sets), *("" for _ in sets)]]
    for part, runs in parts.items():
        row = [part]
        for number, form in ((0, "{:.1f} ({:+.1f})"), (1, "{:.3f} ({:+.3f})")):
            for name in sets:
                mean, whole = (
                    sum(run[name][number] for run in several) / len(several) for several in (runs, parts["all"])
                )
                row.append((form if part != "all" else form.split(" ")[0]).format(mean, mean - whole))
        rows.append(row)
    labels = [f"{SETS[name].split(',')[0]} ({found['queries'][name]})" for name in sets]
    head = [
        f"without, {len(parts['all'])} seeds",
        *(f"{label}, EM" for label in labels),
        *(f"{label}, AUROC" for label in labels),
    ]
    return table(head, rows)


def best_feature(features: Any) -> str:
    name, one = max(features.items(), key=lambda item: item[1]["AUROC"] or 0)
    return f"{one['AUROC']:.3f} ({name})"


def covered(share: list[float]) -> str:
    return f"{100 * share[0]:.0f} % ({100 * share[1]:.0f}–{100 * share[2]:.0f})"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
