"""Make queries of Re-DocRED and SQuAD dev to calibrate the default model on, and others to judge
its probabilities.

    python recipes/prepare_calibration.py DATA FOLDER

Neither the encoders nor the reader were trained on these pages. Half of them, by a checksum of
their titles, go into FOLDER/calibration.jsonl, the others into FOLDER/redocred.jsonl and
FOLDER/squad.jsonl. They are KILT records about the pages of DATA/wiki. At most SQUAD questions of
either half are taken, at random. Tables of persons, works and organisations, most of whose cells
the pages of the other half do not state, go, as triples, into FOLDER/unsaid.jsonl.
FOLDER/impossible.jsonl has the slots of redocred.jsonl, and asks for what subjects cannot have,
such as the spouse of a country: nothing is right there. The cells of DATA/tables that are meant for
it are FOLDER/cells.jsonl, and those of them that are stated are in FOLDER/calibration.jsonl. Cells
that Re-DocRED has no value for are none of them: a page states some of these all the same.
"""

import random
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prepare_judging import Record, cells_of, record, relation
from prepare_slots import held_out, json_lines, write_lines
from usual_relations import TABLES, Subject, subjects

SQUAD = 1000  # questions: as many as there are slots, about
EVERYTHING_HAS = {"instance of", "subclass of"}  # though it is not always annotated


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records whose gold has a page, each with the title of the first one."""
    for one in json_lines(path):
        titles = [
            page["title"] for output in one["output"] for page in output.get("provenance", [])
        ]
        if titles:
            yield titles[0], one


def impossible(asked: list[Record], slots: Iterable[Record], rng: random.Random) -> list[Record]:
    """Ask for every second slot's relation of a subject that cannot have it: no subject that shares
    a relation has it.

    Each relation is as frequent here as among the slots that are asked, so that the relation alone
    says nothing.
    """
    relations_of, beside = defaultdict(set), defaultdict(set)
    for slot in slots:
        relations_of[slot["input"].split(" [SEP] ")[0]].add(relation(slot))
    for names in relations_of.values():
        for name in names:
            beside[name] |= names
    found = {}
    for name in map(relation, rng.sample(asked, len(asked) // 2)):
        others = [
            subject
            for subject, names in relations_of.items()
            if not any(name in beside[own] for own in names)
        ]
        if others and name not in EVERYTHING_HAS:
            subject = rng.choice(others)
            found[subject, name] = record(f"{subject}-{name}", f"{subject} [SEP] {name}")
    return list(found.values())


def triples(subject: Subject) -> Iterator[Record]:
    """Yield the cells of a subject; those that its page does not state have no object."""
    for name in subject.usual():
        first, *others = subject.stated[name]
        yield {
            "subject": subject.name,
            "relation": name,
            "object": first,
            "aliases": others,
            "page": subject.page_id,
        }
    for name in subject.unsaid():
        yield {"subject": subject.name, "relation": name, "object": ""}


def calibrates(title: str) -> bool:
    """Return whether a page is among those to calibrate on."""
    return zlib.crc32(f"calibration {title}".encode()) % 2 == 0


def main() -> None:
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    every = list(records(data / "redocred" / "redocred-dev-kilt.jsonl.xz"))
    slots = [each for each in every if held_out(each[0])]
    questions = list(records(data / "wiki" / "squad-dev-kilt.jsonl.xz"))
    rng = random.Random(0)
    rng.shuffle(questions)
    first, second = (
        [[one for title, one in found if calibrates(title) is half] for found in (slots, questions)]
        for half in (True, False)
    )
    known = [one for _, one in every]
    of_tables = [one for one in subjects(known) if held_out(one.page) and one.kind in TABLES]
    cells = list(cells_of(data, "calibrate"))
    stated = [cell for cell in cells if cell["meta"]["values"]]
    chosen = {
        "calibration": [*first[0], *first[1][:SQUAD], *stated],
        "cells": cells,
        "unsaid": [cell for one in of_tables if not calibrates(one.page) for cell in triples(one)],
        "redocred": second[0],
        "squad": second[1][:SQUAD],
        "impossible": [*second[0], *impossible(second[0], known, rng)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in chosen.items():
        write_lines(folder / f"{name}.jsonl", lines, ensure_ascii=True)


if __name__ == "__main__":
    main()
