"""Padding: texts of unequal length become matrices, and batches that waste little."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Fused attention over 190 tokens takes a CPU with matrix tiles (AMX) longer than over 208, and is a third of all work.
LONG, MULTIPLE = 160, 16


def pad(rows: Iterable[list[int]], value: int, device: torch.device) -> Tensor:
    """Rows of unequal length as one matrix. Shape: (rows, longest); a length above LONG is rounded up."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
    more = -padded.shape[1] % MULTIPLE if padded.shape[1] > LONG else 0
    return nn.functional.pad(padded, (0, more), value=value).to(device)


def padded(rows: Sequence[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids of texts of unequal length, and a mask, 1 where there is a token. Shapes: (texts, longest)."""
    ids = pad(rows, pad_id, device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()


def batch_tokens(device: torch.device) -> int:
    """How many tokens a network reads at once: more would fall out of a CPU's cache; a GPU takes more."""
    return 2048 if device.type == "cpu" else 65536


def readable_length(backbone: Any, wanted: int) -> int:
    """The longest input of at most `wanted` tokens that a network still reads when it is padded."""
    positions = int(getattr(backbone.config, "max_position_embeddings", wanted))
    return min(wanted, positions if positions <= LONG else positions // MULTIPLE * MULTIPLE)


def buckets(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Indices grouped into batches of similar length, each of at most `max_tokens` with its padding.

    A single text longer than `max_tokens` is a batch of its own.

    >>> buckets([5, 1, 4, 1], max_tokens=8)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
