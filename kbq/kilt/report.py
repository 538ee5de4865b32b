"""Report: an analysis of scores, whose tables are printed as Markdown, CSV or LaTeX, or shown by a notebook."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kbq.text import html
from kbq.text.visible import visible

LATEX = re.compile(r"[&%$#_{}]")  # characters that LaTeX obeys
Cell = str | int | float | None  # None: an empty cell
Form = Literal["text", "count", "percent", "decimals"]  # how Markdown shows a cell; percent: of a share from 0 to 1


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """A table; `columns` has the form of each column's cells by heading, a row a cell for each column."""

    title: str
    columns: Mapping[str, Form]
    rows: Sequence[tuple[Cell, ...]]

    def _shown(self) -> list[list[str]]:
        return [[shown(cell, form) for cell, form in zip(row, self.columns.values(), strict=True)] for row in self.rows]

    def markdown(self) -> str:
        """Return a pipe table under its title, numbers to the right."""
        rule = ["---" if form == "text" else "---:" for form in self.columns.values()]
        lines = [f"| {' | '.join(cells)} |" for cells in [self.columns, rule, *self._shown()]]
        return "\n".join([f"**{self.title}**", "", *lines, ""])

    def latex(self) -> str:
        """Return the table for the package booktabs, under its title."""
        cells = [[LATEX.sub(r"\\\g<0>", cell) for cell in row] for row in [list(self.columns), *self._shown()]]
        head, *body = [" & ".join(row) + r" \\" for row in cells]
        form = "".join("l" if form == "text" else "r" for form in self.columns.values())
        begin = [f"% {self.title}", rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", ""])

    def html(self) -> str:
        """Return the table as a notebook shows it."""
        rows = [[html.element("td", html.text(cell)) for cell in row] for row in self._shown()]
        return html.table(self.columns, rows, self.title)

    def csv(self) -> str:
        """Return comma-separated values with a heading line, unrounded; every row is one line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[visible(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows])
        return text.getvalue()


class Analysis(NamedTuple):
    """An analysis of scores as JSON and as tables, with notes for whoever reads the numbers."""

    document: Any
    tables: Sequence[ScoreTable] = ()
    notes: Sequence[str] = ()


def shown(cell: Cell, form: Form) -> str:
    """Return a cell as text.

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
