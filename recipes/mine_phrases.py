"""Phrases that a knowledge base finds for queries whose answers are known: right and wrong ones to tell apart.

    python recipes/mine_phrases.py KB QUERIES.jsonl… OUT.jsonl

QUERIES are KILT lines, or tables of triples; where no answer is given, nothing is right. OUT is what
recipes/teach_second_look.py reads. The 20 best phrases are kept, in the order of the search: without reranking.
"""

import argparse
import json
import sys
from pathlib import Path

from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.search.search import BATCH
from kbq.storage.writing import writing_to
from kbq.training.mined_queries import MinedQuery, as_line
from kbq.tuning.triples import pages_of, read_triples

PHRASES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("queries", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    try:
        mine(options.kb, options.queries, options.out, options.device)
    except KbqError as error:
        sys.exit(str(error))


def mine(folder: Path, queries: list[Path], out: Path, device: str) -> None:
    """Ask all queries that are short enough, a batch at a time."""
    kb = KnowledgeBase.open(folder, device=device)
    golds = [gold for path in queries for gold in read_triples(path, unanswered=True)]
    asked = [(gold.input or "", gold) for gold in golds if kb.model.query_tokenizer.accepts(gold.input or "")]
    with writing_to(out, KbqError), out.open("w", encoding="utf-8") as file:
        for first in range(0, len(asked), BATCH):
            batch = asked[first : first + BATCH]
            found = kb.query([text for text, _ in batch], PHRASES, "phrase", rerank=0)
            for (text, gold), phrases in zip(batch, found, strict=True):
                answers, pages = sorted(gold.answers), sorted(pages_of(gold))
                line = as_line(MinedQuery(text, tuple(answers), tuple(pages), tuple(phrases)))
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(f"{first + len(batch)} of {len(asked)} queries", file=sys.stderr)
    print(f"{out}: {len(asked)} queries, {len(golds) - len(asked)} were too long")


if __name__ == "__main__":
    main()
