"""Breakdown: the scores of each group of queries, such as each relation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbq.kilt.reporting.significance import Interval, bootstrap_interval
from kbq.kilt.scoring.scores import Scores


@dataclass(frozen=True, slots=True)
class GroupScores:
    """The means of one group, in the order of the breakdown's names."""

    group: str
    count: int
    means: tuple[float, ...]
    interval: Interval  # of the first name


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Groups, the largest first; `micro` weighs every query alike, `macro` every group."""

    names: tuple[str, ...]
    groups: tuple[GroupScores, ...]
    micro: tuple[float, ...]
    macro: tuple[float, ...]


def break_down(scores: Scores, names: Sequence[str]) -> Breakdown:
    """The named scores, at least one, by group.

    Raises:
        EvaluationError: there is no such score.
    """
    columns = np.stack([scores.column(name) for name in names], axis=1)  # (items, names)
    groups, members = np.unique(np.array(scores.groups, dtype=str), return_inverse=True)
    rows = []
    for number, group in enumerate(groups):
        values = columns[members == number]
        means = tuple(float(mean) for mean in values.mean(axis=0))
        interval = bootstrap_interval(values[:, 0])
        rows.append(GroupScores(str(group), len(values), means, interval))
    rows.sort(key=lambda row: (-row.count, row.group))
    macro = np.mean([row.means for row in rows], axis=0) if rows else np.zeros(len(names))
    return Breakdown(
        names=tuple(names),
        groups=tuple(rows),
        micro=tuple(scores.mean(name) for name in names),
        macro=tuple(float(mean) for mean in macro),
    )
