"""Fill: how many cells of T-REx's table are filled, how many rightly, and how fast.

python benchmarks/fill.py KB GOLD.jsonl [--subjects 300] [--relations 28] [--wide 40] [--timed 30]

Gold cells are asked for once, with every value that is found; thresholds are applied afterwards. T-REx does not know all
that is true: a value that is right, but not in T-REx, counts as wrong.
"""

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import reporting

from kbq.answers import LOOKS, SearchOptions
from kbq.filling.claims import Claim
from kbq.filling.scoring import SetScores, scores_of
from kbq.filling.tables import read_table
from kbq.filling.value_sets import ValueSets, read_value_sets
from kbq.filling.values import normalised
from kbq.kb import KnowledgeBase
from kbq.special_tokens import slot_of

THRESHOLDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("gold", type=Path)
    parser.add_argument("--subjects", type=int, default=300, help="whose gold cells are asked for")
    parser.add_argument("--wide", type=int, default=40, help="subjects of which all relations are asked for")
    parser.add_argument("--timed", type=int, default=30, help="subjects of which ten relations are timed")
    options = parser.parse_args()
    kb = KnowledgeBase.open(options.kb)
    slots = [slot for row in read_table(options.gold).rows if (slot := slot_of(row["input"]))]
    subjects = sorted({subject for subject, _ in slots})
    chosen = random.Random(SEED).sample(subjects, options.subjects)
    relations = sorted({relation for _, relation in slots})
    of_subject = defaultdict(list)
    for subject, relation in slots:
        of_subject[subject].append(relation)

    claims = [claim for subject in chosen for claim in filled(kb, [subject], of_subject[subject])]
    wanted = {normalised(subject) for subject in chosen}
    gold = {slot: values for slot, values in read_value_sets(options.gold).items() if slot[0] in wanted}
    promised = promise(kb)
    wide = filled(kb, chosen[: options.wide], relations)
    figures: dict[str, object] = {
        "gold cells": len(gold),
        "one value": {str(least): scored(claims, gold, least, False) for least in (*THRESHOLDS, promised)},
        "many values": {str(least): scored(claims, gold, least, True) for least in (*THRESHOLDS, promised)},
        "threshold of 0.9": promised,
        "all relations": {
            "cells": options.wide * len(relations),
            "filled": {str(least): best_above(wide, least) for least in (0.5, promised)},
        },
        "cells per CPU second": timed(kb, chosen[: options.timed], relations[:10]),
    }
    reporting.write("fill", figures, [options.kb, options.gold], SEED)


def promise(kb: KnowledgeBase) -> float:
    """The threshold above which nine in ten are promised to be right."""
    calibration = kb.calibration(SearchOptions())
    return round(float((calibration and calibration.thresholds["0.9"]) or 1.0), 4)


def filled(kb: KnowledgeBase, subjects: Sequence[str], relations: Sequence[str]) -> Sequence[Claim]:
    """All values that are found for all cells."""
    rows = [{"subject": subject} for subject in subjects]
    return kb.fill(rows, relations, values="many", min_probability=0.0, top=0).claims


def scored(claims: Sequence[Claim], gold: ValueSets, least: float, many: bool) -> dict[str, float]:
    """The scores of a table whose cells have what is at least so likely."""
    predicted: ValueSets = defaultdict(list)
    firsts: set[tuple[str, str]] = set()
    for claim in claims:
        slot = normalised(claim.subject), normalised(claim.relation)
        if (many or slot not in firsts) and (claim.probability or 0.0) >= least:
            predicted[slot].append((claim.value,))
        firsts.add(slot)
    return rounded(scores_of(predicted, gold).all)


def rounded(scores: SetScores) -> dict[str, float]:
    names = ("coverage", "precision", "recall", "f1", "micro_precision", "micro_recall", "micro_f1")
    return {name: round(getattr(scores, name), 4) for name in names}


def best_above(claims: Sequence[Claim], least: float) -> int:
    """How many cells have a best value that is at least so likely."""
    bests: dict[tuple[str, str], float] = {}
    for claim in claims:
        bests.setdefault((claim.subject, claim.relation), claim.probability or 0.0)
    return sum(best >= least for best in bests.values())


def timed(kb: KnowledgeBase, subjects: Sequence[str], relations: Sequence[str]) -> dict[str, float]:
    """Cells per CPU second, by a table and one query after another, with a second look and without."""
    queries = [f"{subject} [SEP] {relation}" for subject in subjects for relation in relations]
    rows = [{"subject": subject} for subject in subjects]
    found: dict[str, float] = {}
    for name, looks in (("with a second look", None), ("without", 0)):

        def table(looks: int | None = looks) -> None:
            kb.fill(rows, relations, min_probability=0.0, second_look=looks)

        def singly(looks: int | None = looks) -> None:
            for query in queries:
                kb.query(query, k=LOOKS, second_look=looks)

        for way, work in (("table", table), ("one by one", singly)):
            found[f"{way}, {name}"] = round(len(queries) / cpu_seconds(work), 2)
    return found


def cpu_seconds(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
