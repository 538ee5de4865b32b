"""Plotting: draw results as pictures in docs/results/."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from reporting import RESULTS

DOCS = Path(__file__).parents[1] / "docs" / "results"
SETS = {
    "trex": "T-REx",
    "redocred": "Re-DocRED, unseen pages",
    "squad": "SQuAD dev, open",
    "sample": "sample",
}


def main() -> None:
    learning_curve()
    second_look()
    forgetting()
    filter_curve()
    growth()


def figures(name: str) -> Any:
    """Return the figures of a result."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["figures"]


@contextmanager
def picture(name: str, columns: int = 1) -> Iterator[Any]:
    """Yield axes to draw in, an array of them for several columns, and save the picture at the end."""
    figure, axes = pyplot.subplots(1, columns, figsize=(6.4 if columns == 1 else 4.5 * columns, 4))
    yield axes
    for each in figure.axes:
        each.grid(alpha=0.3, which="both")
        each.legend(fontsize="medium" if columns == 1 else "small")
    figure.tight_layout()
    figure.savefig(DOCS / f"{name}.png", dpi=110)


def learning_curve() -> None:
    """Draw KILT-accuracy against the number of triples."""
    runs: dict[int, list[Any]] = {}
    for run in figures("finetuning_trex").values():
        if isinstance(run, dict):
            runs.setdefault(run.get("queries tuned on", 0), []).append(run)
    runs = dict(sorted(runs.items()))
    lines = {
        "KILT-accuracy": "answer and page (KILT-AC)",
        "accuracy": "answer",
        "Rprec": "page (R-precision)",
    }
    with picture("learning_curve") as axes:
        for name, label in lines.items():
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


def second_look() -> None:
    """Draw what reranking more phrases gains against the time it takes."""
    with picture("second_look") as axes:
        for name, label in SETS.items():
            looks = figures("second_look_curve")[name]["looks"]
            times = [one["CPU ms"] for one in looks.values()]
            gains = [one["KILT-accuracy"][1][0] for one in looks.values()]
            axes.plot(times, gains, marker="o", label=label)
            for count, time, gain in zip(looks, times, gains, strict=True):
                axes.annotate(
                    count,
                    (time, gain),
                    textcoords="offset points",
                    xytext=(4, -9),
                    fontsize="x-small",
                )
        axes.set_xlabel("CPU milliseconds a query; at each point the phrases judged")
        axes.set_ylabel("gain of KILT-accuracy, points")


def forgetting() -> None:
    """Draw what each data set gains or loses against the number of triples, without reranking."""
    runs = list(figures("forgetting_curve").values())
    with picture("forgetting") as axes:
        for name, label in (SETS | {"linking": "entity linking"}).items():
            score = "em" if name in ("sample", "squad") else "KILT-accuracy"
            gains = [run["second look 0"][name][score][1] for run in runs]
            axes.plot([run["triples"] for run in runs], gains, marker="o", label=label)
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel("triples tuned on")
        axes.set_ylabel("gain, points")


def filter_curve() -> None:
    """Draw open EM and top-5 accuracy against the vectors of a passage that the filter keeps."""
    found = figures("filter_curve")
    points = found["points"]
    vectors = [point["vectors"] for point in points]
    shipped = next(
        (one for one in reversed(points) if one["threshold"] <= found["threshold"]), points[0]
    )
    with picture("filter_curve") as axes:
        for score, label in (
            ("open_passage_5", "gold passage among the top 5"),
            ("open_em", "answer (open EM)"),
        ):
            axes.plot(vectors, [point[score] for point in points], marker="o", label=label)
        axes.axvline(
            shipped["vectors"], color="grey", linestyle=":", label="the model's threshold, about"
        )
        axes.set_xlabel("vectors of a passage")
        axes.set_ylabel("percent of queries")


def growth() -> None:
    """Draw times and sizes against the number of vectors, log-log."""
    rows = figures("growth")["sizes"]
    vectors = [row["rows"] for row in rows]
    with picture("growth", columns=2) as (times, sizes):
        for kind, mark in (("exact", "o"), ("compact", "s")):
            for name, line in (("ms, 64 at a time", "-"), ("ms, one at a time", "--")):
                times.plot(
                    vectors,
                    [row[kind][name] for row in rows],
                    line,
                    marker=mark,
                    label=f"{kind}, {name[4:]}",
                )
        times.set_ylabel("CPU milliseconds for a query")
        sizes.plot(vectors, [row["dump, MB"] for row in rows], marker="o", label="dump, MB")
        for name, label in (
            ("MB", "MB"),
            ("build and calibration, CPU seconds", "build, CPU seconds"),
        ):
            sizes.plot(
                vectors,
                [row["compact"][name] for row in rows],
                marker="s",
                label=f"compact index, {label}",
            )
        for axes in (times, sizes):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("vectors")


if __name__ == "__main__":
    main()
