"""Batch-invariant: tokenised texts become hidden states, the same bits whatever is encoded beside them.

The number of rows of a product, or padding, may change how it is rounded. So the shapes of all that is computed for a
text, or for the windows of a query, depend on these alone. On a CPU, such groups go through a BERT layer
by layer, as the weights of a layer then stay in its cache, but each product is that of one group. On a GPU, all batches
of texts of about one length have one shape.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from kbq.model.bert import FEW_ROWS, Bert, Linear, SelfAttention, more_rows
from kbq.model.devices import autocast, dtype_for, padded

CPU = torch.device("cpu")
TOGETHER = 64  # texts of a batch on a GPU, which takes as long for fewer
RECORDING = threading.Lock()  # CUDA refuses two at a time
MULTIPLE = 8  # of tokens, to which texts are padded there


def is_batch_invariant(backbone: Any, device: torch.device) -> bool:
    """Whether `first_states` encodes with a network; others encode batches of one shape."""
    return device.type == "cpu" and isinstance(backbone, Bert)


def batch_shape(device: torch.device) -> tuple[int, int]:
    """Return the texts of a batch for other networks and devices, and the number that its tokens are a multiple of."""
    return (1, 1) if device.type == "cpu" else (TOGETHER, MULTIPLE)


def first_states(bert: Bert, ids: Sequence[list[int]]) -> list[Tensor]:
    """Return the last hidden state of the first token of each text, on a CPU. Shape of each: (1, dim), float32."""
    return [states[:1].clone() for states in batch_invariant_states(bert, [([text], None) for text in ids])]


def batch_invariant_states(
    bert: Bert, groups: Sequence[tuple[Sequence[list[int]], Sequence[list[int]] | None]]
) -> list[Tensor]:
    """Return the last hidden states of groups of texts, on a CPU; those of a group depend on this group alone.

    Args:
        groups: token ids of each text, texts of one length side by side, and the segments of these tokens; without
            segments, all tokens are in the first.

    Returns:
        The states of all tokens of each group, text after text. Shape of each: (tokens, dim), float32.
    """
    dtype, lengths = dtype_for(bert, CPU), [[len(text) for text in ids] for ids, _ in groups]
    parts = []
    for (ids, segments), sizes in zip(groups, lengths, strict=True):
        places = torch.cat([torch.arange(length) for length in sizes])
        inside = None if segments is None else torch.tensor([one for text in segments for one in text])
        embedded = bert.embeddings(torch.tensor([token for text in ids for token in text]), places, inside)
        parts.append(embedded if len(embedded) <= FEW_ROWS else more_rows(embedded))
    states, rows = torch.cat(parts), [len(part) for part in parts]
    for layer in bert.encoder["layer"].children():
        states = _through(layer, states, rows, lengths, dtype)
    split = zip(torch.split(states, rows), lengths, strict=True)
    return [part[: sum(sizes)] for part, sizes in split]


def _through(layer: Any, states: Tensor, rows: list[int], lengths: list[list[int]], dtype: torch.dtype) -> Tensor:
    """`Layer.forward` for groups of texts of these lengths; sums and normalisation see one row at a time anyway.

    Args:
        states: Shape: (rows of all groups, dim), float32.
        rows: of each group: its tokens, and maybe padding.
    """
    attention, mixed, output = layer.attention["self"], layer.attention["output"], layer.output
    query, key, value = (product_of(linear, dtype) for linear in (attention.query, attention.key, attention.value))
    others = mixed.dense, layer.intermediate["dense"], output.dense
    mix, widen, narrow = (product_of(linear, dtype) for linear in others)
    attended = [
        mix(_attended(attention, sizes, query(x), key(x), value(x)))
        for x, sizes in zip(_groups(states, rows, dtype), lengths, strict=True)
    ]
    states = mixed.LayerNorm(torch.cat(attended) + states)
    outputs = [narrow(gelu(widen(x))) for x in _groups(states, rows, dtype)]
    result: Tensor = output.LayerNorm(torch.cat(outputs) + states)
    return result


def _groups(states: Tensor, rows: list[int], dtype: torch.dtype) -> Sequence[Tensor]:
    """Copy the rows of each group into memory of their own, as alignment may change a product, too."""
    return [group.to(dtype, copy=True) for group in torch.split(states, rows)]


def _attended(attention: SelfAttention, lengths: list[int], *projected: Tensor) -> Tensor:
    """Attend within each text of a group. Shapes: queries, keys, values and result (rows, dim)."""
    found, first = [], 0
    for length, alike in groupby(lengths):
        texts = len(list(alike))
        part = slice(first, first + texts * length)
        q, k, v = (rows[part].view(texts, length, attention.heads, -1).transpose(1, 2) for rows in projected)
        states = attention.attend(q, k, v, None, q.shape[-1] ** -0.5)
        found.append(states.transpose(1, 2).flatten(2).flatten(0, 1))
        first = part.stop
    rows = torch.cat(found) if len(found) > 1 else found[0]
    padding = len(projected[0]) - first
    return pad(rows, (0, 0, 0, padding)) if padding else rows


class Recorded:
    """What a network computes for batches of a few shapes; on a GPU, it is recorded for each shape as a CUDA graph.

    So a batch takes one launch instead of some hundreds, which take longer than the work. Weights may change where they
    lie. Only of a `Bert` is it known that nothing in it waits for the GPU.
    """

    def __init__(
        self, network: nn.Module, backbone: Any, compute: Callable[..., tuple[Tensor, ...]], device: torch.device
    ) -> None:
        """`network`: has all weights that are computed with, those of the `backbone` among them."""
        self.device, self._backbone, self._compute = device, backbone, compute
        self._weights = list(network.parameters())
        self._graphs: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]] = {}
        self._lock = threading.Lock()  # a graph reads and writes the same tensors each time

    @torch.inference_mode()
    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Compute, or do again what was recorded."""
        if self.device.type != "cuda" or not isinstance(self._backbone, Bert):
            return self._computed(given)
        with self._lock, torch.cuda.device(self.device):
            key = given[0].shape, *(weight.data_ptr() for weight in self._weights)
            if key not in self._graphs:
                with RECORDING:
                    self._graphs[key] = self._record(given)
            graph, inputs, found = self._graphs[key]
            for mine, other in zip(inputs, given, strict=True):
                mine.copy_(other)
            graph.replay()
            return tuple(each.clone() for each in found)

    def _record(self, given: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]:
        """Record what is done for this shape, after it has been done, as a library may prepare for it meanwhile."""
        inputs, side = [each.clone() for each in given], torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            self._computed(inputs)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            found = self._computed(inputs)
        return graph, inputs, found

    def _computed(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        with autocast(self.device, self._backbone):  # anew each time, as it keeps the weights that it has converted
            return self._compute(*given)


def product_of(linear: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Prepare a layer in this type for many products on a CPU."""
    return linear.prepared(dtype) if isinstance(linear, Linear) else linear


def alike(lengths: Sequence[int], together: int, multiple: int) -> Iterator[tuple[list[int], int]]:
    """Yield batches of at most `together` texts of one length, rounded up to a multiple, and that length.

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
    """Return the token ids of texts and their mask in this shape; the first text stands for those that are missing."""
    texts, tokens = shape
    return padded([*rows, *[rows[0]] * (texts - len(rows))], pad_id, device, tokens)
