"""Unsaid: tables most of whose cells the text does not state: what is filled, how rightly, and what stays empty.

python benchmarks/unsaid.py NAME=KB:GOLD.jsonl [NAME=…] [--model MODEL] [--calibration FILE] [--name unsaid]

GOLD holds triples; a cell without an object is not stated (recipes/prepare_calibration.py, prepare_knowledgenet.py).
A guess in such a cell is wrong, whatever it is. Cells are filled as `kbq fill` does by default, one value each.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import reporting
from fill import key
from kilt import data_sets
from trust import rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, coverage_at, reliability
from kbq.tables.claims import Claim
from kbq.tables.scoring import compared
from kbq.tables.tables import read_table
from kbq.tables.value_sets import ValueSets, read_value_sets

USUAL = 0.5
PRECISIONS = (0.9, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", metavar="NAME=KB:GOLD")
    parser.add_argument("--model")
    parser.add_argument("--calibration")
    parser.add_argument("--name", default="unsaid")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    files: list[Path] = []
    for name, folder, gold in data_sets(options.sets):
        files += [folder, gold]
        kb = KnowledgeBase.open(folder, options.model)
        figures[name] = judged(kb, gold, options.calibration)
        print(name, figures[name], flush=True)
    reporting.write(options.name, figures, files)


def judged(kb: KnowledgeBase, path: Path, calibration: str | None) -> dict[str, object]:
    """All figures of one table."""
    gold, asked = read_value_sets(path), defaultdict[str, set[str]](set)
    for row in read_table(path).rows:
        asked[row["subject"]].add(row["relation"])
    relations = sorted(set().union(*asked.values()))
    rows = [
        {"subject": subject} | {relation: "" if relation in wanted else "known" for relation in relations}
        for subject, wanted in asked.items()
    ]
    claims = kb.fill(rows, relations, min_probability=0.0, calibration=calibration).claims
    by_relation = {
        relation: scores(claims, {slot: values for slot, values in gold.items() if slot[1] == key("", relation)[1]})
        for relation in relations
    }
    return scores(claims, gold) | {"by relation": by_relation}


def scores(claims: Sequence[Claim], gold: ValueSets) -> dict[str, object]:
    """How well a right likeliest value and none are told apart; a cell without a claim counts as empty."""
    best: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        best.setdefault(key(claim.subject, claim.relation), claim)
    slots = list(gold)
    stated = np.array([bool(gold[slot]) for slot in slots])
    chances = np.array([(best[slot].probability or 0.0) if slot in best else 0.0 for slot in slots])
    right = np.array([slot in best and is_right(best[slot], gold, slot) for slot in slots])
    filled = chances >= USUAL
    calibrated = reliability(chances, right)
    return {
        "cells": len(slots),
        "stated": share_of(stated),
        "filled at 0.5": share_of(filled),
        "right of these": share_of(right[filled]),
        "recall of the stated": share_of((right & filled)[stated]),
        "first answer right where stated": share_of(right[stated]),
        "unsaid cells filled": share_of(filled[~stated]),
        "AUROC": rounded(auroc(chances, right)),
        **{f"coverage at {precision:.0%} precision": coverage(chances, right, precision) for precision in PRECISIONS},
        "ECE": rounded(calibrated and calibrated.ece),
        "ECE of a perfect one": rounded(calibrated and calibrated.floor),
    }


def is_right(claim: Claim, gold: Mapping[tuple[str, str], Sequence[tuple[str, ...]]], slot: tuple[str, str]) -> bool:
    return compared([(claim.value,)], gold[slot]).matched > 0


def coverage(chances: Doubles, right: Bools, precision: float) -> float | None:
    return rounded(coverage_at(chances, right, precision).share)


if __name__ == "__main__":
    main()
