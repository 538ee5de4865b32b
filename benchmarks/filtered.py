"""Filtered: what keeping fewer tokens costs, by KILT's measures of answers from an index that
leaves rows out.

    python benchmarks/filtered.py trex=KB:GOLD.jsonl squad=KB:GOLD.jsonl [--shares 0.25 0.15]

The index of a share holds about that share of all tokens, those with the highest filter logits, and
the best row of each paragraph. All of its cells are probed, so that only the filter costs. Vectors
alone answer, without words or reranking. What is lost is the mean difference of the same queries,
in points. The knowledge bases get an index `disk`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import reporting
from measuring import DataSet, arguments, interval, intervals, predicted, records_of

from kbq.dump.shards import LOGIT_STEPS
from kbq.kb import KnowledgeBase

TASKS = {"trex": "trex", "squad": "nq"}
SCORES = ("KILT-accuracy", "KILT-f1", "accuracy", "f1")
OF_RECALL = 200  # queries for which the ten best phrases are counted
VECTORS = {"backend": "dense", "rerank": 0}


def threshold_of(kb: KnowledgeBase, share: float) -> float:
    """Return the filter logit above which at most this share of all tokens lies."""
    logits = np.sort(np.concatenate([np.asarray(shard.logits) for shard in kb.searcher.shards]))
    beyond = logits[max(0, len(logits) - int(share * kb.counts.tokens))]
    return float(beyond) / LOGIT_STEPS


def measured(one: DataSet, shares: Sequence[float]) -> dict[str, Any]:
    kb, records, task = (
        KnowledgeBase.open(one.kb, index="exact"),
        records_of(one.gold),
        TASKS[one.name],
    )
    tokens, texts = kb.counts.tokens, [str(record["input"]) for record in records]
    whole = predicted(kb, records, task, **VECTORS)
    found: dict[str, Any] = {"tokens": tokens, "rows": kb.counts.rows}
    found["exact, all rows"] = {
        "rows, share of tokens": round(kb.counts.rows / tokens, 3),
        **intervals(whole, SCORES),
    }
    for share in shares:
        above = threshold_of(kb, share)
        filtered = kb.index_vectors("disk", filter=above, recall=1.0, queries=texts[:OF_RECALL])
        kept = sum(len(shard.rows_above(above)) for shard in kb.searcher.shards)
        asked = KnowledgeBase.open(one.kb, index="disk")
        scores = predicted(asked, records, task, **VECTORS)
        found[f"rows above {above:g}"] = {
            "rows, share of tokens": round(kept / tokens, 3),
            "of exact search's ten best phrases": round(filtered.index.recall, 4),
            **intervals(scores, SCORES),
            **{
                f"lost, {name}": interval(whole.column(name) - scores.column(name))
                for name in SCORES
            },
        }
    return found


def main() -> None:
    options = arguments(__doc__, sets=[DataSet.of], shares=(0.25, 0.15))
    figures = {one.name: measured(one, options.shares) for one in options.sets}
    print(reporting.table(figures))
    reporting.write("filtered", figures, [one.gold for one in options.sets], seed=0)


if __name__ == "__main__":
    main()
