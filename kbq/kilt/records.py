"""KILT records: one gold line and one predicted line, as the official evaluation sees them.

A page is whatever the rank keys name: a Wikipedia page by default, else a section, a paragraph or a title.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kbq.errors import EvaluationError


class UnfitError(ValueError):
    """A record that cannot be scored; the message says why, without file and line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a place."""

    place: str  # file:line:id, as far as known; "" where `what` already says it
    what: str
    is_harmless: bool = False  # refused by the official evaluation, but no content is lost without it
    detail: str = ""  # what differs between places with the same problem

    def __str__(self) -> str:
        return (f"{self.place}: " if self.place else "") + self.what + (f" ({self.detail})" if self.detail else "")


def place_name(path: Path, line: int | None = None, record_id: str | None = None) -> str:
    """The place of a problem as `file:line:id`; line and id are left out where unknown."""
    return ":".join([str(path), *([str(line)] if line else []), *([record_id] if record_id else [])])


class Problems:
    """What was found so far, in the order of finding."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: Path, line: int | None, record_id: str | None, what: str, detail: str = "") -> None:
        """Note a problem."""
        self.found.append(Problem(place_name(path, line, record_id), what, detail=detail))

    def raise_if_any(self, purpose: str) -> None:
        """Refuse the files.

        Raises:
            EvaluationError: there are problems; it carries all of them.
        """
        if not self.found:
            return
        count = len(self.found)
        others = f" (and {count - 1:,} more)" if count > 1 else ""
        listed = [str(problem) for problem in self.found]
        raise EvaluationError(f"{purpose} is not possible: {listed[0]}{others}", listed)


PAGE = ("wikipedia_id",)  # the rank key of a page


@dataclass(frozen=True, slots=True)
class Place:
    """Where a provenance item points to, whatever the rank keys are."""

    page_id: str
    title: str  # without outer blanks; "" where it is missing
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class GoldOutput:
    """One gold output: an answer, an evidence set, or both."""

    answer: str  # without outer blanks; "" where it is missing, null or blank
    pages: tuple[str, ...]  # distinct pages of the items that have every rank key
    evidence: frozenset[str] | None  # pages of all items, from the keys they have; None: no provenance
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Gold:
    """A gold line; `line` counts from 1."""

    id: str
    line: int
    input: str | None
    meta: Mapping[str, object]
    outputs: tuple[GoldOutput, ...]

    @cached_property
    def answers(self) -> frozenset[str]:
        """Every answer of every output."""
        return frozenset(output.answer for output in self.outputs if output.answer)

    @cached_property
    def titles(self) -> frozenset[str]:
        """Every title of every output's provenance."""
        return frozenset(place.title for output in self.outputs for place in output.places if place.title)


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a provenance item; `text` is None where it is given but is no string."""

    position: int  # in the provenance list as written, from 1
    text: str | None


@dataclass(frozen=True, slots=True)
class Guess:
    """A predicted line, as far as one kind of evaluation reads it."""

    id: str
    line: int
    answer: str = ""  # without outer blanks; "" scores 0
    pages: tuple[str, ...] = ()  # distinct, best first
    top: Place | None = None  # the first item, where it was asked for
    texts: tuple[Text, ...] = ()
    problem: str | None = None  # why it cannot be scored; counts only if the gold file has its id
