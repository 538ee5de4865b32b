"""Exactness: compare the fast search with a brute force over all legal spans in float64.

    python benchmarks/exactness.py KB QUERIES.jsonl [--count 200]

The brute force scores every legal span and keeps the best end of every start. The spans that the
search calls complete must be the best of these for each query, with scores equal to 1e-3 (float64
scores that differ by less are ties).
"""

from pathlib import Path

import numpy as np
import reporting
from measuring import arguments, inputs

from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.index.base import MAX_TOKENS
from kbq.kb import KnowledgeBase
from kbq.search.spans import find_spans

TOLERANCE = 1e-3
BLOCK = 65536
TOGETHER = 20  # queries multiplied at a time


def products(shard: Shard, queries: np.ndarray) -> np.ndarray:
    """Multiply every row with every query, in float64. Shapes: queries (queries, dim), result
    (queries, rows).
    """
    blocks = [
        shard.vectors[first : first + BLOCK].astype(np.float64)
        for first in range(0, len(shard), BLOCK)
    ]
    return np.concatenate([queries.astype(np.float64) @ block.T for block in blocks], axis=1)


def brute_force(
    shard: Shard, starts: np.ndarray, ends: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of the best span of every start row, and its end row, given products.
    Shapes: (rows,).
    """
    rows = len(shard)
    paragraphs = np.searchsorted(shard.paragraph_rows, np.arange(rows), side="right")
    positions = shard.positions.astype(np.int64)
    best, best_end = np.full(rows, -np.inf), np.arange(rows)
    for step in range(MAX_TOKENS):
        stop = rows - step
        scores = starts[:stop] + ends[step:] - penalty * (positions[step:] - positions[:stop])
        legal = (paragraphs[:stop] == paragraphs[step:]) & (
            positions[step:] - positions[:stop] < MAX_TOKENS
        )
        legal &= (shard.edges[:stop] & OPENS != 0) & (shard.edges[step:] & CLOSES != 0)
        better = legal & (scores > best[:stop])
        best[:stop][better] = scores[better]
        best_end[:stop][better] = np.arange(step, rows)[better]
    return best, best_end


def main() -> None:
    options = arguments(__doc__, kb=Path, queries=Path, count=200)
    kb = KnowledgeBase.open(options.kb)
    texts = inputs(options.queries, options.count)
    starts, ends = (vectors * kb.model.scale for vectors in kb.model.encode_queries(texts))
    penalty = kb.model.config.length_penalty
    compared = differing = 0
    worst = 0.0
    for shard, found in zip(
        kb.searcher.shards,
        kb.searcher.search_context.index.candidates(starts, ends, k=30),
        strict=True,
    ):
        for query, candidates in enumerate(found):
            vectors = np.stack([starts[query], ends[query]])[None]
            (spans,) = find_spans(shard, [candidates], vectors, length_penalty=penalty)
            sure = int(np.count_nonzero(spans.scores > spans.complete_above))
            if query % TOGETHER == 0:
                part = slice(query, query + TOGETHER)
                of_starts, of_ends = products(shard, starts[part]), products(shard, ends[part])
            truth, truth_ends = brute_force(
                shard, of_starts[query % TOGETHER], of_ends[query % TOGETHER], penalty
            )
            order = np.argsort(-truth, kind="stable")[:sure]
            compared += sure
            worst = max(worst, float(np.abs(spans.scores[:sure] - truth[order]).max(initial=0)))
            tied = np.abs(truth[spans.starts[:sure]] - truth[order]) <= TOLERANCE
            same = (spans.starts[:sure] == order) & (spans.ends[:sure] == truth_ends[order])
            differing += int(np.count_nonzero(~(same | tied)))
    figures = {
        "queries": len(texts),
        "spans compared": compared,
        "spans that differ": differing,
        "largest difference of scores": worst,
    }
    reporting.write("exactness", figures, [options.kb, options.queries], seed=0)


if __name__ == "__main__":
    main()
