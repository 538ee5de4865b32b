"""Learning curve: KILT-accuracy against the number of triples, from results/finetuning_trex.json.

python benchmarks/learning_curve.py
"""

from plotting import picture
from rendering import figures
from tables import runs_by_size

LINES = {"KILT-accuracy": "answer and page (KILT-AC)", "accuracy": "answer", "Rprec": "page (R-precision)"}


def main() -> None:
    runs = runs_by_size(figures("finetuning_trex"))
    with picture("learning_curve") as axes:
        for name, label in LINES.items():
            means = [sum(run[name][0] for run in group) / len(group) for group in runs.values()]
            low = [min(run[name][1] for run in group) for group in runs.values()]
            high = [max(run[name][2] for run in group) for group in runs.values()]
            axes.plot(list(runs), means, marker="o", label=label)
            axes.fill_between(list(runs), low, high, alpha=0.15)
        axes.set_xscale("symlog", linthresh=100)
        axes.set_xticks(list(runs), [f"{count:,}" for count in runs], rotation=60)
        axes.minorticks_off()
        axes.set_xlabel("queries tuned on")
        axes.set_ylabel("T-REx dev, percent")


if __name__ == "__main__":
    main()
