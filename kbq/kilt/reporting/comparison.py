"""Comparison: two systems' scores on the same queries become differences with p values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.reporting.significance import holm, permutation_p
from kbq.kilt.scoring.scores import Scores


@dataclass(frozen=True, slots=True)
class Difference:
    """One score of two systems; `gain` is second minus first."""

    name: str  # of the score, or of the group
    count: int  # queries compared
    first: float
    second: float
    gain: float
    p: float
    adjusted_p: float  # after Holm, over everything compared at once


def compare(first: Scores, second: Scores, names: Sequence[str]) -> tuple[Difference, ...]:
    """Compare two systems by several scores, over all queries.

    Raises:
        EvaluationError: they were not scored on the same queries, or lack one of the scores.
    """
    check_same_queries(first, second)
    pairs = [(name, first.column(name), second.column(name)) for name in names]
    return differences(pairs)


def compare_groups(first: Scores, second: Scores, name: str) -> tuple[Difference, ...]:
    """Compare two systems by one score, group by group.

    Raises:
        EvaluationError: they were not scored on the same queries, or lack the score.
    """
    check_same_queries(first, second)
    groups = np.array(first.groups, dtype=object)
    one, other = first.column(name), second.column(name)
    pairs = [(group, one[groups == group], other[groups == group]) for group in sorted(set(first.groups))]
    return differences(pairs)


def differences(pairs: Sequence[tuple[str, Doubles, Doubles]]) -> tuple[Difference, ...]:
    """One difference for each named pair of score columns. Shape of a column: (items,)."""
    p_values = [permutation_p(second - first) for _, first, second in pairs]
    return tuple(
        Difference(
            name=name,
            count=len(first),
            first=float(first.mean()) if len(first) else 0.0,
            second=float(second.mean()) if len(second) else 0.0,
            gain=float((second - first).mean()) if len(first) else 0.0,
            p=p,
            adjusted_p=adjusted,
        )
        for (name, first, second), p, adjusted in zip(pairs, p_values, holm(p_values), strict=True)
    )


def check_same_queries(first: Scores, second: Scores) -> None:
    """Refuse scores of different queries.

    Raises:
        EvaluationError: the ids differ.
    """
    if first.ids != second.ids:
        only = len(set(first.ids) ^ set(second.ids))
        raise EvaluationError(
            f"the systems were scored on {len(first.ids):,} and {len(second.ids):,} queries, {only:,} of "
            "them in one only: a query that one of them lacks counts 0 with --missing zero"
        )
