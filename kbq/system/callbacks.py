"""Stages: how far long work has come, for whoever wants to know."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]  # takes the name of a stage, how much of it is done, and of how much
Note = Callable[[str], None]  # takes a line for the person who waits


def silent(stage: str, done: int, total: int) -> None:
    """A report that nobody reads."""


class Stage:
    """A stage that adds up what is done."""

    def __init__(self, report: Report, name: str, total: int) -> None:
        self._report, self._name, self._total = report, name, total
        self._done = 0

    def add(self, done: int) -> None:
        """Report that so much more is done."""
        self._done += done
        self._report(self._name, self._done, self._total)
