"""Metrics: a gold record and its prediction become the numbers of one kind of evaluation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kbq.errors import EvaluationError
from kbq.kilt.reading.problems import UnfitError
from kbq.kilt.reading.records import PAGE, Gold, Guess
from kbq.kilt.scoring.answers import AnswerScores, score_answer
from kbq.kilt.scoring.contexts import find_in_contexts, is_entity_in_input
from kbq.kilt.scoring.deviations import Deviations
from kbq.kilt.scoring.ranking import evidence_sets, r_precision, rank_evidence, share_found

Kind = Literal["downstream", "retrieval"]
ANSWER_NAMES = ("accuracy", "em", "f1", "rougel")
KILT_NAMES = tuple(f"KILT-{name}" for name in ANSWER_NAMES)
PAGE_NAMES = ("Rprec", "recall@5")
COUPLED = "KILT-accuracy-coupled"
# What the best possible ranking would score: no part of the official layout.
CEILING_NAMES = ("attainable Rprec", "attainable recall@5")
RANK_KEYS = {
    "page": PAGE,
    "section": ("wikipedia_id", "section"),
    "paragraph": ("wikipedia_id", "start_paragraph_id", "end_paragraph_id"),
    "title": ("title",),
}


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """What the retrieval evaluation looks at: the first k pages, and which keys make a page."""

    ks: tuple[int, ...] = (1, 5, 10, 20, 100)
    rank_keys: tuple[str, ...] = RANK_KEYS["page"]

    def __post_init__(self) -> None:
        if any(k < 1 for k in self.ks):
            raise EvaluationError(f"ks are {self.ks}, every k must be at least 1", is_usage=True)
        if len(set(self.ks)) < len(self.ks):
            raise EvaluationError(f"ks are {self.ks}, a k twice would be counted twice: give each once", is_usage=True)
        if not self.rank_keys:
            raise EvaluationError("rank_keys is empty, name at least one key such as wikipedia_id", is_usage=True)


STANDARD_CUTOFFS = Cutoffs()


@dataclass(frozen=True, slots=True)
class Metrics:
    """Names of the scores and the function that gives a pair one value for each, in the same order.

    The function raises UnfitError where the official evaluation fails on the pair.
    """

    kind: Kind
    names: tuple[str, ...]
    score: Callable[[Gold, Guess], tuple[float, ...]] = field(repr=False)


def downstream_metrics(deviations: Deviations) -> Metrics:
    """Answers, pages, and answers that count only with their pages."""
    count_empty = deviations.empty_provenance == "count"

    def score(gold: Gold, guess: Guess) -> tuple[float, ...]:
        if any(text.text is None for text in guess.texts):
            find_in_contexts(gold, guess, depth=5)  # the official evaluation reads these texts, too
        answer = answer_scores(gold, guess, deviations.rouge)
        values = (answer.accuracy, answer.em, answer.f1, answer.rougel)
        gate = r_precision(guess.pages, gold.outputs)
        kilt = values if gate == 1 else (0.0,) * len(values)
        sets = evidence_sets(gold.outputs, count_empty)
        recall = rank_evidence(guess.pages, sets).recall(5)
        return (*kilt, *values, gate, recall, coupled_accuracy(gold, guess), *ceilings(gold, sets))

    return Metrics("downstream", (*KILT_NAMES, *ANSWER_NAMES, *PAGE_NAMES, COUPLED, *CEILING_NAMES), score)


def answer_scores(gold: Gold, guess: Guess, with_rouge: bool) -> AnswerScores:
    """The scores of the predicted answer; an empty one scores 0 before gold is looked at.

    Raises:
        UnfitError: there is an answer but no gold answer.
    """
    if not guess.answer:
        return AnswerScores()
    if not gold.answers:
        raise UnfitError(f"has an answer, but its gold record on line {gold.line} has none to compare it with")
    return score_answer(guess.answer, gold.answers, with_rouge)


def coupled_accuracy(gold: Gold, guess: Guess) -> float:
    """1 if the answer is right and its own pages are found; an answer without pages may come with any."""
    own = [output for output in gold.outputs if guess.answer and output.answer == guess.answer]
    if not own:
        return 0.0
    with_pages = [output for output in own if output.pages]
    return float(r_precision(guess.pages, with_pages or gold.outputs) == 1)


def ceilings(gold: Gold, sets: list[frozenset[str]]) -> tuple[float, float]:
    """The best R-precision and recall@5 that any ranking of pages can have."""
    findable = {frozenset(output.pages) for output in gold.outputs if output.pages}
    best_recall = min(5, len(findable.intersection(sets))) / len(sets) if sets else 0.0
    best_precision = max(share_found(output.pages, output.pages) for output in gold.outputs)
    return best_precision, best_recall


def retrieval_names(cutoffs: Cutoffs, deviations: Deviations) -> tuple[str, ...]:
    """Score names in the official order; recall@1 and success_rate@1 are officially left out."""
    names = ["Rprec", "entity_in_input"]
    for k in sorted(cutoffs.ks):
        ranks = ["precision", "answer_in_context", "answer_and_ent_in_context", "entity_in_context"]
        if k > 1 or deviations.top_1:
            ranks += ["recall", "success_rate"]
        names += [f"{name}@{k}" for name in ranks]
    return tuple(names)


def retrieval_metrics(cutoffs: Cutoffs, deviations: Deviations) -> Metrics:
    """Pages at every k, and what stands in the texts of the predicted items."""
    ks = sorted(cutoffs.ks)
    count_empty = deviations.empty_provenance == "count"

    def score(gold: Gold, guess: Guess) -> tuple[float, ...]:
        rank = rank_evidence(guess.pages, evidence_sets(gold.outputs, count_empty))
        found = find_in_contexts(gold, guess, depth=max(ks, default=0))
        values = [r_precision(guess.pages, gold.outputs), float(is_entity_in_input(gold))]
        for k in ks:
            values += [rank.precision(k), found.answer <= k, found.both <= k, found.entity <= k]
            if k > 1 or deviations.top_1:
                values += [rank.recall(k), rank.success(k)]
        return tuple(values)

    return Metrics("retrieval", retrieval_names(cutoffs, deviations), score)
