"""KILT: predict data sets with a knowledge base and score them as the leaderboard does, with confidence intervals.

python benchmarks/kilt.py KB TASK:GOLD.jsonl [TASK:GOLD.jsonl …] --name kilt_trex [--backend hybrid] [--sample 2000]
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import reporting

from kbq.answers import Backend
from kbq.kb import KnowledgeBase
from kbq.kilt.analysis import bootstrap_interval
from kbq.kilt.metrics import Rules
from kbq.kilt.scores import score
from kbq.storage.lines import read_lines

SCORES = ("accuracy", "em", "f1", "Rprec", "recall@5", "KILT-accuracy", "KILT-f1")


def judged(gold: Path, predictions: Path) -> dict[str, object]:
    """Percentages, each with the ends of its 95 % confidence interval: mean, from, to."""
    scores = score(predictions, gold, rules=Rules(rouge=False))
    figures: dict[str, object] = {"queries": len(scores.ids)}
    for name in SCORES:
        interval = bootstrap_interval(scores.column(name))
        figures[name] = [round(100 * value, 2) for value in (interval.mean, interval.low, interval.high)]
    return figures


def sampled(gold: Path, most: int, folder: Path) -> Path:
    """The gold file, or a seeded sample of its lines where it has more than `most`."""
    lines = sampled_lines(gold, most)
    part = folder / f"{gold.name.split('.')[0]}.jsonl"
    part.write_text("\n".join(lines) + "\n", "utf-8")
    return part


def data_sets(items: Iterable[str]) -> Iterator[tuple[str, Path, Path]]:
    """Of each NAME=KB:GOLD: the name, the folder of the knowledge base, and the gold file."""
    for item in items:
        name, _, place = item.partition("=")
        folder, _, gold = place.partition(":")
        yield name, Path(folder), Path(gold)


def sampled_records(gold: Path, most: int) -> list[dict[str, Any]]:
    """The gold records, or a seeded sample of them where there are more than `most`."""
    return [json.loads(line) for line in sampled_lines(gold, most)]


def sampled_lines(gold: Path, most: int) -> list[str]:
    """The lines of a gold file, or a seeded sample of them where there are more than `most`; 0: all."""
    lines = [line for _, line in read_lines(str(gold)) if line.strip()]
    return lines if not most or len(lines) <= most else random.Random(0).sample(lines, most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("gold", nargs="+", metavar="TASK:GOLD")
    parser.add_argument("--model")
    parser.add_argument("--backend", choices=get_args(Backend), default="dense")
    parser.add_argument("--bm25-weight", type=float)
    parser.add_argument("--sparta-weight", type=float)
    parser.add_argument("--reader", help="a question-answering checkpoint that reads what is found")
    parser.add_argument("--rerank", type=int, default=0, help="phrases that are reranked")
    parser.add_argument("--sample", type=int, default=0, help="queries of each file, at random; 0: all")
    parser.add_argument("--name", default="kilt")
    options = parser.parse_args()
    kb = KnowledgeBase.open(options.kb, options.model)
    weights = {"bm25_weight": options.bm25_weight, "sparta_weight": options.sparta_weight}
    figures: dict[str, object] = {"model": kb.manifest.model_fingerprint}
    files = []
    with tempfile.TemporaryDirectory() as temporary:
        for task, _, path in (item.partition(":") for item in options.gold):
            files.append(Path(path))
            gold = sampled(Path(path), options.sample, Path(temporary))
            begun = time.perf_counter()
            out = Path(temporary) / f"{gold.name.split('.')[0]}-predictions.jsonl"
            looks = None if options.reader else options.rerank
            kb.predict(gold, task, out, backend=options.backend, reader=options.reader, rerank=looks, **weights)
            seconds = round(time.perf_counter() - begun, 1)
            figures[gold.name.split(".")[0]] = judged(gold, out) | {"seconds to predict": seconds}
    reporting.write(options.name, figures, [options.kb, *files])


if __name__ == "__main__":
    main()
