"""Grouping: what the records of a breakdown have in common, such as their relation."""

from collections.abc import Callable

from kbq.errors import EvaluationError
from kbq.kilt.reading.records import Gold
from kbq.kilt.scoring.ranking import evidence_sets
from kbq.text.markers import slot_of

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
