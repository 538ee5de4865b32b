"""Scores: score every query by the official rules, summed in the official order."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.records import (
    AnyRecords,
    Gold,
    GoldOutput,
    Guess,
    GuessParser,
    Problems,
    Source,
    UnfitError,
    parse_answer,
    parse_ranking,
    read_golds,
    read_guesses,
    source_of,
)
from kbq.text.answer_scores import AnswerScores, normalise_answer, score_answer
from kbq.text.queries import slot_of

Kind = Literal["downstream", "retrieval"]
Missing = Literal["error", "zero"]
SEMANTICS = "kilt-2664322"  # commit of facebookresearch/KILT whose numbers are reproduced

NO_GROUP = "(none)"
GroupOf = Callable[[Gold], str]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of scoring; by default the official ones."""

    missing: Missing = "error"  # how a gold record without prediction counts
    ks: tuple[int, ...] = (1, 5, 10, 20, 100)  # depths of the retrieval scores

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            raise EvaluationError(
                f"missing is {self.missing!r}, choose from {', '.join(get_args(Missing))}"
            )

        if any(not isinstance(k, int) or k < 1 for k in self.ks):
            raise EvaluationError(
                f"ks are {self.ks}, every k must be a number from 1", is_usage=True
            )

        if len(set(self.ks)) < len(self.ks):
            raise EvaluationError(
                f"ks are {self.ks}, a k twice would be counted twice: give each once", is_usage=True
            )

    def deviations(self) -> list[str]:
        """Return the differences from the official evaluation, as `name=value`; other ks are none."""
        if self.missing == OFFICIAL.missing:
            return []
        return [f"missing={self.missing}"]


OFFICIAL = Rules()


# Pages


COMPLETE = -1
IRRELEVANT = -2


@dataclass(frozen=True, slots=True)
class EvidenceRank:
    """The ranks at which the evidence sets of one query are complete in a ranking of pages."""

    positions: tuple[int, ...]  # positions of complete sets, from 1, ascending
    sets: int  # distinct evidence sets; 0 also where no page was predicted

    def complete(self, k: int) -> int:
        """Return the number of sets that are complete among the first k positions."""
        return bisect_right(self.positions, k)

    def recall(self, k: int) -> float:
        """Return complete sets among the first k positions, per evidence set."""
        if self.sets:
            return self.complete(k) / self.sets
        return 0.0


def r_precision(pages: Sequence[str], outputs: Iterable[GoldOutput]) -> float:
    """Return the share of an output's R pages among the first R predicted pages, the best over the
    outputs.
    """
    needed = [set(output.pages) for output in outputs]
    return max(len(gold & set(pages[: len(gold)])) / max(1, len(gold)) for gold in needed)


def evidence_sets(outputs: Iterable[GoldOutput]) -> list[frozenset[str]]:
    """Return the distinct evidence sets in order; an empty provenance list counts as one."""
    return list(dict.fromkeys(output.evidence for output in outputs if output.evidence is not None))


def rank_evidence(pages: Sequence[str], sets: Sequence[frozenset[str]]) -> EvidenceRank:
    """Rank evidence sets instead of pages: a set has the position of its last page.

    A page takes one position for every set that it belongs to, or one if it belongs to none, and
    another page of a set frees the set's earlier position. So a page in two sets takes two
    positions, and a set whose pages come 1st and 6th is complete at the 5th: the official
    behaviour, against the paper's text.
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
            if missing[number]:
                rank.append(number)
            else:
                rank.append(COMPLETE)
        if not holding:
            rank.append(IRRELEVANT)

    return EvidenceRank(
        tuple(position for position, mark in enumerate(rank, 1) if mark == COMPLETE), len(sets)
    )


NEVER = 2**62  # a position after every k


def find_in_contexts(gold: Gold, guess: Guess, depth: int) -> tuple[int, int, int]:
    """Find the first of `depth` texts with an answer, with a title, and with both, as normalised
    substrings.

    Returns positions from 1, or NEVER. Raises UnfitError if a text that the official evaluation
    reads is not a string.
    """
    answers = [normalise_answer(answer) for answer in gold.answers]
    titles = [normalise_answer(title) for title in gold.titles]
    first_answer = first_title = NEVER
    for position, given in guess.texts.items():
        if position > depth:
            break
        if given is None:
            raise UnfitError(f"has a text in provenance item {position} that is not a string")
        text = normalise_answer(given)
        has_answer = any(answer in text for answer in answers)
        has_title = any(title in text for title in titles)
        if has_answer:
            first_answer = min(first_answer, position)
        if has_title:
            first_title = min(first_title, position)
        if has_answer and has_title:
            return first_answer, first_title, position

    return first_answer, first_title, NEVER


# Rows


ANSWER_NAMES = ("accuracy", "em", "f1", "rougel")
KILT_NAMES = tuple(f"KILT-{name}" for name in ANSWER_NAMES)
PAGE_NAMES = ("Rprec", "recall@5")
DOWNSTREAM_NAMES = (*KILT_NAMES, *ANSWER_NAMES, *PAGE_NAMES)


def downstream_row(gold: Gold, guess: Guess) -> tuple[float, ...]:
    """Score answers, pages, and answers that count only with their pages, in the order of
    DOWNSTREAM_NAMES.

    Raises UnfitError if the official evaluation fails on this pair.
    """
    if None in guess.texts.values():
        find_in_contexts(gold, guess, depth=5)  # the official evaluation reads these texts, too
    if guess.answer and not gold.answers:
        raise UnfitError(
            f"has an answer, but its gold record on line {gold.line} has none to compare it with"
        )
    if guess.answer:
        answer = score_answer(guess.answer, gold.answers)
    else:
        answer = AnswerScores()
    gate = r_precision(guess.pages, gold.outputs)
    kilt = answer if gate == 1 else AnswerScores()
    recall = rank_evidence(guess.pages, evidence_sets(gold.outputs)).recall(5)
    return (*kilt, *answer, gate, recall)


def retrieval_names(ks: Iterable[int]) -> tuple[str, ...]:
    """Return score names in the official order; recall@1 and success_rate@1 are not among them."""
    names = ["Rprec", "entity_in_input"]
    for k in sorted(ks):
        ranks = ["precision", "answer_in_context", "answer_and_ent_in_context", "entity_in_context"]
        if k > 1:
            ranks += ["recall", "success_rate"]
        names += [f"{name}@{k}" for name in ranks]
    return tuple(names)


def retrieval_row(gold: Gold, guess: Guess, ks: Sequence[int]) -> tuple[float, ...]:
    """Score pages and texts at every k, in the order of `retrieval_names`. Raises UnfitError as
    `downstream_row`.
    """
    rank = rank_evidence(guess.pages, evidence_sets(gold.outputs))
    answer, title, both = find_in_contexts(gold, guess, depth=max(ks, default=0))
    if gold.input is None:
        text = None
    else:
        text = normalise_answer(gold.input)
    has_entity = text is not None and any(normalise_answer(title) in text for title in gold.titles)
    values = [r_precision(guess.pages, gold.outputs), float(has_entity)]
    for k in sorted(ks):
        values += [rank.complete(k) / k, answer <= k, both <= k, title <= k]
        if k > 1:
            values += [rank.recall(k), rank.complete(k) > 0]
    return tuple(values)


def relation_of(gold: Gold) -> str:
    """Return the relation of a slot query `subject [SEP] relation`."""
    slot = slot_of(gold.input or "")
    return slot[1] if slot else NO_GROUP


def grouping(name: str) -> GroupOf:
    """Return the grouping called `relation`, `evidence-sets` or `meta.KEY`, or raise
    EvaluationError.
    """
    if name == "relation":
        return relation_of
    if name == "evidence-sets":
        return lambda gold: str(len(evidence_sets(gold.outputs)))
    if name.startswith("meta."):
        key = name.removeprefix("meta.")

        def group_of(gold: Gold) -> str:
            if key in gold.meta:
                return str(gold.meta[key])
            return NO_GROUP

        return group_of
    raise EvaluationError(
        f"{name!r} is not a grouping: choose relation, evidence-sets or meta.KEY", is_usage=True
    )


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The result of one kind of evaluation. Every score is between 0 and 1; higher is better."""

    kind: Kind
    rules: Rules
    names: tuple[str, ...]
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    values: Doubles  # Shape: (items, names)
    # Mean of each name, added up in gold order as the official evaluation does.
    means: tuple[float, ...]
    notes: tuple[str, ...]  # remarks for a reader of the numbers
    predictions: int  # number of predictions for these queries
    with_gold_pages: int  # queries

    def column(self, name: str) -> Doubles:
        """Return a score of every item. Shape: (items,). Raises EvaluationError if there is no such
        score.
        """
        return self.values[:, self._index(name)]

    def mean(self, name: str) -> float:
        """Return the mean of a score. Raises EvaluationError if there is no such score."""
        return self.means[self._index(name)]

    def layout(self) -> dict[str, Any]:
        """Return the means under the keys of the official evaluation, unrounded.

        Downstream: `{"kilt": {…}, "downstream": {…}, "retrieval": {…}}`. Retrieval:
        `{"Rprec": …, "precision@1": …}`.
        """
        if self.kind == "retrieval":
            return dict(zip(self.names, self.means, strict=True))
        sections = {"kilt": KILT_NAMES, "downstream": ANSWER_NAMES, "retrieval": PAGE_NAMES}
        return {
            section: {name: self.mean(name) for name in names}
            for section, names in sections.items()
        }

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise EvaluationError(
                f"{name!r} is not a score of this evaluation: choose from {', '.join(self.names)}"
            )
        return self.names.index(name)


def score(
    predictions: AnyRecords,
    gold: AnyRecords,
    kind: Kind = "downstream",
    rules: Rules = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Score every record: its answer with its pages, as on the leaderboard (downstream), or its
    ranking (retrieval).

    Raises an EvaluationError that carries all problems if the official evaluation rejects these
    records.
    """
    gold = source_of(gold, "gold")
    predictions = source_of(predictions, "predictions")
    parse, names, row_of = _way(kind, rules.ks)
    problems = Problems()
    pairs = Pairs(read_golds(gold, problems), read_guesses(predictions, parse, problems))
    ids = list[str]()
    groups = list[str]()
    rows = array("d")
    missing = list[Gold]()

    for record, found in pairs:
        if found is None and rules.missing == "error":
            missing.append(record)
            continue

        guess = found or Guess(record.id, line=0)
        try:
            if guess.problem is not None:
                raise UnfitError(guess.problem)
            rows.extend(row_of(record, guess))
        except UnfitError as error:
            problems.add(predictions, guess.line, guess.id, str(error))
            continue

        ids.append(record.id)
        groups.append(group_of(record))

    if missing:
        others = f"nor have {len(missing) - 1:,} other records; " * (len(missing) > 1)
        advice = f"{others}with --missing=zero they count as wrong"
        problems.add(
            gold, missing[0].line, missing[0].id, f"has no prediction in {predictions}", advice
        )

    problems.raise_if_any(f"the {kind} evaluation of {predictions} against {gold}{pairs.hint()}")
    values = np.array(rows, dtype=np.float64).reshape(len(ids), len(names))
    # unknown, not 0: the newest official evaluation stops here.
    if pairs.without_input and "entity_in_input" in names:
        values = np.delete(values, names.index("entity_in_input"), axis=1)
        names = tuple(name for name in names if name != "entity_in_input")

    # One by one: another order of adding would change the last digit.
    sums = np.add.accumulate(values)[-1] if ids else np.zeros(len(names))
    means = tuple((sums / max(1, len(ids))).tolist())
    facts = pairs.notes(), pairs.matched, pairs.with_gold_pages

    return Scores(kind, rules, names, tuple(ids), tuple(groups), values, means, *facts)


def _way(
    kind: Kind, ks: tuple[int, ...]
) -> tuple[GuessParser, tuple[str, ...], Callable[[Gold, Guess], tuple[float, ...]]]:
    """Return how a kind of evaluation parses predictions, the names of its scores, and how it
    scores a pair.
    """
    if kind == "downstream":
        return parse_answer, DOWNSTREAM_NAMES, downstream_row
    return (
        partial(parse_ranking, depth=max(ks, default=0)),
        retrieval_names(ks),
        partial(retrieval_row, ks=ks),
    )


def score_kinds(
    predictions: Source, gold: Source, rules: Rules, group_of: GroupOf
) -> tuple[dict[Kind, Scores], dict[Kind, EvaluationError]]:
    """Return the scores of each possible kind of evaluation, and why another is not possible."""
    scores: dict[Kind, Scores] = {}
    refusals: dict[Kind, EvaluationError] = {}
    for kind in get_args(Kind):
        try:
            scores[kind] = score(predictions, gold, kind, rules, group_of)
        except EvaluationError as error:
            refusals[kind] = error
    return scores, refusals


def item_records(scores: Mapping[Kind, Scores]) -> Iterator[dict[str, object]]:
    """Yield id, group and all unrounded scores of each query, in gold order."""
    kinds = list(scores.values())
    columns_of = {}
    for scores_of_kind in kinds:
        columns = {name: scores_of_kind.column(name) for name in scores_of_kind.names}
        columns_of[scores_of_kind.kind] = columns
    for number, (record_id, group) in enumerate(zip(kinds[0].ids, kinds[0].groups, strict=True)):
        item: dict[str, object] = {"id": record_id, "group": group}
        for kind, by_name in columns_of.items():
            item[kind] = {name: float(column[number]) for name, column in by_name.items()}
        yield item


class Pairs:
    """Each gold record with its prediction or None and, afterwards, how well the two files fit
    together.

    Predictions wait in memory only while the order of the files differs.
    """

    def __init__(self, golds: Iterator[Gold], guesses: Iterator[Guess]) -> None:
        self._golds = golds
        self._guesses = guesses
        self.golds = self.matched = 0
        self.unknown = 0  # predictions whose id is not in the gold file, known at the end
        self.without_input = self.with_empty_evidence = self.with_gold_pages = 0

    def __iter__(self) -> Iterator[tuple[Gold, Guess | None]]:
        waiting: dict[str, Guess] = {}
        for gold in self._golds:
            while gold.id not in waiting:
                guess = next(self._guesses, None)
                if guess is None:
                    break
                waiting[guess.id] = guess

            self.golds += 1
            self.matched += gold.id in waiting
            self.without_input += gold.input is None
            self.with_gold_pages += any(output.pages for output in gold.outputs)
            self.with_empty_evidence += any(
                output.evidence == frozenset() for output in gold.outputs
            )
            yield gold, waiting.pop(gold.id, None)

        # Lines after the last gold record must still be readable, and their ids unique.
        self.unknown = len(waiting) + sum(1 for _ in self._guesses)

    def hint(self) -> str:
        """Return the likely reason for many problems, or an empty string."""
        if self.golds and self.unknown and not self.matched:
            return (
                f" (no id of its {self.unknown:,} predictions is in the gold file: for another "
                "file?)"
            )
        return ""

    def mismatches(self) -> tuple[str, ...]:
        """Return how the two files do not fit together, in sentences."""
        guesses = self.matched + self.unknown
        found = {
            "the gold file holds no record, so that every score is 0: is it the file you mean?": not self.golds,
            f"{self.golds:,} gold records, {guesses:,} predictions": guesses != self.golds,
            f"{self.unknown:,} predictions have ids that the gold file lacks: ignored": self.unknown,
        }
        return tuple(note for note, applies in found.items() if applies)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the scores should know, in sentences."""
        found = {
            f"{self.without_input:,} gold records have no input: entity_in_input is left out": self.without_input,
            f"{self.with_empty_evidence:,} gold records have empty provenance lists, which lower "
            "recall@k as evidence sets that cannot be found (files exported from the Hugging "
            "Face hub have them, the official files do not)": self.with_empty_evidence,
        }
        return (*self.mismatches(), *(note for note, applies in found.items() if applies))
