"""Queries to calibrate the default model on, and others to judge its probabilities by: Re-DocRED and SQuAD dev.

    python recipes/prepare_calibration.py DATA FOLDER

Neither the encoders nor the reader were trained on these pages. Half of them, by a checksum of their titles, go into
FOLDER/calibration.jsonl, the others into FOLDER/redocred.jsonl and FOLDER/squad.jsonl. They are KILT records about the
pages of DATA/wiki. At most SQUAD questions of either half are taken, at random. What subjects cannot have is asked,
too: in calibration.jsonl, and beside the others' slots in FOLDER/impossible.jsonl.
"""

import json
import lzma
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prepare_judging import impossible
from prepare_slots import held_out

SQUAD = 1000  # questions: as many as there are slots, about


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records whose gold has a page, each with the title of the first one."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            titles = [page["title"] for output in record["output"] for page in output.get("provenance", [])]
            if titles:
                yield titles[0], record


def calibrates(title: str) -> bool:
    """Whether a page is among those to calibrate on."""
    return zlib.crc32(f"calibration {title}".encode()) % 2 == 0


def main() -> None:
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    every = list(records(data / "redocred" / "redocred-dev-kilt.jsonl.xz"))
    slots = [each for each in every if held_out(each[0])]
    questions = list(records(data / "wiki" / "squad-dev-kilt.jsonl.xz"))
    rng = random.Random(0)
    rng.shuffle(questions)
    first, second = (
        [[record for title, record in found if calibrates(title) is half] for found in (slots, questions)]
        for half in (True, False)
    )
    known = [record for _, record in every]
    chosen = {
        "calibration": [*first[0], *first[1][:SQUAD], *impossible(first[0], known, rng)],
        "redocred": second[0],
        "squad": second[1][:SQUAD],
        "impossible": [*second[0], *impossible(second[0], known, rng)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in chosen.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        print(f"{name}: {len(lines):,} queries")


if __name__ == "__main__":
    main()
