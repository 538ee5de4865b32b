"""Value sets: a table, a file of claims, or gold data becomes the set of values of each subject and relation.

Gold data are a wide table, triples (`subject`, `relation`, `object`, perhaps `aliases`), or KILT lines. A slot without
a value is not scored, unless triples say that there is none, with an empty `object`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from kbq.errors import EvaluationError
from kbq.storage.rows import empty_markers
from kbq.tables.cells import subject_of, texts_of
from kbq.tables.claims import Claim
from kbq.tables.tables import Row, Table, read_table
from kbq.text.letters import normalised
from kbq.text.markers import slot_of

Names: TypeAlias = tuple[str, ...]  # of one value, each as good as the others
Key: TypeAlias = tuple[str, str]  # subject and relation, as values are compared
ValueSets: TypeAlias = dict[Key, list[Names]]
Guesses: TypeAlias = dict[Key, tuple[Names, float]]  # with its probability
Sets: TypeAlias = Iterator[tuple[object, object, list[Names]]]  # subject, relation, values
MARKERS = empty_markers()
CLAIM_COLUMNS = {"subject", "relation", "value", "accepted"}


def read_value_sets(path: Path, subject: str = "subject", relations: Sequence[str] = ()) -> ValueSets:
    """Read the values of a file, by subject and relation; see `value_sets_of`."""
    return value_sets_of(read_table(path), path, subject, relations)


def value_sets_of(table: Table, path: Path, subject: str, relations: Sequence[str]) -> ValueSets:
    """Return the values of a table that was read, by subject and relation.

    `subject` and `relations`: the columns of a wide table, by default all others. Raises EvaluationError if a line does
    not fit the others.
    """
    columns = set(table.columns)
    reader = next((reader for wanted, reader in READERS if wanted <= columns), None)
    found: ValueSets = defaultdict(list)
    try:
        for name, relation, values in reader(table.rows) if reader else _wide(table, subject, relations):
            slot = found[normalised(subject_of(name)), normalised(str(relation))]
            slot += [names for names in values if names not in slot]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvaluationError(f"{path} has a line that differs from the others ({error!r:.80}): repair it") from None
    return dict(found)


def guesses_of(table: Table) -> Guesses:
    """Return the best value of each slot among claims, accepted or not, with its probability; of a table, {}."""
    guesses: Guesses = {}
    if {*table.columns} >= CLAIM_COLUMNS:
        for row in table.rows:
            if row["probability"] is not None:
                key = normalised(subject_of(row["subject"])), normalised(row["relation"])
                guesses.setdefault(key, ((row["value"],), row["probability"]))
    return guesses


def _wide(table: Table, subject: str, relations: Sequence[str]) -> Sets:
    table.refuse_without(subject)
    for row in table.rows:
        for relation in relations or [column for column in table.columns if column != subject]:
            values = texts_of(row.get(relation), MARKERS)
            if values:
                yield row.get(subject), relation, [(text,) for text in values]


def _claims(rows: Sequence[Row]) -> Sets:
    for row in rows:
        claim = Claim.from_dict(row)
        yield claim.subject, claim.relation, [(claim.value,)] if claim.accepted else []


def _triples(rows: Sequence[Row]) -> Sets:
    for row in rows:
        names = (*texts_of(row["object"], MARKERS)[:1], *texts_of(row.get("aliases"), MARKERS))
        yield row["subject"], row["relation"], [names] if names else []


def _kilt(rows: Sequence[Row]) -> Sets:
    for row in rows:
        slot = slot_of(row["input"])
        answers = dict.fromkeys(output["answer"] for output in row["output"] if output.get("answer"))
        if slot:
            yield *slot, [(answer,) for answer in answers]


READERS: tuple[tuple[set[str], Callable[[Sequence[Row]], Sets]], ...] = (
    (CLAIM_COLUMNS, _claims),
    ({"subject", "relation", "object"}, _triples),
    ({"input", "output"}, _kilt),
)
