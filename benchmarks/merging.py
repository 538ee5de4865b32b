"""Merging: two query encoders, each tuned on half of the relations, become one, which keeps much of both.

    python benchmarks/merging.py KB TRAIN.jsonl DEV.jsonl WORK NAME=KB:GOLD.jsonl … [--queries 1000] [--sample 500]

Relations go to the halves by turns, the most frequent first. The dev queries of either half, and every NAME, are
asked of the untuned encoder, of both tuned ones, and of the merged one, with the words of the knowledge base, without
and with reranking. What lies in WORK is not made again.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import reporting
from finetuning import once, tuned
from forgetting import SCORES
from measuring import DataSet, Records, arguments, predicted, records_of, write_records

from kbq.kb import KnowledgeBase
from kbq.text.markers import slot_of
from kbq.tuning.merge_models import merge_models

HALVES, MERGED = ("a", "b"), "merged"


def main() -> None:
    options = arguments(__doc__, kb=Path, train=Path, dev=Path, work=Path, sets=[DataSet.of], queries=1000, sample=500)
    options.work.mkdir(parents=True, exist_ok=True)
    halves, relations = by_half(records_of(options.train)), {}
    for half in HALVES:
        relations[half] = {relation_of(record) for record in halves[half]}
        if not (options.work / half).exists():
            triples = write_records(options.work / f"{half}.jsonl", halves[half])
            tuned(KnowledgeBase.open(options.kb), triples, options.work / half, task="trex", examples=options.queries)
    if not (options.work / MERGED).exists():
        merge_models([options.work / half for half in HALVES], options.work / MERGED)
    figures: dict[str, Any] = {
        "queries": options.queries,
        "relations": {half: sorted(relations[half]) for half in HALVES},
    }
    for name in ("untuned", *HALVES, MERGED):
        model = None if name == "untuned" else options.work / name
        figures[name] = once(options.work / f"{name}.json", lambda model=model: asked(options, model, relations))
        print(name, figures[name], flush=True)
    files = [path for one in options.sets for path in one[1:]]
    reporting.write("merging", figures, [options.kb, options.train, options.dev, *files])


def by_half(records: Records) -> dict[str, Records]:
    """Divide records by their relations."""
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
    """Return the means of the scores by second look and data set, in percent."""
    dev = records_of(options.dev)
    sets = [
        (f"half {half}", options.kb, [one for one in dev if relation_of(one) in relations[half]]) for half in HALVES
    ]
    sets += [(one.name, one.kb, records_of(one.gold, options.sample)) for one in options.sets]
    found: dict[str, Any] = {"second look 0": {}, "second look 10": {}}
    for name, folder, records in sets:
        kb = KnowledgeBase.open(folder, model)
        for looks, by_set in zip((0, 10), found.values(), strict=True):
            scores = predicted(kb, records, rerank=looks)
            by_set[name] = {each: round(100 * float(scores.column(each).mean()), 2) for each in SCORES}
    return found


if __name__ == "__main__":
    main()
