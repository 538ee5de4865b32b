"""Problems: everything wrong with the files of one evaluation, gathered before anything is refused."""

from dataclasses import dataclass
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
