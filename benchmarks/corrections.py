"""Corrections: people review a filled table; what they decided teaches, and the next table is filled again.

    python benchmarks/corrections.py PAGES.jsonl TRAIN.jsonl DEV.jsonl WORK [--reviewed 300 1000] [--next 600]

A reviewer is simulated, who knows the gold values of the first table's cells (of TRAIN): what is right is accepted,
what is wrong is rejected and corrected, and a cell that the text does not say is left empty. The next table has the
cells of DEV, about other subjects. Three in ten of the pages that answer cells are not in the knowledge base, so that
these cells are rightly empty. Cells are filled as `kbq fill` does by default. WORK is a new folder.
"""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, write_records
from trust import is_hidden

from kbq.corpus.readers import read_corpus
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold
from kbq.tables.claims import Claim
from kbq.tables.scoring import compared
from kbq.text.markers import slot_of
from kbq.tuning.triples import pages_of, read_triples

HIDDEN, SEED = 0.3, 7


def main() -> None:
    options = arguments(
        __doc__,
        pages_file=Path,
        train=Path,
        dev=Path,
        work=Path,
        reviewed=(300, 1000),
        next=600,
        pages=3000,
        name="corrections",
    )
    first, following = (
        random.Random(SEED).sample(slots, min(count, len(slots)))
        for slots, count in (
            (read_triples(options.train), max(options.reviewed)),
            (read_triples(options.dev), options.next),
        )
    )
    kb = built(options.pages_file, [*first, *following], options.pages, options.work / "kb")
    figures: dict[str, Any] = {
        "pages": kb.counts.pages,
        "cells of the next table": len(following),
        "of these, not said": sum(map(is_unsaid, following)),
        "before": scored(kb, following),
    }
    print(figures, flush=True)
    for count in options.reviewed:
        figures[f"{count} cells reviewed"] = taught(kb, first[:count], following, options.work / str(count))
        print(count, figures[f"{count} cells reviewed"], flush=True)
    reporting.write(options.name, figures, [options.pages_file, options.train, options.dev], SEED)


def built(path: Path, slots: Iterable[Gold], pages: int, folder: Path) -> KnowledgeBase:
    """Build a knowledge base of the pages that answer slots, without the hidden ones, and of others."""
    answering = {page for slot in slots for page in pages_of(slot)}
    corpus = list(read_corpus(path))
    random.Random(SEED).shuffle(corpus)
    said = [page for page in corpus if page.id in answering and not is_hidden(page.id, HIDDEN)]
    others = [page for page in corpus if page.id not in answering]
    return KnowledgeBase.build([*said, *others[: max(0, pages - len(said))]], folder)


def is_unsaid(slot: Gold) -> bool:
    pages = pages_of(slot)
    return bool(pages) and all(is_hidden(page, HIDDEN) for page in pages)


def filled(kb: KnowledgeBase, slots: Sequence[Gold], calibration: Path | None = None) -> dict[tuple[str, str], Claim]:
    """Return the claim of each cell, accepted or not."""
    rows: dict[str, dict[str, str]] = {}
    cells = [slot_of(slot.input or "") or ("", "") for slot in slots]
    for subject, relation in cells:
        rows.setdefault(subject, {"subject": subject})[relation] = ""
    relations = sorted({relation for _, relation in cells})
    asked = [row | {relation: row.get(relation, "known") for relation in relations} for row in rows.values()]
    claims = kb.fill(asked, relations, calibration=calibration).claims
    return {(claim.subject, claim.relation): claim for claim in reversed(claims)}


def values_of(slot: Gold) -> list[tuple[str, ...]]:
    """Return the names of the value, the one to type first; none if the text does not say it."""
    names = dict.fromkeys(output.answer for output in slot.outputs if output.answer)
    return [] if is_unsaid(slot) else [tuple(names)]


def decisions(slots: Iterable[Gold], claims: Mapping[tuple[str, str], Claim]) -> list[dict[str, str]]:
    """Decide as the reviewer does, in the form that the page for review downloads."""
    lines: list[dict[str, str]] = []
    for slot in slots:
        subject, relation = slot_of(slot.input or "") or ("", "")
        claim = claims.get((subject, relation))
        cell = {"subject": subject, "relation": relation}

        def decided(value: str, decision: str, page: str = "", cell: Mapping[str, str] = cell) -> None:
            lines.append({**cell, "value": value, "object": value, "decision": decision, "page": page})

        names = [name for value in values_of(slot) for name in value]
        if claim and names and compared([(claim.value,)], [tuple(names)]).matched:
            decided(claim.value, "accept", claim.page_id)
            continue
        if claim:
            decided(claim.value, "reject", claim.page_id)
        decided(names[0] if names else "", "accept")
    return lines


def taught(kb: KnowledgeBase, first: Sequence[Gold], following: Sequence[Gold], folder: Path) -> dict[str, Any]:
    """Review, tune, calibrate, and fill the next table."""
    folder.mkdir(parents=True)
    lines = decisions(first, filled(kb, first))
    path = write_records(folder / "decisions.jsonl", lines)
    begun = time.monotonic()
    kb.finetune(path, folder / "tuned")
    tuning, begun = time.monotonic() - begun, time.monotonic()
    tuned = kb.with_model(folder / "tuned")
    tuned.calibrate(path, folder / "calibration.json")
    calibrating = time.monotonic() - begun
    return {
        "accepted": sum(line["decision"] == "accept" and line["object"] != "" for line in lines),
        "rejected": sum(line["decision"] == "reject" for line in lines),
        "left empty": sum(line["object"] == "" for line in lines),
        "minutes of tuning": round(tuning / 60, 1),
        "seconds of calibrating": round(calibrating),
        "tuned": scored(tuned, following),
        "tuned and calibrated": scored(tuned, following, folder / "calibration.json"),
    }


def scored(kb: KnowledgeBase, slots: Sequence[Gold], calibration: Path | None = None) -> dict[str, float]:
    """Return how much is filled, and how much of it is right."""
    claims = filled(kb, slots, calibration)
    shown = right = wrong_unsaid = said = 0
    for slot in slots:
        claim, values = claims.get(slot_of(slot.input or "") or ("", "")), values_of(slot)
        said += bool(values)
        if claim and claim.accepted:
            shown += 1
            right += bool(values) and compared([(claim.value,)], values).matched > 0
            wrong_unsaid += not values
    precision, recall = right / max(1, shown), right / max(1, said)
    return {
        "filled": shown,
        "right, % of filled": round(100 * precision, 1),
        "right, % of said": round(100 * recall, 1),
        "F1": round(100 * 2 * precision * recall / max(1e-9, precision + recall), 1),
        "unsaid cells filled": wrong_unsaid,
    }


if __name__ == "__main__":
    main()
