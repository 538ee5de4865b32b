"""Queries to calibrate the default model on, and others to judge its probabilities by: Re-DocRED and SQuAD dev.

    python recipes/prepare_calibration.py DATA FOLDER

Neither the encoders nor the reader were trained on these pages. Half of them, by a checksum of their titles, go into
FOLDER/calibration.jsonl, the others into FOLDER/redocred.jsonl and FOLDER/squad.jsonl. They are KILT records about the
pages of DATA/wiki. At most SQUAD questions of either half are taken, at random.
"""

import json
import lzma
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    slots = [each for each in records(data / "redocred" / "redocred-dev-kilt.jsonl.xz") if held_out(each[0])]
    questions = list(records(data / "wiki" / "squad-dev-kilt.jsonl.xz"))
    random.Random(0).shuffle(questions)
    chosen = {"calibration": [], "redocred": [], "squad": []}
    for name, found, most in (("redocred", slots, len(slots)), ("squad", questions, SQUAD)):
        halves = [record for title, record in found if calibrates(title)], [r for t, r in found if not calibrates(t)]
        chosen["calibration"] += halves[0][:most]
        chosen[name] += halves[1][:most]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in chosen.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        print(f"{name}: {len(lines):,} queries")


if __name__ == "__main__":
    main()
