"""Reranker: put the phrases of a search into a better order by judging them in their context.

The reader also proposes the phrase that it would have chosen in each window: a search may have cut
the right one badly. A phrase is judged by the logarithm of its odds against "none of these is
right", an outcome of its own in training. Phrases that mean the same support each other. `Searcher`
(asking/searcher.py) chooses how many come here.
Source: arXiv 2207.06300 (a reranker), arXiv 1710.10723 (paragraphs compete), arXiv 2010.10757 (a
second model learns from the mistakes of the first), arXiv 1711.05116 (an answer that several
passages give counts for more).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from kbq.answers import Answer
from kbq.english.countries import ADJECTIVES, ASKS_FOR_A_COUNTRY, NAMES
from kbq.english.statements import is_ruled_out
from kbq.errors import QueryError
from kbq.model.model import Model
from kbq.model.model_folder import local_folder
from kbq.reading.phrase_windows import Excerpt, judge_around
from kbq.reading.reader import PhraseJudge, Reader, RelationJudge, best_of_each, judge_digest
from kbq.search.options import N_RERANKED, WORDS_ALONE, SearchOptions, Unit
from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import IN_BRACKETS
from kbq.text.queries import Query

MOST_LOGIT = 30.0
ELSEWHERE = 3.0  # the logit that an answer loses if it is not on the subject's own page
# Temperature τ of τ log Σ exp(score / τ), the score that phrases of one meaning make: 0 is the best
# alone, 1 the sum of odds.
SUPPORT = 3.0


def meanings(query: Query, answers: Sequence[Answer]) -> list[str]:
    """Return the meaning of each answer to a query, as a text without case, articles and
    punctuation.

    An answer means itself; but if a slot asks for a country, an adjective means the name of its
    country, if that name is among the answers from the same paragraph.
    """
    texts = [normalise_answer(answer.text) for answer in answers]
    if not ASKS_FOR_A_COUNTRY.match(query.relation):
        return texts
    named: dict[tuple[str, str, int], str] = {}  # key: country and paragraph
    for text, answer in sorted(zip(texts, answers, strict=True), key=lambda pair: pair[1].start):
        if text in NAMES:
            named.setdefault((NAMES[text], answer.page_id, answer.paragraph), text)
    return [
        named.get((ADJECTIVES.get(text, ""), answer.page_id, answer.paragraph), text)
        for text, answer in zip(texts, answers, strict=True)
    ]


def are_from_other_pages(query: Query, answers: Sequence[Answer]) -> list[bool]:
    """Return whether each answer to a slot query is from another page, while the subject's own page
    is among them.
    """
    subject = normalise_answer(query.subject)
    if not subject:
        return [False] * len(answers)
    titles = {answer.title for answer in answers}
    own = {
        title
        for title in titles
        if subject in map(normalise_answer, (title, IN_BRACKETS.sub("", title)))
    }
    return [bool(own) and answer.title not in own for answer in answers]


class Candidate(NamedTuple):
    """A phrase that was judged again."""

    answer: Answer
    searched: float  # score of the search; a proposed phrase has that of the best one with it
    judged: float  # the logarithm of its odds against none being right, by reading alone
    is_proposed: bool  # true: the reader proposed it, the search has not found it
    score: float = 0.0  # both together, before phrases that mean the same support it


class Reranking:
    """The reader of a model, or of the base of a tuned query encoder, and the judges; opened when
    they are needed.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        # The model with the phrase encoder and the reader.
        self.base = model.config.base or model.source

    @cached_property
    def reader(self) -> Reader:
        """The model's own reader, which shares equal word embeddings with the model. Raises
        ModelError without one.
        """
        reader = Reader.open(self.base, str(self.model.device))
        table = self.model.queries.start.get_input_embeddings()
        backbone: Any = reader.network.backbone
        own = backbone.get_input_embeddings().weight
        if own.dtype == table.weight.dtype and torch.equal(own, table.weight):
            backbone.set_input_embeddings(table)
        return reader

    @cached_property
    def reader_digest(self) -> str:
        """The digest of the reader that judges phrases, or empty if the model has none."""
        return judge_digest(local_folder(self.base))

    @cached_property
    def relation_judge(self) -> RelationJudge | None:
        """The judge of the relations that the query encoder was tuned on, if it came out better
        than the reader's own.

        Raises ModelError if it is damaged, or has learned with another reader.
        """
        if not self.model.config.base:
            return None
        return RelationJudge.open(
            local_folder(self.model.source), self.reader_digest, self.model.device
        )

    @property
    def digest(self) -> str:
        """The digest of all judges of phrases, or empty if there is none."""
        relation_judge = self.relation_judge if self.reader_digest else None
        return (
            f"{self.reader_digest} {relation_judge.fingerprint}"
            if relation_judge
            else self.reader_digest
        )

    def n_reranked(self, options: SearchOptions) -> int:
        """Return how many phrases of a query are reranked. Raises QueryError if some are asked for,
        but none can be.
        """
        if options.rerank == 0:
            return 0
        reason = self.why_not(options)
        if reason and options.rerank:
            raise QueryError(f"--rerank has no effect where {reason}: leave it out", is_usage=True)
        if reason:
            return 0
        if options.rerank is None:
            return N_RERANKED
        return options.rerank

    def why_not(self, options: SearchOptions) -> str:
        """Say why nothing is reranked; empty if something is."""
        if options.reader is not None:
            return "a reader reads"
        if options.backend in WORDS_ALONE:
            return f"{options.backend} finds no phrases"
        if options.chosen_unit == "sentence":
            return "sentences are asked for"
        if not self.reader_digest:
            return f"the model {self.base} has no reader that judges phrases"
        if options.rerank == 0:
            return "nothing is reranked (--rerank=0)"
        return ""


def rerank(
    reader: Reader,
    queries: Sequence[Query],
    phrases: Sequence[Sequence[Answer]],
    score_scale: float = 1.0,
    relation_judge: RelationJudge | None = None,
) -> list[list[Candidate]]:
    """Judge the phrases of each query again, with the reader's proposals, and put them into their
    new order.

    A query that asks for the page of a mention, or that the reader cannot read, gets none.

    Args:
        phrases: those found for each query, best first. They do not overlap.
        score_scale: the worth of a point of the search, in points of the search that the judges
            have learned with.
        relation_judge: judges the queries of its relations, instead of the reader's own judge.
    """
    own = reader.phrase_judge
    candidates: list[list[Candidate]] = [[] for _ in queries]
    read: dict[int, list[int]] = {}  # token ids of the queries whose phrases are judged
    for number, query in enumerate(queries):
        if phrases[number] and query.mention is None:
            with suppress(QueryError):
                read[number] = reader.query_tokenizer.ids_of(query.text)

    judges = [
        relation_judge.judge if relation_judge and relation_judge.is_for(queries[number]) else own
        for number in read
    ]
    # A GPU is asked for each.
    weights = {judge: judge.retrieval_weight * score_scale for judge in set(judges)}
    subjects = [queries[number].subject for number in read]
    judged = rerank_found(
        reader, list(read.values()), [phrases[number] for number in read], judges, subjects
    )
    for number, judge, of_query in zip(read, judges, judged, strict=True):
        candidates[number] = in_order(of_query, weights[judge], queries[number])

    return candidates


@torch.inference_mode()
def rerank_found(
    reader: Reader,
    queries: Sequence[Sequence[int]],
    found: Sequence[Sequence[Answer]],
    judges: Sequence[PhraseJudge],
    subjects: Sequence[str] = (),
) -> list[list[Candidate]]:
    """Judge the phrases found for each query (token ids) with its judge, in their order, then those
    proposed.
    """
    windows_of = judge_around(reader, queries, found, judges, subjects)
    return [
        _candidates(phrases, windows) for phrases, windows in zip(found, windows_of, strict=True)
    ]


def _candidates(
    phrases: Sequence[Answer], windows: Sequence[tuple[Excerpt, list[float]]]
) -> list[Candidate]:
    """Return the phrases found for one query, in their order, and the reader's proposals."""
    judged: dict[int, float] = {}
    proposed: list[Candidate] = []
    for excerpt, values in windows:
        answers = answers_in(excerpt, phrases)
        count = len(excerpt.numbers)
        judged |= zip(excerpt.numbers, values, strict=False)
        for answer, value in zip(answers[count:], values[count:], strict=True):
            # More than one phrase would have to give way to it, and fewer would be left than were
            # asked for.
            if sum(_overlap(answer, other) for other in answers[:count]) < 2:
                proposed.append(Candidate(answer, answer.score, value, True))

    return [
        Candidate(phrase, phrase.score, judged[number], False)
        for number, phrase in enumerate(phrases)
    ] + proposed


def answers_in(excerpt: Excerpt, phrases: Sequence[Answer]) -> list[Answer]:
    """Return the phrases of an excerpt that was read, then the proposed one, with the best of their
    scores.

    `phrases`: all that were found for the query.
    """
    inside = [phrases[number] for number in excerpt.numbers]
    best = max(inside, key=lambda phrase: phrase.score)
    for first, last in excerpt.spans[len(inside) :]:
        start = int(excerpt.text.starts[first])
        end = int(excerpt.text.ends[last])
        inside.append(
            replace(best, text=best.context[start:end], start=start, end=end, unit=(start, end))
        )
    return inside


def in_order(candidates: Sequence[Candidate], weight: float, query: Query) -> list[Candidate]:
    """Give candidates their final scores, best first, none overlapping a better one; equal meanings
    support the best.

    Args:
        weight: of a point of the search, added to the judge's odds. The best phrase of the search
            gets no more and no less than it is judged.
        query: decides which answers mean the same, and which are ruled out: these come last.
    """
    best = max((candidate.searched for candidate in candidates), default=0.0)
    answers = [candidate.answer for candidate in candidates]
    scored: list[Candidate] = []
    for candidate, is_far in zip(candidates, are_from_other_pages(query, answers), strict=True):
        if is_ruled_out(query, candidate.answer):
            scored.append(candidate._replace(judged=-MOST_LOGIT, score=-MOST_LOGIT))
        else:
            score = candidate.judged + weight * (candidate.searched - best) - ELSEWHERE * is_far
            scored.append(candidate._replace(score=max(-MOST_LOGIT, score)))

    kept: list[Candidate] = []
    for candidate in sorted(scored, key=lambda scored: -scored.score):
        if not any(_overlap(candidate.answer, other.answer) for other in kept):
            kept.append(candidate)

    return sorted(_supported(kept, query), key=lambda candidate: -candidate.answer.score)


def _supported(candidates: Sequence[Candidate], query: Query) -> Iterator[Candidate]:
    """Yield candidates with final scores: the first of equal meaning that says so itself gets all
    support.
    """
    means = meanings(query, [candidate.answer for candidate in candidates])
    scores: dict[str, list[float]] = {}
    for meaning, candidate in zip(means, candidates, strict=True):
        scores.setdefault(meaning, []).append(candidate.score / SUPPORT)
    for meaning, candidate in zip(means, candidates, strict=True):
        same = (
            scores.pop(meaning, None)
            if normalise_answer(candidate.answer.text) == meaning
            else None
        )
        if same is None:
            score = candidate.score
        else:
            score = SUPPORT * float(np.logaddexp.reduce(same))
        yield candidate._replace(answer=replace(candidate.answer, score=score))


def judged_first(
    candidates: Sequence[Candidate], hits: Sequence[Answer], unit: Unit
) -> list[Answer]:
    """Put the judged answers, of pages and paragraphs the best one each, before all others found,
    best first.

    The scores of the others continue with the distances that they had.
    """
    if not candidates:
        return list(hits)
    answers = [candidate.answer for candidate in candidates]
    if unit == "phrase":
        others = [hit for hit in hits if not any(_overlap(hit, answer) for answer in answers)]
    else:
        answers = best_of_each(answers, unit)
        if unit == "paragraph":
            answers = [replace(answer, unit=(0, len(answer.context))) for answer in answers]
        others = best_of_each([*answers, *hits], unit)[len(answers) :]

    last = answers[-1].score
    best = max((hit.score for hit in others), default=0.0)
    return answers + [replace(hit, score=last - (best - hit.score)) for hit in others]


def _overlap(answer: Answer, other: Answer) -> bool:
    """Return whether two answers have a letter in common."""
    if (answer.page_id, answer.paragraph) != (other.page_id, other.paragraph):
        return False
    return answer.start < other.end and other.start < answer.end
