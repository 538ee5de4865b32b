"""Second look: what judging more phrases gains against the time it takes, from results/second_look_curve.json.

python benchmarks/second_look_curve.py
"""

from confidence import SETS
from plotting import picture
from rendering import figures


def main() -> None:
    with picture("second_look") as axes:
        for name, label in SETS.items():
            looks = figures("second_look_curve")[name]["looks"]
            times = [one["CPU ms"] for one in looks.values()]
            gains = [one["KILT-accuracy"][1][0] for one in looks.values()]
            axes.plot(times, gains, marker="o", label=label)
            for count, time, gain in zip(looks, times, gains, strict=True):
                axes.annotate(count, (time, gain), textcoords="offset points", xytext=(4, -9), fontsize="x-small")
        axes.set_xlabel("CPU milliseconds a query; at each point the phrases judged")
        axes.set_ylabel("gain of KILT-accuracy, points")


if __name__ == "__main__":
    main()
