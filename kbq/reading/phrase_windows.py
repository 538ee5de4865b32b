"""Surroundings: the reader reads the phrases that a search has found, and proposes one of its own in each window.

Without gradients, what is read for a query depends on this query alone, to the last bit. A CPU reads the windows of a
query together, a GPU those of all queries, in batches of one shape. Proposals are chosen where the logits are.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from kbq.answers import Answer
from kbq.index.base import MAX_TOKENS
from kbq.model.batch_invariant import alike, batch_invariant_states, in_shape, is_batch_invariant
from kbq.model.bert import more_rows
from kbq.model.devices import autocast, batch_tokens, buckets, readable_length
from kbq.model.phrases import window_tensors
from kbq.model.windows import Window
from kbq.reading.excerpts import Excerpt, excerpts
from kbq.reading.judge import PhraseJudge
from kbq.reading.network import ReaderNetwork

TOGETHER = 8  # queries, and batches of windows that go through a network layer by layer, on a CPU
GPU_QUERIES = 64  # whose windows are read together there
WINDOWS = 32  # of a batch on a GPU, which takes as long for fewer
MULTIPLE = 128  # of tokens, to which windows are padded there: most have fewer
PHRASES = 256  # that a judge reads together there

Span = tuple[int, int]  # first and last token of the text


class ReadWindow(NamedTuple):
    """The phrases of an excerpt, then the proposed one if it is another, as first and last token of its text.

    Shapes: edges, the states that a judge reads (phrases, 2 dim), tokens, the sums of the logits of both tokens
    (phrases,), logits of each token to open and to close the answer (2, tokens).
    """

    spans: list[Span]
    edges: Tensor
    tokens: Tensor
    logits: Tensor


class JudgedWindow(NamedTuple):
    """A window, its phrases as in `ReadWindow`, and what each is judged."""

    excerpt: Excerpt
    spans: list[Span]
    odds: list[float]


class _Batch(NamedTuple):
    """Windows that were read together: their numbers, their states and the row where each begins.

    Shape of the states: (rows, dim), float32; padding included.
    """

    members: Sequence[int]
    states: Tensor
    begins: Sequence[int]


class _Read(NamedTuple):
    """Windows, read; phrases are in the order of windows. Shapes: as in `ReadWindow`, for all of them."""

    excerpts: list[list[Excerpt]]  # of each query
    spans: list[list[Span]]  # of each window
    edges: Tensor
    tokens: Tensor
    logits: list[Tensor]  # of each window


def _by_query(read: _Read) -> Iterator[list[list[Span]]]:
    """The spans of the windows of each query."""
    every = iter(read.spans)
    for part in read.excerpts:
        yield list(islice(every, len(part)))


def read_around(
    reader: ReaderNetwork, queries: Sequence[Sequence[int]], found: Sequence[Sequence[Answer]]
) -> list[list[tuple[Excerpt, ReadWindow]]]:
    """Read the phrases found for each query; with gradients where these are on."""
    read = read_windows(reader, queries, found)
    counts = [len(spans) for spans in read.spans]
    parts = torch.split(read.edges, counts), torch.split(read.tokens, counts)
    windows = map(ReadWindow, read.spans, *parts, read.logits)
    return [[(excerpt, next(windows)) for excerpt in of_query] for of_query in read.excerpts]


def judge_around(
    reader: ReaderNetwork,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    judges: Sequence[PhraseJudge],
) -> Iterator[list[JudgedWindow]]:
    """Yield, for each query, its windows with what their phrases, and those that they propose, are judged.

    Args:
        judges: of each query. What they say are the logarithms of odds against none being right.
    """
    together = GPU_QUERIES if _has_fixed_shapes(reader) else TOGETHER
    for first in range(0, len(queries), together):
        part = slice(first, first + together)
        yield from _judged(read_windows(reader, queries[part], found[part]), judges[part], _has_fixed_shapes(reader))


def _has_fixed_shapes(reader: ReaderNetwork) -> bool:
    """Whether all that is computed together has one shape, so that nothing depends on what is beside it: on a GPU."""
    return not torch.is_grad_enabled() and not is_batch_invariant(reader.reranking[0].backbone, reader.device)


def _judged(read: _Read, judges: Sequence[PhraseJudge], in_one: bool) -> Iterator[list[JudgedWindow]]:
    """`judge_around` for what was read; `in_one`: judge the phrases of all queries in one call, not query by query."""
    counts = [sum(len(next_spans) for next_spans in spans) for spans in _by_query(read)]
    if in_one:
        values = _judged_together(
            read, [judge for judge, count in zip(judges, counts, strict=True) for _ in range(count)]
        )
    else:
        edges, tokens = torch.split(read.edges, counts), torch.split(read.tokens, counts)
        values = torch.cat([read.tokens[:0], *map(odds, judges, edges, tokens)])
    left = iter(values.tolist())
    for excerpts_of, spans_of in zip(read.excerpts, _by_query(read), strict=True):
        yield [
            JudgedWindow(excerpt, spans, [next(left) for _ in spans])
            for excerpt, spans in zip(excerpts_of, spans_of, strict=True)
        ]


def odds(judge: PhraseJudge, edges: Tensor, tokens: Tensor) -> Tensor:
    """The logarithms of the odds of the phrases of a query. Shapes: edges (phrases, 2 dim), others (phrases,)."""
    alone: Tensor = judge(more_rows(edges))[: len(tokens)]
    return alone + tokens


def _judged_together(read: _Read, judges: Sequence[PhraseJudge]) -> Tensor:
    """The odds of phrases, so many at a time as always; `judges`: of each phrase. Shape: (phrases,)."""
    values = torch.empty_like(read.tokens)
    for judge in dict.fromkeys(judges):
        own = torch.tensor([number for number, each in enumerate(judges) if each is judge], device=values.device)
        for rows in torch.split(own, PHRASES):
            edges = pad(read.edges[rows], (0, 0, 0, PHRASES - len(rows)))
            values[rows] = judge(edges)[: len(rows)] + read.tokens[rows]
    return values


def read_windows(reader: ReaderNetwork, queries: Sequence[Sequence[int]], found: Sequence[Sequence[Answer]]) -> _Read:
    """Read the phrases found for each query in their surroundings, and see what each window proposes."""
    parts = [excerpts(reader.tokenizer, ids, each, reader.length) for ids, each in zip(queries, found, strict=True)]
    windows = [excerpt.window for part in parts for excerpt in part]
    batches = list(_states(reader, windows, [len(part) for part in parts]))
    if not batches:
        nothing = torch.empty(0, device=reader.device)
        return _Read(parts, [], nothing[:, None], nothing, [])
    states = torch.cat([batch.states for batch in batches])
    logits = torch.cat([torch.stack(reader.reranking[0].logits(batch.states)) for batch in batches], dim=1)
    firsts = np.empty(len(windows), np.int64)  # the row of the first token of each window's text
    begin = 0
    for batch in batches:
        firsts[batch.members] = [
            begin + first + windows[number].first for number, first in zip(*batch[::2], strict=True)
        ]
        begin += len(batch.states)
    texts = [slice(first, first + window.count) for first, window in zip(firsts.tolist(), windows, strict=True)]
    spans = [
        [*excerpt.spans, *([] if proposed in excerpt.spans else [proposed])]
        for excerpt, proposed in zip((one for part in parts for one in part), _proposals(logits, texts), strict=True)
    ]
    counts = [len(own) for own in spans]
    places = np.repeat(firsts, counts)[:, None] + np.array([span for own in spans for span in own])
    starts, ends = torch.from_numpy(places).to(reader.device).T
    edges = torch.cat([states[starts], states[ends]], dim=1)
    return _Read(parts, spans, edges, logits[0, starts] + logits[1, ends], [logits[:, text] for text in texts])


def _proposals(logits: Tensor, texts: Sequence[slice]) -> list[Span]:
    """The best phrase of each text, chosen where the logits are. Shape of `logits`: (2, rows)."""
    firsts, counts = (np.array([(text.start, text.stop - text.start) for text in texts]).T)[:, :, None]
    places = np.arange(counts.max())
    rows = torch.from_numpy(np.minimum(firsts + places, firsts + counts - 1)).to(logits.device)
    outside = torch.from_numpy(places >= counts).to(logits.device)
    opens, closes = logits.detach()[:, rows].masked_fill(outside, -torch.inf)  # (texts, tokens) each
    reached, offsets = pad(closes, (0, MAX_TOKENS - 1), value=-torch.inf).unfold(1, MAX_TOKENS, 1).max(dim=2)
    starts = (opens + reached).argmax(dim=1, keepdim=True)
    best = torch.cat([starts, starts + offsets.gather(1, starts)], dim=1)
    return [(start, end) for start, end in best.tolist()]


def _states(reader: ReaderNetwork, windows: Sequence[Window], of_queries: Sequence[int]) -> Iterator[_Batch]:
    """Read windows in batches; `of_queries`: how many windows each query has, one after another.

    On a CPU, no batch has windows of two queries: the size of a batch changes how its products are rounded.
    """
    network, device, lengths = reader.reranking[0], reader.device, [len(window.ids) for window in windows]
    if torch.is_grad_enabled():
        for members in buckets(lengths, batch_tokens(device)):
            yield _padded(reader, windows, members, None)
        return
    if _has_fixed_shapes(reader):
        for members, length in alike(lengths, WINDOWS, MULTIPLE):
            yield _padded(reader, windows, members, (WINDOWS, readable_length(network.backbone, length)))
        return
    batches: list[list[int]] = []
    for first, stop in pairwise(accumulate(of_queries, initial=0)):
        batches += [[first + place for place in batch] for batch in buckets(lengths[first:stop], batch_tokens(device))]
    for some in (batches[first : first + TOGETHER] for first in range(0, len(batches), TOGETHER)):
        groups = [
            ([windows[number].ids for number in members], [windows[number].segments for number in members])
            for members in some
        ]
        given = groups if reader.uses_segments else [(ids, None) for ids, _ in groups]
        for members, states in zip(some, batch_invariant_states(network.backbone, given), strict=True):
            yield _Batch(members, states, list(accumulate((lengths[number] for number in members[:-1]), initial=0)))


def _padded(
    reader: ReaderNetwork, windows: Sequence[Window], members: Sequence[int], shape: tuple[int, int] | None
) -> _Batch:
    """Read some windows, in this shape, or as long as the longest of them is."""
    own, pad_id, segments = [windows[number] for number in members], reader.tokenizer.pad_token_id, None
    if shape is None:
        ids, mask, segments = window_tensors(own, pad_id, reader.uses_segments, reader.device)
    else:
        ids, mask = in_shape([window.ids for window in own], shape, pad_id, reader.device)
        if reader.uses_segments:
            segments, _ = in_shape([window.segments for window in own], shape, 0, reader.device)
    with autocast(reader.device):
        states = reader.reranking[0].states(ids, mask, segments).float()
    width = states.shape[1]
    return _Batch(members, states.flatten(0, 1), [row * width for row in range(len(members))])
