"""Unsaid: tables most of whose cells no text states: what is filled, how much of it is right, what stays empty.

    python benchmarks/unsaid.py NAME=KB:GOLD.jsonl [NAME=…] [--model MODEL] [--calibration FILE] [--name unsaid]

GOLD holds triples; a cell without an object is not stated (recipes/prepare_calibration.py, prepare_knowledgenet.py).
A guess in such a cell is wrong, whatever it is. Cells are filled as `kbq fill` does by default, one value each.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import reporting
from fill import asked_in, best_of, claims_of, key
from measuring import DataSet, arguments, rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, coverage_at, reliability
from kbq.tables.claims import Claim
from kbq.tables.scoring import ValueSets, compared, read_value_sets

USUAL = 0.5
PRECISIONS = (0.9, 0.95)


def main() -> None:
    options = arguments(__doc__, sets=[DataSet.of], model=None, calibration=None, name="unsaid")
    figures: dict[str, object] = {}
    for one in options.sets:
        kb = KnowledgeBase.open(one.kb, options.model)
        figures[one.name] = judged(kb, one.gold, options.calibration)
        print(one.name, figures[one.name], flush=True)
    reporting.write(options.name, figures, [path for one in options.sets for path in one[1:]])


def judged(kb: KnowledgeBase, path: Path, calibration: str | None) -> dict[str, object]:
    """Return all figures of one table."""
    gold, asked = read_value_sets(path), asked_in(path)
    relations = sorted(set().union(*asked.values()))
    claims = claims_of(kb, asked, relations, calibration=calibration)
    by_relation = {
        relation: scores(claims, {slot: values for slot, values in gold.items() if slot[1] == key("", relation)[1]})
        for relation in relations
    }
    return scores(claims, gold) | {"by relation": by_relation}


def scores(claims: Sequence[Claim], gold: ValueSets) -> dict[str, object]:
    """Return how well a right likeliest value and none are told apart; a cell without a claim counts as empty."""
    best = best_of(claims)
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
