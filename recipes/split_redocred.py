"""Split Re-DocRED's queries into those about pages that the default model was trained on, and about
others.

    python recipes/split_redocred.py redocred-dev-kilt.jsonl.xz FOLDER

A query with provenance on pages of both kinds counts as seen. The unseen pages stand in halves,
too: one to tune on and one to ask about; a query with pages of both halves is left out of these.
"""

import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from prepare_slots import held_out, json_lines, write_lines


def titles_of(record: dict[str, Any]) -> set[str]:
    return {item["title"] for output in record["output"] for item in output.get("provenance", [])}


def parts_of(record: dict[str, Any]) -> list[str]:
    titles = titles_of(record)
    if not all(map(held_out, titles)):
        return ["redocred-seen"]
    halves = {zlib.crc32(title.encode()) // 5 % 2 for title in titles}
    return [
        "redocred-unseen",
        *(f"redocred-unseen-{'ab'[half]}" for half in halves if len(halves) == 1),
    ]


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    parts = defaultdict(list)
    for record in json_lines(source):
        for name in parts_of(record):
            parts[name].append(record)
    for name, records in sorted(parts.items()):
        write_lines(folder / f"{name}.jsonl", records)


if __name__ == "__main__":
    main()
