"""Options: what may be asked for when a table is filled, and the threshold that this gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from kbq.answers import TOP, SearchOptions
from kbq.errors import KbqError, QueryError
from kbq.storage.rows import EMPTY
from kbq.tables.claims import Dates
from kbq.tables.relations import Values

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase

MIN_PROBABILITY = 0.5


@dataclass(frozen=True, slots=True)
class FillOptions:
    """What may be asked for beside the search; see `kbq fill --help`.

    Raises:
        KbqError: a value that has no meaning, or two that exclude each other.
    """

    subject: str = "subject"  # the column
    values: Values = "one"  # of relations that are given by name
    min_probability: float | None = None  # None: MIN_PROBABILITY
    precision: float | None = None  # instead of it: the threshold is what the calibration promises this for
    top: int = TOP  # alternatives of a cell
    limit: int = 0  # cells that are asked for; 0: all
    overwrite: bool = False
    check: bool = False
    dates: Dates = "text"  # how dates are written into cells; see `claims.written`
    empty: tuple[str, ...] = EMPTY  # what cells without a value hold, beside nothing

    def __post_init__(self) -> None:
        if self.values not in ("one", "many"):
            raise KbqError(f"values is {self.values!r}: choose from one, many", is_usage=True)
        if self.dates not in get_args(Dates):
            raise KbqError(f"dates is {self.dates!r}: choose from {', '.join(get_args(Dates))}", is_usage=True)
        for name, count in (("top", self.top), ("limit", self.limit)):
            if type(count) is not int or count < 0:
                raise KbqError(f"{name} is {count!r}, must be 0 or more", is_usage=True)
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
