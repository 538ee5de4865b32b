"""Cells: fill tables of every kind of page as `kbq fill` does, and count right values, by kind and
by relation.

    python benchmarks/cells.py KB CELLS.jsonl[.xz] [--part judge] [--model MODEL]
        [--calibration FILE] [--name cells]

CELLS are annotated exhaustively: KILT lines whose `meta` has the kind of the page, its part, and
all values of the cell, each with its forms. If the page states nothing, any guess is wrong. ± is
half a 95 % interval over pages. What is promised is what `kbq fill --precision 0.9` fills.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import reporting
from fill import claims_of, is_right
from measuring import arguments, records_of, rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, reliability
from kbq.search.options import SearchOptions
from kbq.tables.scoring import compared

DRAWN, SEED = 1000, 0
PRECISION = 0.9
Cell = dict[str, Any]


class Judged(NamedTuple):
    """A cell, its likeliest value, and the F1 of the set of its values."""

    kind: str
    relation: str
    page: str
    is_stated: bool
    is_filled: bool
    chance: float
    is_right: bool
    f1: float


def main() -> None:
    options = arguments(
        __doc__, kb=Path, cells=Path, part="judge", model=None, calibration=None, name="cells"
    )
    cells = [cell for cell in records_of(options.cells) if cell["meta"]["part"] == options.part]
    kb = KnowledgeBase.open(options.kb, options.model)
    kinds = by(cells, lambda cell: cell["meta"]["kind"]).values()
    judged = [one for of_kind in kinds for one in filled(kb, of_kind, options.calibration)]
    plan = kb.searcher.plan(SearchOptions(calibration=options.calibration, purpose="cell"))
    threshold = plan.calibration and plan.calibration.thresholds[str(PRECISION)]
    figures: dict[str, object] = {"all": scores(judged) | promised(judged, threshold or 1.0)}
    for name in ("kind", "relation"):
        groups = by(judged, lambda one, name=name: getattr(one, name))
        figures |= {f"{name} {group}": scores(members) for group, members in sorted(groups.items())}
    reporting.write(options.name, figures, [options.kb, options.cells], SEED)


def by(items: Sequence[Any], key: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def filled(kb: KnowledgeBase, cells: Sequence[Cell], calibration: str | None) -> list[Judged]:
    """Fill the cells of one kind of page as a table, with one value each and with all that are
    likely.
    """
    slots = [tuple(cell["input"].split(" [SEP] ")) for cell in cells]
    asked: dict[str, set[str]] = defaultdict(set)
    for subject, relation in slots:
        asked[subject].add(relation)
    relations = list(dict.fromkeys(relation for _, relation in slots))
    ones, manies = (
        by(
            claims_of(kb, asked, relations, values=values, calibration=calibration),
            lambda claim: (claim.subject, claim.relation),
        )
        for values in ("one", "many")
    )
    judged = []
    for cell, slot in zip(cells, slots, strict=True):
        meta, one, many = cell["meta"], ones.get(slot, []), manies.get(slot, [])
        gold = [tuple(forms) for forms in meta["values"]]
        chance = (one[0].probability or 0.0) if one else 0.0
        f1 = compared([(claim.value,) for claim in many if claim.accepted], gold).f1
        right, is_filled = bool(one) and is_right(one[0], gold), bool(one) and one[0].accepted
        judged.append(
            Judged(meta["kind"], slot[1], meta["page"], bool(gold), is_filled, chance, right, f1)
        )
    return judged


def promised(cells: Sequence[Judged], threshold: float) -> dict[str, object]:
    """Score what is filled above the threshold of the calibration that promises PRECISION."""
    sure = [cell for cell in cells if cell.is_filled and cell.chance >= threshold]
    right = np.array([cell.is_right for cell in sure])
    stated = sum(cell.is_stated for cell in cells)
    return {
        "right of what is promised": share_of(right),
        "promised of the stated": rounded(len(sure) / stated),
    }


def scores(cells: Sequence[Judged]) -> dict[str, object]:
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
        "F1 of the set, stated cells": rounded(
            float(np.mean([cell.f1 for cell in cells if cell.is_stated] or [0.0]))
        ),
    }


def half_width(cells: Sequence[Judged]) -> float | None:
    """Return half the width of the 95 % interval of the share of right values, by drawing pages
    again.
    """
    pages = by([cell for cell in cells if cell.is_filled], lambda cell: cell.page)
    counts = np.array(
        [(sum(cell.is_right for cell in of_page), len(of_page)) for of_page in pages.values()]
    )
    if len(counts) < 2:
        return None
    drawn = np.random.default_rng(SEED).integers(len(counts), size=(DRAWN, len(counts)))
    right, every = counts[drawn].sum(axis=1).T
    low, high = np.quantile(right / every, (0.025, 0.975))
    return float(high - low) / 2


if __name__ == "__main__":
    main()
