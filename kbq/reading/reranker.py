"""Reranker: the phrases that a search has found are read in their surroundings, and judged against each other.

The reader also proposes the phrase that it would have chosen in each window: a search may have cut the right one badly.
What a phrase is judged is the logarithm of its odds against "none of these is right", an outcome of its own in
training. Phrases that mean the same support each other. Source: arXiv 2207.06300 (what a reranker gains), arXiv
1710.10723 (paragraphs compete), arXiv 2010.10757 (a second model learns from the mistakes of the first), arXiv
1711.05116 (what several passages say counts for more).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kbq.answers import Answer, Unit
from kbq.reading.countries import meanings
from kbq.reading.excerpts import Excerpt
from kbq.reading.judge import PhraseJudge, TaughtJudge
from kbq.reading.network import ReaderNetwork
from kbq.reading.phrase_windows import JudgedWindow, ReadWindow, Span, judge_around, odds
from kbq.text.answer_scores import normalise
from kbq.text.markers import mention_in

SUPPORT = 3.0  # τ of τ log Σ exp(score / τ), which phrases of one meaning make: 0 is the best alone, 1 the sum of odds


class Look(NamedTuple):
    """A phrase that was looked at again."""

    answer: Answer
    searched: float  # score of the search; of a proposed phrase, that of the best one beside it
    judged: float  # the logarithm of its odds against none being right, going by what was read alone
    is_proposed: bool  # by the reader: the search has not found it
    score: float = 0.0  # both together, before phrases that mean the same support it


def rerank(
    reader: ReaderNetwork,
    texts: Sequence[str],
    phrases: Sequence[Sequence[Answer]],
    score_scale: float = 1.0,
    taught: TaughtJudge | None = None,
) -> list[list[Look]]:
    """The phrases of each query that were judged again and those that the reader proposes, in their new order.

    There are none for queries that ask for the page of a mention, and for those that the reader cannot read.

    Args:
        phrases: those found for each query, which do not overlap, best first.
        score_scale: what a point of the search is worth, in points of the search that judges were taught with.
        taught: judges the queries of its relations, instead of the reader's own judge.
    """
    own = reader.reranking[1]
    looks: list[list[Look]] = [[] for _ in texts]
    readable = [
        number
        for number, text in enumerate(texts)
        if phrases[number] and not mention_in(text) and reader.query_tokenizer.accepts(text)
    ]
    judges = [taught.judge if taught and taught.judges(texts[number]) else own for number in readable]
    queries = [reader.query_tokenizer.ids_of(texts[number]) for number in readable]
    found = rerank_found(reader, queries, [phrases[number] for number in readable], judges)
    for number, judge, of_query in zip(readable, judges, found, strict=True):
        looks[number] = in_order(of_query, judge.retrieval_weight * score_scale, texts[number])
    return looks


def rerank_found(
    reader: ReaderNetwork,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    judges: Sequence[PhraseJudge],
) -> list[list[Look]]:
    """Judge the phrases found for each query, in their order; those that the reader proposes follow.

    Args:
        queries: token ids, `[CLS] … [SEP]`.
        found: phrases that do not overlap, best first, a list for each query.
        judges: of each query.
    """
    with torch.inference_mode():
        windows_of = judge_around(reader, queries, found, judges)
        return [_looks(phrases, windows) for phrases, windows in zip(found, windows_of, strict=True)]


def judged(judge: PhraseJudge, windows: Sequence[ReadWindow]) -> Tensor:
    """The logarithms of the odds of all phrases of a query, window after window. Shape: (phrases,)."""
    return odds(judge, *(torch.cat(parts) for parts in zip(*(window[1:3] for window in windows), strict=True)))


def _looks(phrases: Sequence[Answer], windows: Sequence[JudgedWindow]) -> list[Look]:
    """The looks of one query."""
    found: dict[int, float] = {}
    proposed: list[Look] = []
    for excerpt, spans, values in windows:
        answers, count = answers_in(excerpt, spans, phrases), len(excerpt.numbers)
        found |= zip(excerpt.numbers, values, strict=False)
        for answer, value in zip(answers[count:], values[count:], strict=True):
            # More than one phrase would have to give way to it, and fewer would be left than were asked for.
            if sum(_overlap(answer, other) for other in answers[:count]) < 2:
                proposed.append(Look(answer, answer.score, value, True))
    return [Look(phrase, phrase.score, found[number], False) for number, phrase in enumerate(phrases)] + proposed


def answers_in(excerpt: Excerpt, spans: Sequence[Span], phrases: Sequence[Answer]) -> list[Answer]:
    """What was judged in a window: the phrases of the excerpt, then the proposed one, with the best of their scores.

    Args:
        spans: those of the window.
        phrases: all that were found for the query.
    """
    inside = [phrases[number] for number in excerpt.numbers]
    likeness = max(inside, key=lambda phrase: phrase.score)
    places = [(int(excerpt.text.starts[first]), int(excerpt.text.ends[last])) for first, last in spans[len(inside) :]]
    return inside + [
        replace(likeness, text=likeness.context[start:end], start=start, end=end, unit=(start, end))
        for start, end in places
    ]


def in_order(looks: Sequence[Look], weight: float, query: str = "") -> list[Look]:
    """Looks with final scores, best first, none overlapping a better one; those that mean the same support one of them.

    Args:
        weight: of a point of the search, beside what a phrase is judged. The best phrase of the search gets no more
            and no less than it is judged.
        query: decides what means the same; see `meanings`.
    """
    best = max((look.searched for look in looks), default=0.0)
    scored = [(look.judged + weight * (look.searched - best), look) for look in looks]
    kept: list[Look] = []
    for score, look in sorted(scored, key=lambda one: -one[0]):
        answer = look.answer
        if not any(_overlap(answer, other.answer) for other in kept):
            kept.append(look._replace(score=score))
    return sorted(_supported(kept, query), key=lambda look: -look.answer.score)


def _supported(looks: Sequence[Look], query: str) -> Iterator[Look]:
    """Looks whose answers have their final scores: the first that says itself what several mean has what all make."""
    means = meanings(query, [look.answer for look in looks])
    scores: dict[str, list[float]] = {}
    for meaning, look in zip(means, looks, strict=True):
        scores.setdefault(meaning, []).append(look.score / SUPPORT)
    for meaning, look in zip(means, looks, strict=True):
        same = scores.pop(meaning, None) if normalise(look.answer.text) == meaning else None
        score = look.score if same is None else SUPPORT * float(np.logaddexp.reduce(same))
        yield look._replace(answer=replace(look.answer, score=score))


def before_others(looks: Sequence[Look], found: Sequence[Answer], unit: Unit) -> list[Answer]:
    """The answers that were looked at, of pages the best one each, and behind them what else was found, in its order.

    The scores of the latter continue those of the former with the distances that they had.

    Args:
        found: phrases or pages, best first.
    """
    if not looks:
        return list(found)
    answers = [look.answer for look in looks]
    if unit == "page":
        pages = {answer.page_id: answer for answer in reversed(answers)}
        answers = [answer for answer in answers if pages[answer.page_id] is answer]
        others = [hit for hit in found if hit.page_id not in pages]
    else:
        others = [hit for hit in found if not any(_overlap(hit, answer) for answer in answers)]
    last = answers[-1].score
    best = max((hit.score for hit in others), default=0.0)
    return answers + [replace(hit, score=last - (best - hit.score)) for hit in others]


def _overlap(one: Answer, other: Answer) -> bool:
    is_near = (one.page_id, one.paragraph) == (other.page_id, other.paragraph)
    return is_near and one.start < other.end and other.start < one.end
