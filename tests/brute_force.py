"""Brute force: the best spans of a shard, one product after another."""

import numpy as np

from kbq.dump.shards import CLOSES, OPENS, Shard


def best_spans(shard: Shard, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The float64 score of the best span of at most 20 tokens that starts at each row. Shape:
    (rows,).
    """
    opens, closes = (
        (shard.vectors.astype(np.float64) @ side.astype(np.float64)).tolist()
        for side in (start, end)
    )
    positions, edges = shard.positions.tolist(), shard.edges.tolist()
    paragraphs = shard.paragraphs_of(np.arange(len(shard))).tolist()
    best = np.full(len(shard), -np.inf)
    for one in range(len(shard)):
        for other in range(one, min(one + 20, len(shard))):
            near = positions[other] - positions[one] < 20
            legal = edges[one] & OPENS and edges[other] & CLOSES
            if near and legal and paragraphs[one] == paragraphs[other]:
                best[one] = max(best[one], opens[one] + closes[other])
    return best
