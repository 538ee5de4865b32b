"""Report: scores, breakdowns, comparisons and diagnoses become tables, printed as Markdown or CSV."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from kbq.kilt.analysis import CONFIDENCE, Breakdown, Ceilings, Decomposition, Difference, Interval
from kbq.kilt.metrics import Kind
from kbq.kilt.reliability import PRECISIONS, Confidence, GroupCalibration
from kbq.kilt.scores import Scores
from kbq.text import html
from kbq.text.visible import visible

Cell = str | int | float | None  # None: an empty cell
Form = Literal["text", "count", "percent", "decimals"]  # how Markdown shows a cell; percent: of a share from 0 to 1


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """A table; `columns` has the form of each column's cells by heading, a row a cell for each column."""

    title: str
    columns: Mapping[str, Form]
    rows: Sequence[tuple[Cell, ...]]

    def markdown(self) -> str:
        """A pipe table under its title, numbers to the right."""
        forms = self.columns.values()
        rule = ["---" if form == "text" else "---:" for form in forms]
        body = [[shown(cell, form) for cell, form in zip(row, forms, strict=True)] for row in self.rows]
        lines = [f"| {' | '.join(cells)} |" for cells in [self.columns, rule, *body]]
        return "\n".join([f"**{self.title}**", "", *lines, ""])

    def html(self) -> str:
        """As a notebook shows it."""
        forms = self.columns.values()
        rows = [
            [html.element("td", html.text(shown(cell, form))) for cell, form in zip(row, forms, strict=True)]
            for row in self.rows
        ]
        return html.table(self.columns, rows, self.title)

    def csv(self) -> str:
        """Comma-separated values with a heading line, unrounded; every row is one line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[visible(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows])
        return text.getvalue()


def shown(cell: Cell, form: Form) -> str:
    """A cell as text.

    >>> shown(0.5, "percent"), shown(5000, "count"), shown(None, "decimals")
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


DECOMPOSITION_WORDS = {
    "both_right": "answer right, pages right",
    "only_answer_right": "answer right, pages wrong",
    "only_pages_right": "answer wrong, pages right",
    "both_wrong": "answer wrong, pages wrong",
}
CEILING_WORDS = {
    "r_precision": "R-precision of the best ranking",
    "recall_at_5": "recall@5 of the best ranking",
    "kilt_by_these_pages": "KILT score with these pages, if every answer were right",
    "kilt_by_these_parts": "KILT score with these answers and pages, if the right ones met",
}


def score_table(
    selected: Iterable[tuple[Scores, Sequence[str]]], intervals: Mapping[Kind, Mapping[str, Interval]]
) -> ScoreTable:
    """The named means of one or two evaluations of the same records, with their intervals if there are any."""
    columns: dict[str, Form] = {"evaluation": "text", "score": "text", "mean": "percent"}
    if intervals:
        columns |= {f"{round(CONFIDENCE * 100)} % from": "percent", "to": "percent"}
    rows: list[tuple[Cell, ...]] = []
    count = 0
    for scores, names in selected:
        count = len(scores.ids)
        for name in names:
            interval = intervals[scores.kind][name] if intervals else None
            ends = (interval.low, interval.high) if interval else ()
            rows.append((scores.kind, name, scores.mean(name), *ends))
    return ScoreTable(f"scores, {count:,} queries", columns, rows)


def measure_table(measures: Mapping[str, float]) -> ScoreTable:
    """One row for each measure of ir-measures; not all of them are shares."""
    rows = [(name, f"{value:.4f}") for name, value in measures.items()]
    return ScoreTable("ir-measures", {"measure": "text", "mean": "text"}, rows)


def breakdown_table(breakdown: Breakdown, grouping: str) -> ScoreTable:
    """One row for each group, then the means over queries and over groups."""
    columns: dict[str, Form] = {"group": "text", "n": "count"}
    columns |= dict.fromkeys((*breakdown.names, f"{breakdown.names[0]} from", "to"), "percent")
    rows: list[tuple[Cell, ...]] = [
        (row.group, row.count, *row.means, row.interval.low, row.interval.high) for row in breakdown.groups
    ]
    total = sum(row.count for row in breakdown.groups)
    rows.append(("mean over queries", total, *breakdown.micro, None, None))
    rows.append(("mean over groups", total, *breakdown.macro, None, None))
    return ScoreTable(f"by {grouping}", columns, rows)


def comparison_table(differences: Sequence[Difference], by_group: str = "") -> ScoreTable:
    """One row for each score compared, or for each group, by the score of this name; of several systems, of each."""
    is_one = len({row.system for row in differences}) == 1
    columns: dict[str, Form] = {} if is_one else {"system": "text"}
    columns |= {"group" if by_group else "score": "text", "n": "count"}
    columns |= dict.fromkeys(("first", "second", "gain", f"{round(CONFIDENCE * 100)} % from", "to"), "percent")
    columns |= dict.fromkeys(("p", "p (Holm)"), "decimals")
    rows: list[tuple[Cell, ...]] = [
        (row.name, row.count, row.first, row.second, row.gain, row.low, row.high, row.p, row.adjusted_p)
        for row in differences
    ]
    rows = rows if is_one else [(row.system, *cells) for row, cells in zip(differences, rows, strict=True)]
    title = f"{by_group}, " * bool(by_group) + ("second" if is_one else "each system")
    return ScoreTable(f"{title} against first, paired permutation test", columns, rows)


def diagnosis_table(title: str, diagnosis: Decomposition | Ceilings) -> ScoreTable:
    """One row for each share."""
    words = DECOMPOSITION_WORDS if isinstance(diagnosis, Decomposition) else CEILING_WORDS
    rows = [(words[field.name], getattr(diagnosis, field.name)) for field in fields(diagnosis)]
    return ScoreTable(title, {"what": "text", "queries": "percent"}, rows)


def calibration_table(calibrations: Sequence[Confidence]) -> ScoreTable:
    """One row for each score, by each way of being right; `n` is how many queries or answers it is over."""
    columns: dict[str, Form] = {"right by": "text", "score": "text", "n": "count"}
    columns |= dict.fromkeys(("value", f"{round(CONFIDENCE * 100)} % from", "to"), "decimals")
    rows = [(one.right_by, *row) for one in calibrations for row in calibration_rows(one)]
    return ScoreTable("calibration", columns, rows)


def calibration_rows(found: Confidence) -> list[tuple[Cell, ...]]:
    """Name, n and value of each score, with the ends of its interval if it has one."""
    coverages: list[tuple[Cell, ...]] = [
        (f"coverage at {round(one.precision * 100)} % precision", found.queries, one.share, one.low, one.high)
        for one in found.coverages
    ]
    errors = found.reliability
    floor = (errors.floor, None, errors.floor_high) if errors else (None, None, None)

    def row(name: str, value: Cell, count: int = found.answers) -> tuple[Cell, ...]:
        return name, count, value, None, None

    return [
        row("answered", found.answered, found.queries),
        row("right", found.right),
        row("AUROC", found.auroc),
        row("AURC", found.aurc),
        row("AUGRC", found.augrc),
        row("E-AURC", found.e_aurc),
        *coverages,
        row("Brier", found.brier),
        row("ECE", errors.ece if errors else None),
        ("ECE noise floor", found.answers, *floor),
        row("log loss", found.log_loss),
        row("MacroCE", found.macro_ce),
    ]


def group_calibration_table(groups: Sequence[GroupCalibration], grouping: str, right_by: str) -> ScoreTable:
    """One row for each group."""
    columns: dict[str, Form] = {"group": "text", "n": "count", right_by: "percent", "AUROC": "decimals"}
    columns |= {f"coverage at {round(PRECISIONS[0] * 100)} % precision": "percent"}
    rows = [(one.group, one.answers, one.right, one.auroc, one.coverage) for one in groups]
    return ScoreTable(f"calibration by {grouping}", columns, rows)
