"""Progress: the functions that long-running work calls to report it, and the counting that most of it needs."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # called with the name of a stage, the units done, and their total
Note = Callable[[str], None]  # called with a one-line message for the user


def silent(stage: str, done: int, total: int) -> None:
    """Ignore the progress, as a `Report`."""


def unheard(*what: object) -> None:
    """Do nothing, as a callback."""


class Stage:
    """A stage of the work, which counts the units done and reports them."""

    def __init__(self, report: Report, name: str, total: int) -> None:
        self._report, self._name, self._total = report, name, total
        self._done = 0

    def add(self, done: int) -> None:
        """Report that `done` more units are done."""
        self._done += done
        self._report(self._name, self._done, self._total)
