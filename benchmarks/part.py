"""Part: take some pages of a corpus, and queries about them, where the whole would take too long.

    python benchmarks/part.py CORPUS GOLD.jsonl OUT.jsonl QUERIES.jsonl
        [--queries 400] [--pages 1200]

QUERIES is a random part of GOLD. OUT has the gold pages of these queries, and random others up to
that number.
"""

import random
from pathlib import Path

from measuring import arguments, records_of, write_records


def main() -> None:
    options = arguments(
        __doc__, corpus=Path, gold=Path, out=Path, chosen=Path, queries=400, pages=1200
    )
    queries, pages = records_of(options.gold, options.queries), records_of(options.corpus)
    wanted = {
        str(place["wikipedia_id"])
        for query in queries
        for output in query["output"]
        for place in output.get("provenance", [])
    }
    gold = [page for page in pages if str(page["wikipedia_id"]) in wanted]
    others = [page for page in pages if str(page["wikipedia_id"]) not in wanted]
    kept = random.Random(0).sample(others, max(0, min(len(others), options.pages - len(gold))))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_records(options.out, [*kept, *gold])
    write_records(options.chosen, queries)


if __name__ == "__main__":
    main()
