"""Metrics: a gold record and its prediction become the numbers of one kind of evaluation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from kbq.errors import EvaluationError
from kbq.kilt.records import PAGE, Gold, GoldOutput, Guess, UnfitError
from kbq.kilt.text_scores import AnswerScores, normalise, score_answer

Missing = Literal["error", "zero", "skip"]
EmptyProvenance = Literal["count", "ignore"]
SEMANTICS = "kilt-2664322"  # commit of facebookresearch/KILT whose numbers are reproduced


@dataclass(frozen=True, slots=True)
class Deviations:
    """Choices of an evaluation; the defaults are the official ones.

    Attributes:
        missing: a gold record without prediction is an error, scores zero, or is skipped (which inflates).
        empty_provenance: an empty provenance list counts as an evidence set nobody can find, or is ignored.
        coupled: add KILT-accuracy-coupled, which wants the pages of the answer that was given.
        top_1: add recall@1 and success_rate@1, which the official evaluation leaves out.
        rouge: score ROUGE-L; without it the slowest score and its two keys are left out.
    """

    missing: Missing = "error"
    empty_provenance: EmptyProvenance = "count"
    coupled: bool = False
    top_1: bool = False
    rouge: bool = True

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            raise EvaluationError(f"missing is {self.missing!r}, choose from {', '.join(get_args(Missing))}")
        if self.empty_provenance not in get_args(EmptyProvenance):
            choices = ", ".join(get_args(EmptyProvenance))
            raise EvaluationError(f"empty_provenance is {self.empty_provenance!r}, choose from {choices}")

    def named(self) -> tuple[str, ...]:
        """What differs from the official evaluation, as `name=value`.

        >>> Deviations(missing="zero", rouge=False).named()
        ('missing=zero', 'rouge=no')
        """
        words = {True: "yes", False: "no"}
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        values = [getattr(self, name) for name in changed]
        return tuple(f"{name}={words.get(value, value)}" for name, value in zip(changed, values, strict=True))


OFFICIAL = Deviations()

COMPLETE, IRRELEVANT = -1, -2


@dataclass(frozen=True, slots=True)
class EvidenceRank:
    """Where the evidence sets of one query are complete in a ranking of pages."""

    positions: tuple[int, ...]  # of complete sets, from 1, ascending
    sets: int  # distinct evidence sets; 0 also where no page was predicted

    def precision(self, k: int) -> float:
        """Complete sets among the first k positions, per position."""
        return self._complete(k) / k

    def recall(self, k: int) -> float:
        """Complete sets among the first k positions, per evidence set."""
        return self._complete(k) / self.sets if self.sets else 0.0

    def success(self, k: int) -> float:
        """Whether any set is complete among the first k positions."""
        return float(self._complete(k) > 0)

    def _complete(self, k: int) -> int:
        return sum(1 for position in self.positions if position <= k)


def r_precision(pages: Sequence[str], outputs: Iterable[GoldOutput]) -> float:
    """Share of an output's R pages among the first R predicted pages, the best over the outputs."""
    return max(share_found(pages, output.pages) for output in outputs)


def share_found(pages: Sequence[str], gold_pages: Sequence[str]) -> float:
    """Share of the gold pages among as many predicted pages; both are distinct.

    >>> share_found(["1", "3", "2"], ["1", "2"])
    0.5
    """
    if not gold_pages:
        return 0.0
    return len(set(pages[: len(gold_pages)]) & set(gold_pages)) / len(gold_pages)


def evidence_sets(outputs: Iterable[GoldOutput], count_empty: bool = True) -> list[frozenset[str]]:
    """Distinct evidence sets in order; an empty provenance list is one, unless `count_empty` is off."""
    given = dict.fromkeys(output.evidence for output in outputs if output.evidence is not None)
    return [evidence for evidence in given if evidence or count_empty]


def rank_evidence(pages: Sequence[str], sets: Sequence[frozenset[str]]) -> EvidenceRank:
    """Rank evidence sets instead of pages: a set stands where its last page stands.

    Each page takes a position for every set that it belongs to, or one if it belongs to none. A set's earlier
    positions are freed when another of its pages comes. So a page in two sets takes two positions, and a set
    whose pages come 1st and 6th is complete at the 5th: the official behaviour, against the paper's text.
    """
    if not pages:
        return EvidenceRank((), 0)
    missing = [set(evidence) for evidence in sets]
    rank: list[int] = []  # the number of a set that is not complete yet, or a mark
    for page in pages:
        holding = [number for number, pages_left in enumerate(missing) if page in pages_left]
        for number in holding:
            if number in rank:
                rank.remove(number)
            missing[number].remove(page)
            rank.append(number if missing[number] else COMPLETE)
        if not holding:
            rank.append(IRRELEVANT)
    return EvidenceRank(tuple(position for position, mark in enumerate(rank, 1) if mark == COMPLETE), len(sets))


NEVER = 2**62  # a position after every k


@dataclass(frozen=True, slots=True)
class FirstFound:
    """Positions, from 1, of the first items whose text holds what was looked for; NEVER if none does."""

    answer: int = NEVER
    entity: int = NEVER
    both: int = NEVER  # an answer and a title in the same item


def find_in_contexts(gold: Gold, guess: Guess, depth: int) -> FirstFound:
    """Look through the first `depth` items, as written, for normalised answers and titles as substrings.

    Raises:
        UnfitError: a text that the official evaluation reads is no string.
    """
    answers = [normalise(answer) for answer in gold.answers]
    titles = [normalise(title) for title in gold.titles]
    answer = entity = NEVER
    for item in guess.texts:
        if item.position > depth:
            break
        if item.text is None:
            raise UnfitError(f"has a text in provenance item {item.position} that is no string")
        text = normalise(item.text)
        has_answer = any(needle in text for needle in answers)
        has_title = any(needle in text for needle in titles)
        answer = min(answer, item.position) if has_answer else answer
        entity = min(entity, item.position) if has_title else entity
        if has_answer and has_title:
            return FirstFound(answer, entity, item.position)
    return FirstFound(answer, entity)


def is_entity_in_input(gold: Gold) -> bool:
    """Whether the normalised input holds the title of a gold page; False without an input."""
    if gold.input is None:
        return False
    text = normalise(gold.input)
    return any(normalise(title) in text for title in gold.titles)


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
