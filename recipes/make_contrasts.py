"""Make texts with traps, and cells that a careful reader fills or leaves empty, from templates and
invented names.

    python recipes/make_contrasts.py OUT.jsonl [--texts 160] [--seed 0]

A text denies something, tells which of two came first, names kin, neighbours, former owners or
rounded numbers. A line of OUT is like one of DATA/tables/contrast.jsonl: id, kind_of_trap, title,
text and subjects, each with its cells; an empty list means that the text does not say it of this
subject.
"""

import argparse
import json
import random
import re
from pathlib import Path
from typing import Any

import yaml

Cells = dict[str, list[str]]  # values by relation, as fields of the template; none: unsaid

DATA = yaml.safe_load((Path(__file__).parent / "contrasts.yaml").read_text("utf-8"))
NAMES, TEMPLATES = DATA["names"], DATA["texts"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = made_texts(options.texts, options.seed)
    options.out.write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")


def made_texts(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Make this many texts, template after template."""
    rng = random.Random(seed)
    return [
        filled(f"m{number:03d}", TEMPLATES[number % len(TEMPLATES)], rng) for number in range(count)
    ]


def filled(identity: str, template: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Fill a template with names; everything that is called alike in it gets one name."""
    fields = drawn(rng)

    def text(pattern: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], pattern)

    subjects = []
    for subject in template["subjects"]:
        cells = {
            relation: [[text(value)] for value in values]
            for relation, values in subject["cells"].items()
        }
        subjects.append({"name": text(subject["name"]), "kind": subject["kind"], "cells": cells})
    return {
        "id": identity,
        "kind_of_trap": template["trap"],
        "title": text(template["title"]),
        "text": text(template["text"]),
        "subjects": subjects,
        "part": "teach",
    }


def drawn(rng: random.Random) -> dict[str, str]:
    """Draw a value for each field of the templates."""
    men, women = rng.sample(NAMES["he"], 4), rng.sample(NAMES["she"], 4)
    last, place = rng.sample(NAMES["last"], 6), rng.sample(NAMES["place"], 6)
    trades, works = rng.sample(NAMES["trade"], 2), rng.sample(NAMES["work"], 3)
    owners, kinds = rng.sample(NAMES["last"] + NAMES["place"], 2), rng.sample(NAMES["firm"], 2)
    years = sorted(rng.sample(range(1790, 2015), 3))
    is_she = rng.random() < 0.5
    fields = {"a": f"{(women if is_she else men)[0]} {last[0]}", "b": f"{men[1]} {last[1]}"}
    fields |= {
        "c": last[2],
        "la": last[3],
        "lb": last[4],
        "c_he": men[2],
        "d_he": men[3],
        "c_she": women[2],
    }
    fields |= {"p": place[0], "q": place[1], "r": place[2], "s": place[3]}
    fields |= {
        "trade": trades[0],
        "trade2": trades[1],
        "w": works[0],
        "w2": works[1],
        "w3": works[2],
    }
    fields |= {"firm": f"{owners[0]} {kinds[0]}", "firm2": f"{owners[1]} {kinds[1]}"}
    fields |= {"year": str(years[0]), "year2": str(years[1]), "year3": str(years[2])}
    fields["award"] = rng.choice(NAMES["award"])
    fields["number"] = f"{rng.randrange(1, 9)},{rng.randrange(100, 999)}"
    fields["number2"] = str(rng.randrange(20, 900))
    pronouns = ("she", "She", "her", "her") if is_she else ("he", "He", "him", "his")
    return fields | dict(zip(("he", "He", "him", "his"), pronouns, strict=True))


if __name__ == "__main__":
    main()
