"""Phrase windows: read phrases in their surroundings.

Phrases of a paragraph that are close to each other share a window:
`[CLS] query [SEP] title [SEP] text [SEP]`. A reader that has learned with them gets `mention [SEP]`
before the text where only an earlier part of the paragraph names the subject. Without gradients,
the states of a query's windows depend on this query alone, to the last bit. A CPU reads the windows
of a query together, a GPU those of all queries, in batches of one shape. Proposals are chosen where
the logits are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from kbq.answers import Answer, content_start
from kbq.array_types import Rows
from kbq.index.base import MAX_TOKENS
from kbq.model.bert import alike, batch_invariant_states, in_shape, is_batch_invariant, more_rows
from kbq.model.devices import autocast, batch_tokens, buckets, readable_length
from kbq.model.model import window_tensors
from kbq.model.tokenizer import Tokens, Window, token_span, tokenize
from kbq.reading.earlier_mention import earlier_mention
from kbq.reading.reader import PhraseJudge, Reader

AROUND = 200  # characters read on either side of a phrase, some 40 word pieces
LONGEST = 1200  # characters of a window that phrases share
MAX_TITLE = 24  # tokens
MAX_MENTION = 32  # tokens
TOGETHER = 8  # queries, and batches of windows that go through a network layer by layer, on a CPU
GPU_QUERIES = 64  # queries whose windows are read together there
WINDOWS = 32  # windows of a batch on a GPU, which takes as long for fewer
MULTIPLE = 128  # tokens to whose multiples windows are padded there: most have fewer
PHRASES = 256  # phrases that a judge reads together there

Span = tuple[int, int]  # first and last token of the text


# Windows


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A window, which owns the tokens of its text, and the phrases in it."""

    window: Window
    text: Tokens  # owned by the window; characters count from the beginning of the paragraph
    numbers: tuple[int, ...]  # numbers of the phrases, among all phrases of their query
    spans: tuple[Span, ...]  # span of each phrase; reading it may add a proposed one


def excerpts(
    tokenizer: Any,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    length: int,
    subjects: Sequence[str] = (),
) -> list[list[Excerpt]]:
    """Cut windows of at most `length` tokens around the phrases found for each query, each phrase
    in one of them.

    Args:
        queries: token ids, `[CLS] … [SEP]`.
        subjects: the subject of each query, empty for a question; none: earlier mentions are not
            looked for.
    """
    stretches = [list(_stretches(phrases)) for phrases in found]
    firsts: list[tuple[Answer, int, int]] = []
    mentions: list[str] = []
    for phrases, own, subject in zip(found, stretches, subjects or [""] * len(found), strict=True):
        for begin, stop, numbers in own:
            first = phrases[numbers[0]]
            mention = earlier_mention(subject, first.title, first.context, begin, stop)
            firsts.append((first, begin, stop))
            mentioned = ""
            if mention:
                mentioned = first.context[slice(*mention)]
            mentions.append(mentioned)

    titles = tokenize(tokenizer, [phrase.title for phrase, _, _ in firsts])
    named = tokenize(tokenizer, mentions)
    texts = tokenize(tokenizer, [phrase.context[begin:stop] for phrase, begin, stop in firsts])
    separator = tokenizer.sep_token_id
    prefixes: list[list[int]] = []

    for title, named_before in zip(titles, named, strict=True):
        prefix = [*title.ids[:MAX_TITLE], separator]
        if len(named_before.ids):
            prefix += [*named_before.ids[:MAX_MENTION], separator]
        prefixes.append(prefix)

    heads = iter(prefixes)
    of_texts = iter(texts)
    return [
        _excerpts(tokenizer, query, phrases, list(zip(own, heads, of_texts, strict=False)), length)
        for query, phrases, own in zip(queries, found, stretches, strict=True)
    ]


def _excerpts(
    tokenizer: Any,
    query: Sequence[int],
    phrases: Sequence[Answer],
    stretches: Sequence[tuple[tuple[int, int, list[int]], list[int], Tokens]],
    length: int,
) -> list[Excerpt]:
    """Cut the windows of one query.

    `stretches`: from `_stretches`, each with the token ids of title and mention, and the tokens of
    its text.
    """
    cut: list[Excerpt] = []
    for (begin, _, numbers), about, text in stretches:
        head = [*query, *about]
        room = length - len(head) - 1
        tokens = len(text.ids)
        text = replace(
            text, starts=text.starts + np.uint32(begin), ends=text.ends + np.uint32(begin)
        )
        spans = [token_span(text, phrases[number].start, phrases[number].end) for number in numbers]
        parts = [(slice(0, tokens), numbers, spans)]
        if tokens > room:  # scripts with a token for each letter: a window for each phrase
            parts = [
                _part(number, span, tokens, room)
                for number, span in zip(numbers, spans, strict=True)
            ]

        for kept, inside, places in parts:
            part = Tokens(text.ids[kept], text.starts[kept], text.ends[kept])
            ids = [*head, *part.ids, tokenizer.sep_token_id]
            segments = [0] * len(query) + [1] * (len(ids) - len(query))
            window = Window(ids, segments, len(head), len(part.ids), 0)
            cut.append(Excerpt(window, part, tuple(inside), tuple(places)))

    return cut


def _part(number: int, span: Span, tokens: int, room: int) -> tuple[slice, list[int], list[Span]]:
    """Cut a text to `room` tokens with a phrase in the middle; return the phrase's number and span
    there, too.
    """
    first, last = span
    start = max(0, min((first + last + 1 - room) // 2, tokens - room))
    return (
        slice(start, start + room),
        [number],
        [(max(0, first - start), min(last - start, room - 1))],
    )


def _stretches(phrases: Sequence[Answer]) -> Iterator[tuple[int, int, list[int]]]:
    """Characters [begin, stop) of a paragraph, cut between words, and the numbers of the phrases in
    them.
    """
    order = sorted(range(len(phrases)), key=lambda number: phrases[number].place)
    for _, members in groupby(order, key=lambda number: phrases[number].place[:2]):
        begin = stop = -1
        inside: list[int] = []
        for number in members:
            first, last = _surroundings(phrases[number])
            if inside and first <= stop and last - begin <= LONGEST:
                stop = max(stop, last)
            else:
                if inside:
                    yield begin, stop, inside
                begin = first
                stop = last
                inside = []
            inside.append(number)

        yield begin, stop, inside


def _surroundings(phrase: Answer) -> tuple[int, int]:
    """Return the characters [begin, stop) of a phrase and its surroundings, cut between words if
    possible.
    """
    text = phrase.context
    begin = phrase.start - AROUND
    stop = phrase.end + AROUND
    blank_before = text.find(" ", max(0, begin), phrase.start)
    blank_behind = text.rfind(" ", phrase.end, stop)
    if begin <= 0:
        begin = content_start(text)
    elif blank_before >= 0:
        begin = blank_before
    if stop >= len(text):
        return begin, len(text)
    if blank_behind < 0:
        return begin, stop
    return begin, blank_behind


# Reading


class ReadWindow(NamedTuple):
    """An excerpt that was read.

    Shapes: edges, the states of each phrase's first and last token, which a judge reads (phrases, 2
    dim), edge_logits, the sums of their logits to open and to close the answer (phrases,), logits,
    those of each token (2, tokens).
    """

    excerpt: Excerpt
    edges: Tensor
    edge_logits: Tensor
    logits: Tensor


# Windows that were read together: their numbers, their states with padding (rows, dim), and the row
# where each begins.
_Batch = tuple[Sequence[int], Tensor, Sequence[int]]


class _Read(NamedTuple):
    """Windows that were read, and their phrases in the same order. Shapes: as in `ReadWindow`, for
    all of them.
    """

    excerpts: list[list[Excerpt]]  # excerpts of each query
    edges: Tensor
    edge_logits: Tensor
    logits: list[Tensor]  # logits of each window


def read_around(
    reader: Reader,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    subjects: Sequence[str] = (),
) -> list[list[ReadWindow]]:
    """Read the phrases found for each query, with gradients if these are on."""
    read = _read(reader, queries, found, subjects)
    counts = [len(excerpt.spans) for of_query in read.excerpts for excerpt in of_query]
    edges = torch.split(read.edges, counts)
    edge_logits = torch.split(read.edge_logits, counts)
    parts = zip(edges, edge_logits, read.logits, strict=True)
    return [
        [ReadWindow(excerpt, *next(parts)) for excerpt in of_query] for of_query in read.excerpts
    ]


def judge_around(
    reader: Reader,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    judges: Sequence[PhraseJudge],
    subjects: Sequence[str] = (),
) -> Iterator[list[tuple[Excerpt, list[float]]]]:
    """Yield, for each query, its windows, each with its judge's log odds of the spans against none
    being right.
    """
    in_one = _has_fixed_shapes(reader)
    together = GPU_QUERIES if in_one else TOGETHER
    for first in range(0, len(queries), together):
        part = slice(first, first + together)
        read = _read(reader, queries[part], found[part], subjects[part])
        counts = [sum(len(excerpt.spans) for excerpt in of_query) for of_query in read.excerpts]
        if in_one:  # the phrases of all queries in one call, not query by query
            values = _judged_together(
                read,
                [
                    judge
                    for judge, count in zip(judges[part], counts, strict=True)
                    for _ in range(count)
                ],
            )
        else:
            edges = torch.split(read.edges, counts)
            edge_logits = torch.split(read.edge_logits, counts)
            values = torch.cat([read.edge_logits[:0], *map(odds, judges[part], edges, edge_logits)])

        left = iter(values.tolist())
        for of_query in read.excerpts:
            yield [(excerpt, [next(left) for _ in excerpt.spans]) for excerpt in of_query]


def odds(judge: PhraseJudge, edges: Tensor, edge_logits: Tensor) -> Tensor:
    """Return the log odds of the phrases of a query. Shapes: edges (phrases, 2 dim), others
    (phrases,).
    """
    alone: Tensor = judge(more_rows(edges))[: len(edge_logits)]
    return alone + edge_logits


def _judged_together(read: _Read, judges: Sequence[PhraseJudge]) -> Tensor:
    """Return the log odds of phrases, always the same number at a time; `judges`: of each. Shape:
    (phrases,).
    """
    values = torch.empty_like(read.edge_logits)
    for judge in dict.fromkeys(judges):
        own = torch.tensor(
            [number for number, each in enumerate(judges) if each is judge], device=values.device
        )
        for rows in torch.split(own, PHRASES):
            edges = pad(read.edges[rows], (0, 0, 0, PHRASES - len(rows)))
            values[rows] = judge(edges)[: len(rows)] + read.edge_logits[rows]
    return values


def _has_fixed_shapes(reader: Reader) -> bool:
    """Whether all batches have one shape, as on a GPU, so that a result does not depend on its
    neighbours.
    """
    return not torch.is_grad_enabled() and not is_batch_invariant(
        reader.judging_network.backbone, reader.device
    )


def _read(
    reader: Reader,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    subjects: Sequence[str],
) -> _Read:
    """Read the phrases found for each query in their surroundings, with a proposal in each window."""
    named = subjects if reader.judging_network.reads_mentions else ()
    cut = excerpts(reader.tokenizer, queries, found, reader.length, named)
    windows = [excerpt.window for of_query in cut for excerpt in of_query]
    batches = list(_states(reader, windows, [len(of_query) for of_query in cut]))
    if not batches:
        nothing = torch.empty(0, device=reader.device)
        return _Read(cut, nothing[:, None], nothing, [])

    states = torch.cat([batch_states for _, batch_states, _ in batches])
    logits = torch.cat(
        [
            torch.stack(reader.judging_network.logits(batch_states))
            for _, batch_states, _ in batches
        ],
        dim=1,
    )
    texts = _texts_in(batches, windows)
    proposals = iter(_proposals(logits, texts))
    cut = [[_with_proposal(excerpt, next(proposals)) for excerpt in of_query] for of_query in cut]
    edge_rows = _edge_rows([excerpt for of_query in cut for excerpt in of_query], texts)
    starts, ends = torch.from_numpy(edge_rows).to(reader.device).T
    edges = torch.cat([states[starts], states[ends]], dim=1)
    edge_logits = logits[0, starts] + logits[1, ends]

    return _Read(cut, edges, edge_logits, [logits[:, text] for text in texts])


def _texts_in(batches: Sequence[_Batch], windows: Sequence[Window]) -> list[slice]:
    """Return the rows of the text of each window, among the states of all batches."""
    texts = [slice(0)] * len(windows)
    begin = 0
    for members, states, begins in batches:
        for number, first in zip(members, begins, strict=True):
            window = windows[number]
            start = begin + first + window.first
            texts[number] = slice(start, start + window.count)
        begin += len(states)

    return texts


def _edge_rows(read: Sequence[Excerpt], texts: Sequence[slice]) -> Rows:
    """Return the rows of the first and the last token of each phrase. Shape: (phrases, 2)."""
    edge_rows = [
        (text.start + first, text.start + last)
        for excerpt, text in zip(read, texts, strict=True)
        for first, last in excerpt.spans
    ]
    return np.array(edge_rows, np.int64)


def _with_proposal(excerpt: Excerpt, span: Span) -> Excerpt:
    if span in excerpt.spans:
        return excerpt
    return replace(excerpt, spans=(*excerpt.spans, span))


def _proposals(logits: Tensor, texts: Sequence[slice]) -> list[Span]:
    """Return the best phrase of each text, chosen where the logits are. Shape of `logits`: (2,
    rows).
    """
    firsts, counts = (np.array([(text.start, text.stop - text.start) for text in texts]).T)[
        :, :, None
    ]
    places = np.arange(counts.max())
    rows = torch.from_numpy(np.minimum(firsts + places, firsts + counts - 1)).to(logits.device)
    outside = torch.from_numpy(places >= counts).to(logits.device)
    # (texts, tokens) each.
    opens, closes = logits.detach()[:, rows].masked_fill(outside, -torch.inf)
    reached, offsets = (
        pad(closes, (0, MAX_TOKENS - 1), value=-torch.inf).unfold(1, MAX_TOKENS, 1).max(dim=2)
    )
    starts = (opens + reached).argmax(dim=1, keepdim=True)
    best = torch.cat([starts, starts + offsets.gather(1, starts)], dim=1)
    return [(start, end) for start, end in best.tolist()]


def _states(
    reader: Reader, windows: Sequence[Window], of_queries: Sequence[int]
) -> Iterator[_Batch]:
    """Read windows in batches; `of_queries`: how many windows each query has, one after another.

    On a CPU, no batch has windows of two queries: the size of a batch changes how its products are
    rounded.
    """
    network = reader.judging_network
    device = reader.device
    lengths = [len(window.ids) for window in windows]
    if torch.is_grad_enabled():
        for members in buckets(lengths, batch_tokens(device)):
            yield _padded(reader, windows, members, None)
        return

    if _has_fixed_shapes(reader):
        for members, length in alike(lengths, WINDOWS, MULTIPLE):
            yield _padded(
                reader, windows, members, (WINDOWS, readable_length(network.backbone, length))
            )
        return

    batches: list[list[int]] = []
    for first, stop in pairwise(accumulate(of_queries, initial=0)):
        batches += [
            [first + member for member in batch]
            for batch in buckets(lengths[first:stop], batch_tokens(device))
        ]

    for some in (batches[first : first + TOGETHER] for first in range(0, len(batches), TOGETHER)):
        groups = [
            (
                [windows[number].ids for number in members],
                [windows[number].segments for number in members],
            )
            for members in some
        ]
        given = groups if reader.uses_segments else [(ids, None) for ids, _ in groups]
        for members, states in zip(
            some, batch_invariant_states(network.backbone, given), strict=True
        ):
            yield (
                members,
                states,
                list(accumulate((lengths[number] for number in members[:-1]), initial=0)),
            )


def _padded(
    reader: Reader, windows: Sequence[Window], members: Sequence[int], shape: tuple[int, int] | None
) -> _Batch:
    """Read some windows, in this shape, or as long as the longest of them is."""
    own = [windows[number] for number in members]
    pad_id = reader.tokenizer.pad_token_id
    if shape is None:
        with autocast(reader.device):
            states = reader.judging_network.states(
                *window_tensors(own, pad_id, reader.uses_segments, reader.device)
            )
    else:
        given = list(in_shape([window.ids for window in own], shape, pad_id, reader.device))
        if reader.uses_segments:
            given.append(in_shape([window.segments for window in own], shape, 0, reader.device)[0])
        (states,) = reader.recorded(*given)

    width = states.shape[1]
    return members, states.flatten(0, 1), [row * width for row in range(len(members))]
