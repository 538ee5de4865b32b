"""Progress: bars on standard error for work that takes long; a line now and then where that is no terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbq.storage.progress import Report
from kbq.text.visible import visible

if TYPE_CHECKING:
    from kbq.dump.shards import Counts
    from kbq.training.engine import StepReport

LINE_SECONDS = 30.0  # between two lines where there is no terminal
Show = Callable[..., None]  # called with a text and, if they are known, how much is done, and of how much


@contextmanager
def build_progress(title: str) -> "Iterator[tuple[Callable[[Counts], None], Report]]":
    """Show pages, tokens and tokens per second of this run, then the stages that follow."""
    speed = _Speed()
    with _bar(title) as show:

        def report(counts: "Counts") -> None:
            per_second = speed.of(counts.tokens)
            show(f"{counts.pages:,} pages, {counts.tokens:,} tokens, {per_second:,.0f} tokens/s")

        yield report, _staged(show)


@contextmanager
def stage_progress(title: str) -> Iterator[Report]:
    """Show one stage after another, and how much of each is done."""
    with _bar(title) as show:
        yield _staged(show)


@contextmanager
def training_progress(title: str) -> "Iterator[tuple[Callable[[StepReport], None], Callable[[int, int], None]]]":
    """Show steps, moving averages, the dev score and tokens per second; before that, how much a reader has read."""
    begun, done = 0.0, 0
    averages: dict[str, float] = {}

    with _bar(title) as show:

        def report(step: "StepReport") -> None:
            nonlocal done, begun
            done += step.size if begun else 0
            begun = begun or time.monotonic()
            for name, mean in step.means.items():
                averages[name] = 0.97 * averages.get(name, mean) + 0.03 * mean
            shown = ", ".join(f"{name} {mean:.3f}" for name, mean in averages.items())
            if step.dev is not None:
                shown += f", dev {step.dev:.1%}"
            speed = done / max(1e-3, time.monotonic() - begun)
            show(f"step {step.step}/{step.steps}, {shown}, {speed:,.0f} tokens/s", step.step, step.steps)

        def report_reading(read: int, passages: int) -> None:
            show(f"the reader has read {read:,} of {passages:,} passages", read, passages)

        yield report, report_reading


@contextmanager
def augmenting_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many paragraphs are read, and how many questions are kept."""
    with _bar(title, is_counted=False) as show:
        yield lambda paragraphs, questions: show(f"{paragraphs:,} paragraphs, {questions:,} questions")


@contextmanager
def counting_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many things of a known number are done."""
    with _bar(title) as show:
        yield lambda done, total: show(f"{done:,} of {total:,}", done, total)


@contextmanager
def filling_progress(title: str) -> Iterator[Callable[[int, int, int], None]]:
    """Show cells, cells per second of this run, and how many are filled."""
    speed = _Speed()
    with _bar(title) as show:

        def report(done: int, total: int, filled: int) -> None:
            show(f"{done:,} of {total:,} cells, {filled:,} filled, {speed.of(done):,.1f} cells/s", done, total)

        yield report


class _Speed:
    """How much a second this run does, apart from what an earlier, killed run had done."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), -1

    def of(self, done: int) -> float:
        self._before = done if self._before < 0 else self._before
        return (done - self._before) / max(1e-9, time.monotonic() - self._begun)


def _staged(show: Show) -> Report:
    return lambda stage, done, total: show(f"{stage}: {done:,} of {total:,}", done, total)


@contextmanager
def _bar(title: str, is_counted: bool = True) -> Iterator[Show]:
    """Show a bar with the title before every text; where there is no terminal plain lines, not too many, for logs."""
    from rich.console import Console  # on demand: the help does without
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text, elapsed = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    columns = [text, BarColumn(), elapsed, TimeRemainingColumn()] if is_counted else [SpinnerColumn(), text, elapsed]
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    last = time.monotonic()

    with Progress(*columns, console=Console(stderr=True, quiet=not is_terminal)) as bar:
        task = bar.add_task(visible(title), total=None)

        def show(text: str, done: int | None = None, total: int | None = None) -> None:
            nonlocal last
            shown = visible(f"{title}: {text}")
            bar.update(task, description=shown, completed=done, total=total)
            if not is_terminal and time.monotonic() - last > LINE_SECONDS:
                last = time.monotonic()
                sys.stderr.write(f"{shown}\n")
                sys.stderr.flush()

        yield show
