"""Finetuning: tune the query encoder on 100, 1,000, 5,000 … triples, and score it as KILT does.

    python benchmarks/finetuning.py KB TRAIN.jsonl GOLD.jsonl WORK SIZE[:SEED] … [--task trex] [--without P140,P264]

A run of size 0 is the encoder as it is. `--without` leaves these relations out of TRAIN and asks GOLD for no others.
WORK keeps finished runs, which are not run again; two processes may share it. The best epoch is chosen on a part of
TRAIN, never on GOLD.
"""

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reporting
from measuring import Records, arguments, intervals, predicted, records_of, write_records

from kbq.kb import KnowledgeBase
from kbq.kilt.scores import Scores
from kbq.training.settings import FinetuningSettings


def main() -> None:
    usual = FinetuningSettings()
    options = arguments(
        __doc__, kb=Path, train=Path, gold=Path, work=Path, runs=[str], task="trex", name="finetuning", without="",
        objective="auto", epochs=usual.epochs,
    )  # fmt: skip
    options.work.mkdir(parents=True, exist_ok=True)
    relations = {name for name in options.without.split(",") if name}
    train, gold = options.train, records_of(options.gold)
    if relations:
        others = [record for record in records_of(train) if record["meta"]["relation"] not in relations]
        train = write_records(options.work / "train-without.jsonl", others)
        gold = [record for record in gold if record["meta"]["relation"] in relations]
    figures: dict[str, object] = {"objective": options.objective, "without": sorted(relations)}
    for name in options.runs:
        size, _, seed = name.partition(":")
        done = options.work / f"run-{size}-{seed or 0}.json"
        figures[name] = once(done, lambda size=size, seed=seed: outcome(options, train, gold, size, int(seed or 0)))
    reporting.write(options.name, figures, [options.kb, options.train, options.gold])


def outcome(options: argparse.Namespace, train: Path, gold: Records, size: str, seed: int) -> dict[str, object]:
    """Tune on so many queries, or on `all`, predict and score."""
    kb, count = KnowledgeBase.open(options.kb), 0
    if size != "0":
        model, examples = options.work / f"model-{size}-{seed}", 0 if size == "all" else int(size)
        count = tuned(
            kb, train, model, task=options.task, examples=examples, objective=options.objective,
            epochs=options.epochs, seed=seed,
        )  # fmt: skip
        kb = kb.with_model(model)
    scores = predicted(kb, gold, options.task, backend="dense", rerank=0)
    return intervals(scores) | {"queries tuned on": count, "by relation": by_relation(scores)}


def tuned(kb: KnowledgeBase, train: Path, out: Path, **settings: Any) -> int:
    """Tune a query encoder, and return the number of queries that it was tuned on."""
    shutil.rmtree(out, ignore_errors=True)
    return kb.finetune(train, out, note=print, **settings).reach.queries


def by_relation(scores: Scores) -> dict[str, tuple[int, float]]:
    """Return the number of queries of each relation, and their KILT-accuracy in percent."""
    groups: dict[str, list[float]] = defaultdict(list)
    for group, value in zip(scores.groups, scores.column("KILT-accuracy"), strict=True):
        groups[group].append(value)
    return {group: (len(values), round(100 * sum(values) / len(values), 1)) for group, values in sorted(groups.items())}


def once(path: Path, make: Callable[[], object]) -> Any:
    """Return the content of a JSON file, after making it if it is missing."""
    if not path.exists():
        path.write_text(json.dumps(make()), "utf-8")
    return json.loads(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
