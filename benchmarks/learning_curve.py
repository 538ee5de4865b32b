"""Learning curve: KILT-accuracy against the number of triples, from results/finetuning_trex.json, as a picture.

python benchmarks/learning_curve.py
"""

from pathlib import Path

import matplotlib
from tables import figures, runs_by_size

matplotlib.use("Agg")
from matplotlib import pyplot

OUT = Path(__file__).parents[1] / "docs" / "learning_curve.png"
LINES = {"KILT-accuracy": "answer and page (KILT-AC)", "accuracy": "answer", "Rprec": "page (R-precision)"}


def main() -> None:
    runs = runs_by_size(figures("finetuning_trex"))
    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for name, label in LINES.items():
        means = [sum(run[name][0] for run in group) / len(group) for group in runs.values()]
        low = [min(run[name][1] for run in group) for group in runs.values()]
        high = [max(run[name][2] for run in group) for group in runs.values()]
        axes.plot(list(runs), means, marker="o", label=label)
        axes.fill_between(list(runs), low, high, alpha=0.15)
    axes.set_xscale("symlog", linthresh=100)
    axes.set_xticks(list(runs), [f"{count:,}" for count in runs], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("queries tuned on")
    axes.set_ylabel("T-REx dev, percent")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
