"""Finetuning: what 100, 1,000, 5,000 … triples teach the query encoder, scored as KILT does.

    python benchmarks/finetuning.py KB TRAIN.jsonl GOLD.jsonl --task trex --work FOLDER --runs 0 1000 5000:1 5000:2 all

A run is SIZE or SIZE:SEED; 0 is the encoder as it is. `--without P140,P264` leaves these relations out of TRAIN and
asks GOLD for nothing else. Finished runs lie in --work and are not run again; two processes may share it. The best
epoch is chosen on a part of TRAIN, never on GOLD.
"""

import argparse
import json
import resource
import shutil
import time
from collections import defaultdict
from pathlib import Path

import reporting
from kilt import judged

from kbq.kb import KnowledgeBase
from kbq.kilt.lines import write_lines
from kbq.kilt.metrics import Rules
from kbq.kilt.scores import score
from kbq.kilt.task import Task
from kbq.storage.files import run_file
from kbq.storage.lines import read_json_lines
from kbq.tuning.settings import FinetuningSettings


def by_relation(gold: Path, predictions: Path) -> dict[str, tuple[int, float]]:
    """How many queries each relation has, and their KILT-accuracy in percent."""
    scores = score(predictions, gold, rules=Rules(rouge=False))
    groups: dict[str, list[float]] = defaultdict(list)
    for group, value in zip(scores.groups, scores.column("KILT-accuracy"), strict=True):
        groups[group].append(value)
    return {group: (len(values), round(100 * sum(values) / len(values), 1)) for group, values in sorted(groups.items())}


def split_relations(path: Path, relations: set[str], keep: bool, folder: Path) -> Path:
    """The queries whose relation is (`keep`) or is not among `relations`; all of them where there are none."""
    if not relations:
        return path
    records = (record for _, record in read_json_lines(str(path)))
    kept = (record for record in records if (record["meta"]["relation"] in relations) == keep)
    part = folder / f"{path.name.split('.')[0]}-{'only' if keep else 'without'}.jsonl"
    write_lines(part, (json.dumps(record, ensure_ascii=False) for record in kept))
    return part


def run(options: argparse.Namespace, task: Task, train: Path, gold: Path, size: str, seed: int) -> dict[str, object]:
    """Tune with `size` queries, or `all` of them, predict and score; with 0 nothing is tuned."""
    model = options.work / f"model-{size}-{seed}"
    facts: dict[str, object] = {}
    tuned = size != "0"
    if tuned:
        shutil.rmtree(model, ignore_errors=True)
        begun, cpu = time.perf_counter(), time.process_time()
        outcome = KnowledgeBase.open(options.kb).finetune(
            train, model, task=task, examples=0 if size == "all" else int(size),
            objective=options.objective, epochs=options.epochs, batch=options.batch,
            learning_rate=options.learning_rate, seed=seed, note=print,
        )  # fmt: skip
        facts = {
            "queries tuned on": outcome.reach.queries,
            "dev scores": outcome.scores,
            "steps": outcome.steps,
            "minutes": round((time.perf_counter() - begun) / 60, 1),
            "CPU seconds": round(time.process_time() - cpu),
            "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
    kb = KnowledgeBase.open(options.kb, str(model) if tuned else None)
    predictions = options.work / f"predictions-{size}-{seed}.jsonl"
    for old in (predictions, run_file(predictions)):
        old.unlink(missing_ok=True)
    kb.predict(gold, task, predictions, backend="dense", rerank=0)
    return judged(gold, predictions) | facts | {"by relation": by_relation(gold, predictions)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("kb", "train", "gold"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", required=True, metavar="SIZE[:SEED]")
    parser.add_argument("--name", help="of the results; without it they stay in --work")
    parser.add_argument("--without", default="", help="relations, such as P140,P264")
    defaults = FinetuningSettings()
    parser.add_argument("--objective", default="auto")
    parser.add_argument("--epochs", type=int, default=defaults.epochs)
    parser.add_argument("--batch", type=int, default=defaults.batch)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    relations = {name for name in options.without.split(",") if name}
    train = split_relations(options.train, relations, False, options.work)
    gold = split_relations(options.gold, relations, True, options.work)
    figures: dict[str, object] = {"objective": options.objective, "without": sorted(relations)}
    for name in options.runs:
        size, _, seed = name.partition(":")
        done = options.work / f"run-{size}-{seed or 0}.json"
        if not done.exists():
            outcome = run(options, Task.load(options.task), train, gold, size, int(seed or 0))
            done.write_text(json.dumps(outcome), "utf-8")
        figures[name] = json.loads(done.read_text("utf-8"))
    if options.name:
        reporting.write(options.name, figures, [options.kb, options.train, options.gold])


if __name__ == "__main__":
    main()
