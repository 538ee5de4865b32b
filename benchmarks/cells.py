"""Cells: tables of every kind of page, filled as `kbq fill` does: how much is right, by kind and by relation.

    python benchmarks/cells.py KB CELLS.jsonl[.xz] [--part judge] [--model MODEL] [--calibration FILE] [--name cells]

CELLS are annotated exhaustively: KILT lines whose `meta` has the kind of the page, its part, and all values of the
cell, each with its forms; where the page states nothing, a guess is wrong. ± is half a 95 % interval over pages.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from measuring import arguments, records_of, rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, reliability
from kbq.tables.scoring import compared

DRAWN, SEED = 1000, 0
Cell = dict[str, Any]


def main() -> None:
    options = arguments(__doc__, kb=Path, cells=Path, part="judge", model=None, calibration=None, name="cells")
    cells = [cell for cell in records_of(options.cells) if cell["meta"]["part"] == options.part]
    kb = KnowledgeBase.open(options.kb, options.model)
    judged = [Judged(*one) for one in filled(kb, cells, options.calibration)]
    groups = {"all": judged} | grouped(judged, "kind") | grouped(judged, "relation")
    figures: dict[str, object] = {name: scores(members) for name, members in groups.items()}
    for name, of_group in figures.items():
        print(name, of_group, flush=True)
    reporting.write(options.name, figures, [options.kb, options.cells], SEED)


def filled(
    kb: KnowledgeBase, cells: Sequence[Cell], calibration: str | None
) -> list[tuple[Cell, list[Any], list[Any]]]:
    """Fill a table of each kind; return each cell with its claims, of one value and of all that are likely."""
    found = []
    for of_kind in by(cells, lambda cell: cell["meta"]["kind"]).values():
        relations = list(dict.fromkeys(slot(cell)[1] for cell in of_kind))
        asked = by(of_kind, lambda cell: slot(cell)[0])
        rows = [
            {"subject": subject} | dict.fromkeys(relations, "known") | {slot(cell)[1]: "" for cell in own}
            for subject, own in asked.items()
        ]
        one, many = (
            by(kb.fill(rows, relations, values=values, calibration=calibration).claims, cell_of)
            for values in ("one", "many")
        )
        found += [(cell, one.get(slot(cell), []), many.get(slot(cell), [])) for cell in of_kind]
    return found


def slot(cell: Cell) -> tuple[str, str]:
    subject, relation = cell["input"].split(" [SEP] ")
    return subject, relation


def cell_of(claim: Any) -> tuple[str, ...]:
    return claim.subject, claim.relation


def by(items: Sequence[Any], key: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


class Judged:
    """A cell, the probability of its likeliest value and whether that is right, and the F1 of the set of its values."""

    def __init__(self, cell: Cell, one: Sequence[Any], many: Sequence[Any]) -> None:
        gold = [tuple(forms) for forms in cell["meta"]["values"]]
        self.kind, self.relation = cell["meta"]["kind"], slot(cell)[1]
        self.page, self.is_stated = cell["meta"]["page"], bool(gold)
        self.is_filled = bool(one) and one[0].accepted
        self.chance = (one[0].probability or 0.0) if one else 0.0
        self.is_right = bool(one) and compared([(one[0].value,)], gold).matched > 0
        self.f1 = compared([(claim.value,) for claim in many if claim.accepted], gold).f1


def grouped(judged: Sequence[Judged], name: str) -> dict[str, list[Judged]]:
    return {f"{name} {group}": members for group, members in sorted(by(judged, lambda one: getattr(one, name)).items())}


def scores(cells: Sequence[Judged]) -> Mapping[str, object]:
    chances: Doubles = np.array([cell.chance for cell in cells])
    right: Bools = np.array([cell.is_right for cell in cells])
    stated: Bools = np.array([cell.is_stated for cell in cells])
    is_filled: Bools = np.array([cell.is_filled for cell in cells])
    calibrated = reliability(chances, right)
    return {
        "cells": len(cells),
        "stated": int(stated.sum()),
        "right of what is filled": share_of(right[is_filled]),
        "±": rounded(half_width(cells)),
        "recall": share_of((right & is_filled)[stated]),
        "first answer right where stated": share_of(right[stated]),
        "unsaid cells filled": share_of(is_filled[~stated]),
        "AUROC": rounded(auroc(chances, right)),
        "ECE": rounded(calibrated and calibrated.ece),
        "F1 of the set, stated cells": rounded(float(np.mean([cell.f1 for cell in cells if cell.is_stated] or [0.0]))),
    }


def half_width(cells: Sequence[Judged]) -> float | None:
    """Return half the width of the 95 % interval of what is right, by drawing pages again."""
    pages = by([cell for cell in cells if cell.is_filled], lambda cell: cell.page)
    counts = np.array([(sum(cell.is_right for cell in of_page), len(of_page)) for of_page in pages.values()])
    if len(counts) < 2:
        return None
    drawn = np.random.default_rng(SEED).integers(len(counts), size=(DRAWN, len(counts)))
    right, every = counts[drawn].sum(axis=1).T
    low, high = np.quantile(right / every, (0.025, 0.975))
    return float(high - low) / 2


if __name__ == "__main__":
    main()
