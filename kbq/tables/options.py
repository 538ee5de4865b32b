"""Options: what may be asked for when a table is filled, and the threshold that this gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kbq.answers import TOP, Backend, RankWords, SearchOptions
from kbq.errors import KbqError, QueryError
from kbq.options import Option, check, chosen
from kbq.storage.paths import as_path
from kbq.text.markers import EMPTY

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase

MIN_PROBABILITY = 0.5
Dates = Literal["text", "iso", "edtf"]
Values = Literal["one", "many"]
Format = Literal[
    "csv",
    "tsv",
    "jsonl",
    "parquet",
    "xlsx",
    "long.csv",
    "long.tsv",
    "long.parquet",
    "long.xlsx",
    "nt",
    "trig",
    "qs",
    "html",
]  # each is a suffix, too


@dataclass(frozen=True, slots=True)
class FillOptions:
    """What may be asked for when a table is filled, beside the search.

    Raises:
        KbqError: a value that has no meaning, or two that exclude each other.
    """

    subject: Annotated[str, Option("The column of subjects.")] = "subject"
    values: Annotated[Values, Option("Fill in the best value, or all that are likely enough.")] = "one"
    min_probability: Annotated[
        float | None, Option("Leave cells empty whose values are less likely right.", 0, 1, f"{MIN_PROBABILITY}")
    ] = None
    precision: Annotated[
        float | None,
        Option("Instead of that: the share of values to be right, 0.9 or 0.95, if the calibration promises it."),
    ] = None
    top: Annotated[int, Option("Alternatives to keep with each cell's claim.", least=0)] = TOP
    limit: Annotated[int, Option("Ask for so many cells at most; 0: all.", least=0)] = 0
    overwrite: Annotated[bool, Option("Fill cells that have a value, too.")] = False
    check: Annotated[bool, Option("Compare the values that are there with the text instead, and say where.")] = False
    dates: Annotated[Dates, Option("Write dates as the text has them, or in ISO 8601, or EDTF.")] = "text"
    empty: tuple[str, ...] = EMPTY  # what cells without a value hold, beside nothing
    decisions: Annotated[
        Path | None, Option("Values that a person has accepted or rejected, as the HTML output saves them.")
    ] = None
    format: Annotated[Format | None, Option("Of --out, where its suffix does not say it.")] = None
    ids: Annotated[
        Path | None,
        Option("Of nt, trig and qs: a table of names (subjects, values, pages, units), each with its Q-number."),
    ] = None
    dry_run: Annotated[bool, Option("Only say how much there is to ask, and about how long it takes.")] = False
    force: Annotated[bool, Option("Overwrite --out whoever made it, and ask again where need be.")] = False

    def __post_init__(self) -> None:
        check(self, KbqError)
        if self.min_probability is not None and self.precision is not None:
            raise KbqError("min_probability and precision are two thresholds: leave one of them out", is_usage=True)
        if self.overwrite and self.check:
            raise KbqError("check changes no cell, so overwrite has no effect: leave one of them out", is_usage=True)

    def threshold(self, kb: OpenKnowledgeBase, search: SearchOptions) -> float:
        """The probability above which an answer fills a cell.

        Raises:
            QueryError: answers have no probability here, or the precision cannot be promised.
        """
        if self.precision is None:
            least = MIN_PROBABILITY if self.min_probability is None else self.min_probability
            kb.check(replace(search, min_probability=least))
            return least
        calibration = kb.calibration(replace(search, min_probability=MIN_PROBABILITY))
        thresholds = calibration.thresholds.items() if calibration else ()
        promised = {float(precision): threshold for precision, threshold in thresholds}
        if self.precision not in promised:
            known = ", ".join(map(str, sorted(promised)))
            raise QueryError(f"precision is {self.precision}, the calibration knows thresholds for {known}: choose one")
        threshold = promised[self.precision]
        if threshold is None:
            raise QueryError(
                f"no threshold of the calibration promises a precision of {self.precision}: calibrate with more "
                "triples (`kbq calibrate`), or choose a lower one"
            )
        return threshold


class FillWords(RankWords, total=False):
    """The options of `KnowledgeBase.fill`: those of `FillOptions`, and of its search."""

    subject: str
    values: Values
    min_probability: float | None
    precision: float | None
    top: int
    limit: int
    overwrite: bool
    check: bool
    dates: Dates
    empty: Iterable[str]
    decisions: str | Path | None
    format: Format | None
    ids: str | Path | None
    dry_run: bool
    force: bool
    backend: Backend
    calibration: str | Path | None


def fill_options(words: FillWords) -> tuple[FillOptions, dict[str, Any]]:
    """The options of `KnowledgeBase.fill`, and what is left for its search; files may be given as texts.

    Raises:
        KbqError: a value that has no meaning, or two that exclude each other.
    """
    left: dict[str, Any] = dict(words)
    given = chosen(left, FillOptions)
    given |= {"empty": tuple(left.pop("empty"))} if "empty" in left else {}
    given |= {name: as_path(given[name], name) for name in ("decisions", "ids") if given.get(name) is not None}
    return FillOptions(**given), left
