"""Spans: find the best phrases, sentences, paragraphs or pages that open at candidate rows.

Source: arXiv 2012.12624, section 5; limit: section 2.

A span is a pair of rows (start, end) of one paragraph, start ≤ end, within the shard's limit of
length. The filter must allow phrases to open at the start and to close at the end. The score of a
span is the inner product of the start plus that of the end, less a penalty for each token after the
first, as start and end are scored independently and may belong to two answers. Each start is paired
with its best end.

Source: arXiv 2109.08133, section 3.

The score of a unit is the maximum over its phrases. Of phrases, or sentences, that overlap, only
the best is kept.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import NamedTuple, TypeAlias

import numpy as np

from kbq.answers import Answer
from kbq.array_types import Doubles, Floats, Rows
from kbq.dump.shards import Shard
from kbq.english.sentences import sentence_bounds
from kbq.index.base import MAX_TOKENS, Candidates, ranges, slices
from kbq.search.options import Unit

Products = Callable[[Rows, Rows, Floats | Doubles], Floats]  # same call as `Shard.products`
RANGES = 4096  # compared together
FIRST_GROUP = 16  # spans that are placed together; every later group is as large as all before it
WORD = re.compile(r"\S+")
# The number of a shard, and of a paragraph in it → its text.
TextOf: TypeAlias = Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of one query in one shard, best first. Shapes: (spans,).

    No missing span scores above `complete_above`: with an exact index, the spans above it are those
    of a search over all legal spans, each start with its best end.
    """

    scores: Floats
    starts: Rows
    ends: Rows
    complete_above: float
    rows: Rows  # all scored rows, ascending
    # Products of these rows with the start vector (with the candidates' bonus) and the end vector
    # (-inf where no phrase may close). Shape: (rows, 2).
    inner_products: Floats
    # Length penalty of a phrase from the paragraph's first token to the row. Shape: (rows,).
    penalties: Floats

    def shortened(self, shard: Shard, start: int, end: int, limit: int) -> tuple[float, int] | None:
        """Return the score and the end of the best span from `start` to before `end` that ends by
        character `limit`.
        """
        fits = (shard.ends[start:end] <= limit) & (shard.ends[start:end] > shard.starts[start])
        if not fits.any():
            return None
        first = int(self.rows.searchsorted(start))
        ends = slice(first, first + end - start)
        best = first + int(
            np.where(fits, self.inner_products[ends, 1] - self.penalties[ends], -np.inf).argmax()
        )
        penalty = self.penalties[best] - self.penalties[first]
        score = float(self.inner_products[first, 0] + self.inner_products[best, 1] - penalty)
        if score == -np.inf:
            return None
        return score, start + best - first


def find_spans(
    shard: Shard,
    candidates: Sequence[Candidates],
    queries: Floats | Doubles,
    max_tokens: int = MAX_TOKENS,
    length_penalty: float = 0.0,
    certain: bool = False,
    products_of: Products | None = None,
) -> list[Spans]:
    """Find, for each query, the best span of each candidate start, with its exact score. Ties are
    in order of rows.

    Args:
        candidates: those of each query.
        queries: start vector over end vector, in the units of the rows; scores are exact sums for
            those `in_steps`. Shape: (queries, 2, dim).
        max_tokens: longest span, both ends included.
        length_penalty: subtracted from the score for each token after the first, 0 or more.
        certain: leave out spans up to the candidates' bound, where better ones may be missing.
        products_of: multiplies rows in place of the shard; see `Index.products`.
    """
    starts, offsets, bonus = _opening_rows(shard, candidates)
    sizes = reach(shard, starts, max_tokens)
    firsts = offsets + starts
    numbers = _union(firsts, firsts + sizes)
    start_places = np.searchsorted(numbers, firsts)

    scored = _score_rows(shard, numbers, queries, length_penalty, products_of or shard.products)
    if bonus is not None:
        scored.products[start_places, 0] += bonus
    end_places = _best_end_places(shard, scored, start_places, sizes)
    penalties = scored.penalties[end_places] - scored.penalties[start_places]
    scores = scored.products[start_places, 0] + scored.products[end_places, 1] - penalties

    bounds = [of_query.complete_above for of_query in candidates]
    query_of = scored.query_of[start_places]
    above = np.array(bounds)[query_of] if certain else -np.inf
    kept = np.flatnonzero(scores > above)  # some starts have no end within reach
    order = kept[np.lexsort((-scores[kept], query_of[kept]))]
    return _by_query(scored, scores[order], start_places[order], end_places[order], bounds)


class _ScoredRows(NamedTuple):
    """All rows that candidates reach, of one query after another, ascending. Places count in them.

    Shapes: as in `Spans`.
    """

    query_of: Rows
    rows: Rows
    products: Floats
    penalties: Floats


def _score_rows(
    shard: Shard,
    numbers: Rows,
    queries: Floats | Doubles,
    length_penalty: float,
    products_of: Products,
) -> _ScoredRows:
    """Multiply rows with their queries. `numbers`: of rows, with the offsets of their queries."""
    # Consecutive rows of a query are at least a token apart.
    query_of, rows = np.divmod(numbers, len(shard))
    products = products_of(rows, query_of, queries)
    products[~shard.closes(rows), 1] = -np.inf
    penalties = (length_penalty * shard.positions[rows]).astype(np.float32)
    return _ScoredRows(query_of, rows, products, penalties)


def _best_end_places(shard: Shard, scored: _ScoredRows, start_places: Rows, sizes: Rows) -> Rows:
    """Return the place of the best end of each start, among the `sizes` rows from it on. Shape:
    (starts,).
    """
    values = scored.products[:, 1] - scored.penalties
    end_places = range_argmax(values, start_places, sizes)
    if shard.limit.repeats:
        _move_backward_ends(shard, scored.rows, values, end_places, start_places, sizes)
    return end_places


def _by_query(
    scored: _ScoredRows,
    scores: Floats,
    start_places: Rows,
    end_places: Rows,
    bounds: Sequence[float],
) -> list[Spans]:
    """Divide spans, those of one query after another, among their queries. `bounds`: of each query."""
    starts = scored.rows[start_places]
    ends = scored.rows[end_places]
    spans_of = slices(scored.query_of[start_places], len(bounds))
    rows_of = slices(scored.query_of, len(bounds))
    spans: list[Spans] = []
    for best, own, bound in zip(spans_of, rows_of, bounds, strict=True):
        phrases = scores[best], starts[best], ends[best]
        rows = scored.rows[own], scored.products[own], scored.penalties[own]
        spans.append(Spans(*phrases, bound, *rows))

    return spans


def _opening_rows(
    shard: Shard, candidates: Sequence[Candidates]
) -> tuple[Rows, Rows, Floats | None]:
    """Return the candidates of all queries at which a phrase may open, their offsets, and their
    bonus.

    Rows ascend once their offset, the number of the query times the shard's rows, is added.
    """
    starts = np.concatenate([of_query.starts for of_query in candidates])
    offsets = np.repeat(
        len(shard) * np.arange(len(candidates)), [len(of_query.starts) for of_query in candidates]
    )
    bonuses = [of_query.bonus for of_query in candidates if of_query.bonus is not None]
    opens = shard.opens(starts)
    if not bonuses:
        return starts[opens], offsets[opens], None
    return starts[opens], offsets[opens], np.concatenate(bonuses)[opens]


def paragraph_spans(
    shard: Shard, paragraph: int, query: Floats, length_penalty: float = 0.0
) -> Spans:
    """Return the best span of each start in one paragraph; see `find_spans`. Shape of `query`: (2,
    dim).
    """
    every_row = Candidates(shard.rows_of(paragraph), -np.inf)
    return find_spans(shard, [every_row], query[None], length_penalty=length_penalty)[0]


def reach(shard: Shard, starts: Rows, max_tokens: int = MAX_TOKENS) -> Rows:
    """Count the rows that may end a span from each of these rows. Shape: (starts,)."""
    _, stops = shard.row_range(shard.paragraphs_of(starts))
    most = np.minimum(stops - starts, min(max_tokens, shard.limit.rows))
    counts: Rows = np.empty_like(most)
    for first in range(0, len(starts), RANGES):
        part = slice(first, first + RANGES)
        begins = starts[part, None]
        steps = np.arange(most[part].max(initial=0))
        positions = shard.positions[begins + np.minimum(steps, most[part, None] - 1)]
        within = positions < shard.positions[begins] + min(max_tokens, shard.limit.tokens)
        counts[part] = np.minimum(within.sum(axis=1), most[part])
    return counts


def _move_backward_ends(
    shard: Shard, rows: Rows, values: Floats, ends: Rows, places: Rows, sizes: Rows
) -> None:
    """Replace ends that lie before their start in the text, where rows repeat, with the best other
    end, in place.
    """
    for number in np.flatnonzero(shard.ends[rows[ends]] <= shard.starts[rows[places]]):
        within = slice(places[number], places[number] + sizes[number])
        is_ahead = shard.ends[rows[within]] > shard.starts[rows[places[number]]]
        ends[number] = places[number] + np.where(is_ahead, values[within], -np.inf).argmax()


def range_argmax(values: Floats, begins: Rows, sizes: Rows) -> Rows:
    """Return the index of the first maximum of each values[begin : begin + size]. Sizes are at
    least 1.

    >>> range_argmax(np.float32([1, 5, 2, 5]), np.array([0, 2, 0]), np.array([4, 2, 1])).tolist()
    [1, 3, 0]
    """
    best = np.empty_like(begins)
    steps = np.arange(sizes.max(initial=0))
    for first in range(0, len(begins), RANGES):
        part = slice(first, first + RANGES)
        # A shorter range repeats its last index.
        inside = begins[part, None] + np.minimum(steps, sizes[part, None] - 1)
        best[part] = begins[part] + values[inside].argmax(axis=1)
    return best


def best_ends(logits: Floats) -> tuple[Floats, Rows]:
    """Return the best sum of start and end logit of phrases that start at each token, and their
    ends.

    Shapes: logits (2, tokens), results (tokens,).

    >>> best_ends(np.float32([[1, 5, 0], [7, 0, 2]]))[1].tolist()
    [0, 2, 2]
    """
    starts, ends = logits
    padded = np.pad(ends, (0, MAX_TOKENS - 1), constant_values=-np.inf)
    reachable = np.lib.stride_tricks.sliding_window_view(padded, MAX_TOKENS)
    return starts + reachable.max(axis=1), np.arange(len(starts)) + reachable.argmax(axis=1)


def _union(begins: Rows, stops: Rows) -> Rows:
    """Return the union of ranges [begin, stop), whose begins and stops ascend.

    >>> _union(np.array([0, 1, 7]), np.array([3, 4, 8])).tolist()
    [0, 1, 2, 3, 7]
    """
    # Clear of the previous range.
    begins = np.maximum(begins, np.concatenate([begins[:1], stops[:-1]]))
    return ranges(begins, stops)


class RangesTaken:
    """Ordered ranges [begin, stop) that do not overlap.

    >>> taken = RangesTaken()
    >>> taken.first_within(0, 9), taken.add(4, 6), taken.add(0, 2), taken.first_within(1, 5), taken.first_within(2, 4)
    (None, None, None, 0, None)
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._stops: list[int] = []

    def first_within(self, begin: int, stop: int) -> int | None:
        """Return the beginning of the first range that overlaps [begin, stop), or None."""
        number = bisect_right(self._stops, begin)
        return (
            self._begins[number]
            if number < len(self._begins) and self._begins[number] < stop
            else None
        )

    def add(self, begin: int, stop: int) -> None:
        number = bisect_right(self._stops, begin)
        self._begins.insert(number, begin)
        self._stops.insert(number, stop)


def shared_texts(shards: Sequence[Shard]) -> TextOf:
    """Read each paragraph once per search, so that all answers from it share its text."""
    return cache(lambda shard, paragraph: shards[shard].texts[paragraph])


@dataclass(frozen=True, slots=True)
class Units:
    """The best distinct units of one query, best first. No missing unit scores above
    `complete_above`.
    """

    hits: list[Answer]
    is_complete: bool  # true: no more are wanted, or there are no more
    complete_above: float


class _PlacedSpan(NamedTuple):
    """A span and its place, which compares as smaller the better it is. `characters` are [start,
    end) of its phrase.
    """

    negative_score: float
    shard: int
    start: int
    end: int
    paragraph: int
    characters: tuple[int, int]


def best_units(
    shards: Sequence[Shard],
    by_shard: Sequence[Spans],
    unit: Unit,
    k: int,
    between: tuple[float, float] = (-np.inf, np.inf),
    text_of: TextOf | None = None,
) -> Units:
    """Find the k best distinct units in the spans of one query, given by shard, with scores
    `between` these.

    `text_of` reads the paragraphs for all queries of a search.
    """
    text_of = text_of or shared_texts(shards)
    least, most = between
    complete_above = max(spans.complete_above for spans in by_shard)
    find = _best_of_each if unit in ("paragraph", "page") else _without_overlap
    hits: list[Answer] = []

    for span, bounds in find(shards, by_shard, unit, text_of):
        score = -span.negative_score
        if score <= complete_above:
            return Units(hits, False, complete_above)
        if score < least:
            return Units(hits, True, complete_above)
        if score <= most:
            text = text_of(span.shard, span.paragraph)
            hits.append(
                shards[span.shard].answer(span.paragraph, score, span.characters, bounds, text)
            )

        if len(hits) == k:
            break

    return Units(hits, len(hits) == k or complete_above == -np.inf, complete_above)


def _best_of_each(
    shards: Sequence[Shard], by_shard: Sequence[Spans], unit: Unit, text_of: TextOf
) -> Iterator[tuple[_PlacedSpan, tuple[int, int]]]:
    """Yield the best span of each paragraph or page, best first, with its whole paragraph as the
    unit.
    """
    order, shard_of, places = _merged(by_shard)
    paragraphs = np.concatenate(
        [s.paragraphs_of(spans.starts) for s, spans in zip(shards, by_shard, strict=True)]
    )
    keys = paragraphs
    if unit == "page":
        keys = np.concatenate(
            [
                shard.paragraph_pages[paragraphs[shard_of == number]]
                for number, shard in enumerate(shards)
            ]
        )

    _, first = np.unique(np.stack([shard_of[order], keys[order]]), axis=1, return_index=True)
    for span in _placed(shards, by_shard, shard_of, places, order[np.sort(first)]):
        yield span, (0, len(text_of(span.shard, span.paragraph)))


def _without_overlap(
    shards: Sequence[Shard], by_shard: Sequence[Spans], unit: Unit, text_of: TextOf
) -> Iterator[tuple[_PlacedSpan, tuple[int, int]]]:
    """Yield spans whose phrases (or sentences) do not overlap, best first, chosen greedily from all
    legal spans.

    A span that overlaps a better unit is shortened to end before it, and considered again with its
    new score.
    """
    order, shard_of, places = _merged(by_shard)
    in_order = _placed(shards, by_shard, shard_of, places, order)
    next_span = next(in_order, None)
    waiting: list[_PlacedSpan] = []  # a heap of shortened spans
    taken_in: defaultdict[tuple[int, int], RangesTaken] = defaultdict(RangesTaken)
    sentences = cache(lambda shard, paragraph: Sentences(text_of(shard, paragraph)))

    while next_span or waiting:
        if next_span and (not waiting or next_span <= waiting[0]):
            span = next_span
            next_span = next(in_order, None)
        else:
            span = heapq.heappop(waiting)

        taken = taken_in[span.shard, span.paragraph]
        bounds = span.characters
        if unit == "sentence":
            bounds = sentences(span.shard, span.paragraph).around(*bounds)
        limit = taken.first_within(*bounds)
        if limit is None:
            taken.add(*bounds)
            yield span, bounds
        elif (begin := span.characters[0]) < limit:
            shard = shards[span.shard]
            shorter = by_shard[span.shard].shortened(shard, span.start, span.end, limit)
            if shorter is not None:
                score, end = shorter
                characters = begin, int(shard.ends[end])
                heapq.heappush(
                    waiting,
                    _PlacedSpan(-score, span.shard, span.start, end, span.paragraph, characters),
                )


def _merged(by_shard: Sequence[Spans]) -> tuple[Rows, Rows, Rows]:
    """Return the order of all spans, best first, and the shard and the index of each span. Shapes:
    (spans,).
    """
    scores = np.concatenate([spans.scores for spans in by_shard])
    sizes = [len(spans.scores) for spans in by_shard]
    shard_of = np.repeat(np.arange(len(by_shard)), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    return np.argsort(-scores, kind="stable"), shard_of, places


def _placed(
    shards: Sequence[Shard], by_shard: Sequence[Spans], shard_of: Rows, places: Rows, order: Rows
) -> Iterator[_PlacedSpan]:
    """Yield the spans with their places, in this order. Shapes: (spans,)."""
    first = 0
    stop = FIRST_GROUP
    while first < len(order):
        group = order[first:stop]
        first = stop
        stop = 2 * stop
        spans_of: dict[int, Iterator[_PlacedSpan]] = {}
        for number in set(shard_of[group].tolist()):
            spans = by_shard[number]
            in_shard = places[group[shard_of[group] == number]]
            starts = spans.starts[in_shard]
            ends = spans.ends[in_shard]
            paragraphs = shards[number].paragraphs_of(starts)
            characters = zip(
                shards[number].starts[starts].tolist(),
                shards[number].ends[ends].tolist(),
                strict=True,
            )
            columns = starts.tolist(), ends.tolist(), paragraphs.tolist(), characters
            spans_of[number] = map(
                _PlacedSpan._make, zip((-spans.scores[in_shard]).tolist(), repeat(number), *columns)
            )

        if len(by_shard) == 1:
            yield from spans_of[0]
        else:
            yield from (next(spans_of[number]) for number in shard_of[group].tolist())


class Sentences:
    """The sentences of a text, in which a place is found in O(log n), as a long text has many
    places.
    """

    def __init__(self, text: str) -> None:
        bounds = sentence_bounds(text)
        self._length = len(text)
        self._begins, self._stops = (
            (sorted(side) for side in zip(*bounds, strict=True)) if bounds else ([], [])
        )
        words = [word.span() for word in WORD.finditer(text)]
        self._word_begins = [begin for begin, _ in words]
        self._word_stops = [stop for _, stop in words]

    def around(self, start: int, end: int) -> tuple[int, int]:
        """Return the characters of the sentences that contain [start, end), without surrounding
        white space.
        """
        before = bisect_right(self._begins, start)
        after = bisect_left(self._stops, end)
        first = 0
        if before:
            first = self._begins[before - 1]
        last = self._length
        if after < len(self._stops):
            last = self._stops[after]
        opening = bisect_right(self._word_stops, first)
        closing = bisect_left(self._word_begins, last) - 1
        if opening > closing:  # nothing but white space
            return last, first
        return max(self._word_begins[opening], first), min(self._word_stops[closing], last)
