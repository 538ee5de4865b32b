"""Analysis: scores as tables, with confidence intervals, by group or by system.

Intervals are percentile bootstraps; comparisons are paired permutation tests with Holm's
correction.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import numpy as np

from kbq.array_types import Doubles
from kbq.errors import EvaluationError
from kbq.kilt.scores import Kind, Scores
from kbq.text import html
from kbq.text.visible import visible

LATEX = re.compile(r"[&%$#_{}]")  # characters with a meaning of their own
Cell = str | int | float | None  # None is an empty cell
# How a cell is shown; percent is of a share from 0 to 1.
Form = Literal["text", "count", "percent", "decimals"]

BLOCK = 2_000_000  # random numbers drawn at a time
RESAMPLES = 10_000
CONFIDENCE = 0.95  # share of the resamples that an interval holds
LOW_END = f"{round(CONFIDENCE * 100)} % from"  # the column of its lower end, before `to`
# Columns of a comparison.
TAKEN = ("system", "group", "score", "n", "gain", LOW_END, "to", "p", "p (Holm)")


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """A table; `columns` has the form of the cells under each heading."""

    title: str
    columns: Mapping[str, Form]
    rows: Sequence[tuple[Cell, ...]]

    def _shown(self) -> list[list[str]]:
        return [
            [format_cell(cell, form) for cell, form in zip(row, self.columns.values(), strict=True)]
            for row in self.rows
        ]

    def markdown(self) -> str:
        """Return a pipe table under its title, numbers to the right."""
        rule = ["---" if form == "text" else "---:" for form in self.columns.values()]
        lines = [f"| {' | '.join(cells)} |" for cells in [self.columns, rule, *self._shown()]]
        return "\n".join([f"**{self.title}**", "", *lines, ""])

    def latex(self) -> str:
        """Return the table for the package booktabs, under its title."""
        cells = [
            [LATEX.sub(r"\\\g<0>", cell) for cell in row]
            for row in [list(self.columns), *self._shown()]
        ]
        head, *body = [" & ".join(row) + r" \\" for row in cells]
        form = "".join("l" if form == "text" else "r" for form in self.columns.values())
        begin = [f"% {self.title}", rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", ""])

    def html(self) -> str:
        rows = []
        for row in self._shown():
            rows.append([html.element("td", html.text(cell)) for cell in row])
        return html.table(self.columns, rows, self.title)

    def csv(self) -> str:
        """Return comma-separated values, unrounded, with a heading; every row is one line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(
            [
                [visible(cell) if isinstance(cell, str) else cell for cell in row]
                for row in self.rows
            ]
        )
        return text.getvalue()


class Analysis(NamedTuple):
    """An analysis of scores as JSON and as tables, with notes for their reader."""

    document: Any
    tables: Sequence[ScoreTable] = ()
    notes: Sequence[str] = ()


def format_cell(cell: Cell, form: Form) -> str:
    """Return a cell as text.

    >>> format_cell(0.5, "percent"), format_cell(5000, "count"), format_cell(None, "decimals")
    ('50.00', '5,000', '')
    """
    if cell is None:
        return ""
    if form == "percent":
        return f"{float(cell) * 100:.2f}"
    if form == "decimals":
        return f"{float(cell):.4f}"
    if form == "count":
        return f"{cell:,}"
    return str(cell).replace("|", "\\|").replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap confidence interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Doubles, resamples: int = RESAMPLES, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Return the percentile interval of the mean when items are drawn with replacement. Shape:
    (items,).

    Items of equal value are drawn together, from a multinomial distribution: the same law, much
    faster.
    """
    if len(values) == 0:
        return Interval(0.0, 0.0, 0.0)
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng(seed)
    count = len(values)
    means: list[Doubles] = []
    for size in block_sizes(resamples, len(distinct)):
        drawn = generator.multinomial(count, counts / count, size=size)
        means.append(drawn @ distinct / count)

    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def permutation_p(differences: Doubles, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p value of a mean difference, second system minus first, if every sign
    is a coin toss.

    Shape: (items,).
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
    """Divide resamples into blocks that each draw a bounded number of values."""
    block = max(1, BLOCK // width)
    return [min(block, resamples - start) for start in range(0, resamples, block)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for several tests at once.

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
    selected: Iterable[tuple[Scores, Sequence[str]]],
    intervals: Mapping[Kind, Mapping[str, Interval]],
) -> ScoreTable:
    """Return the named means of one or two evaluations of the same records, with their intervals if
    given.
    """
    columns: dict[str, Form] = {"evaluation": "text", "score": "text", "mean": "percent"}
    if intervals:
        columns |= {LOW_END: "percent", "to": "percent"}
    rows: list[tuple[Cell, ...]] = []
    count = 0
    for scores, names in selected:
        count = len(scores.ids)
        for name in names:
            interval = intervals[scores.kind][name] if intervals else None
            ends = (interval.low, interval.high) if interval else ()
            rows.append((scores.kind, name, scores.mean(name), *ends))
    return ScoreTable(f"scores, {count:,} queries", columns, rows)


def broken_down(scores: Scores, names: Sequence[str], grouping: str) -> Analysis:
    """Average the named scores by group, the largest first, and over queries (micro) and groups
    (macro).
    """
    columns = np.stack([scores.column(name) for name in names], axis=1)  # (items, names)
    groups, members = np.unique(np.array(scores.groups, dtype=str), return_inverse=True)
    measured = []
    for number, group in enumerate(groups.tolist()):
        values = columns[members == number]
        measured.append(
            (group, len(values), values.mean(axis=0).tolist(), bootstrap_interval(values[:, 0]))
        )

    measured.sort(key=lambda interval: (-interval[1], interval[0]))
    micro = list(map(scores.mean, names))
    macro = np.mean([means for _, _, means, _ in measured], axis=0).tolist()
    rows: list[tuple[Cell, ...]] = [
        (group, n, *means, interval.low, interval.high) for group, n, means, interval in measured
    ]
    for name, means in (("mean over queries", micro), ("mean over groups", macro)):
        rows.append((name, len(scores.ids), *means, None, None))
    headings: dict[str, Form] = {"group": "text", "n": "count"}
    # The interval of the first.
    headings |= dict.fromkeys((*names, f"{names[0]} from", "to"), "percent")
    listed = [
        {"group": group, "count": n, "means": means, "interval": asdict(interval)}
        for group, n, means, interval in measured
    ]
    document = {
        "grouping": grouping,
        "names": list(names),
        "groups": listed,
        "micro": micro,
        "macro": macro,
    }

    return Analysis(document, [ScoreTable(f"by {grouping}", headings, rows)])


@dataclass(frozen=True, slots=True)
class Difference:
    """One score of two systems; `gain` is second minus first."""

    system: str  # the second
    name: str  # name of the score, or of the group
    count: int  # queries compared
    first: float
    second: float
    gain: float
    low: float  # ends of the gain's confidence interval
    high: float
    p: float
    adjusted_p: float  # corrected by Holm's method, over everything compared at once


def compared(
    first: Scores,
    others: Mapping[str, Scores],
    names: Sequence[str],
    by_group: bool,
    name: str = "",
) -> Analysis:
    """Compare systems, as JSON and as a table with a row for each difference; see `compare`.

    `name`: of the first system. Files are called by their names without folders and suffixes, where
    these differ.
    """
    differences = compare(first, others, names, by_group)
    one, *labels = _labels([name or "first", *others])
    columns: dict[str, Form] = {}
    if len(others) > 1:
        columns = {"system": "text"}
    heading = "score"
    if by_group:
        heading = "group"
    columns |= {heading: "text", "n": "count"}
    other = labels[0] if len(labels) == 1 else "that system"
    columns |= dict.fromkeys((one, other, "gain", LOW_END, "to"), "percent")
    columns |= dict.fromkeys(("p", "p (Holm)"), "decimals")
    label_of = dict(zip(others, labels, strict=True))
    cells = [astuple(row) for row in differences]
    rows: list[tuple[Cell, ...]] = []
    for system, *row in cells:
        if len(others) > 1:
            rows.append((label_of[system], *row))
        else:
            rows.append(tuple(row))
    title = other
    if len(others) > 1:
        title = "each system"
    if by_group:
        title = f"{names[0]}, {title}"
    table = ScoreTable(f"{title} against {one}, paired permutation test", columns, rows)
    score = {"score": names[0]} if by_group else {}
    notes = [note for other in others.values() for note in other.notes]

    return Analysis([score | asdict(difference) for difference in differences], [table], notes)


def _labels(names: Sequence[str]) -> list[str]:
    """Return short names of systems, no two alike, nor like another column.

    >>> _labels(["runs/a.jsonl", "runs/b.jsonl"]), _labels(["a/p.jsonl", "b/p.jsonl"]), _labels(["p", "p"])
    (['a', 'b'], ['a/p.jsonl', 'b/p.jsonl'], ['first', 'second'])
    """
    for labels in ([PurePath(name).stem for name in names], list(names)):
        if len({*labels, *TAKEN}) == len(labels) + len(TAKEN):
            return labels
    return ["first", "second", *names[2:]]


def compare(
    first: Scores, others: Mapping[str, Scores], names: Sequence[str], by_group: bool = False
) -> list[Difference]:
    """Compare a system with others by each of the named scores or, by group, by the first of them.

    Raises EvaluationError if the systems were not scored on the same queries, or lack a score.
    """
    # system, name, and the two columns of scores.
    pairs: list[tuple[str, str, Doubles, Doubles]] = []
    for system, second in others.items():
        if first.ids != second.ids:
            alone = len(set(first.ids) ^ set(second.ids))
            raise EvaluationError(
                f"the systems were scored on {len(first.ids):,} and {len(second.ids):,} queries, "
                f"{alone:,} of them in one only: a query that one of them lacks counts 0 with "
                "--missing=zero"
            )

        if by_group:
            groups = np.array(first.groups, object)
            one = first.column(names[0])
            other = second.column(names[0])
            pairs += [
                (system, name, one[groups == name], other[groups == name])
                for name in sorted(set(first.groups))
            ]
        else:
            pairs += [(system, name, first.column(name), second.column(name)) for name in names]

    p_values = [permutation_p(after - before) for _, _, before, after in pairs]
    gains = []
    for (system, name, before, after), p, adjusted in zip(
        pairs, p_values, holm(p_values), strict=True
    ):
        gain = bootstrap_interval(after - before)
        means = (float(before.mean()), float(after.mean()))
        gains.append(
            Difference(
                system, name, len(before), *means, gain.mean, gain.low, gain.high, p, adjusted
            )
        )

    return gains
