"""Scoring: compare the sets of values of tables, claims or gold data: precision, recall, F1.

The precision of a slot without a prediction is 1, as is the recall of one with nothing to find.
Values match one to one, by any of their names, as many as possible. Unlike in LM-KBC, a number near
the right one is wrong.

Gold data are a wide table, triples (`subject`, `relation`, `object`, perhaps `aliases`), or KILT
lines. A slot without a value is not scored, unless triples have an empty `object` for it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kbq.answers import counted
from kbq.english.dates import DateValue, dates_agree
from kbq.errors import EvaluationError
from kbq.kilt.analysis import Cell, Form, ScoreTable
from kbq.kilt.confidence import coverage_at
from kbq.storage.reading import file_digest
from kbq.storage.records import read_object
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import empty_markers
from kbq.tables.claims import RUN, Claim
from kbq.tables.options import SUBJECT
from kbq.tables.tables import (
    Row,
    Table,
    column_like,
    note_guessed,
    read_table,
    subject_column,
    subject_of,
    texts_of,
)
from kbq.tables.values import keys_of
from kbq.text.normal_forms import normalised
from kbq.text.queries import slot_of

Names: TypeAlias = tuple[str, ...]  # names of one value, each as good as the others
Key: TypeAlias = tuple[str, str]  # subject and relation in their compared form
ValueSets: TypeAlias = dict[Key, list[Names]]
Guesses: TypeAlias = dict[Key, tuple[Names, float]]  # names of a guess, with its probability
Sets: TypeAlias = Iterator[tuple[object, object, list[Names]]]  # subject, relation, values
MARKERS = empty_markers()
CLAIM_COLUMNS = {"subject", "relation", "value", "accepted"}

ALL = "all slots"
RELATIONS = "mean of relations"


def read_value_sets(path: Path, subject: str = SUBJECT, relations: Sequence[str] = ()) -> ValueSets:
    """Read the values of a file, by subject and relation; see `value_sets_of`."""
    return value_sets_of(read_table(path), path, subject, relations)


def value_sets_of(table: Table, path: Path, subject: str, relations: Sequence[str]) -> ValueSets:
    """Return the values of a table, by subject and relation.

    `subject`, `relations`: the columns of a wide table, by default all others. Raises
    EvaluationError if a line does not fit the others.
    """
    reader = _reader_of(table)
    if reader is None:
        subject = column_like(subject, table.columns)
        table.refuse_without(subject, path)
    sets: ValueSets = defaultdict(list)
    try:
        for name, relation, values in (
            reader(table.rows) if reader else _wide(table, subject, relations)
        ):
            slot = sets[normalised(subject_of(name)), normalised(str(relation))]
            slot += [names for names in values if names not in slot]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvaluationError(
            f"{path} has a line that differs from the others ({error!r:.80}): repair it"
        ) from None

    return dict(sets)


def _reader_of(table: Table) -> "ReadsSets | None":
    """Return what reads the sets of a table, or None for a wide one."""
    columns = set(table.columns)
    return next((reader for needed, reader in READERS if needed <= columns), None)


def guesses_of(table: Table) -> Guesses:
    """Return the best value of each slot among claims, accepted or not, with its probability; {}
    for other tables.
    """
    guesses: Guesses = {}
    if {*table.columns} >= CLAIM_COLUMNS:
        for row in table.rows:
            if row["probability"] is not None:
                key = normalised(subject_of(row["subject"])), normalised(row["relation"])
                guesses.setdefault(key, ((row["value"],), row["probability"]))
    return guesses


def _wide(table: Table, subject: str, relations: Sequence[str]) -> Sets:
    for row in table.rows:
        for relation in relations or [column for column in table.columns if column != subject]:
            values = texts_of(row.get(relation), MARKERS)
            if values:
                yield row.get(subject), relation, [(text,) for text in values]


def _claims(rows: Sequence[Row]) -> Sets:
    for row in rows:
        claim = Claim.from_dict(row)
        values: list[Names] = []
        if claim.accepted:
            values.append((claim.value,))
        yield claim.subject, claim.relation, values


def _triples(rows: Sequence[Row]) -> Sets:
    for row in rows:
        names = (*texts_of(row["object"], MARKERS)[:1], *texts_of(row.get("aliases"), MARKERS))
        sets: list[Names] = []
        if names:
            sets.append(names)
        yield row["subject"], row["relation"], sets


def _kilt(rows: Sequence[Row]) -> Sets:
    for row in rows:
        slot = slot_of(row["input"])
        answers = dict.fromkeys(
            output["answer"] for output in row["output"] if output.get("answer")
        )
        if slot:
            yield *slot, [(answer,) for answer in answers]


ReadsSets: TypeAlias = Callable[[Sequence[Row]], Sets]
READERS: tuple[tuple[set[str], ReadsSets], ...] = (
    (CLAIM_COLUMNS, _claims),
    ({"subject", "relation", "object"}, _triples),
    ({"input", "output"}, _kilt),
)


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Numbers of distinct values of a slot: predicted, right, and both; scores are from 0 to 1."""

    predicted: int
    gold: int
    matched: int

    @property
    def precision(self) -> float:
        if self.predicted:
            return self.matched / self.predicted
        return 1.0

    @property
    def recall(self) -> float:
        if self.gold:
            return self.matched / self.gold
        return 1.0

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        if total:
            return 2 * self.precision * self.recall / total
        return 0.0


@dataclass(frozen=True, slots=True)
class SetScores:
    """Means over slots (macro), and scores of all values together (micro); shares from 0 to 1."""

    slots: int
    coverage: float  # share of the slots with a prediction
    precision: float
    recall: float
    f1: float
    micro_precision: float
    micro_recall: float
    micro_f1: float
    coverage_90: float | None = None  # share of the slots that can be filled with nine in ten right

    @classmethod
    def of(
        cls, slots: Sequence[SlotCounts], guesses: Sequence[tuple[float, bool]] = ()
    ) -> "SetScores":
        """Score slots; `guesses`: the probabilities of best guesses, and whether they are right."""
        chances = np.array([chance for chance, _ in guesses], np.float64)
        right = np.array([is_right for _, is_right in guesses], np.bool_)
        coverage = None
        if guesses:
            coverage = coverage_at(chances, right, 0.9, len(slots)).share
        f1 = _mean(slot.f1 for slot in slots)
        precision = _mean(slot.precision for slot in slots)
        recall = _mean(slot.recall for slot in slots)
        totals = (sum(getattr(slot, name) for slot in slots) for name in SlotCounts.__slots__)
        total = SlotCounts(*totals)

        return cls(
            slots=len(slots),
            coverage=_mean(slot.predicted > 0 for slot in slots),
            precision=precision,
            recall=recall,
            f1=f1,
            micro_precision=total.precision,
            micro_recall=total.recall,
            micro_f1=total.f1,
            coverage_90=coverage,
        )


@dataclass(frozen=True, slots=True)
class TableScores:
    """The scores of a filled table, by relation and for all slots."""

    by_relation: dict[str, SetScores]
    all: SetScores  # LM-KBC 2025 and 2026 rank by its `f1`
    relations: SetScores  # mean of the relations: LM-KBC 2023 ranks by its `f1`

    def table(self) -> ScoreTable:
        columns: dict[str, Form] = {"relation": "text", "slots": "count", "coverage": "percent"}
        columns |= dict.fromkeys(
            ("precision", "recall", "F1", "micro P", "micro R", "micro F1"), "percent"
        )
        columns |= (
            {"coverage at 90 % precision": "percent"} if self.all.coverage_90 is not None else {}
        )
        scores = [*self.by_relation.items(), (ALL, self.all), (RELATIONS, self.relations)]
        rows: list[tuple[Cell, ...]] = [
            (name, *list(asdict(one).values())[: len(columns) - 1]) for name, one in scores
        ]
        return ScoreTable(f"sets of values, {counted(self.all.slots, 'cell')}", columns, rows)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return self.table().html()


def evaluate_table(
    filled: Path,
    gold: Path,
    subject: str | None = None,
    relations: Sequence[str] = (),
    note: Note = unheard,
) -> TableScores:
    """Score a filled table, or a file of claims, against gold data in one of the module's formats.

    Without a `subject`, both tables have their subjects in the column that `subject_column` gives.

    Raises:
        KbqError: a file cannot be read.
        EvaluationError: there is nothing to score.
    """
    gold_table = read_table(gold)
    table = read_table(filled)
    if _is_filled(gold_table, gold) and not _is_filled(table, filled):
        raise EvaluationError(
            f"{gold} was filled by kbq, {filled} was not: the filled table comes first, gold second",
            is_usage=True,
        )

    if subject is None:
        wide = [either for either in (gold_table, table) if _reader_of(either) is None]
        subject = subject_column(wide[0], asked=relations) if wide else SUBJECT
        note_guessed(subject, note)

    gold_sets = value_sets_of(gold_table, gold, subject, relations)
    if not gold_sets:
        raise EvaluationError(f"{gold} has no value to compare with: fill in some that are right")
    return scores_of(value_sets_of(table, filled, subject, relations), gold_sets, guesses_of(table))


def _is_filled(table: Table, path: Path) -> bool:
    """Whether a file has claims, or is a table as `kbq fill` has written it."""
    if {*table.columns} >= CLAIM_COLUMNS:
        return True
    with suppress(OSError, ValueError, KeyError, TypeError):  # anything else may have such a name
        written = read_object(path.with_suffix(RUN))["tables"][path.name]
        return bool(written == file_digest(path))
    return False


def scores_of(predicted: ValueSets, gold: ValueSets, guesses: Guesses | None = None) -> TableScores:
    """Score every gold slot, and no other."""
    slots: dict[str, list[SlotCounts]] = defaultdict(list)
    judged: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for (subject, relation), values in gold.items():
        slots[relation].append(compared(predicted.get((subject, relation), ()), values, relation))
        if guesses and (subject, relation) in guesses:
            names, chance = guesses[subject, relation]
            judged[relation].append((chance, compared([names], values, relation).matched > 0))

    scores = {
        relation: SetScores.of(slots[relation], judged[relation]) for relation in sorted(slots)
    }
    every = SetScores.of(list(chain(*slots.values())), list(chain(*judged.values())))
    columns = {
        name: [getattr(score, name) for score in scores.values()]
        for name in asdict(every)
        if name != "slots"
    }
    means: dict[str, Any] = {
        name: None if None in column else _mean(column) for name, column in columns.items()
    }

    return TableScores(scores, every, replace(every, **means))


def compared(predicted: Iterable[Names], gold: Sequence[Names], relation: str = "") -> SlotCounts:
    """Count how many values match: a maximum bipartite matching. `relation`: see
    `kbq.tables.values.agree`.

    >>> compared([("U.S.",), ("Mexico",)], [("United States", "US", "U.S."), ("Canada",)])
    SlotCounts(predicted=2, gold=2, matched=1)
    """
    guesses = distinct(predicted, relation)
    golds = distinct(gold, relation)
    places: dict[object, list[int]] = defaultdict(list)
    dated: list[tuple[int, DateValue]] = []

    for number, names in enumerate(golds):
        for key in _keys(names, relation):
            places[key].append(number)
            if isinstance(key, DateValue):
                dated += [(number, key)]

    edges = []
    for names in guesses:
        keys = _keys(names, relation)
        equal = {number for key in keys for number in places.get(key, ())}
        # One date may be more exact than another.
        own = [key for key in keys if isinstance(key, DateValue)]
        edges.append(
            sorted(
                equal
                | {number for number, date in dated for date_ in own if dates_agree(date_, date)}
            )
        )

    return SlotCounts(len(guesses), len(golds), _matched(edges))


def distinct(values: Iterable[Names], relation: str = "") -> list[Names]:
    """Leave out values that repeat an earlier one with its names spelt differently.

    >>> distinct([("Jürgen Kurths",), ("Jurgen Kurths",), ("Ann Lee", "A. Lee")])
    [('Jürgen Kurths',), ('Ann Lee', 'A. Lee')]
    """
    by_keys: dict[frozenset[object], Names] = {}
    for names in values:
        by_keys.setdefault(_keys(names, relation), names)
    return list(by_keys.values())


def _keys(names: Names, relation: str) -> frozenset[object]:
    return frozenset(chain.from_iterable(keys_of(name, relation) for name in names))


def _matched(edges: Sequence[Iterable[int]]) -> int:
    """Count the guesses that can have a gold value of their own; `edges`: the gold values of each."""
    import networkx  # imported on demand: it takes a quarter of a second

    graph = networkx.Graph()
    guesses = [("guess", number) for number in range(len(edges))]
    graph.add_nodes_from(guesses)
    graph.add_edges_from(
        (guess, value) for guess, values in zip(guesses, edges, strict=True) for value in values
    )
    return len(networkx.bipartite.maximum_matching(graph, guesses)) // 2


def _mean(values: Iterable[float]) -> float:
    several = list(values)
    return sum(several) / len(several)
