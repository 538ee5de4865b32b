"""Pieces: the paragraphs of a shard, cut into runs of rows no shorter than the longest span.

A span that starts in a piece ends there or in the next one of its paragraph.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kbq.indexing.candidates import MAX_TOKENS, Rows, ranges


@dataclass(frozen=True, slots=True)
class Block:
    """Whole paragraphs that are multiplied together. Shapes: (pieces,), but `continued`."""

    rows: slice
    begins: Tensor  # the first row of each piece, counted within the block
    sizes: Tensor
    paragraphs: Tensor
    continued: Tensor  # pieces whose paragraph goes on in the next one


def blocks_of(paragraph_rows: Rows, size: int, device: torch.device) -> Iterator[Block]:
    """All rows in blocks of about `size`; a long paragraph is a block of its own.

    `paragraph_rows`: the first row behind each paragraph.
    """
    rows = np.diff(paragraph_rows, prepend=0)
    filled = np.flatnonzero(rows)
    behind = paragraph_rows[filled]
    first = behind - rows[filled]
    done = 0
    while done < len(filled):
        stop = max(done + 1, int(np.searchsorted(behind, first[done] + size, side="right")))
        counts = -(-rows[filled[done:stop]] // MAX_TOKENS)  # pieces of each paragraph
        within = ranges(np.zeros_like(counts), counts)
        begins = np.repeat(first[done:stop] - first[done], counts) + within * MAX_TOKENS
        arrays = (
            begins,
            np.diff(begins, append=behind[stop - 1] - first[done]),
            np.repeat(filled[done:stop], counts),
            np.flatnonzero(within[1:]),  # a piece that is not its paragraph's first continues the one before
        )
        yield Block(
            slice(int(first[done]), int(behind[stop - 1])), *(torch.from_numpy(array).to(device) for array in arrays)
        )
        done = stop


def piece_max(scores: Tensor, begins: Tensor) -> Tensor:
    """The maximum of each piece. Shapes: scores (queries, rows), begins (pieces,), result (queries, pieces)."""
    if scores.is_cpu:
        return torch.from_numpy(np.maximum.reduceat(scores.numpy(), begins.numpy(), axis=1))
    return scattered_max(scores, begins)


def scattered_max(scores: Tensor, begins: Tensor) -> Tensor:
    """`piece_max` on a GPU, where all rows are looked at together."""
    is_first = torch.zeros(scores.shape[1], dtype=torch.long, device=scores.device)
    is_first[begins[1:]] = 1
    piece = is_first.cumsum(0).expand_as(scores)
    return scores.new_zeros(len(scores), len(begins)).scatter_reduce(1, piece, scores, "amax", include_self=False)
