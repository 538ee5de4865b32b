"""Merging: two query encoders, each tuned on half of the relations, become one: what it keeps of both.

python benchmarks/merging.py KB TRAIN.jsonl DEV.jsonl NAME=KB:GOLD.jsonl [NAME=…] --work FOLDER [--queries 1000]

Relations go to the halves by turns, the most frequent first. The dev queries of either half, and every NAME, are asked
of the untuned encoder, of both tuned ones, and of the merged one, with the words of the knowledge base, without and
with reranking. What lies in --work is not made again.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import reporting
from forgetting import SCORES, once
from kilt import data_sets, sampled_records

from kbq.kb import KnowledgeBase
from kbq.kilt.metrics import Rules
from kbq.kilt.scores import score
from kbq.text.markers import slot_of
from kbq.tuning.finetune import finetune
from kbq.tuning.merge_models import merge_models

HALVES, MERGED = ("a", "b"), "merged"
Records = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("sets", nargs="*", metavar="NAME=KB:GOLD")
    parser.add_argument("--queries", type=int, default=1000, help="that each is tuned on")
    parser.add_argument("--sample", type=int, default=500, help="queries of each set")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--name", default="merging")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    halves = by_half(sampled_records(options.train, 0))
    for half in HALVES:
        out, triples = options.work / half, options.work / f"{half}.jsonl"
        triples.write_text("".join(json.dumps(record) + "\n" for record in halves[half]), "utf-8")
        if not out.exists():
            finetune(KnowledgeBase.open(options.kb), triples, out, task="trex", examples=options.queries, note=print)
    if not (options.work / MERGED).exists():
        merge_models([options.work / half for half in HALVES], options.work / MERGED)
    relations = {half: {relation_of(record) for record in halves[half]} for half in HALVES}
    figures = {"queries": options.queries, "relations": {half: sorted(relations[half]) for half in HALVES}}
    for name in ("untuned", *HALVES, MERGED):
        model = None if name == "untuned" else options.work / name
        figures[name] = once(options.work / f"{name}.json", lambda model=model: asked(options, model, relations))
        print(name, figures[name], flush=True)
    files = [path for _, folder, gold in data_sets(options.sets) for path in (folder, gold)]
    reporting.write(options.name, figures, [options.kb, options.train, options.dev, *files])


def by_half(records: Records) -> dict[str, Records]:
    """The records of each half of the relations."""
    groups: dict[str, Records] = defaultdict(list)
    for record in records:
        groups[relation_of(record)].append(record)
    ordered = sorted(groups, key=lambda relation: -len(groups[relation]))
    return {
        half: [record for relation in ordered[number :: len(HALVES)] for record in groups[relation]]
        for number, half in enumerate(HALVES)
    }


def relation_of(record: dict[str, Any]) -> str:
    return (slot_of(record["input"]) or ("", ""))[1]


def asked(options: argparse.Namespace, model: Path | None, relations: dict[str, set[str]]) -> dict[str, object]:
    """By second look and data set: the means of the scores, in percent."""
    dev = sampled_records(options.dev, 0)
    asked_of = [
        (f"half {half}", options.kb, [one for one in dev if relation_of(one) in relations[half]]) for half in HALVES
    ]
    asked_of += [
        (name, folder, sampled_records(gold, options.sample)) for name, folder, gold in data_sets(options.sets)
    ]
    found: dict[str, dict[str, object]] = {"second look 0": {}, "second look 10": {}}
    for name, folder, records in asked_of:
        kb = KnowledgeBase.open(folder, None if model is None else str(model))
        for looks, by_set in zip((0, 10), found.values(), strict=True):
            scores = score(kb.predict(records, "slot_filling", rerank=looks), records, rules=Rules(rouge=False))
            by_set[name] = {each: round(100 * float(scores.column(each).mean()), 2) for each in SCORES}
    return dict(found)


if __name__ == "__main__":
    main()
