"""Promise: count how often a calibration keeps the precision that it promises, on other queries.

    python benchmarks/promise.py NAME=KB:GOLD.jsonl [NAME=…] [--draws 200] [--seed 0]
        [--model MODEL]

A random half of the queries makes a calibration, as `kbq calibrate` does, and the other half is
answered with it. A promise is kept if at least that share of the answers above the threshold is
right.
"""

import tempfile
from pathlib import Path

import numpy as np
import reporting
from measuring import DataSet, arguments

from kbq.kb import KnowledgeBase
from kbq.reading.probability import Calibration, chances_of
from kbq.search.options import SearchOptions
from kbq.tuning.calibrate import JudgedAnswer, judge, write_calibration
from kbq.tuning.triples import GoldQuery, read_triples

PRECISIONS = ("0.9", "0.95")
RANGE = (0.05, 0.5, 0.95)  # quantiles of the draws


def main() -> None:
    options = arguments(__doc__, sets=[DataSet.of], draws=200, seed=0, model=None)
    with tempfile.TemporaryDirectory() as folder:

        def measured(one: DataSet) -> dict[str, object]:
            kb = KnowledgeBase.open(one.kb, options.model)
            golds = list(map(GoldQuery.of, read_triples(one.gold, unanswered=True)))
            answered = judge(kb.searcher, golds, SearchOptions(), hidden=0.0)
            return kept(
                kb, answered, options.draws, options.seed, Path(folder) / "calibration.json"
            )

        reporting.write_sets("promise", options.sets, measured)


def kept(
    kb: KnowledgeBase, answered: list[JudgedAnswer], draws: int, seed: int, path: Path
) -> dict[str, object]:
    """Return how often each precision was promised and kept, and the shares answered and right
    above the threshold.
    """
    numbers = np.random.default_rng(seed)
    rows = np.array([one.features for one in answered], np.float64)
    right = np.array([one.is_right for one in answered])
    found: dict[str, list[tuple[float, float]]] = {precision: [] for precision in PRECISIONS}
    for _ in range(draws):
        order = numbers.permutation(len(answered))
        learned, asked = np.split(order, [len(order) // 2])
        outcome = write_calibration(
            kb.searcher, [answered[number] for number in learned], path, SearchOptions(), {}
        )
        calibration = Calibration.read(path)
        chances = chances_of(rows[asked], list(calibration.weights.values()), calibration.intercept)
        for precision in PRECISIONS:
            threshold = outcome.thresholds[precision]
            above = chances >= (2.0 if threshold is None else threshold)
            if above.any():
                found[precision].append((float(above.mean()), float(right[asked][above].mean())))
    figures: dict[str, object] = {
        "queries": len(answered),
        "right": percent(float(right.mean())),
        "draws": draws,
    }
    for precision, pairs in found.items():
        columns = zip(*pairs, strict=True)
        ranges = [[percent(value) for value in np.quantile(column, RANGE)] for column in columns]
        figures[precision] = {
            "promised": len(pairs),
            "kept": sum(share >= float(precision) for _, share in pairs),
            **dict(zip(("answered", "right"), ranges, strict=False)),
        }
    return figures


def percent(share: float) -> float:
    return round(100 * share, 1)


if __name__ == "__main__":
    main()
