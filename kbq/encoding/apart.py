"""Apart: tokenised texts become the states of their first tokens, the same bits whatever is encoded beside them.

The number of rows of a product, or padding, may change how it is rounded. So what is computed for a text has shapes
that depend on this text alone. On a CPU, texts go through a BERT layer by layer, as the weights of a layer then stay in
its cache, but each product is that of one text. On a GPU, all batches of texts of about one length have one shape.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from kbq.encoding.bert import Bert, Linear, SelfAttention
from kbq.encoding.devices import dtype_for

CPU = torch.device("cpu")
TOGETHER = 64  # texts of a batch on a GPU, which takes as long for fewer
MULTIPLE = 8  # of tokens, to which texts are padded there


def is_apart(backbone: Any, device: torch.device) -> bool:
    """Whether `first_states` encodes with a network; others encode batches of one shape."""
    return device.type == "cpu" and isinstance(backbone, Bert)


def batch_shape(device: torch.device) -> tuple[int, int]:
    """How many texts the batches of other networks and devices have, and of what number their tokens are a multiple."""
    return (1, 1) if device.type == "cpu" else (TOGETHER, MULTIPLE)


def first_states(bert: Bert, ids: Sequence[list[int]]) -> list[Tensor]:
    """The last hidden state of the first token of each text, on a CPU. Shape of each: (1, dim), float32."""
    lengths, dtype = [len(text) for text in ids], dtype_for(bert, CPU)
    places = torch.cat([torch.arange(length) for length in lengths])
    states = bert.embeddings.at(torch.tensor([token for text in ids for token in text]), places)
    for layer in bert.encoder["layer"].children():
        states = _through(layer, states, lengths, dtype)
    return [text[:1].clone() for text in torch.split(states, lengths)]


def _through(layer: Any, states: Tensor, lengths: list[int], dtype: torch.dtype) -> Tensor:
    """`Layer.forward` for texts of these lengths; sums and normalisation see one row at a time anyway.

    Shapes: (tokens of all texts, dim), float32.
    """
    attention, mixed, output = layer.attention["self"], layer.attention["output"], layer.output
    query, key, value = (product_of(linear, dtype) for linear in (attention.query, attention.key, attention.value))
    others = mixed.dense, layer.intermediate["dense"], output.dense
    mix, widen, narrow = (product_of(linear, dtype) for linear in others)
    attended = [mix(_attended(attention, query(x), key(x), value(x))) for x in _texts(states, lengths, dtype)]
    states = mixed.LayerNorm(torch.cat(attended) + states)
    outputs = [narrow(gelu(widen(x))) for x in _texts(states, lengths, dtype)]
    result: Tensor = output.LayerNorm(torch.cat(outputs) + states)
    return result


def _texts(states: Tensor, lengths: list[int], dtype: torch.dtype) -> Sequence[Tensor]:
    """The rows of each text, to be multiplied, in memory of their own, as alignment may change a product, too."""
    return [text.clone() for text in torch.split(states.to(dtype), lengths)]


def _attended(attention: SelfAttention, *projected: Tensor) -> Tensor:
    """Attention within one text. Shapes: queries, keys, values and result (tokens, dim)."""
    q, k, v = (rows.view(1, len(rows), attention.heads, -1).transpose(1, 2) for rows in projected)
    return attention.attend(q, k, v, None, q.shape[-1] ** -0.5).transpose(1, 2).flatten(2)[0]


def product_of(linear: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A layer in this type, prepared for many products on a CPU."""
    return linear.prepared(dtype) if isinstance(linear, Linear) else linear


def alike(lengths: Sequence[int], together: int, multiple: int) -> Iterator[tuple[list[int], int]]:
    """Batches of at most `together` texts of one length, when it is rounded up to a multiple, and that length.

    >>> list(alike([3, 9, 8], together=2, multiple=8))
    [([0, 2], 8), ([1], 16)]
    """
    rounded = [-(-length // multiple) * multiple for length in lengths]
    order = sorted(range(len(lengths)), key=rounded.__getitem__)
    for length, texts in groupby(order, key=rounded.__getitem__):
        members = list(texts)
        for first in range(0, len(members), together):
            yield members[first : first + together], length


def in_shape(
    rows: Sequence[list[int]], shape: tuple[int, int], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The token ids of texts, and a mask, 1 for each token; the first text stands for those that are missing.

    Shape of both: the given one.
    """
    ids, mask = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
    for place in range(shape[0]):
        row = rows[place if place < len(rows) else 0]
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
