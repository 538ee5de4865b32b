"""Analysis: scores become confidence intervals, groups, comparisons of systems, and where points are lost.

Intervals are percentile bootstraps, comparisons paired permutation tests with Holm's correction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.scores import Scores

BLOCK = 2_000_000  # random numbers drawn at a time
RESAMPLES = 10_000
CONFIDENCE = 0.95  # share of the resamples that an interval holds


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap confidence interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Doubles, resamples: int = RESAMPLES, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Percentile interval of the mean when the items are drawn anew with replacement.

    Items of equal value are drawn together, from the multinomial distribution: the same law, much faster.

    Args:
        values: Shape: (items,). Without items the interval is 0.
    """
    if len(values) == 0:
        return Interval(0.0, 0.0, 0.0)
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng(seed)
    means = [
        generator.multinomial(len(values), counts / len(values), size=size) @ distinct / len(values)
        for size in block_sizes(resamples, len(distinct))
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def permutation_p(differences: Doubles, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Two-sided p value of a mean difference when the sign of every pair's difference is a coin toss.

    Args:
        differences: second system minus first, paired by query. Shape: (items,).
    """
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    if len(sizes) == 0:
        return 1.0
    observed = abs(differences.sum())
    generator = np.random.default_rng(seed)
    extreme = 0
    for block in block_sizes(resamples, len(sizes)):
        positive = generator.binomial(counts, 0.5, size=(block, len(sizes)))
        sums = np.abs((2 * positive - counts) @ sizes)
        extreme += int((sums >= observed * (1 - 1e-12)).sum())
    return (extreme + 1) / (resamples + 1)


def block_sizes(resamples: int, width: int) -> list[int]:
    """Splits the resamples so that each block draws a bounded amount of numbers."""
    block = max(1, BLOCK // width)
    return [min(block, resamples - start) for start in range(0, resamples, block)]


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for testing several things at once, in the order given.

    >>> holm([0.25, 0.125, 0.5])
    [0.5, 0.375, 0.5]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    ascending = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for passed, index in enumerate(ascending):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - passed)))
        adjusted[index] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class GroupScores:
    """The means of one group, in the order of the breakdown's names."""

    group: str
    count: int
    means: tuple[float, ...]
    interval: Interval  # of the first name


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Groups, the largest first; `micro` has the means over queries, `macro` those over groups."""

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


@dataclass(frozen=True, slots=True)
class Difference:
    """One score of two systems; `gain` is second minus first."""

    system: str  # the second
    name: str  # of the score, or of the group
    count: int  # queries compared
    first: float
    second: float
    gain: float
    low: float  # ends of the gain's confidence interval
    high: float
    p: float
    adjusted_p: float  # after Holm, over everything compared at once


def compare(first: Scores, others: Mapping[str, Scores], names: Sequence[str]) -> tuple[Difference, ...]:
    """Compare a system with others, by their names, by several scores over all queries.

    Raises:
        EvaluationError: they were not scored on the same queries, or lack one of the scores.
    """
    return _differences(
        (system, name, first.column(name), second.column(name))
        for system, second in _on_same_queries(first, others)
        for name in names
    )


def compare_groups(first: Scores, others: Mapping[str, Scores], name: str) -> tuple[Difference, ...]:
    """Compare a system with others, by their names, by one score, group by group.

    Raises:
        EvaluationError: they were not scored on the same queries, or lack the score.
    """
    groups, one = np.array(first.groups, dtype=object), first.column(name)
    return _differences(
        (system, group, one[groups == group], second.column(name)[groups == group])
        for system, second in _on_same_queries(first, others)
        for group in sorted(set(first.groups))
    )


def _differences(pairs: Iterable[tuple[str, str, Doubles, Doubles]]) -> tuple[Difference, ...]:
    """One difference for each pair of score columns, with what they are of. Shape of a column: (items,)."""
    pairs = list(pairs)
    p_values = [permutation_p(second - first) for _, _, first, second in pairs]
    found = []
    for (system, name, first, second), p, adjusted in zip(pairs, p_values, holm(p_values), strict=True):
        gain = bootstrap_interval(second - first)
        before, after = (float(column.mean()) if len(column) else 0.0 for column in (first, second))
        found.append(Difference(system, name, len(first), before, after, gain.mean, gain.low, gain.high, p, adjusted))
    return tuple(found)


def _on_same_queries(first: Scores, others: Mapping[str, Scores]) -> Iterator[tuple[str, Scores]]:
    for system, second in others.items():
        check_same_queries(first, second)
        yield system, second


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


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Shares of all queries, 1 together; pages are right where R-precision is 1."""

    both_right: float  # the KILT score
    only_answer_right: float
    only_pages_right: float
    both_wrong: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What cannot be exceeded, as shares of all queries."""

    r_precision: float  # by any ranking
    recall_at_5: float  # by any ranking: more than 5 evidence sets do not fit into 5 positions
    kilt_by_these_pages: float  # if every answer were right: the share of R-precision 1
    kilt_by_these_parts: float  # if right answers and right pages met as often as they can


def decompose(scores: Scores, answer: str = "accuracy") -> Decomposition:
    """The 2×2 table of a downstream evaluation; `answer` is the score that says right: accuracy or em.

    Raises:
        EvaluationError: there is no such score.
    """
    answer_right = scores.column(answer) == 1
    pages_right = scores.column("Rprec") == 1
    return Decomposition(
        both_right=share(answer_right & pages_right),
        only_answer_right=share(answer_right & ~pages_right),
        only_pages_right=share(~answer_right & pages_right),
        both_wrong=share(~answer_right & ~pages_right),
    )


def find_ceilings(scores: Scores, answer: str = "accuracy") -> Ceilings:
    """The ceilings of a downstream evaluation.

    Raises:
        EvaluationError: there is no such score.
    """
    pages_right = share(scores.column("Rprec") == 1)
    return Ceilings(
        r_precision=scores.mean("attainable Rprec"),
        recall_at_5=scores.mean("attainable recall@5"),
        kilt_by_these_pages=pages_right,
        kilt_by_these_parts=min(scores.mean(answer), pages_right),
    )


def share(marks: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """Share of the items that are marked, from 0 to 1; 0 without items. Shape: (items,)."""
    return float(np.count_nonzero(marks) / len(marks)) if len(marks) else 0.0
