"""Reports: tell a caller how far a stage of the work has come."""

from collections.abc import Callable

# Called with the name of a stage, the units done, and their total.
Report = Callable[[str, int, int], None]
Note = Callable[[str], None]  # called with a one-line message for the user


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress; a `Report`."""


def unheard(*what: object) -> None:
    """A callback that does nothing."""


class Stage:
    """A stage of the work that counts and reports the units done."""

    def __init__(self, report: Report, name: str, total: int) -> None:
        self._report = report
        self._name = name
        self._total = total
        self._done = 0

    def add(self, done: int) -> None:
        self._done += done
        self._report(self._name, self._done, self._total)
