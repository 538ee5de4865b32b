"""Re-DocRED's queries in two files: about pages that the default model was trained on, and about pages it never saw.

    python recipes/split_redocred.py redocred-dev-kilt.jsonl.xz FOLDER

A query with provenance on pages of both kinds counts as seen.
"""

import json
import sys
from pathlib import Path

from prepare_slots import held_out, json_lines


def is_unseen(record: dict[str, object]) -> bool:
    outputs = record["output"]
    titles = [item["title"] for output in outputs for item in output.get("provenance", [])]
    return all(map(held_out, titles))


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"redocred-seen": [], "redocred-unseen": []}
    for record in json_lines(source):
        parts["redocred-unseen" if is_unseen(record) else "redocred-seen"].append(record)
    for name, records in parts.items():
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
        print(f"{folder / name}.jsonl: {len(records)} queries")


if __name__ == "__main__":
    main()
