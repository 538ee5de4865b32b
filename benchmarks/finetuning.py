"""Finetuning: tune the query encoder on 100, 1,000, 5,000 … triples, and score it as KILT does.

    python benchmarks/finetuning.py KB TRAIN.jsonl GOLD.jsonl WORK SIZE[:SEED] … [--task trex]
        [--without P140,P264] [--objective auto] [--epochs 3] [--recipe kbq] [--vectors rows]
        [--searched compact] [--ways] [--name finetuning]

A run of size 0 is the encoder as it is. `--without` leaves these relations out of TRAIN and asks
GOLD for no others. `--ways` scores with words and reranking, too, and adds the mean and the spread
of the seeds of each size. `--recipe paper` tunes by the paper's protocol: a random sample, 10
epochs, k = 100, batches of 12, Eq. 11 over what the search found, nothing kept. `--vectors codes`
tunes on what the codes of KB's index stand for. `--searched compact` searches this index of KB
while it tunes, as the paper searches cells of codes; scores are of exact search then.

WORK keeps finished runs, which are not run again; two processes may share it. The best epoch is
chosen on a part of TRAIN, never on GOLD.
"""

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import reporting
from measuring import (
    Records,
    arguments,
    folder_of_runs,
    intervals,
    predicted,
    records_of,
    write_records,
)

from kbq.kb import KnowledgeBase
from kbq.kilt.scores import Scores
from kbq.tuning.settings import PAPER_TUNING, FinetuningSettings

WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vectors", {"backend": "dense", "rerank": 0}),
    ("with words", {"backend": "hybrid", "rerank": 0}),
    ("with words, reranked", {"backend": "hybrid", "rerank": 10}),
)


def main() -> None:
    options = arguments(
        __doc__, kb=Path, train=Path, gold=Path, work=Path, runs=[str], task="trex", name="finetuning", without="",
        objective="auto", epochs=0, ways=False, recipe="kbq", vectors="rows", searched="",
    )  # fmt: skip
    folder_of_runs(options, "runs", "ways", "recipe", "vectors", "searched")
    relations = {name for name in options.without.split(",") if name}
    train, gold = options.train, records_of(options.gold)
    if relations:
        others = [
            record for record in records_of(train) if record["meta"]["relation"] not in relations
        ]
        train = write_records(options.work / "train-without.jsonl", others)
        gold = [record for record in gold if record["meta"]["relation"] in relations]
    figures: dict[str, object] = {"objective": options.objective, "without": sorted(relations)}
    for name in options.runs:
        size, _, seed = name.partition(":")
        done = (
            options.work
            / f"run-{run_name(options, size, seed or 0)}{'-ways' if options.ways else ''}.json"
        )
        figures[name] = once(
            done, lambda size=size, seed=seed: outcome(options, train, gold, size, int(seed or 0))
        )
    if options.ways:
        figures["seeds"] = spread(figures)
    reporting.write(options.name, figures, [options.kb, options.train, options.gold])


def outcome(
    options: argparse.Namespace, train: Path, gold: Records, size: str, seed: int
) -> dict[str, object]:
    """Tune on so many queries, or on `all`, predict and score."""
    kb = KnowledgeBase.open(options.kb, index="exact" if options.searched else None)
    count = 0
    if size != "0":
        model, examples = (
            options.work / f"model-{run_name(options, size, seed)}",
            0 if size == "all" else int(size),
        )
        settings = asdict(
            PAPER_TUNING
            if options.recipe == "paper"
            else FinetuningSettings(objective=options.objective)
        )
        settings |= {"seed": seed, "vectors": options.vectors} | (
            {"epochs": options.epochs} if options.epochs else {}
        )
        searched = kb
        if options.searched:
            searched = KnowledgeBase.open(options.kb, index=options.searched)
        count = tuned(searched, train, model, task=options.task, examples=examples, **settings)
        kb = kb.with_model(model)
    found: dict[str, object] = {"queries tuned on": count}
    for label, way in WAYS if options.ways else WAYS[:1]:
        scores = predicted(kb, gold, options.task, **way)
        found |= (
            {label: intervals(scores)}
            if options.ways
            else intervals(scores) | {"by relation": by_relation(scores)}
        )
    return found


def run_name(options: argparse.Namespace, size: str, seed: int | str) -> str:
    """Return what a run is called in WORK."""
    kind = options.recipe
    if options.vectors != "rows":
        kind += f"-{options.vectors}"
    if options.searched:
        kind += f"-{options.searched}"
    return f"{kind}-{size}-{seed}"


def spread(figures: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return mean and standard deviation of KILT-accuracy over the seeds of each size, for each way
    to search.
    """
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, row in figures.items():
        for label, _ in WAYS:
            if isinstance(row, dict) and label in row:
                rows[name.partition(":")[0]][label].append(row[label]["KILT-accuracy"][0])
    return {
        size: {
            label: [round(mean(values), 2), round(stdev(values), 2)]
            for label, values in ways.items()
        }
        for size, ways in rows.items()
        if all(len(values) > 1 for values in ways.values())
    }


def tuned(kb: KnowledgeBase, train: Path, out: Path, **settings: Any) -> int:
    """Tune a query encoder, and return the number of queries that it was tuned on."""
    shutil.rmtree(out, ignore_errors=True)
    return kb.finetune(train, out, note=print, **settings).reach.queries


def by_relation(scores: Scores) -> dict[str, tuple[int, float]]:
    """Return the number of queries of each relation, and their KILT-accuracy in percent."""
    groups: dict[str, list[float]] = defaultdict(list)
    for group, value in zip(scores.groups, scores.column("KILT-accuracy"), strict=True):
        groups[group].append(value)
    return {
        group: (len(values), round(100 * sum(values) / len(values), 1))
        for group, values in sorted(groups.items())
    }


def once(path: Path, make: Callable[[], object]) -> Any:
    """Return the content of a JSON file, after making it if it is missing."""
    if not path.exists():
        path.write_text(json.dumps(make()), "utf-8")
    return json.loads(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
