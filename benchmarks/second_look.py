"""Second look: measure what reranking gains and costs, by the number of phrases that it judges.

    python benchmarks/second_look.py NAME=KB:GOLD.jsonl … [--looks 0 1 2 3 5 10 20]
        [--sample 2000] [--model MODEL] [--name second_look]

Each number of looks is compared with the first one, query by query.
"""

import time

import reporting
from measuring import DataSet, Records, arguments, interval, predicted, records_of

from kbq.kb import KnowledgeBase
from kbq.kilt.scores import Scores

SCORES = ("em", "KILT-accuracy", "Rprec")


def main() -> None:
    options = arguments(
        __doc__,
        sets=[DataSet.of],
        looks=(0, 1, 2, 3, 5, 10, 20),
        sample=0,
        model=None,
        name="second_look",
    )

    def measured(one: DataSet) -> dict[str, object]:
        records = records_of(one.gold, options.sample)
        kb = KnowledgeBase.open(one.kb, options.model)
        return {"queries": len(records), "looks": judged(kb, records, options.looks)}

    reporting.write_sets(options.name, options.sets, measured)


def judged(kb: KnowledgeBase, records: Records, looks: list[int]) -> dict[str, dict[str, object]]:
    """Return scores, gains and CPU milliseconds of a query, by the number of phrases judged."""
    predicted(kb, records[:64], rerank=max(looks))  # opens everything
    found: dict[str, dict[str, object]] = {}
    before: Scores | None = None
    for count in looks:
        begun = time.process_time()
        scores = predicted(kb, records, rerank=count)
        milliseconds = 1000 * (time.process_time() - begun) / len(records)
        before = before or scores
        found[str(count)] = {"CPU ms": round(milliseconds, 1)}
        for name in SCORES:
            column = scores.column(name)
            found[str(count)][name] = [interval(column), interval(column - before.column(name))]
    return found


if __name__ == "__main__":
    main()
