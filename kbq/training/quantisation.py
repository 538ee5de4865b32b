"""Quantisation: fit a trained model to the way in which it will be searched.

The penalty is the one with the best open EM. The threshold is the one that drops most tokens while
EM falls by less than half a point, both among all passages and in the gold one. Source: arXiv
2109.08133, Fig. 4. Of the tokens kept, those that hardly ever open (close) an answer may open
(close) no phrase, as long as that costs at most a tenth of a point. Passages are encoded once;
thresholds are masks over all their tokens.

EM and F1 use SQuAD's normalisation, once with the gold passage given and once among all passages.
"""

import dataclasses
import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from kbq.array_types import Bools, Floats
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.manifest import Manifest
from kbq.dump.page_encoder import quantise
from kbq.dump.resumable_build import build_shards
from kbq.dump.shards import Shard
from kbq.index.base import MAX_TOKENS
from kbq.index.factory import open_index
from kbq.model.model import Model, encode_windows
from kbq.model.tokenizer import tokenize, windows
from kbq.search.search import SearchContext, search
from kbq.search.spans import paragraph_spans
from kbq.text.answer_scores import normalise_answer, score_answer
from kbq.training.batches import Passage, TrainingQuery, readable

Edges = tuple[Bools, Bools]
NumberedQueries = list[tuple[int, TrainingQuery]]  # number of the gold passage, and the query
# Points of EM.
MOST_LOST = 0.5
MOST_LOST_BY_EDGES = 0.1
# Shares of all tokens that are kept.
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)
EDGE_THRESHOLDS = (-np.inf, -6.0, -5.0, -4.0, -3.0, -2.0)  # logits
LENGTH_PENALTIES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
MOST_QUERIES = 2000
AT_A_TIME = 32  # queries
TOP = 5  # passages


@dataclass(frozen=True, slots=True)
class FilterPoint:
    """The cost of the filter at one threshold; shares are percentages."""

    threshold: float
    kept: float  # share of tokens
    vectors: float  # kept per passage
    open_em: float
    open_passage_5: float  # the gold passage is among the best five
    gold_em: float  # the gold passage is given


@dataclass(frozen=True, slots=True)
class EncodedTokens:
    """All tokens of some passages, one passage after another, with a gap after each that no phrase
    can cross.

    Arrays have shape (places,); a gap is a place without a token.
    """

    vectors: Floats  # Shape: (places, dim)
    logits: Floats  # the filter's, of opening and closing; -inf in a gap. Shape: (places, 2)
    always: Bools  # the best token of a window, which no threshold drops
    passages: NDArray[np.int64]
    starts: NDArray[np.int64]  # characters of the token's word
    ends: NDArray[np.int64]

    @classmethod
    def unfilled(cls, begins: NDArray[np.int64], dim: int) -> "EncodedTokens":
        """Make room for passages that begin at these places, the last of which is the end of all."""
        places = int(begins[-1])
        logits = np.full((places, 2), -np.inf, np.float32)
        passages = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
        starts, ends = np.zeros((2, places), np.int64)
        return cls(
            vectors=np.zeros((places, dim), np.float32),
            logits=logits,
            always=np.zeros(places, bool),
            passages=passages,
            starts=starts,
            ends=ends,
        )

    @property
    def chances(self) -> Floats:
        """The larger one of a token's two logits."""
        best: Floats = self.logits.max(axis=1)
        return best

    def edges(self, filter_threshold: float, edge_threshold: float) -> Edges:
        """Mark where phrases may open and close."""
        kept = self.chances > filter_threshold
        opens, closes = ((kept & (side > edge_threshold)) | self.always for side in self.logits.T)
        return opens, closes


@dataclass(frozen=True, slots=True)
class DevSample:
    """Queries and the encoded tokens of the passages that answer them, both in the units of the
    int8 rows.
    """

    passages: Sequence[Passage]
    tokens: EncodedTokens
    rows: Floats  # the tokens' vectors as int8 holds them. Shape: (places, dim)
    queries: NumberedQueries
    starts: Floats  # start vectors of the queries. Shape: (queries, dim)
    ends: Floats

    @classmethod
    def of(cls, model: Model, passages: Sequence[Passage], tokens: EncodedTokens) -> Self:
        """Take the queries that the encoder can read, or a sample if there are too many."""
        quantised = quantise(torch.from_numpy(tokens.vectors), torch.from_numpy(model.scale))
        rows = quantised.numpy().astype(np.float32)
        queries = readable(passages, model.query_tokenizer)
        queries = random.Random(0).sample(queries, min(MOST_QUERIES, len(queries)))
        vectors = model.in_row_units(*model.encode_queries([query.text for _, query in queries]))
        return cls(passages, tokens, rows, queries, *vectors.transpose(1, 0, 2))

    def read(self, ways: Sequence[tuple[Edges, float]]) -> list[list[float]]:
        """Return, in percent, open EM, how often the gold passage is among the best five, and gold
        EM, for each way.

        A way of reading is where phrases may open and close, and a length penalty.
        """
        right = np.zeros((len(ways), 3), np.int64)  # answers, passages, answers in the gold passage
        for first in range(0, len(self.queries), AT_A_TIME):
            part = slice(first, first + AT_A_TIME)
            scores = self.starts[part] @ self.rows.T, self.ends[part] @ self.rows.T
            for way, (edges, penalty) in enumerate(ways):
                right[way] += self._right(scores, edges, penalty, self.queries[part])
        percent: list[list[float]] = (100 * right / max(1, len(self.queries))).round(2).tolist()
        return percent

    def _right(
        self, scores: tuple[Floats, Floats], edges: Edges, penalty: float, queries: NumberedQueries
    ) -> tuple[int, int, int]:
        """Count queries by right phrase, gold passage among the best five, and right phrase in the
        gold passage.
        """
        passage_of = self.tokens.passages
        opens, closes = edges
        start_scores = np.where(opens, scores[0], np.float32(-np.inf))
        end_scores = np.where(closes, scores[1], np.float32(-np.inf))
        begins = np.flatnonzero(np.diff(passage_of, prepend=-1))
        places = np.arange(len(passage_of)) - begins[passage_of]
        penalty_so_far = (penalty * places).astype(np.float32)
        start_scores = start_scores + penalty_so_far
        end_scores = end_scores - penalty_so_far
        best = start_scores + best_ahead(end_scores)
        passage_scores = np.maximum.reduceat(best, begins, axis=1)
        top = np.argsort(-passage_scores, axis=1, kind="stable")[:, :TOP]
        stops = np.append(begins[1:], len(passage_of))
        open_right = in_top = gold_right = 0

        for row, (number, query) in enumerate(queries):
            golds = {normalise_answer(answer) for answer in query.answers}
            first = begins[number]
            anywhere = int(best[row].argmax())
            within = first + int(best[row, first : stops[number]].argmax())

            phrase_anywhere = self._phrase(anywhere, end_scores[row])
            phrase_within = self._phrase(within, end_scores[row])
            open_right += normalise_answer(phrase_anywhere) in golds
            in_top += number in passage_of[begins[top[row]]]
            gold_right += normalise_answer(phrase_within) in golds

        return open_right, in_top, gold_right

    def _phrase(self, start: int, end_scores: Floats) -> str:
        """Return the text from the place `start` to its best end. Shape of `end_scores`: (places,)."""
        end = start + int(end_scores[start : start + MAX_TOKENS].argmax())
        text = self.passages[int(self.tokens.passages[start])].text
        return text[self.tokens.starts[start] : self.tokens.ends[end]]


def quantisation_of(
    model: Model, passages: Sequence[Passage], penalties: Sequence[float] = LENGTH_PENALTIES
) -> tuple[FilterPoint, ...]:
    """Set the model's `scale`, the best of the length penalties, and thresholds; return the points
    tried for the filter threshold.

    The model should not have been trained on `passages`. If it answers nothing, it keeps every
    token.
    """
    tokens = encode_tokens(model, passages)
    model.scale = (np.maximum(np.abs(tokens.vectors).max(axis=0), 1e-6) / 127).astype(np.float32)
    dev_sample = DevSample.of(model, passages, tokens)
    is_token = np.isfinite(tokens.chances)
    scores = dev_sample.read([((is_token, is_token), penalty) for penalty in penalties])
    # Open EM decides.
    penalty = max(zip(scores, penalties, strict=True), key=lambda pair: pair[0][0])[1]
    model.config = dataclasses.replace(model.config, length_penalty=penalty)
    points = filter_curve(dev_sample, penalty)
    full = points[0]
    if full.open_em == full.gold_em == 0:
        model.config = dataclasses.replace(
            model.config, filter_threshold=-math.inf, edge_threshold=-math.inf
        )
        return points

    good = [
        point
        for point in points
        if max(full.open_em - point.open_em, full.gold_em - point.gold_em) < MOST_LOST
    ]
    edge = best_edges(dev_sample, good[-1].threshold, penalty)
    # A token that opens and closes no phrase need not be kept.
    threshold = max(edge, good[-1].threshold)
    model.config = dataclasses.replace(
        model.config, edge_threshold=edge, filter_threshold=threshold
    )

    return points


def best_edges(dev_sample: DevSample, filter_threshold: float, penalty: float) -> float:
    """Return the highest edge threshold that hardly costs EM, given the filter's threshold."""
    ways = [(dev_sample.tokens.edges(filter_threshold, edge), penalty) for edge in EDGE_THRESHOLDS]
    scores = np.array(dev_sample.read(ways))[:, [0, 2]]  # open EM, and EM in the gold passage
    lost = (scores[0] - scores).max(axis=1).round(2)
    return EDGE_THRESHOLDS[np.flatnonzero(lost <= MOST_LOST_BY_EDGES)[-1]]


def filter_curve(dev_sample: DevSample, penalty: float) -> tuple[FilterPoint, ...]:
    """Read at filter thresholds that keep fewer and fewer tokens; the first one keeps all."""
    tokens = dev_sample.tokens
    passages = len(dev_sample.passages)
    is_token = np.isfinite(tokens.chances)
    chances = tokens.chances[is_token]
    # Only tokens above a threshold are kept, so it is set just below the weakest of them.
    weakest = [np.quantile(chances, 1 - share, method="lower") for share in SHARES]
    thresholds = [
        float(np.nextafter(np.float32(chance), np.float32(-np.inf))) for chance in weakest
    ]
    masks = [is_token & ((tokens.chances > threshold) | tokens.always) for threshold in thresholds]
    percent = dev_sample.read([((mask, mask), penalty) for mask in masks])
    points = []

    for threshold, mask, scores in zip(thresholds, masks, percent, strict=True):
        kept = int(mask.sum())
        share = round(100 * kept / len(chances), 2)
        points.append(FilterPoint(threshold, share, round(kept / passages, 2), *scores))

    return tuple(points)


def best_ahead(scores: Floats) -> Floats:
    """Return the best score of each place and the 19 after it. Shapes: (queries, places).

    >>> best_ahead(np.float32([[1, 5, 2]])).tolist()
    [[5.0, 5.0, 2.0]]
    """
    best = scores.copy()
    width = 1
    while width < MAX_TOKENS:
        step = min(width, MAX_TOKENS - width)
        best[:, :-step] = np.maximum(best[:, :-step], best[:, step:])
        width += step
    return best


def encode_tokens(model: Model, passages: Sequence[Passage]) -> EncodedTokens:
    """Encode every token: its vector, filter logits and characters."""
    titles = tokenize(model.tokenizer, [passage.title for passage in passages])
    texts = tokenize(model.tokenizer, [passage.text for passage in passages])
    windows_of = [
        windows(model.tokenizer, title.ids, text, model.config.window)
        for title, text in zip(titles, texts, strict=True)
    ]
    begins = np.cumsum([0, *(len(text.ids) + MAX_TOKENS - 1 for text in texts)])
    tokens = EncodedTokens.unfilled(begins, model.dim)
    for text, begin in zip(texts, begins, strict=False):
        tokens.starts[begin : begin + len(text.ids)] = text.starts
        tokens.ends[begin : begin + len(text.ids)] = text.ends

    flat = [
        (int(begin) + window.position, window)
        for begin, group in zip(begins, windows_of, strict=False)
        for window in group
    ]
    encoded = encode_windows(
        model.phrases,
        [window for _, window in flat],
        model.tokenizer.pad_token_id,
        model.uses_segments,
    )
    for index, vectors, logits in encoded:
        span = slice(flat[index][0], flat[index][0] + flat[index][1].count)
        chance = logits.max(axis=1)
        tokens.vectors[span] = vectors
        tokens.logits[span] = logits
        tokens.always[span] = chance == chance.max()

    return tokens


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """All values but `queries` are percentages; `kept` is the filter's share of tokens."""

    queries: int
    gold_em: float  # the gold passage is given
    gold_f1: float
    open_em: float  # every passage is a candidate
    open_f1: float
    open_passage: float  # the best phrase is in the gold passage
    open_passage_5: float  # the gold passage is among the best five
    kept: float


def evaluate_reading(model: Model, passages: Sequence[Passage]) -> ReadingScores:
    """Build a phrase dump of the passages and ask it all their queries that the encoder can read."""
    pages = [
        Page(str(number), passage.title, (Paragraph(0, passage.text),))
        for number, passage in enumerate(passages)
    ]
    queries = readable(passages, model.query_tokenizer)
    golds = [query.answers for _, query in queries]
    vectors = model.in_row_units(*model.encode_queries([query.text for _, query in queries]))

    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "dump"
        counts, corpus = build_shards(pages, model, dump, 0, lambda counts: None)
        manifest = Manifest("", "", model.dim, model.config.filter_threshold).with_shards(
            counts, corpus
        )
        shards = manifest.open_shards(dump)
        index = open_index(shards, manifest.index, model.device, may_leave_gpu=True)
        penalty = model.config.length_penalty
        hits = search(SearchContext(shards, index, penalty), vectors, 5, "page")
        answers_in_gold = [
            _read(shards, number, vector, penalty)
            for (number, _), vector in zip(queries, vectors, strict=True)
        ]
        kept = manifest.counts.rows / max(1, manifest.counts.tokens)

    found = [[hit.page_id for hit in best] for best in hits]
    golds_and_pages = [
        (str(number), best) for best, (number, _) in zip(found, queries, strict=True)
    ]
    first = _percent([gold in best[:1] for gold, best in golds_and_pages])
    top_5 = _percent([gold in best[:5] for gold, best in golds_and_pages])
    gold_scores = answer_scores(answers_in_gold, golds)
    open_scores = answer_scores([hit[0].text if hit else "" for hit in hits], golds)

    return ReadingScores(len(queries), *gold_scores, *open_scores, first, top_5, 100 * kept)


def _read(shards: Sequence[Shard], number: int, query: Floats, length_penalty: float) -> str:
    """Return the best phrase for a query in a passage, a page of one paragraph, or "". Shape: (2,
    dim).
    """
    for shard in shards:
        if number < len(shard.texts):
            break
        number -= len(shard.texts)
    best = paragraph_spans(shard, number, query, length_penalty)
    if not len(best.starts):
        return ""
    return shard.texts[number][shard.starts[best.starts[0]] : shard.ends[best.ends[0]]]


def answer_scores(answers: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Return EM and F1 in percent, under SQuAD's normalisation; of several gold answers the best
    counts.
    """
    scores = []
    for answer, answers_in_gold in zip(answers, golds, strict=True):
        scores.append(score_answer(answer, answers_in_gold, with_rouge=False))
    exact = [score.em for score in scores]
    f1 = [score.f1 for score in scores]
    return _percent(exact), _percent(f1)


def _percent(values: Sequence[float]) -> float:
    """Return a mean in percent, with two decimals."""
    return round(100 * sum(values) / max(1, len(values)), 2)
