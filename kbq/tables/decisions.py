"""Decisions: people accept and reject values, in a file of JSON lines; the last decision on a value is obeyed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from kbq.errors import KbqError
from kbq.storage.rows import read_rows
from kbq.tables.cells import subject_of
from kbq.tables.claims import Alternative, Claim, NormalForm
from kbq.tables.relations import Relation, Slot
from kbq.text.letters import normalised

Choice = Literal["accept", "reject", "undo"]
Cell: TypeAlias = tuple[str, str]  # subject and relation
LONGEST, LONGEST_ID = 4096, 64  # characters of a value, and of an id
HOW = "write subject, relation, value, and decision, which is accept, reject or undo"


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision on a value; accepting "" leaves the cell empty, as the text does not say what it is."""

    subject: str
    relation: str
    value: str
    choice: Choice
    reviewer: str = ""
    time: str = ""  # as the reviewer's browser has it; the order of the file counts
    id: str = ""  # by which a decision that is sent twice is known

    @property
    def cell(self) -> Cell:
        """The names of subject and relation."""
        return self.subject, self.relation


Decided: TypeAlias = Mapping[Cell, Mapping[str, Decision]]  # by value, as values are compared; the latest last


def decision_of(fields: Mapping[str, object]) -> Decision:
    """Return the decision in a JSON object, whose other fields are ignored.

    Raises KbqError, which says why, if there is none.
    """
    texts = [fields.get(name) for name in ("subject", "relation", "value", "decision")]
    more = [fields.get(name, "") for name in ("reviewer", "time", "id")]
    if not all(isinstance(text, str) for text in (*texts, *more)) or texts[3] not in get_args(Choice):
        raise KbqError(f"is not a decision: {HOW}")
    subject, relation, value = map(subject_of, texts[:3])
    if not subject or not relation:
        raise KbqError(f"names no cell: {HOW}")
    longest = max(map(len, (subject, relation, value, *map(str, more))))
    if longest > LONGEST or len(str(more[2])) > LONGEST_ID:
        raise KbqError(f"has a text of {longest:,} characters: {LONGEST:,} at most are kept, {LONGEST_ID} of an id")
    return Decision(subject, relation, value, texts[3], *map(subject_of, more))  # type: ignore[arg-type]


def read_decisions(path: Path) -> dict[Cell, dict[str, Decision]]:
    """Return the decisions in a file of JSON lines that count.

    Raises KbqError if it cannot be read, or names each line that is not a decision.
    """
    decisions: list[Decision] = []
    problems: list[str] = []
    for number, fields in read_rows(str(path)).numbered:
        try:
            decisions.append(decision_of(fields))
        except KbqError as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        raise KbqError(f"{path} has {len(problems):,} lines that are not decisions: {HOW}", problems)
    return decided(decisions)


def decided(decisions: Iterable[Decision]) -> dict[Cell, dict[str, Decision]]:
    """Return the decisions that count, of those made one after another."""
    cells: dict[Cell, dict[str, Decision]] = {}
    for decision in decisions:
        values = cells.setdefault(decision.cell, {})
        values.pop(normalised(decision.value), None)
        if decision.choice != "undo":
            values[normalised(decision.value)] = decision
    return {cell: values for cell, values in cells.items() if values}


def disputed(decisions: Decided, many: Collection[str]) -> list[tuple[Decision, Decision]]:
    """Return the last two values accepted for a cell, where reviewers differ; the last of them counts.

    `many`: relations whose cells take several values, so that reviewers may differ.
    """
    disputes = []
    for (_, relation), values in decisions.items():
        accepted = [decision for decision in values.values() if decision.choice == "accept"]
        if len({decision.reviewer for decision in accepted}) > 1 and relation not in many:
            disputes.append((accepted[-2], accepted[-1]))
    return disputes


def obeyed(
    claims: Sequence[Claim],
    slot: Slot,
    decisions: Mapping[str, Decision],
    normal: Callable[[str, Relation], NormalForm | None],
) -> list[Claim]:
    """Return the claims of a cell as people decided: with what they accepted, whether it was found or not.

    `claims`: without the values that were rejected. `normal`: gives the normal form of a value of a relation.
    """
    wanted = [decision for decision in decisions.values() if decision.choice == "accept"]
    if wanted and not wanted[-1].value:
        return [replace(claim, accepted=False) for claim in claims[:1]]
    wanted = [decision for decision in wanted if decision.value]
    wanted = wanted[-1:] if slot.relation.values == "one" else wanted
    if not wanted:
        return list(claims)
    found = {normalised(claim.value): claim for claim in claims}
    keys = [normalised(decision.value) for decision in wanted]
    chosen = [
        found[key] if key in found else by_hand(slot, decision.value, normal(decision.value, slot.relation))
        for key, decision in zip(keys, wanted, strict=True)
    ]
    left = [claim for key, claim in found.items() if key not in keys]
    also = [claim for claim in left if claim.accepted] if slot.relation.values == "many" else []
    alternatives = [other for claim in claims for other in claim.alternatives if normalised(other.value) not in keys]
    alternatives = [*(Alternative.of(claim) for claim in left if claim not in also), *alternatives]
    shown = [replace(claim, accepted=True, alternatives=()) for claim in (*chosen, *also)]
    return [replace(shown[0], alternatives=tuple(alternatives)), *shown[1:]]


def by_hand(slot: Slot, value: str, normal: NormalForm | None) -> Claim:
    """Return a claim of what a person has typed; the value is its own evidence."""
    return Claim(
        subject=slot.subject, relation=slot.relation.name, value=value, probability=None, accepted=True, page_id="",
        title="", paragraph=0, start=0, end=len(value), sentence=value, sentence_start=0, normal=normal, by_hand=True,
    )  # fmt: skip


def without_cell(decisions: Decided, slots: Iterable[Slot]) -> list[Decision]:
    """Return the decisions on cells that are not asked for: they change nothing."""
    cells = {slot.cell for slot in slots}
    return [decision for cell, values in decisions.items() if cell not in cells for decision in values.values()]


def without_value(decisions: Mapping[str, Decision], texts: Iterable[str]) -> list[Decision]:
    """Return the rejections of values that were not found for their cell: they change nothing."""
    rejected = {value: decision for value, decision in decisions.items() if decision.choice == "reject"}
    found = [normalised(text) for text in texts] if rejected else []
    return [decision for value, decision in rejected.items() if not any(value in text for text in found)]
