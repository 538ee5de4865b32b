"""Rules: a gold record and its prediction become one row of scores, by the official rules."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kbq.errors import EvaluationError
from kbq.kilt.files import UnfitError
from kbq.kilt.records import Gold, GoldOutput, Guess
from kbq.text.answer_scores import AnswerScores, normalise, score_answer

Kind = Literal["downstream", "retrieval"]
Missing = Literal["error", "zero"]
SEMANTICS = "kilt-2664322"  # commit of facebookresearch/KILT whose numbers are reproduced


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of scoring; by default the official ones."""

    missing: Missing = "error"  # a gold record without prediction is an error, or scores zero
    ks: tuple[int, ...] = (1, 5, 10, 20, 100)  # depths of the retrieval scores

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            raise EvaluationError(f"missing is {self.missing!r}, choose from {', '.join(get_args(Missing))}")
        if any(not isinstance(k, int) or k < 1 for k in self.ks):
            raise EvaluationError(f"ks are {self.ks}, every k must be a number from 1", is_usage=True)
        if len(set(self.ks)) < len(self.ks):
            raise EvaluationError(f"ks are {self.ks}, a k twice would be counted twice: give each once", is_usage=True)

    def deviations(self) -> list[str]:
        """Return what differs from the official evaluation, as `name=value`; other ks are not a deviation."""
        return [] if self.missing == OFFICIAL.missing else [f"missing={self.missing}"]


OFFICIAL = Rules()


# Pages


COMPLETE, IRRELEVANT = -1, -2


@dataclass(frozen=True, slots=True)
class EvidenceRank:
    """The ranks at which the evidence sets of one query are complete in a ranking of pages."""

    positions: tuple[int, ...]  # of complete sets, from 1, ascending
    sets: int  # distinct evidence sets; 0 also where no page was predicted

    def precision(self, k: int) -> float:
        """Return complete sets among the first k positions, per position."""
        return self._complete(k) / k

    def recall(self, k: int) -> float:
        """Return complete sets among the first k positions, per evidence set."""
        return self._complete(k) / self.sets if self.sets else 0.0

    def success(self, k: int) -> float:
        """Return 1 if any set is complete among the first k positions, else 0."""
        return float(self._complete(k) > 0)

    def _complete(self, k: int) -> int:
        return sum(1 for position in self.positions if position <= k)


def r_precision(pages: Sequence[str], outputs: Iterable[GoldOutput]) -> float:
    """Return the share of an output's R pages among the first R predicted pages, the best over the outputs."""
    return max(share_found(pages, output.pages) for output in outputs)


def share_found(pages: Sequence[str], gold_pages: Sequence[str]) -> float:
    """Return the share of the gold pages among as many predicted pages; both are distinct.

    >>> share_found(["1", "3", "2"], ["1", "2"])
    0.5
    """
    if not gold_pages:
        return 0.0
    return len(set(pages[: len(gold_pages)]) & set(gold_pages)) / len(gold_pages)


def evidence_sets(outputs: Iterable[GoldOutput]) -> list[frozenset[str]]:
    """Return the distinct evidence sets in order; an empty provenance list is one, too."""
    return list(dict.fromkeys(output.evidence for output in outputs if output.evidence is not None))


def rank_evidence(pages: Sequence[str], sets: Sequence[frozenset[str]]) -> EvidenceRank:
    """Rank evidence sets instead of pages: a set has the position of its last page.

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


def find_in_contexts(gold: Gold, guess: Guess, depth: int) -> tuple[int, int, int]:
    """Look through the first `depth` items, as written, for normalised answers and titles as substrings.

    Returns the positions, from 1, of the first text with an answer, with a title, and with both; NEVER where there is
    none. Raises UnfitError if a text that the official evaluation reads is not a string.
    """
    answers = [normalise(answer) for answer in gold.answers]
    titles = [normalise(title) for title in gold.titles]
    first_answer = first_title = NEVER
    for position, given in guess.texts.items():
        if position > depth:
            break
        if given is None:
            raise UnfitError(f"has a text in provenance item {position} that is not a string")
        text = normalise(given)
        has_answer = any(answer in text for answer in answers)
        has_title = any(title in text for title in titles)
        first_answer = min(first_answer, position) if has_answer else first_answer
        first_title = min(first_title, position) if has_title else first_title
        if has_answer and has_title:
            return first_answer, first_title, position
    return first_answer, first_title, NEVER


def is_entity_in_input(gold: Gold) -> bool:
    """Whether the normalised input holds the title of a gold page; False without an input."""
    if gold.input is None:
        return False
    text = normalise(gold.input)
    return any(normalise(title) in text for title in gold.titles)


# Rows


ANSWER_NAMES = ("accuracy", "em", "f1", "rougel")
KILT_NAMES = tuple(f"KILT-{name}" for name in ANSWER_NAMES)
PAGE_NAMES = ("Rprec", "recall@5")
DOWNSTREAM_NAMES = (*KILT_NAMES, *ANSWER_NAMES, *PAGE_NAMES)


def downstream_row(gold: Gold, guess: Guess) -> tuple[float, ...]:
    """Score answers, pages, and answers that count only with their pages, in the order of DOWNSTREAM_NAMES.

    Raises UnfitError if the official evaluation fails on this pair.
    """
    if None in guess.texts.values():
        find_in_contexts(gold, guess, depth=5)  # the official evaluation reads these texts, too
    answer = answer_scores(gold, guess)
    gate = r_precision(guess.pages, gold.outputs)
    kilt = answer if gate == 1 else AnswerScores()
    recall = rank_evidence(guess.pages, evidence_sets(gold.outputs)).recall(5)
    return (*kilt, *answer, gate, recall)


def answer_scores(gold: Gold, guess: Guess) -> AnswerScores:
    """Score the predicted answer, an empty one with 0. Raises UnfitError if there is no gold answer to compare with."""
    if not guess.answer:
        return AnswerScores()
    if not gold.answers:
        raise UnfitError(f"has an answer, but its gold record on line {gold.line} has none to compare it with")
    return score_answer(guess.answer, gold.answers)


def retrieval_names(ks: Iterable[int]) -> tuple[str, ...]:
    """Return score names in the official order; recall@1 and success_rate@1 are officially left out."""
    names = ["Rprec", "entity_in_input"]
    for k in sorted(ks):
        ranks = ["precision", "answer_in_context", "answer_and_ent_in_context", "entity_in_context"]
        if k > 1:
            ranks += ["recall", "success_rate"]
        names += [f"{name}@{k}" for name in ranks]
    return tuple(names)


def retrieval_row(gold: Gold, guess: Guess, ks: Sequence[int]) -> tuple[float, ...]:
    """Score pages at every k, and the texts of the predicted items, in the order of `retrieval_names`.

    Raises UnfitError if the official evaluation fails on this pair.
    """
    rank = rank_evidence(guess.pages, evidence_sets(gold.outputs))
    answer, title, both = find_in_contexts(gold, guess, depth=max(ks, default=0))
    values = [r_precision(guess.pages, gold.outputs), float(is_entity_in_input(gold))]
    for k in sorted(ks):
        values += [rank.precision(k), answer <= k, both <= k, title <= k]
        if k > 1:
            values += [rank.recall(k), rank.success(k)]
    return tuple(values)
