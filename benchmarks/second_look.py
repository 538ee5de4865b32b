"""Second look: what judging the best phrases again gains, and what it costs, by how many are judged.

python benchmarks/second_look.py NAME=KB:GOLD.jsonl [NAME=…] [--looks 0 1 2 3 5 10 20] [--sample 2000] [--model MODEL]
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import reporting
from kilt import data_sets, sampled_records

from kbq.kb import KnowledgeBase
from kbq.kilt.analysis import bootstrap_interval
from kbq.kilt.metrics import Rules
from kbq.kilt.scores import Scores, score

SCORES = ("em", "KILT-accuracy", "Rprec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", metavar="NAME=KB:GOLD")
    parser.add_argument("--looks", type=int, nargs="+", default=[0, 1, 2, 3, 5, 10, 20])
    parser.add_argument("--sample", type=int, default=0, help="queries of each file, at random; 0: all")
    parser.add_argument("--model")
    parser.add_argument("--name", default="second_look")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    files: list[Path] = []
    for name, folder, gold in data_sets(options.sets):
        files += [folder, gold]
        records = sampled_records(gold, options.sample)
        kb = KnowledgeBase.open(folder, options.model)
        figures[name] = {"queries": len(records), "looks": judged(kb, records, options.looks)}
        print(name, figures[name], flush=True)
    reporting.write(options.name, figures, files)


def judged(
    kb: KnowledgeBase, records: Sequence[Mapping[str, Any]], looks: Sequence[int]
) -> dict[str, dict[str, object]]:
    """By how many phrases are judged: scores in percent with their intervals, and CPU milliseconds of a query."""
    kb.predict(records[:64], "slot_filling", rerank=max(looks))  # opens everything
    found: dict[str, dict[str, object]] = {}
    before: Scores | None = None
    for count in looks:
        begun = time.process_time()
        predictions = kb.predict(records, "slot_filling", rerank=count)
        milliseconds = 1000 * (time.process_time() - begun) / len(records)
        scores = score(predictions, records, rules=Rules(rouge=False))
        before = before or scores
        found[str(count)] = {"CPU ms": round(milliseconds, 1)}
        for name in SCORES:
            gains = scores.column(name) - before.column(name)
            found[str(count)][name] = [percent(scores.column(name)), percent(gains)]
    return found


def percent(column: Any) -> list[float]:
    """The mean and the ends of its 95 % confidence interval."""
    interval = bootstrap_interval(column)
    return [round(100 * value, 2) for value in (interval.mean, interval.low, interval.high)]


if __name__ == "__main__":
    main()
