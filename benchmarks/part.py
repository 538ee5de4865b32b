"""Part: some pages of a knowledge base as one of its own, and the queries about them, where the whole takes too long.

    python benchmarks/part.py KB OUT --pages 4000 NAME=GOLD.jsonl:QUERIES …

Takes QUERIES of each KILT file at random (0: all), their gold pages, and other pages at random up to the number asked
for. OUT holds the knowledge base with BM25, and NAME.jsonl beside it the queries. Vectors are copied, not made.
"""

import argparse
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kbq.dump.manifest import IndexEntry, read_manifest
from kbq.dump.publishing import publish
from kbq.dump.shard_writer import EncodedParagraph, Progress, ShardWriter, page_digest
from kbq.dump.shards import LOGIT_STEPS, Shard, shard_name
from kbq.storage.lines import read_json_lines
from kbq.words.bm25 import index_bm25


def chosen(options: argparse.Namespace) -> set[str]:
    """Write the queries, and return their gold pages."""
    pages: set[str] = set()
    for name, _, source in (item.partition("=") for item in options.gold):
        path, _, most = source.rpartition(":")
        records: list[Any] = [record for _, record in read_json_lines(path)]
        records = random.Random(0).sample(records, min(int(most) or len(records), len(records)))
        for record in records:
            pages |= {str(p["wikipedia_id"]) for output in record["output"] for p in output.get("provenance", [])}
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        options.out.with_name(f"{name}.jsonl").write_text("".join(lines), "utf-8")
    return pages


def paragraphs(shard: Shard, page: int) -> list[EncodedParagraph]:
    """A page's paragraphs with the vectors that were kept."""
    found = []
    for place in range(*shard.paragraph_pages.searchsorted([page, page + 1])):
        rows = shard.rows_of(place)
        logits = np.load(shard.folder / "logits.npy", mmap_mode="r")[rows] / np.float32(LOGIT_STEPS)
        columns = (
            shard.vectors[rows],
            logits,
            shard.edges[rows],
            shard.positions[rows],
            shard.starts[rows],
            shard.ends[rows],
        )
        tokens = int(shard.positions[rows[-1]]) + 1
        found.append(EncodedParagraph(int(shard.paragraph_numbers[place]), shard.texts[place], tokens, *columns))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("gold", nargs="+", metavar="NAME=GOLD:QUERIES")
    parser.add_argument("--pages", type=int, default=4000)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    pages = chosen(options)
    manifest = read_manifest(options.kb)
    shards = manifest.open_shards(options.kb)
    every = [(shard, number) for shard in shards for number in range(len(shard.ids))]
    others = [place for place in every if place[0].ids[place[1]] not in pages]
    kept = random.Random(0).sample(others, max(0, min(len(others), options.pages - len(pages))))
    kept += [place for place in every if place[0].ids[place[1]] in pages]
    writer = ShardWriter(options.out / shard_name(0), manifest.dim, Progress())
    for shard, number in kept:
        page = shard.page(number)
        writer.append(page, page_digest(page), paragraphs(shard, number))
    part = replace(manifest, shards=(writer.close(),), index=IndexEntry(), others=(), bm25=False, sparta="")
    publish(options.out, part)
    index_bm25(options.out)
    print(part.counts)


if __name__ == "__main__":
    main()
