"""Unsaid: fill tables whose cells are mostly not stated, and count right, wrong and rightly empty
ones.

    python benchmarks/unsaid.py NAME=KB:GOLD.jsonl [NAME=…] [--model MODEL] [--calibration FILE]
    [--name unsaid]

GOLD holds triples; a cell without an object is not stated, so any guess there is wrong
(recipes/prepare_calibration.py, prepare_knowledgenet.py). Cells are filled as `kbq fill` does, one
value each.
"""

from collections.abc import Sequence

import numpy as np
import reporting
from fill import asked_in, best_of, cells_of, claims_of, is_right
from measuring import DataSet, arguments, rounded, share_of

from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, coverage_at, reliability
from kbq.tables.claims import Claim
from kbq.tables.scoring import ValueSets, read_value_sets

USUAL = 0.5
PRECISIONS = (0.9, 0.95)


def main() -> None:
    options = arguments(__doc__, sets=[DataSet.of], model=None, calibration=None, name="unsaid")

    def measured(one: DataSet) -> dict[str, object]:
        kb, gold, asked = (
            KnowledgeBase.open(one.kb, options.model),
            read_value_sets(one.gold),
            asked_in(one.gold),
        )
        relations = sorted(set().union(*asked.values()))
        claims = claims_of(
            kb, asked, relations, min_probability=0.0, calibration=options.calibration
        )
        by_relation = {relation: scores(claims, cells_of(gold, relation)) for relation in relations}
        return scores(claims, gold) | {"by relation": by_relation}

    reporting.write_sets(options.name, options.sets, measured)


def scores(claims: Sequence[Claim], gold: ValueSets) -> dict[str, object]:
    """Return how many cells are filled, rightly and wrongly; a cell without a claim counts as
    empty.
    """
    best = best_of(claims)
    slots = list(gold)
    stated = np.array([bool(gold[slot]) for slot in slots])
    chances = np.array([(best[slot].probability or 0.0) if slot in best else 0.0 for slot in slots])
    right = np.array([slot in best and is_right(best[slot], gold[slot]) for slot in slots])
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
        **{
            f"coverage at {at:.0%} precision": rounded(coverage_at(chances, right, at).share)
            for at in PRECISIONS
        },
        "ECE": rounded(calibrated and calibrated.ece),
        "ECE of a perfect one": rounded(calibrated and calibrated.floor),
    }


if __name__ == "__main__":
    main()
