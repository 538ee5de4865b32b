"""Index size: set the size of an index against the passages that it finds.

Filters keep fewer and fewer tokens, and each kind of codes is tried.

    python benchmarks/index_size.py KB GOLD.jsonl [--shares 1.0 0.5 0.25 0.1] [--sample 500]
                                    [--kinds compact tiny] [--name index_size]

Give it a copy of a knowledge base, because its indexes are built anew. Source: arXiv 2109.08133,
Fig. 4.
"""

from pathlib import Path
from typing import Any

import numpy as np
import reporting
from index_kinds import remove_indexes
from measuring import arguments
from passages import pages_of, scores

from kbq.description import describe_indexes
from kbq.dump.shards import LOGIT_STEPS, Shard
from kbq.kb import KnowledgeBase
from kbq.kilt.open_questions import read_questions

VECTORS = {"backend": "dense", "rerank": 0}


def main() -> None:
    options = arguments(
        __doc__, kb=Path, gold=Path, shares=(1.0, 0.5, 0.25, 0.1), kinds=("compact", "tiny"),
        sample=500, name="index_size",
    )  # fmt: skip
    remove_indexes(options.kb)
    kb = KnowledgeBase.open(options.kb, index="exact")
    known = {page for page, _ in kb.pages()}
    records = [record for _, record in read_questions(str(options.gold))]
    asked = [record for record in records if pages_of(record) <= known]
    asked = asked[:: max(1, len(asked) // options.sample)][: options.sample]
    counts = kb.counts
    figures: dict[str, Any] = {"tokens": counts.tokens, "vectors": counts.rows}
    figures["exact"] = scores(kb, asked, "paragraph", VECTORS)
    for kind in options.kinds:
        for share in options.shares:
            figures[f"{kind}, {share:g}"] = indexed(options.kb, kind, share, asked)
            print(reporting.table({kind: figures[f"{kind}, {share:g}"]}), flush=True)
    reporting.write(options.name, figures, [options.kb, options.gold], seed=0)


def indexed(folder: Path, kind: Any, share: float, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Index a share of the vectors, and return its size with the scores of the passages it finds."""
    remove_indexes(folder)
    kb = KnowledgeBase.open(folder, index="exact")
    threshold = None
    if share < 1:
        threshold = threshold_of(kb, share)
    kb = kb.index_vectors(kind, filter=threshold)
    facts = describe_indexes(folder)[0]
    rows = sum(len(shard.rows_above(threshold)) for shard in shards_of(kb))
    found = scores(kb, asked, "paragraph", VECTORS)
    return {
        "filter": threshold,
        "vectors": rows,
        "MB": round(facts.bytes_per_vector * kb.counts.rows / 1e6, 1),
        "probes": facts.probes,
    } | found


def shards_of(kb: KnowledgeBase) -> list[Shard]:
    return kb.manifest.open_shards(kb.folder)


def threshold_of(kb: KnowledgeBase, share: float) -> float:
    """Return the filter logit that this share of the vectors is above."""
    logits = np.concatenate([shard.logits for shard in shards_of(kb)])
    return round(float(np.quantile(logits, 1 - share)) / LOGIT_STEPS, 4)


if __name__ == "__main__":
    main()
