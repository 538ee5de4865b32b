"""Scores: predictions and gold are read once and become a table of numbers, with means in the official layout."""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.files import AnyRecords, Problems, Source, UnfitError, source_of
from kbq.kilt.records import Gold, Guess, GuessParser, parse_answer, parse_ranking, read_golds, read_guesses
from kbq.kilt.rules import (
    ANSWER_NAMES,
    DOWNSTREAM_NAMES,
    KILT_NAMES,
    OFFICIAL,
    PAGE_NAMES,
    Kind,
    Rules,
    downstream_row,
    evidence_sets,
    retrieval_names,
    retrieval_row,
)
from kbq.text.markers import slot_of

NO_GROUP = "(none)"
GroupOf = Callable[[Gold], str]


def relation_of(gold: Gold) -> str:
    """Return the relation of a slot query `subject [SEP] relation`."""
    slot = slot_of(gold.input or "")
    return slot[1] if slot else NO_GROUP


def grouping(name: str) -> GroupOf:
    """Return the grouping called `relation`, `evidence-sets` or `meta.KEY`.

    Raises EvaluationError if the name is unknown.
    """
    if name == "relation":
        return relation_of
    if name == "evidence-sets":
        return lambda gold: str(len(evidence_sets(gold.outputs)))
    if name.startswith("meta."):
        key = name.removeprefix("meta.")
        return lambda gold: str(gold.meta[key]) if key in gold.meta else NO_GROUP
    raise EvaluationError(f"{name!r} is not a grouping: choose relation, evidence-sets or meta.KEY", is_usage=True)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The result of one kind of evaluation. Every number lies between 0 and 1, higher is better."""

    kind: Kind
    rules: Rules
    names: tuple[str, ...]
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    values: Doubles  # Shape: (items, names)
    means: tuple[float, ...]  # of each name, added up in gold order as the official evaluation does
    notes: tuple[str, ...]  # for a reader of the numbers
    predictions: int  # for these queries
    with_gold_pages: int  # queries

    def column(self, name: str) -> Doubles:
        """Return the score of that name for every item. Shape: (items,). Raises EvaluationError if there is none."""
        return self.values[:, self._index(name)]

    def mean(self, name: str) -> float:
        """Return the mean over all items. Raises EvaluationError if there is no such score."""
        return self.means[self._index(name)]

    def layout(self) -> dict[str, Any]:
        """Return the means under the keys of the official evaluation, unrounded.

        Downstream: `{"kilt": {…}, "downstream": {…}, "retrieval": {…}}`. Retrieval: `{"Rprec": …, "precision@1": …}`.
        """
        if self.kind == "retrieval":
            return dict(zip(self.names, self.means, strict=True))
        sections = {"kilt": KILT_NAMES, "downstream": ANSWER_NAMES, "retrieval": PAGE_NAMES}
        return {section: {name: self.mean(name) for name in names} for section, names in sections.items()}

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise EvaluationError(f"{name!r} is not a score of this evaluation: choose from {', '.join(self.names)}")
        return self.names.index(name)


def score(
    predictions: AnyRecords,
    gold: AnyRecords,
    kind: Kind = "downstream",
    rules: Rules = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Score every record: downstream, answers with their pages, as on the leaderboard; retrieval, rankings of pages.

    Raises an EvaluationError that carries all problems if the official evaluation rejects these records.
    """
    gold, predictions = source_of(gold, "gold"), source_of(predictions, "predictions")
    parse: GuessParser = parse_answer
    names: tuple[str, ...] = DOWNSTREAM_NAMES
    row_of: Callable[[Gold, Guess], tuple[float, ...]] = downstream_row
    if kind == "retrieval":
        parse = partial(parse_ranking, depth=max(rules.ks, default=0))
        names, row_of = retrieval_names(rules.ks), partial(retrieval_row, ks=rules.ks)
    problems = Problems()
    pairs = Pairs(read_golds(gold, problems), read_guesses(predictions, parse, problems))
    ids: list[str] = []
    groups: list[str] = []
    values = array("d")
    sums = [0.0] * len(names)
    missing: list[Gold] = []
    with_gold_pages = 0
    for record, guess in pairs:
        with_gold_pages += any(output.pages for output in record.outputs)
        if guess is None and rules.missing == "zero":
            guess = Guess(record.id, line=0)
        if guess is None:
            missing.append(record)
            continue
        try:
            if guess.problem is not None:
                raise UnfitError(guess.problem)
            row = row_of(record, guess)
        except UnfitError as error:
            problems.add(predictions, guess.line, guess.id, str(error))
            continue
        ids.append(record.id)
        groups.append(group_of(record))
        values.extend(row)
        # One by one: another order of adding would change the last digit.
        sums = [total + value for total, value in zip(sums, row, strict=True)]
    if missing:
        others = f"nor have {len(missing) - 1:,} other records; " * (len(missing) > 1)
        advice = f"{others}with --missing=zero they count as wrong"
        problems.add(gold, missing[0].line, missing[0].id, f"has no prediction in {predictions}", advice)
    problems.raise_if_any(f"the {kind} evaluation of {predictions} against {gold}{pairs.hint()}")
    # Without an input its score is unknown, not 0: the newest official evaluation stops here.
    kept = [n for n, name in enumerate(names) if name != "entity_in_input" or not pairs.without_input]
    return Scores(
        kind=kind,
        rules=rules,
        names=tuple(names[n] for n in kept),
        ids=tuple(ids),
        groups=tuple(groups),
        values=np.array(values, dtype=np.float64).reshape(len(ids), len(names))[:, kept],
        means=tuple(sums[n] / len(ids) if ids else 0.0 for n in kept),
        notes=pairs.notes(),
        predictions=pairs.matched,
        with_gold_pages=with_gold_pages,
    )


def score_kinds(
    predictions: Source, gold: Source, rules: Rules, group_of: GroupOf
) -> tuple[dict[Kind, Scores], dict[Kind, EvaluationError]]:
    """Return the scores of each kind of evaluation that is possible, and why another is not."""
    scores: dict[Kind, Scores] = {}
    refusals: dict[Kind, EvaluationError] = {}
    for kind in get_args(Kind):
        try:
            scores[kind] = score(predictions, gold, kind, rules, group_of)
        except EvaluationError as error:
            refusals[kind] = error
    return scores, refusals


def item_records(scores: Mapping[Kind, Scores]) -> Iterator[dict[str, object]]:
    """Yield for each query, in gold order: its id, its group, and every score of the official layouts, unrounded."""
    kinds = list(scores.values())
    columns_of = {each.kind: {name: each.column(name) for name in each.names} for each in kinds}
    for number, (record_id, group) in enumerate(zip(kinds[0].ids, kinds[0].groups, strict=True)):
        item: dict[str, object] = {"id": record_id, "group": group}
        for kind, by_name in columns_of.items():
            item[kind] = {name: float(column[number]) for name, column in by_name.items()}
        yield item


class Pairs:
    """Each gold record with its prediction, None where there is none; afterwards, how well the files fit together.

    Predictions wait in memory only while the two files differ in order.
    """

    def __init__(self, golds: Iterator[Gold], guesses: Iterator[Guess]) -> None:
        self._golds, self._guesses = golds, guesses
        self.golds = self.matched = 0
        self.unknown = 0  # predictions whose id is not in the gold file, known at the end
        self.without_input = self.with_empty_evidence = 0

    def __iter__(self) -> Iterator[tuple[Gold, Guess | None]]:
        """Yield the pairs in gold order."""
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
            self.with_empty_evidence += any(output.evidence == frozenset() for output in gold.outputs)
            yield gold, waiting.pop(gold.id, None)
        # Lines after the last gold record must still be readable, and their ids unique.
        self.unknown = len(waiting) + sum(1 for _ in self._guesses)

    def hint(self) -> str:
        """Return the likely reason for many problems, "" if there is none."""
        if self.golds and self.unknown and not self.matched:
            return f" (no id of its {self.unknown:,} predictions is in the gold file: for another file?)"
        return ""

    def mismatches(self) -> tuple[str, ...]:
        """Return a sentence for each way in which the two files do not fit together."""
        guesses = self.matched + self.unknown
        found = {
            "the gold file holds no record, so that every score is 0: is it the file you mean?": not self.golds,
            f"{self.golds:,} gold records, {guesses:,} predictions": guesses != self.golds,
            f"{self.unknown:,} predictions have ids that the gold file lacks: ignored": self.unknown,
        }
        return tuple(note for note, applies in found.items() if applies)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each thing worth knowing."""
        found = {
            f"{self.without_input:,} gold records have no input: entity_in_input is left out": self.without_input,
            f"{self.with_empty_evidence:,} gold records have empty provenance lists, which lower recall@k as "
            "evidence sets that cannot be found (files exported from the Hugging Face hub have them, the "
            "official files do not)": self.with_empty_evidence,
        }
        return (*self.mismatches(), *(note for note, applies in found.items() if applies))
