"""Fill: count how many cells of a gold table are filled, how many of them rightly, and how fast.

    python benchmarks/fill.py KB GOLD.jsonl [--subjects 1000] [--wide 40] [--timed 30] [--name fill]

Gold cells are asked for with every value that is found, and thresholds are applied afterwards. They
are asked again without three in ten of the pages that answer them, whose cells are then rightly
empty. At last every relation is asked for some of the subjects. Gold data are incomplete: a right
value that is not gold counts as wrong.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, cpu_seconds
from trust import is_hidden

from kbq.dump.page_directory import Pages
from kbq.kb import KnowledgeBase
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.tables.claims import Claim
from kbq.tables.scoring import ValueSets, compared, read_value_sets, scores_of
from kbq.tables.tables import read_table
from kbq.text.normal_forms import normalised
from kbq.text.queries import slot_of
from kbq.tuning.triples import pages_of, read_triples

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SCORES = ("coverage", "precision", "recall", "f1", "micro_precision", "micro_recall", "micro_f1")
EVERY_VALUE: dict[str, Any] = {"min_probability": 0.0, "values": "many", "top": 0}
HIDDEN, SEED = 0.3, 7


def main() -> None:
    options = arguments(__doc__, kb=Path, gold=Path, subjects=1000, wide=40, timed=30, name="fill")
    kb = KnowledgeBase.open(options.kb)
    pages = {
        slot_of(gold.input or "") or ("", ""): pages_of(gold) for gold in read_triples(options.gold)
    }
    subjects, relations = (sorted(set(names)) for names in zip(*pages, strict=True))
    chosen = random.Random(SEED).sample(subjects, min(options.subjects, len(subjects)))
    asked = {subject: {relation for own, relation in pages if own == subject} for subject in chosen}
    gold = {
        key: values
        for key, values in read_value_sets(options.gold).items()
        if key[0] in set(map(normalised, chosen))
    }
    lost = {
        key(*slot)
        for slot, found in pages.items()
        if found and all(is_hidden(page, HIDDEN) for page in found)
    }
    hidden = {page for found in pages.values() for page in found if is_hidden(page, HIDDEN)}
    left = kb.with_pages([page for page in Pages(kb.searcher.shards).ids() if page not in hidden])
    promised = promise(kb)
    known = claims_of(kb, asked, relations)
    wide = claims_of(kb, {subject: set(relations) for subject in chosen[: options.wide]}, relations)
    every = {key(subject, relation) for subject in chosen[: options.wide] for relation in relations}
    figures: dict[str, object] = {
        "gold cells": len(gold),
        "of these, without their pages": len(lost & set(gold)),
        "threshold of 0.9": promised,
        "all pages": curves(known, gold, promised),
        "by relation, at 0.5": by_relation(known, gold),
        "without three in ten": curves(
            claims_of(left, asked, relations),
            {key: [] if key in lost else gold[key] for key in gold},
            promised,
        ),
        "all relations": {
            "cells": len(every),
            "gold cells": len(every & set(gold)),
            **curves(wide, {slot: gold.get(slot, []) for slot in every}, promised),
        },
        "cells per CPU second": timed(kb, chosen[: options.timed], relations[:10]),
    }
    reporting.write(options.name, figures, [options.kb, options.gold], SEED)


def promise(kb: KnowledgeBase) -> float:
    """Return the threshold above which the calibration promises that nine in ten values are right."""
    calibration = kb.searcher.plan(SearchOptions(purpose="cell")).calibration
    return round(float((calibration and calibration.thresholds["0.9"]) or 1.0), 4)


def key(subject: str, relation: str) -> tuple[str, str]:
    return normalised(subject), normalised(relation)


def cells_of(gold: ValueSets, relation: str) -> ValueSets:
    """Return the cells of one relation."""
    return {slot: values for slot, values in gold.items() if slot[1] == normalised(relation)}


def is_right(claim: Claim, values: Sequence[Sequence[str]]) -> bool:
    return compared([(claim.value,)], values).matched > 0


def asked_in(gold: Path) -> dict[str, set[str]]:
    """Return the relations asked of each subject in a table of triples."""
    asked: dict[str, set[str]] = defaultdict(set)
    for row in read_table(gold).rows:
        asked[row["subject"]].add(row["relation"])
    return asked


def claims_of(
    kb: KnowledgeBase, asked: Mapping[str, set[str]], relations: Sequence[str], **options: Any
) -> Sequence[Claim]:
    """Return the claims for the cells that are asked for; the other cells have a value already."""
    rows = [
        {"subject": subject}
        | {relation: "" if relation in wanted else "known" for relation in relations}
        for subject, wanted in asked.items()
    ]
    return kb.fill(rows, relations, **options or EVERY_VALUE).claims


def best_of(claims: Sequence[Claim]) -> dict[tuple[str, str], Claim]:
    """Return the likeliest claim of each cell."""
    best: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        best.setdefault(key(claim.subject, claim.relation), claim)
    return best


def curves(claims: Sequence[Claim], gold: ValueSets, promised: float) -> dict[str, object]:
    """Return scores by threshold, with one value of a cell and with many."""
    found: dict[str, object] = {}
    for name, many in (("one value", False), ("many values", True)):
        found[name] = by_threshold = {}
        for least in (*THRESHOLDS, promised):
            scores = scores_of(predicted(claims, least, many), gold).all
            by_threshold[str(least)] = {score: round(getattr(scores, score), 4) for score in SCORES}
    return found


def by_relation(claims: Sequence[Claim], gold: ValueSets) -> dict[str, object]:
    """Return cells, the share filled with one value, and the share of right ones, the worst
    relations first.
    """
    scores = scores_of(predicted(claims, 0.5, False), gold).by_relation
    rows = {
        name: [one.slots, round(one.coverage, 4), round(one.micro_precision, 4)]
        for name, one in scores.items()
    }
    return dict(sorted(rows.items(), key=lambda row: row[1][2]))


def predicted(claims: Sequence[Claim], least: float, many: bool) -> ValueSets:
    """Return the values of each cell that have at least this probability."""
    values: ValueSets = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for claim in claims:
        slot = key(claim.subject, claim.relation)
        if (many or slot not in seen) and (claim.probability or 0.0) >= least:
            values[slot].append((claim.value,))
        seen.add(slot)
    return values


def timed(kb: KnowledgeBase, subjects: Sequence[str], relations: Sequence[str]) -> dict[str, float]:
    """Return cells per CPU second, as a table and as queries in batches and one by one, with and
    without reranking.
    """
    queries = [f"{subject} [SEP] {relation}" for subject in subjects for relation in relations]
    rows = [{"subject": subject} for subject in subjects]
    found: dict[str, float] = {}
    for name, n_reranked in (("with a second look", None), ("without", 0)):
        works = {
            "table": partial(kb.fill, rows, relations, min_probability=0.0, rerank=n_reranked),
            "queries in batches": partial(kb.query, queries, k=N_RERANKED, rerank=n_reranked),
            "one by one": lambda n_reranked=n_reranked: [
                kb.query(query, k=N_RERANKED, rerank=n_reranked) for query in queries
            ],
        }
        found |= {
            f"{way}, {name}": round(len(queries) / cpu_seconds(work), 2)
            for way, work in works.items()
        }
    return found


if __name__ == "__main__":
    main()
