"""KnowledgeNet: fill a table of exhaustively annotated passages, and count right values and wrongly
filled cells.

    python benchmarks/knowledgenet.py KB GOLD.jsonl

`recipes/prepare_knowledgenet.py` makes GOLD and the corpus of KB. An empty cell was annotated as
not stated in at least one passage, though a passage annotated for other relations may state it. So
false answers are counted twice: all of them, and those from annotated passages.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import reporting
from fill import asked_in, best_of, cells_of, claims_of, curves, is_right, predicted, promise
from measuring import arguments, rounded

from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc
from kbq.tables.claims import Claim
from kbq.tables.scoring import ValueSets, read_value_sets, scores_of

USUAL = 0.5
COLUMNS = {
    "filled": "coverage",
    "precision": "micro_precision",
    "recall": "micro_recall",
    "F1": "micro_f1",
}


def main() -> None:
    options = arguments(__doc__, kb=Path, gold=Path)
    kb, gold, asked = (
        KnowledgeBase.open(options.kb),
        read_value_sets(options.gold),
        asked_in(options.gold),
    )
    relations = sorted(set().union(*asked.values()))
    claims, promised = claims_of(kb, asked, relations), promise(kb)
    stated = {slot: values for slot, values in gold.items() if values}
    empty = {slot for slot, values in gold.items() if not values}
    figures: dict[str, object] = {
        "pages": kb.counts.pages,
        "cells": len(gold),
        "of these, annotated as empty": len(empty),
        "threshold of 0.9": promised,
        "cells with values": curves(claims, stated, promised),
        "all cells": curves(claims, gold, promised),
        "AUROC": discerned(claims, gold),
        "false answers": {
            str(least): false_answers(claims, empty, least) for least in (USUAL, promised)
        },
        "by relation": {
            relation: of_relation(
                [claim for claim in claims if claim.relation == relation],
                cells_of(gold, relation),
                promised,
            )
            for relation in relations
        },
    }
    reporting.write("fill_knowledgenet", figures, [options.kb, options.gold])


def of_relation(claims: Sequence[Claim], gold: ValueSets, promised: float) -> dict[str, object]:
    """Return scores of one relation, with one value a cell, and false answers."""
    empty = {slot for slot, values in gold.items() if not values}
    found: dict[str, object] = {
        "cells": len(gold),
        "of these, empty": len(empty),
        "AUROC": discerned(claims, gold),
    }
    for least in (USUAL, promised):
        scores = scores_of(predicted(claims, least, False), gold).all
        columns = {name: round(getattr(scores, score), 4) for name, score in COLUMNS.items()}
        found[str(least)] = columns | {
            "false answers": false_answers(claims, empty, least)["cells"]
        }
    return found


def discerned(claims: Sequence[Claim], gold: ValueSets) -> float | None:
    """Return the AUROC of the best guesses of all cells; any guess is wrong for a cell that should
    be empty.
    """
    best = best_of(claims)
    chances = np.array([claim.probability or 0.0 for claim in best.values()])
    right = np.array([is_right(claim, gold[slot]) for slot, claim in best.items()])
    return rounded(auroc(chances, right))


def false_answers(
    claims: Sequence[Claim], empty: set[tuple[str, str]], least: float
) -> dict[str, float | None]:
    """Return the share of empty cells that is filled, and the share filled from an annotated
    passage.
    """
    filled = [
        claim
        for slot, claim in best_of(claims).items()
        if slot in empty and (claim.probability or 0.0) >= least
    ]
    silent = [
        claim for claim in filled if claim.relation in claim.metadata["silent"][claim.paragraph]
    ]
    return {
        "cells": round(len(filled) / len(empty), 4) if empty else None,
        "from an annotated passage": round(len(silent) / len(empty), 4) if empty else None,
    }


if __name__ == "__main__":
    main()
