"""Forgetting: measure what a query encoder gains where it is tuned, and loses elsewhere.

    python benchmarks/forgetting.py KB TRAIN.jsonl WORK NAME=KB:GOLD.jsonl …
        [--runs 5000:0 5000:0:0] [--task slot_filling] [--looks 0 10] [--sample 2000]
        [--name forgetting]

A run is QUERIES:SEED, or QUERIES:SEED:KEEP for another `keep` than the usual one. Every NAME is
asked before tuning and after, with the words of its knowledge base, without and with reranking
(--looks). `linking` has mentions to link, the others have slots and questions. WORK keeps finished
runs, which are not run again; two processes may share it.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from finetuning import once, tuned
from measuring import DataSet, arguments, folder_of_runs, interval, predicted, records_of

from kbq.kb import KnowledgeBase
from kbq.tuning.settings import FinetuningSettings

SCORES = ("KILT-accuracy", "em")
TASKS = {"linking": "entity_linking"}
Columns = dict[str, dict[str, list[float]]]  # by data set and score: the value of each query


def main() -> None:
    options = arguments(
        __doc__, kb=Path, train=Path, work=Path, sets=[DataSet.of], runs=("5000:0",), task="slot_filling",
        looks=(0, 10), sample=0, name="forgetting",
    )  # fmt: skip
    folder_of_runs(options, "runs", "looks")
    figures: dict[str, Any] = {}
    for name in options.runs:
        size, seed, *others = name.split(":")
        keep = float(others[0]) if others else FinetuningSettings().keep
        model = options.work / f"model-{name}".replace(":", "-")
        tune = partial(
            tuned, KnowledgeBase.open(options.kb), options.train, model, task=options.task, examples=int(size),
            seed=int(seed), keep=keep,
        )  # fmt: skip
        figures[name] = {"keep": keep, "triples": once(model.with_suffix(".json"), tune)}
        for look in options.looks:
            before = once(options.work / f"asked-{look}.json", partial(asked, options, None, look))
            after = once(
                options.work / f"{model.name}-asked-{look}.json",
                partial(asked, options, model, look),
            )
            figures[name][f"second look {look}"] = compared(after, before)
        print(reporting.table({name: figures[name]}), flush=True)
    reporting.write(
        options.name,
        figures,
        [options.kb, options.train, *(path for one in options.sets for path in one[1:])],
    )


def asked(options: argparse.Namespace, model: Path | None, looks: int) -> Columns:
    """Ask the queries of all data sets, with one query encoder."""
    columns = {}
    for one in options.sets:
        kb = KnowledgeBase.open(one.kb, model)
        scores = predicted(
            kb,
            records_of(one.gold, options.sample),
            TASKS.get(one.name, "slot_filling"),
            rerank=looks,
        )
        columns[one.name] = {each: scores.column(each).tolist() for each in SCORES}
    return columns


def compared(after: Columns, before: Columns) -> dict[str, object]:
    """Return the mean and the gain with its 95 % confidence interval, in percent, by data set and
    score.
    """
    rows: dict[str, dict[str, object]] = {}
    for name, columns in after.items():
        rows[name] = {"queries": len(columns[SCORES[0]])}
        for each, values in columns.items():
            gain = interval(np.array(values) - np.array(before[name][each]))
            rows[name][each] = [round(100 * float(np.mean(values)), 2), *gain]
    return rows  # type: ignore[return-value]


if __name__ == "__main__":
    main()
