"""Progress: show how far long work is, as a bar or as lines of a log.

Commands show a `Bar` from the beginning. In Python, `LateBar` shows one once the work has taken
some seconds, unless `KBQ_PROGRESS` is 0 or the caller takes the reports. Notes go to the logger
`kbq`.
"""

import os
import sys
import time
from collections.abc import Sized
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kbq.answers import counted
from kbq.errors import spoken
from kbq.storage.reports import unheard
from kbq.text.visible import visible

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from kbq.dump.shards import Counts
    from kbq.training.engine import StepReport

LINE_SECONDS = 30.0  # time between two lines where there is no terminal
PATIENCE = 3.0  # seconds before work in Python gets a bar
SAMPLED = 2**26  # bytes at the beginning of a corpus in which lines are counted


def logger() -> "logging.Logger":
    import logging  # imported on demand: the help does not need it

    return logging.getLogger("kbq")


def warn(text: str) -> None:
    """Log a note for the person who waits, with options as they are written in Python."""
    logger().warning("%s", spoken(text))


def write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def expected_pages(corpus: object) -> int | None:
    """Estimate how many pages a corpus has: its items, its files, or its lines of JSON or CSV; None
    if unknown.
    """
    if not isinstance(corpus, str | Path):
        if isinstance(corpus, Sized):
            return len(corpus)
        return None
    path = Path(corpus)
    with suppress(OSError, ValueError):  # reading it will say why
        if path.is_dir():
            names = [one.suffix.lower() for one in path.rglob("*") if one.is_file()]
            # Each page of a PDF is one.
            if {".pdf", ".zip"} & set(names):
                return None
            return len(names)

        if path.is_file() and path.suffix.lower() in (".jsonl", ".json", ".csv"):
            with path.open("rb") as file:
                sample = file.read(SAMPLED)
            first, *others = sample.split(b"\n", 2)
            # JSON over several lines.
            goes_on = first.startswith(b"{") and not first.rstrip().endswith(b"}")
            if len(others) == 2 and not goes_on:
                return round(sample.count(b"\n") * path.stat().st_size / len(sample))

    return None


class Bar:
    """A bar with a title; work reports to one of its methods:
    `with Bar("indexing") as bar: index(kb, bar.stage)`.
    """

    def __init__(
        self,
        title: str,
        is_counted: bool = True,
        line: "Callable[[str], None]" = write_line,
        corpus: object = None,
    ) -> None:
        """Make a bar.

        Args:
            is_counted: it will be known how much there is to do.
            line: takes lines where there is no terminal.
            corpus: the pages that will be reported are those of this corpus.
        """
        from rich.console import Console  # imported on demand: the help does not need it
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column

        # The text gives way where the terminal is narrow, never the times.
        text = TextColumn(
            "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)
        )
        elapsed = TimeElapsedColumn()
        counted = [
            text,
            BarColumn(bar_width=10),
            TaskProgressColumn(),
            elapsed,
            TimeRemainingColumn(),
        ]
        console = Console(stderr=True)
        self._is_terminal = console.is_jupyter or (
            sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        )
        console.quiet = not self._is_terminal
        self._line = line
        columns = counted if is_counted else [SpinnerColumn(), text, elapsed]
        self._bar = Progress(*columns, console=console, expand=True)
        self._expected = expected_pages(corpus)
        self._title, self._task = title, self._bar.add_task(visible(title), total=None)
        self._last_line = time.monotonic()
        # Time of the first report, and how much was done by then.
        self._begun = 0.0
        self._before = 0
        self._trained = 0
        self._averages = dict[str, float]()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text after the title or, where there is no terminal, write it as a plain line from
        time to time.
        """
        shown = visible(f"{self._title}: {text}")
        self._bar.update(self._task, description=shown, completed=done, total=total)
        if not self._is_terminal and time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            self._line(shown)

    def pages(self, counts: "Counts") -> None:
        total = None
        if self._expected and counts.pages <= self._expected:
            total = self._expected
        pages = (
            f"{counts.pages:,} of about {total:,} pages" if total else counted(counts.pages, "page")
        )
        speed = self._per_second(counts.tokens)
        self.show(
            f"{pages}, {counts.tokens:,} tokens, {speed:,.0f} tokens/s",
            counts.pages if total else None,
            total,
        )

    def stage(self, stage: str, done: int, total: int) -> None:
        self.show(f"{stage}: {done:,} of {total:,}", done, total)

    def count(self, done: int, total: int) -> None:
        self.show(f"{done:,} of {total:,}", done, total)

    def cells(self, done: int, total: int, filled: int) -> None:
        self.show(
            f"{done:,} of {total:,} cells, {filled:,} filled, {self._per_second(done):,.1f} "
            "cells/s",
            done,
            total,
        )

    def questions(self, paragraphs: int, questions: int) -> None:
        self.show(f"{paragraphs:,} paragraphs, {questions:,} questions")

    def reading(self, read: int, passages: int) -> None:
        self.show(f"the reader has read {read:,} of {passages:,} passages", read, passages)

    def step(self, step: "StepReport") -> None:
        self._trained += step.size
        for name, mean in step.means.items():
            self._averages[name] = 0.97 * self._averages.get(name, mean) + 0.03 * mean
        shown = ", ".join(f"{name} {mean:.3f}" for name, mean in self._averages.items())
        if step.dev is not None:
            shown += f", dev {step.dev:.1%}"
        speed = self._per_second(self._trained)
        self.show(
            f"step {step.step}/{step.steps}, {shown}, {speed:,.0f} tokens/s", step.step, step.steps
        )

    def _per_second(self, done: int) -> float:
        """Return the speed since the first report, which may include the work of an earlier, killed
        run.
        """
        if not self._begun:
            self._begun = time.monotonic()
            self._before = done
        return (done - self._before) / max(1e-3, time.monotonic() - self._begun)


class LateBar:
    """A bar for work in Python, shown once the work has taken some seconds."""

    def __init__(self, title: str, *given: object, corpus: object = None) -> None:
        """`given`: reports that the caller takes, if any: then there is no bar. `corpus`: see
        `Bar`.
        """
        self._title = title
        self._corpus = corpus
        self._bar: Bar | None = None
        self._is_wanted = os.environ.get("KBQ_PROGRESS") != "0" and all(
            report is None for report in given
        )
        self._starts = time.monotonic() + PATIENCE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()

    def to(self, method: str, given: Any = None) -> "Callable[..., None]":
        """Return the caller's report or, without one, a report to this method of the bar."""
        if given is not None or not self._is_wanted:
            return given or unheard

        def report(*facts: Any) -> None:
            if self._bar is None and time.monotonic() >= self._starts:
                from rich.errors import LiveError

                self._bar = Bar(self._title, line=logger().info, corpus=self._corpus)
                with suppress(LiveError):  # the program has a live display of its own
                    self._bar.__enter__()
            if self._bar is not None:
                getattr(self._bar, method)(*facts)

        return report
