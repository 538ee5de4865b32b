"""Forgetting: what a query encoder gains where it is tuned, and what it loses elsewhere.

    python benchmarks/forgetting.py KB TRAIN.jsonl NAME=KB:GOLD.jsonl [NAME=…] --work FOLDER --runs 5000:0 5000:0:0.5 …

A run is QUERIES:SEED, with perhaps :KEEP and :RATE behind them. Every NAME is asked before tuning and after, with the
words of its knowledge base, without and with reranking (--looks); the one called `linking` has mentions to link,
the others slots and questions. Finished runs lie in --work and are not run again; two processes may share it.
"""

import argparse
import json
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import reporting
from kilt import data_sets, sampled_records
from second_look import percent

from kbq.kb import KnowledgeBase
from kbq.kilt.metrics import Rules
from kbq.kilt.scores import score
from kbq.tuning.settings import FinetuningSettings

SCORES = ("KILT-accuracy", "em")
TASKS = {"linking": "entity_linking"}


def asked(options: argparse.Namespace, model: Path | None, looks: int) -> dict[str, dict[str, list[float]]]:
    """By data set and score: the value of each query."""
    columns = {}
    for name, folder, gold in data_sets(options.sets):
        records = sampled_records(gold, options.sample)
        kb = KnowledgeBase.open(folder, None if model is None else str(model))
        predictions = kb.predict(records, TASKS.get(name, "slot_filling"), rerank=looks)
        scores = score(predictions, records, rules=Rules(rouge=False))
        columns[name] = {each: scores.column(each).tolist() for each in SCORES}
    return columns


def tuned(
    options: argparse.Namespace, out: Path, examples: int, seed: int, keep: float, rate: float
) -> dict[str, object]:
    """Tune, and say what it cost."""
    shutil.rmtree(out, ignore_errors=True)
    begun = time.process_time()
    outcome = KnowledgeBase.open(options.kb).finetune(
        options.train, out, task=options.task, examples=examples, keep=keep, seed=seed, learning_rate=rate, note=print,
    )  # fmt: skip
    return {
        "triples": outcome.reach.queries,
        "dev": outcome.scores,
        "dev with words": outcome.hybrid_score,
        "answered as before": outcome.agreements,
        "steps": outcome.steps,
        "CPU seconds": round(time.process_time() - begun),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def once(path: Path, make: object) -> dict[str, object]:
    """What is in a file, made first if it is not there."""
    if not path.exists():
        path.write_text(json.dumps(make()), "utf-8")  # type: ignore[operator]
    found: dict[str, object] = json.loads(path.read_text("utf-8"))
    return found


def compared(after: dict[str, dict[str, list[float]]], before: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """By data set and score: the mean in percent, and the gain with its 95 % confidence interval."""
    rows: dict[str, object] = {}
    for name, columns in after.items():
        rows[name] = {"queries": len(columns[SCORES[0]])}
        for each, values in columns.items():
            gain = percent(np.array(values) - np.array(before[name][each]))
            rows[name][each] = [round(100 * float(np.mean(values)), 2), *gain]  # type: ignore[index]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=KB:GOLD")
    parser.add_argument("--task", default="slot_filling")
    parser.add_argument("--looks", type=int, nargs="+", default=[0, 10])
    parser.add_argument("--sample", type=int, default=0, help="queries of each file, at random; 0: all")
    parser.add_argument("--work", type=Path, required=True)
    usual = FinetuningSettings()
    parser.add_argument("--runs", nargs="+", required=True, metavar="QUERIES:SEED[:KEEP[:RATE]]")
    parser.add_argument("--name", help="of the results; without it they stay in --work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, object] = {}
    for look in options.looks:
        once(options.work / f"asked-{look}.json", lambda look=look: asked(options, None, look))
    for run in options.runs:
        numbers = run.split(":")
        keep, rate = (
            float(number) for number in (*numbers[2:], *(usual.keep, usual.learning_rate)[len(numbers) - 2 :])
        )
        out = options.work / f"model-{run}".replace(":", "-")
        work = (options, out, int(numbers[0]), int(numbers[1]), keep, rate)
        facts = once(options.work / f"{out.name}.json", lambda work=work: tuned(*work))
        figures[run] = {"keep": keep, "learning rate": rate} | facts
        for look in options.looks:
            before = once(options.work / f"asked-{look}.json", dict)
            after = once(
                options.work / f"{out.name}-asked-{look}.json", lambda out=out, look=look: asked(options, out, look)
            )
            figures[run][f"second look {look}"] = compared(after, before)  # type: ignore[index, arg-type]
        print(run, json.dumps(figures[run]), flush=True)
    if options.name:
        files = [path for _, folder, gold in data_sets(options.sets) for path in (folder, gold)]
        reporting.write(options.name, figures, [options.kb, options.train, *files])


if __name__ == "__main__":
    main()
