"""Options: how to fill a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kbq.errors import KbqError, QueryError
from kbq.options import Option, check, chosen, refuse_unknown_options
from kbq.search.options import Backend, RankKwargs, SearchOptions
from kbq.storage.paths import as_path
from kbq.text.normal_forms import EMPTY

if TYPE_CHECKING:
    from kbq.asking.searcher import Searcher

MIN_PROBABILITY = 0.5
SUBJECT = "subject"  # what tables call the column of subjects
TOP = 3  # alternatives that `kbq fill` keeps
Dates = Literal["text", "iso", "edtf"]
Values = Literal["one", "many"]


@dataclass(frozen=True, slots=True)
class FillOptions:
    """How a table is filled, apart from the search.

    Raises KbqError if a value has no meaning, or two exclude each other.
    """

    subject: Annotated[
        str | None,
        Option("The column of subjects.", default="subject, or the column that has names"),
    ] = None
    values: Annotated[Values, Option("Fill in the best value, or all that are likely enough.")] = (
        "one"
    )
    min_probability: Annotated[
        float | None,
        Option(
            "Leave a cell empty if its value is less likely to be right.",
            0,
            1,
            f"{MIN_PROBABILITY}",
        ),
    ] = None
    precision: Annotated[
        float | None,
        Option(
            "Instead: the share of values that are right, 0.9 or 0.95, if the calibration can "
            "promise it.",
            0,
            1,
        ),
    ] = None
    top: Annotated[int, Option("Alternatives to keep with each cell's claim.", least=0)] = TOP
    limit: Annotated[int, Option("Ask for at most this many cells; 0: all.", least=0)] = 0
    overwrite: Annotated[bool, Option("Also fill cells that have a value.")] = False
    check: Annotated[
        bool, Option("Instead of filling, compare the values in the table with the text.")
    ] = False
    dates: Annotated[Dates, Option("Write dates as in the text, in ISO 8601, or in EDTF.")] = "text"
    empty: tuple[str, ...] = EMPTY  # texts that stand for no value
    decisions: Annotated[
        Path | None,
        Option(
            "A file of values that people accepted or rejected, as the page for review saves it."
        ),
    ] = None
    dry_run: Annotated[
        bool, Option("Only say how much there is to ask, and about how long it takes.")
    ] = False
    force: Annotated[
        bool, Option("Overwrite --out, whoever made it, and ask again if need be.")
    ] = False

    def __post_init__(self) -> None:
        check(self, KbqError)
        if self.min_probability is not None and self.precision is not None:
            raise KbqError(
                "min_probability and precision are two thresholds: leave one of them out",
                is_usage=True,
            )
        if self.overwrite and self.check:
            raise KbqError(
                "check changes no cell, so overwrite has no effect: leave one of them out",
                is_usage=True,
            )

    def threshold(self, kb: Searcher, search: SearchOptions) -> float:
        """Return the lowest probability of an answer that fills a cell.

        Raises QueryError if answers have no probability here, or the precision cannot be promised.
        """
        if self.precision is None:
            least = MIN_PROBABILITY if self.min_probability is None else self.min_probability
            kb.check(replace(search, min_probability=least))
            return least

        calibration = kb.plan(replace(search, min_probability=MIN_PROBABILITY)).calibration
        thresholds = calibration.thresholds.items() if calibration else ()
        promised = {float(precision): threshold for precision, threshold in thresholds}
        if self.precision not in promised:
            known = [str(share) for share in sorted(promised) if promised[share] is not None]
            advice = f"choose {' or '.join(known)}" if known else "use --min-probability"
            raise QueryError(
                f"the calibration has no threshold for a precision of {self.precision}: {advice}"
            )

        threshold = promised[self.precision]
        if threshold is None:
            raise QueryError(
                f"no threshold of the calibration promises a precision of {self.precision}: "
                "calibrate with more triples (`kbq calibrate`), or choose a lower one"
            )

        return threshold


class FillKwargs(RankKwargs, total=False):
    """The options of `KnowledgeBase.fill`: those of `FillOptions` and of the search."""

    subject: str | None
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
    dry_run: bool
    force: bool
    backend: Backend
    calibration: str | Path | None


def fill_options(keywords: FillKwargs) -> tuple[FillOptions, dict[str, Any]]:
    """Divide the options of `KnowledgeBase.fill` into its own and those of the search."""
    refuse_unknown_options(keywords, FillKwargs.__annotations__, QueryError)
    left: dict[str, Any] = dict(keywords)
    given = chosen(left, FillOptions)
    if "empty" in left:
        given |= {"empty": tuple(left.pop("empty"))}
    if given.get("decisions") is not None:
        given["decisions"] = as_path(given["decisions"], "decisions")
    return FillOptions(**given), left
