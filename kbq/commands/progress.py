"""Progress: a bar on standard error for work that takes long; a line now and then where that is no terminal."""

import os
import sys
import time
from typing import TYPE_CHECKING, Self

from kbq.text.visible import visible

if TYPE_CHECKING:
    from kbq.dump.shards import Counts
    from kbq.training.engine import StepReport

LINE_SECONDS = 30.0  # between two lines where there is no terminal


class Bar:
    """A bar with a title; work reports to one of its methods: `with Bar("indexing") as bar: index(kb, bar.stage)`."""

    def __init__(self, title: str, is_counted: bool = True) -> None:
        """`is_counted`: it will be known how much there is to do."""
        from rich.console import Console  # on demand: the help does without
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        text, elapsed = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        counted = [text, BarColumn(), elapsed, TimeRemainingColumn()]
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        console = Console(stderr=True, quiet=not self._is_terminal)
        self._bar = Progress(*(counted if is_counted else [SpinnerColumn(), text, elapsed]), console=console)
        self._title, self._task = title, self._bar.add_task(visible(title), total=None)
        self._last_line = time.monotonic()
        self._begun, self._before = 0.0, 0  # when it was first said how much is done, and how much that was
        self._trained, self._averages = 0, dict[str, float]()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text behind the title; where there is no terminal, as a plain line, not too often, for logs."""
        shown = visible(f"{self._title}: {text}")
        self._bar.update(self._task, description=shown, completed=done, total=total)
        if not self._is_terminal and time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            sys.stderr.write(f"{shown}\n")
            sys.stderr.flush()

    def pages(self, counts: "Counts") -> None:
        """Show pages, tokens and tokens per second."""
        speed = self._per_second(counts.tokens)
        self.show(f"{counts.pages:,} pages, {counts.tokens:,} tokens, {speed:,.0f} tokens/s")

    def stage(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        self.show(f"{stage}: {done:,} of {total:,}", done, total)

    def count(self, done: int, total: int) -> None:
        """Show how much is done."""
        self.show(f"{done:,} of {total:,}", done, total)

    def cells(self, done: int, total: int, filled: int) -> None:
        """Show cells, cells per second, and how many are filled."""
        self.show(f"{done:,} of {total:,} cells, {filled:,} filled, {self._per_second(done):,.1f} cells/s", done, total)

    def questions(self, paragraphs: int, questions: int) -> None:
        """Show how many paragraphs are read, and how many questions are kept."""
        self.show(f"{paragraphs:,} paragraphs, {questions:,} questions")

    def reading(self, read: int, passages: int) -> None:
        """Show how much a reader has read before the training begins."""
        self.show(f"the reader has read {read:,} of {passages:,} passages", read, passages)

    def step(self, step: "StepReport") -> None:
        """Show steps, moving averages, the dev score and tokens per second."""
        self._trained += step.size
        for name, mean in step.means.items():
            self._averages[name] = 0.97 * self._averages.get(name, mean) + 0.03 * mean
        shown = ", ".join(f"{name} {mean:.3f}" for name, mean in self._averages.items())
        if step.dev is not None:
            shown += f", dev {step.dev:.1%}"
        speed = self._per_second(self._trained)
        self.show(f"step {step.step}/{step.steps}, {shown}, {speed:,.0f} tokens/s", step.step, step.steps)

    def _per_second(self, done: int) -> float:
        """Return the speed since the first report, which may tell what an earlier, killed run had done."""
        if not self._begun:
            self._begun, self._before = time.monotonic(), done
        return (done - self._before) / max(1e-3, time.monotonic() - self._begun)
