"""Scores: both files are read once and become a table of numbers per record, with means in the official layout."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.metrics import (
    ANSWER_NAMES,
    COUPLED,
    KILT_NAMES,
    PAGE_NAMES,
    RANK_KEYS,
    Deviations,
    Kind,
    Metrics,
    evidence_sets,
)
from kbq.kilt.parsing import GuessParser, Observations, Pairing, read_golds, read_guesses
from kbq.kilt.records import Gold, Guess, Problems, UnfitError
from kbq.special_tokens import slot_of

NO_GROUP = "(none)"
GroupOf = Callable[[Gold], str]


def relation_of(gold: Gold) -> str:
    """The relation of a slot query `subject [SEP] relation`."""
    slot = slot_of(gold.input or "")
    return slot[1] if slot else NO_GROUP


def evidence_count_of(gold: Gold) -> str:
    """How many distinct evidence sets there are."""
    return str(len(evidence_sets(gold.outputs)))


def grouping(name: str) -> GroupOf:
    """The grouping called `relation`, `evidence-sets` or `meta.KEY`.

    Raises:
        EvaluationError: there is none of that name.
    """
    if name == "relation":
        return relation_of
    if name == "evidence-sets":
        return evidence_count_of
    if name.startswith("meta."):
        key = name.removeprefix("meta.")
        return lambda gold: str(gold.meta[key]) if key in gold.meta else NO_GROUP
    raise EvaluationError(f"{name!r} is no grouping: choose relation, evidence-sets or meta.KEY", is_usage=True)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What one kind of evaluation found. Every number lies between 0 and 1, higher is better.

    Attributes:
        values: Shape: (items, names).
        means: one for each name, added up in gold order as the official evaluation does.
        notes: what a reader of the numbers should know.
    """

    kind: Kind
    names: tuple[str, ...]
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    values: Doubles
    means: tuple[float, ...]
    deviations: Deviations
    notes: tuple[str, ...] = ()
    predictions: int = 0  # that belong to these queries

    def column(self, name: str) -> Doubles:
        """The score of that name for every item. Shape: (items,).

        Raises:
            EvaluationError: there is no such score.
        """
        return self.values[:, self._index(name)]

    def mean(self, name: str) -> float:
        """The mean over all items.

        Raises:
            EvaluationError: there is no such score.
        """
        return self.means[self._index(name)]

    def downstream_layout(self) -> dict[str, dict[str, float]]:
        """The means under the keys of the official downstream evaluation, unrounded."""
        extra = (COUPLED,) if self.deviations.coupled else ()
        sections = {"kilt": KILT_NAMES + extra, "downstream": ANSWER_NAMES, "retrieval": PAGE_NAMES}
        return {
            section: {name: self.mean(name) for name in names if self.is_scored(name)}
            for section, names in sections.items()
        }

    def retrieval_layout(self) -> dict[str, float]:
        """The means under the keys of the official retrieval evaluation, unrounded."""
        return dict(zip(self.names, self.means, strict=True))

    def official_names(self) -> tuple[str, ...]:
        """The scores of the official layout, without what only diagnoses need."""
        if self.kind == "retrieval":
            return self.names
        return tuple(name for section in self.downstream_layout().values() for name in section)

    def is_scored(self, name: str) -> bool:
        """False for ROUGE-L where it is switched off."""
        return self.deviations.rouge or not name.endswith("rougel")

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise EvaluationError(f"{name!r} is no score of this evaluation: choose from {', '.join(self.names)}")
        return self.names.index(name)


@dataclass(slots=True)
class Table:
    """The rows that become `Scores`."""

    width: int
    ids: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    values: "array[float]" = field(default_factory=lambda: array("d"))
    sums: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.sums = [0.0] * self.width

    def add(self, record_id: str, group: str, row: Sequence[float]) -> None:
        """Append a row. Sums grow one by one: another order of adding would change the last digit."""
        self.ids.append(record_id)
        self.groups.append(group)
        self.values.extend(row)
        self.sums = [total + value for total, value in zip(self.sums, row, strict=True)]

    def means(self) -> tuple[float, ...]:
        """The mean of every column, 0 where there is no row."""
        return tuple(total / len(self.ids) if self.ids else 0.0 for total in self.sums)


@dataclass(frozen=True, slots=True)
class Scoring:
    """One kind of evaluation of one pair of files."""

    gold_path: Path
    guess_path: Path
    metrics: Metrics
    deviations: Deviations
    group_of: GroupOf

    def run(self, rank_keys: Sequence[str], parse: GuessParser) -> Scores:
        """Read both files and score every pair.

        Raises:
            EvaluationError: the files cannot be scored; it carries all problems.
        """
        problems = Problems()
        golds = read_golds(self.gold_path, rank_keys, problems)
        pairing = Pairing(golds, read_guesses(self.guess_path, parse, problems))
        table = Table(len(self.metrics.names))
        seen = Observations()
        names_pages = False
        for gold, guess in pairing:
            seen.look_at(gold, guess)
            names_pages = names_pages or any(output.pages for output in gold.outputs)
            row = self._row(gold, guess, problems)
            if row is not None:
                table.add(gold.id, self.group_of(gold), row)
        seen.unknown = pairing.unknown
        hint = seen.hint()
        problems.raise_if_any(f"the {self.metrics.kind} evaluation of {self.guess_path} against {self.gold_path}{hint}")
        if not names_pages and tuple(rank_keys) != RANK_KEYS["page"]:  # pages are scored as officially
            raise EvaluationError(
                f"no provenance in {self.gold_path} has {' and '.join(rank_keys)}: rank by {', '.join(RANK_KEYS)}, or "
                "by keys that it has",
                is_usage=True,
            )
        return self._scores(table, seen)

    def _row(self, gold: Gold, guess: Guess | None, problems: Problems) -> tuple[float, ...] | None:
        """The scores of a pair, None where it has none."""
        if guess is None:
            if self.deviations.missing == "error":
                problems.add(self.gold_path, gold.line, gold.id, f"has no prediction in {self.guess_path}")
            if self.deviations.missing != "zero":
                return None
            guess = Guess(gold.id, line=0)
        if guess.problem is None:
            try:
                return self.metrics.score(gold, guess)
            except UnfitError as error:
                problems.add(self.guess_path, guess.line, guess.id, str(error))
                return None
        problems.add(self.guess_path, guess.line, guess.id, guess.problem)
        return None

    def _scores(self, table: Table, seen: Observations) -> Scores:
        values = np.array(table.values, dtype=np.float64).reshape(len(table.ids), table.width)
        # Without an input its score is unknown, not 0: the newest official evaluation stops here.
        kept = [n for n, name in enumerate(self.metrics.names) if name != "entity_in_input" or not seen.no_input]
        means = table.means()
        return Scores(
            kind=self.metrics.kind,
            names=tuple(self.metrics.names[n] for n in kept),
            ids=tuple(table.ids),
            groups=tuple(table.groups),
            values=values[:, kept],
            means=tuple(means[n] for n in kept),
            deviations=self.deviations,
            notes=seen.notes(),
            predictions=seen.matched,
        )
