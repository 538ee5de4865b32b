"""Analysis: scores become confidence intervals, groups, comparisons of systems, and where points are lost; with tables.

Intervals are percentile bootstraps, comparisons paired permutation tests with Holm's correction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass

import numpy as np

from kbq.array_types import Bools, Doubles
from kbq.errors import EvaluationError
from kbq.kilt.metrics import Kind
from kbq.kilt.report import Cell, Form, ScoreTable
from kbq.kilt.scores import Scores

BLOCK = 2_000_000  # random numbers drawn at a time
RESAMPLES = 10_000
CONFIDENCE = 0.95  # share of the resamples that an interval holds
LOW_END = f"{round(CONFIDENCE * 100)} % from"  # the column of its lower end, before `to`


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap confidence interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Doubles, resamples: int = RESAMPLES, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Return the percentile interval of the mean when items are drawn with replacement; 0 without items.

    Items of equal value are drawn together, from the multinomial distribution: the same law, much faster.
    Shape: (items,).
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
    """Return the two-sided p value of a mean difference when the sign of every pair's difference is a coin toss.

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
    """Divide the resamples into blocks that draw a bounded amount of numbers each."""
    block = max(1, BLOCK // width)
    return [min(block, resamples - start) for start in range(0, resamples, block)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for testing several things at once, in the order given.

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


def score_table(
    selected: Iterable[tuple[Scores, Sequence[str]]], intervals: Mapping[Kind, Mapping[str, Interval]]
) -> ScoreTable:
    """Return the named means of one or two evaluations of the same records, with their intervals if there are any."""
    columns: dict[str, Form] = {"evaluation": "text", "score": "text", "mean": "percent"}
    columns |= {LOW_END: "percent", "to": "percent"} if intervals else {}
    rows: list[tuple[Cell, ...]] = []
    count = 0
    for scores, names in selected:
        count = len(scores.ids)
        for name in names:
            interval = intervals[scores.kind][name] if intervals else None
            ends = (interval.low, interval.high) if interval else ()
            rows.append((scores.kind, name, scores.mean(name), *ends))
    return ScoreTable(f"scores, {count:,} queries", columns, rows)


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

    def table(self, grouping: str) -> ScoreTable:
        """Return one row for each group, then the means over queries and over groups."""
        columns: dict[str, Form] = {"group": "text", "n": "count"}
        columns |= dict.fromkeys((*self.names, f"{self.names[0]} from", "to"), "percent")
        total = sum(row.count for row in self.groups)
        rows: list[tuple[Cell, ...]] = [
            (row.group, row.count, *row.means, row.interval.low, row.interval.high) for row in self.groups
        ]
        rows.append(("mean over queries", total, *self.micro, None, None))
        rows.append(("mean over groups", total, *self.macro, None, None))
        return ScoreTable(f"by {grouping}", columns, rows)


def break_down(scores: Scores, names: Sequence[str]) -> Breakdown:
    """Return the named scores, at least one, by group. Raises EvaluationError if there is no such score."""
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


def compared(
    first: Scores, others: Mapping[str, Scores], names: Sequence[str], by_group: bool
) -> tuple[list[dict[str, object]], list[ScoreTable]]:
    """Compare a system with others by all these scores, or by the first of them in each group; as JSON and as a table.

    Raises:
        EvaluationError: see `compare`.
    """
    if not by_group:
        differences = compare(first, others, names)
        return [asdict(one) for one in differences], [comparison_table(differences)]
    differences = compare_groups(first, others, names[0])
    return [{"score": names[0]} | asdict(one) for one in differences], [comparison_table(differences, names[0])]


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
    """Compare a system with others by one score, group by group; see `compare`."""
    groups, one = np.array(first.groups, dtype=object), first.column(name)
    return _differences(
        (system, group, one[groups == group], second.column(name)[groups == group])
        for system, second in _on_same_queries(first, others)
        for group in sorted(set(first.groups))
    )


def _differences(pairs: Iterable[tuple[str, str, Doubles, Doubles]]) -> tuple[Difference, ...]:
    """Compare each pair of score columns, given with system and name. Shape of a column: (items,)."""
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
        if first.ids != second.ids:
            only = len(set(first.ids) ^ set(second.ids))
            raise EvaluationError(
                f"the systems were scored on {len(first.ids):,} and {len(second.ids):,} queries, {only:,} of "
                "them in one only: a query that one of them lacks counts 0 with --missing zero"
            )
        yield system, second


def comparison_table(differences: Sequence[Difference], by_group: str = "") -> ScoreTable:
    """Return one row for each score, or for each group by the score of this name; of each system, if several."""
    is_one = len({row.system for row in differences}) == 1
    columns: dict[str, Form] = {} if is_one else {"system": "text"}
    columns |= {"group" if by_group else "score": "text", "n": "count"}
    columns |= dict.fromkeys(("first", "second", "gain", LOW_END, "to"), "percent")
    columns |= dict.fromkeys(("p", "p (Holm)"), "decimals")
    rows = [astuple(row)[1 if is_one else 0 :] for row in differences]
    title = f"{by_group}, " * bool(by_group) + ("second" if is_one else "each system")
    return ScoreTable(f"{title} against first, paired permutation test", columns, rows)


# Where points are lost


DIAGNOSIS_WORDS = {
    "both_right": "answer right, pages right",
    "only_answer_right": "answer right, pages wrong",
    "only_pages_right": "answer wrong, pages right",
    "both_wrong": "answer wrong, pages wrong",
    "r_precision": "R-precision of the best ranking",
    "recall_at_5": "recall@5 of the best ranking",  # more than 5 evidence sets do not fit into 5 positions
    "kilt_by_these_pages": "KILT score with these pages, if every answer were right",
    "kilt_by_these_parts": "KILT score with these answers and pages, if the right ones met",
}


def diagnosed(scores: Scores, answer: str) -> tuple[dict[str, dict[str, float]], list[ScoreTable]]:
    """Return `decompose` and `find_ceilings` as JSON and as tables."""
    parts, ceilings = decompose(scores, answer), find_ceilings(scores, answer)
    tables = [diagnosis_table("answers and pages", parts), diagnosis_table("ceilings", ceilings)]
    return {"decomposition": parts, "ceilings": ceilings}, tables


def decompose(scores: Scores, answer: str = "accuracy") -> dict[str, float]:
    """Divide the queries of a downstream evaluation by whether answer and pages are right; shares, 1 together.

    Args:
        answer: the score of a right answer, accuracy or em; pages are right where R-precision is 1.
    """
    answer_right = scores.column(answer) == 1
    pages_right = scores.column("Rprec") == 1
    return {
        "both_right": share(answer_right & pages_right),
        "only_answer_right": share(answer_right & ~pages_right),
        "only_pages_right": share(~answer_right & pages_right),
        "both_wrong": share(~answer_right & ~pages_right),
    }


def find_ceilings(scores: Scores, answer: str = "accuracy") -> dict[str, float]:
    """Return the scores of a downstream evaluation that cannot be exceeded; `answer` as in `decompose`."""
    pages_right = share(scores.column("Rprec") == 1)
    return {
        "r_precision": scores.mean("attainable Rprec"),
        "recall_at_5": scores.mean("attainable recall@5"),
        "kilt_by_these_pages": pages_right,
        "kilt_by_these_parts": min(scores.mean(answer), pages_right),
    }


def diagnosis_table(title: str, shares: Mapping[str, float]) -> ScoreTable:
    """Return one row for each share of `decompose` or `find_ceilings`."""
    rows = [(DIAGNOSIS_WORDS[name], value) for name, value in shares.items()]
    return ScoreTable(title, {"what": "text", "queries": "percent"}, rows)


def share(marks: Bools) -> float:
    """Return the share of the items that are marked, from 0 to 1; 0 without items. Shape: (items,)."""
    return float(np.count_nonzero(marks) / len(marks)) if len(marks) else 0.0
