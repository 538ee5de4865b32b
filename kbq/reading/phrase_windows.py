"""Surroundings: the reader reads the phrases that a search has found, and proposes one of its own in each window.

Without gradients, what is read for a query depends on this query alone, to the last bit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbq.answers import Answer
from kbq.model.batch_invariant import batch_invariant_states, is_batch_invariant
from kbq.model.devices import autocast, batch_tokens, buckets
from kbq.model.phrases import window_tensors
from kbq.reading.excerpts import Excerpt, excerpts
from kbq.reading.network import QuestionAnswering, ReaderNetwork
from kbq.search.spans import best_ends

TOGETHER = 8  # batches of windows that go through a network layer by layer


class ReadWindow(NamedTuple):
    """The phrases of an excerpt, then the proposed one if it is another, as first and last token of its text.

    Shapes: edges, the states that a judge reads (phrases, 2 dim), tokens, the sums of the logits of both tokens
    (phrases,), logits of each token to open and to close the answer (2, tokens).
    """

    spans: list[tuple[int, int]]
    edges: Tensor
    tokens: Tensor
    logits: Tensor


def read_around(
    reader: ReaderNetwork, queries: Sequence[Sequence[int]], found: Sequence[Sequence[Answer]]
) -> list[list[tuple[Excerpt, ReadWindow]]]:
    """Read the phrases found for each query in their surroundings; with gradients where these are on.

    Without gradients, no batch has windows of two queries: the size of a batch changes how its products are rounded.
    """
    parts = [excerpts(reader.tokenizer, ids, each, reader.length) for ids, each in zip(queries, found, strict=True)]
    windows = [excerpt for part in parts for excerpt in part]
    batches: list[list[int]] = []  # of numbers of windows
    first = 0
    for part in [windows] if torch.is_grad_enabled() else parts:
        lengths = [len(excerpt.window.ids) for excerpt in part]
        batches += [[first + place for place in batch] for batch in buckets(lengths, batch_tokens(reader.device))]
        first += len(part)
    read: list[Any] = [None] * len(windows)
    states = _states(reader, [[windows[number] for number in batch] for batch in batches])
    for batch, of_batch in zip(batches, states, strict=True):
        for number, window in zip(batch, _read(reader, [windows[each] for each in batch], of_batch), strict=True):
            read[number] = window
    every = iter(read)
    return [[(excerpt, next(every)) for excerpt in part] for part in parts]


def _states(reader: ReaderNetwork, batches: Sequence[Sequence[Excerpt]]) -> Iterator[Tensor]:
    """The states of each batch, window after window. Shape of each: (tokens, dim), float32."""
    network, _ = reader.reranking
    if torch.is_grad_enabled() or not is_batch_invariant(network.backbone, reader.device):
        for batch in batches:
            yield _padded_states(reader, network, batch)
        return
    groups = [
        (
            [excerpt.window.ids for excerpt in batch],
            [excerpt.window.segments for excerpt in batch] if reader.uses_segments else None,
        )
        for batch in batches
    ]
    for first in range(0, len(groups), TOGETHER):
        yield from batch_invariant_states(network.backbone, groups[first : first + TOGETHER])


def _padded_states(reader: ReaderNetwork, network: QuestionAnswering, batch: Sequence[Excerpt]) -> Tensor:
    tensors = window_tensors(
        [excerpt.window for excerpt in batch], reader.tokenizer.pad_token_id, reader.uses_segments, reader.device
    )
    with autocast(reader.device):
        states = network.states(*tensors).float()
    return torch.cat([row[: len(excerpt.window.ids)] for row, excerpt in zip(states, batch, strict=True)])


def _read(reader: ReaderNetwork, batch: Sequence[Excerpt], states: Tensor) -> Iterator[ReadWindow]:
    """Shape of states: (tokens of all windows, dim)."""
    network, _ = reader.reranking
    logits = torch.stack(network.logits(states))  # (2, tokens)
    on_cpu = logits.detach().cpu().numpy()
    places: list[tuple[int, int]] = []  # first and last token of all phrases
    spans_of: list[list[tuple[int, int]]] = []
    texts: list[slice] = []
    begin = 0  # of a window
    for excerpt in batch:
        window = excerpt.window
        first = begin + window.first
        texts.append(slice(first, first + window.count))
        sums, ends_of = best_ends(on_cpu[:, texts[-1]])
        proposed = int(sums.argmax()), int(ends_of[sums.argmax()])
        spans_of.append([*excerpt.spans, *([] if proposed in excerpt.spans else [proposed])])
        places += [(first + start, first + end) for start, end in spans_of[-1]]
        begin += len(window.ids)
    starts, ends = torch.tensor(places, device=reader.device).T
    counts = [len(spans) for spans in spans_of]
    edges = torch.split(torch.cat([states[starts], states[ends]], dim=1), counts)
    tokens = torch.split(logits[0, starts] + logits[1, ends], counts)
    for spans, edge, token, text in zip(spans_of, edges, tokens, texts, strict=True):
        yield ReadWindow(spans, edge, token, logits[:, text])
