"""Pieces: runs of at most 20 rows of one paragraph; a GPU finds the same maxima."""

import numpy as np
import pytest
import torch

from kbq.indexing.pieces import Block, blocks_of, piece_max, scattered_max

CPU = torch.device("cpu")


def blocks(size: int, *rows: int) -> list[Block]:
    """The blocks of paragraphs with these numbers of rows."""
    return list(blocks_of(np.cumsum(rows), size, CPU))


def test_a_block_that_can_be_checked_by_eye() -> None:
    (block,) = blocks(100, 3, 0, 45, 20)
    assert block.rows == slice(0, 68)
    assert block.begins.tolist() == [0, 3, 23, 43, 48]
    assert block.sizes.tolist() == [3, 20, 20, 5, 20]
    assert block.paragraphs.tolist() == [0, 2, 2, 2, 3]
    assert block.continued.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("size", "rows"),
    [(10, [(0, 3), (3, 48), (48, 68)]), (48, [(0, 48), (48, 68)]), (1, [(0, 3), (3, 48), (48, 68)]), (68, [(0, 68)])],
)
def test_blocks_hold_whole_paragraphs(size: int, rows: list[tuple[int, int]]) -> None:
    found = blocks(size, 3, 0, 45, 20)
    assert [(block.rows.start, block.rows.stop) for block in found] == rows
    assert [number for block in found for number in sorted(set(block.paragraphs.tolist()))] == [0, 2, 3]


@pytest.mark.parametrize("rows", [(), (0,), (0, 0)])
def test_without_rows_there_are_no_blocks(rows: tuple[int, ...]) -> None:
    assert blocks(10, *rows) == []


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_maxima_are_the_same_on_both_ways(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1, 5, 2, -4], [-1, -7, -2, -9]], dtype=dtype)
    for begins, maxima in (([0], [[5], [-1]]), ([0, 2], [[5, 2], [-1, -2]]), ([0, 1, 3], [[1, 5, -4], [-1, -2, -9]])):
        assert piece_max(scores, torch.tensor(begins)).tolist() == maxima
        assert scattered_max(scores, torch.tensor(begins)).tolist() == maxima
