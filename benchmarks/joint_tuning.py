"""Joint tuning: tune one query encoder for several tasks, beside one for each task alone.

    python benchmarks/joint_tuning.py KB WORK NAME=TASK:TRAIN.jsonl:GOLD.jsonl …
    [--examples 1000] [--sample 500] [--name joint_tuning]

Each encoder answers the queries of all tasks, with words beside the vectors and without reranking.
WORK keeps finished runs, which are not run again. Source: arXiv 2109.08133, section 5.
"""

import argparse
import re
from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import reporting
from finetuning import once
from measuring import arguments, folder_of_runs, interval, predicted, records_of

from kbq.kb import KnowledgeBase

Columns = dict[str, list[float]]  # by task: the KILT-accuracy of each query


class TuningTask(NamedTuple):
    """A task with triples to tune on and queries to judge by, given as NAME=TASK:TRAIN:GOLD."""

    name: str
    task: str
    train: Path
    gold: Path

    @classmethod
    def of(cls, text: str) -> "TuningTask":
        found = re.fullmatch(r"([^=]+)=([^:]+):([^:]+):(.+)", text)
        if not found:
            raise ArgumentTypeError(f"{text!r} is not NAME=TASK:TRAIN:GOLD")
        return cls(found[1], found[2], Path(found[3]), Path(found[4]))


def main() -> None:
    options = arguments(
        __doc__, kb=Path, work=Path, tasks=[TuningTask.of], examples=1000, sample=500,
        name="joint_tuning",
    )  # fmt: skip
    folder_of_runs(options)
    before = once(options.work / "asked-before.json", partial(asked, options, None))
    figures: dict[str, Any] = {"before": compared(before, before)}
    alone = {f"{one.name} alone": [one] for one in options.tasks}
    for label, together in (alone | {"together": options.tasks}).items():
        model = options.work / label.replace(" ", "-")
        count = once(options.work / f"{model.name}.json", partial(tuned, options, together, model))
        after = once(options.work / f"asked-{model.name}.json", partial(asked, options, model))
        figures[label] = {"queries tuned on": count} | compared(after, before)
        print(reporting.table({label: figures[label]}), flush=True)
    files = [path for one in options.tasks for path in one[2:]]
    reporting.write(options.name, figures, [options.kb, *files])


def tuned(options: argparse.Namespace, tasks: list[TuningTask], out: Path) -> int:
    """Tune a query encoder on these tasks, and return the number of queries it was tuned on."""
    kb = KnowledgeBase.open(options.kb)
    files = [f"{one.train}:{one.task}" for one in tasks]
    outcome = kb.finetune(files, out, examples=options.examples, note=print)
    return outcome.reach.queries


def asked(options: argparse.Namespace, model: Path | None) -> Columns:
    """Ask the queries of all tasks, with one query encoder."""
    kb = KnowledgeBase.open(options.kb, model)
    columns = {}
    for one in options.tasks:
        records = records_of(one.gold, options.sample)
        scores = predicted(kb, records, one.task, rerank=0)
        columns[one.name] = scores.column("KILT-accuracy").tolist()
    return columns


def compared(after: Columns, before: Columns) -> dict[str, dict[str, object]]:
    """Return, by task, KILT-accuracy and its gain with a 95 % confidence interval, in percent."""
    rows = {}
    for name, values in after.items():
        gain = interval(np.array(values) - np.array(before[name]))
        share = round(100 * float(np.mean(values)), 2)
        rows[name] = {"queries": len(values), "KILT-accuracy": [share, *gain]}
    return rows


if __name__ == "__main__":
    main()
