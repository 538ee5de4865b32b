"""Report: scores, breakdowns, comparisons and diagnoses become tables (Markdown, CSV) and documents (JSON)."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from kbq.kilt.analysis import STANDARD, Breakdown, Ceilings, Decomposition, Difference, bootstrap_interval
from kbq.kilt.metrics import SEMANTICS, STANDARD_CUTOFFS, Cutoffs, Deviations, Kind
from kbq.kilt.passages import PassageScores
from kbq.kilt.scores import Scores

Cell = str | int | float | None  # None: an empty cell


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how Markdown shows the cells: a share from 0 to 1 becomes a percentage."""

    heading: str
    form: Literal["text", "count", "percent", "p"] = "text"

    def show(self, cell: Cell) -> str:
        """The cell as text."""
        if cell is None:
            return ""
        if self.form == "percent":
            return f"{float(cell) * 100:.2f}"
        if self.form == "p":
            return f"{float(cell):.4f}"
        if self.form == "count":
            return f"{cell:,}"
        return str(cell).replace("|", "\\|").replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def markdown(self) -> str:
        """A pipe table under its title, numbers to the right."""
        head = [column.heading for column in self.columns]
        rule = ["---" if column.form == "text" else "---:" for column in self.columns]
        body = [[column.show(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]
        lines = [f"| {' | '.join(cells)} |" for cells in [head, rule, *body]]
        return "\n".join([f"**{self.title}**", "", *lines, ""])

    def csv(self) -> str:
        """Comma-separated values with a heading line, unrounded."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows(self.rows)
        return text.getvalue()


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


def header(deviations: Deviations, cutoffs: Cutoffs = STANDARD_CUTOFFS) -> str:
    """One line on the semantics."""
    return f"semantics: {SEMANTICS}; deviations: {', '.join(all_deviations(deviations, cutoffs)) or 'none'}"


def all_deviations(deviations: Deviations, cutoffs: Cutoffs) -> list[str]:
    """What is not scored as officially; to rank anything but pages counts, too."""
    is_standard = cutoffs.rank_keys == STANDARD_CUTOFFS.rank_keys
    return [*deviations.named(), *([] if is_standard else [f"rank_keys={'+'.join(cutoffs.rank_keys)}"])]


def score_table(shown: Sequence[tuple[Scores, Sequence[str]]], with_intervals: bool) -> Table:
    """The named means of one or two evaluations of the same files; name the ranked score of the task first."""
    percent = round(STANDARD.confidence * 100)
    columns = [Column("evaluation"), Column("score"), Column("mean", "percent")]
    if with_intervals:
        columns += [Column(f"{percent} % from", "percent"), Column("to", "percent")]
    rows: list[tuple[Cell, ...]] = []
    for scores, names in shown:
        for name in names:
            interval = bootstrap_interval(scores.column(name)) if with_intervals else None
            ends = (interval.low, interval.high) if interval else ()
            rows.append((scores.kind, name, scores.mean(name), *ends))
    return Table(f"scores, {len(shown[0][0].ids):,} queries", tuple(columns), tuple(rows))


def measure_table(measures: Mapping[str, float]) -> Table:
    """One row for each measure of ir-measures; not all of them are shares."""
    rows = tuple((name, f"{value:.4f}") for name, value in measures.items())
    return Table("ir-measures", (Column("measure"), Column("mean")), rows)


def breakdown_table(breakdown: Breakdown, grouping: str) -> Table:
    """One row for each group, then the means over queries and over groups."""
    columns = (
        Column("group"),
        Column("n", "count"),
        *(Column(name, "percent") for name in breakdown.names),
        Column(f"{breakdown.names[0]} from", "percent"),
        Column("to", "percent"),
    )
    rows: list[tuple[Cell, ...]] = [
        (row.group, row.count, *row.means, row.interval.low, row.interval.high) for row in breakdown.groups
    ]
    total = sum(row.count for row in breakdown.groups)
    averages: list[tuple[Cell, ...]] = [
        ("mean over queries", total, *breakdown.micro, None, None),
        ("mean over groups", total, *breakdown.macro, None, None),
    ]
    return Table(f"by {grouping}", columns, tuple(rows + averages))


def comparison_table(differences: Sequence[Difference], by_group: str = "") -> Table:
    """One row for each score compared, or for each group, by the score of this name."""
    columns = (
        Column("group" if by_group else "score"),
        Column("n", "count"),
        *(Column(heading, "percent") for heading in ("first", "second", "gain")),
        Column("p", "p"),
        Column("p (Holm)", "p"),
    )
    rows = tuple((row.name, row.count, row.first, row.second, row.gain, row.p, row.adjusted_p) for row in differences)
    title = f"{by_group}, second" if by_group else "second"
    return Table(f"{title} against first, paired permutation test", columns, rows)


def diagnosis_table(title: str, diagnosis: Decomposition | Ceilings) -> Table:
    """One row for each share."""
    words = DECOMPOSITION_WORDS if isinstance(diagnosis, Decomposition) else CEILING_WORDS
    rows = tuple((words[field.name], getattr(diagnosis, field.name)) for field in fields(diagnosis))
    return Table(title, (Column("what"), Column("queries", "percent")), rows)


def passage_table(scores: PassageScores) -> Table:
    """One row for each score of retrieved texts."""
    rows: list[tuple[Cell, ...]] = [(f"top-{k} accuracy", share) for k, share in scores.accuracy]
    rows += [("MRR@20", scores.mrr_at_20), ("P@20", scores.precision_at_20)]
    return Table(f"passages, {scores.count:,} questions", (Column("score"), Column("mean", "percent")), tuple(rows))


def official_document(deviations: Deviations, cutoffs: Cutoffs, scores: Mapping[Kind, Scores]) -> dict[str, object]:
    """Both evaluations in the official layouts, unrounded; None for one that was not possible."""
    return {
        "semantics": SEMANTICS,
        "deviations": all_deviations(deviations, cutoffs),
        "rank_keys": list(cutoffs.rank_keys),
        "downstream": scores["downstream"].downstream_layout() if "downstream" in scores else None,
        "retrieval": scores["retrieval"].retrieval_layout() if "retrieval" in scores else None,
    }


def interval_document(scores: Scores) -> dict[str, tuple[float, float]]:
    """The confidence interval of every official score."""
    intervals = {name: bootstrap_interval(scores.column(name)) for name in scores.official_names()}
    return {name: (interval.low, interval.high) for name, interval in intervals.items()}
