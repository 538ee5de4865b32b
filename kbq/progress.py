"""Progress: bars on standard error for what takes long; a line now and then where that is no terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kbq.finetuning.loop import FinetuningStep
from kbq.indexing.dump import Counts
from kbq.training.run import StepReport

LINE_SECONDS = 30.0  # between two lines where there is no terminal


@contextmanager
def build_progress(title: str) -> Iterator[Callable[[Counts], None]]:
    """Shows pages, tokens and tokens per second of this run."""
    bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=_console())
    begun, line = time.monotonic(), _Lines()
    before: list[Counts] = []  # what an earlier, killed run had done

    with bar:
        task = bar.add_task(title, total=None)

        def report(counts: Counts) -> None:
            before.append(counts) if not before else None
            speed = (counts.tokens - before[0].tokens) / max(1e-9, time.monotonic() - begun)
            text = f"{title}: {counts.documents:,} pages, {counts.tokens:,} tokens, {speed:,.0f} tokens/s"
            bar.update(task, description=text)
            line.say(text)

        yield report


@contextmanager
def training_progress(
    title: str,
) -> Iterator[tuple[Callable[[StepReport], None], Callable[[int, int], None]]]:
    """Shows steps, the moving averages of the losses, and tokens per second; before, what a teacher has read."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=_console())
    begun, line = 0.0, _Lines()
    done = 0
    averages: dict[str, float] = {}

    with bar:
        task = bar.add_task(title, total=None)

        def report(step: StepReport) -> None:
            nonlocal done, begun
            done += step.size if begun else 0
            begun = begun or time.monotonic()
            for name, loss in step.losses.items():
                averages[name] = 0.97 * averages.get(name, loss) + 0.03 * loss
            shown = ", ".join(f"{name} {loss:.3f}" for name, loss in averages.items())
            speed = done / max(1e-3, time.monotonic() - begun)
            text = f"{title}: step {step.step}/{step.steps}, {shown}, {speed:,.0f} tokens/s"
            bar.update(task, description=text, completed=step.step, total=step.steps)
            line.say(text)

        def report_reading(read: int, passages: int) -> None:
            text = f"{title}: the reader has read {read:,} of {passages:,} passages"
            bar.update(task, description=text, completed=read, total=passages)
            line.say(text)

        yield report, report_reading


@contextmanager
def finetuning_progress(title: str) -> Iterator[Callable[[FinetuningStep], None]]:
    """Shows steps, the moving averages of loss and share of queries with positives, and the dev score."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar, line = Progress(*columns, console=_console()), _Lines()
    averages: list[float] = []

    with bar:
        task = bar.add_task(title, total=None)

        def report(step: FinetuningStep) -> None:
            nonlocal averages
            now = [step.loss, step.found]
            averages = [0.97 * old + 0.03 * new for old, new in zip(averages, now, strict=True)] if averages else now
            loss, found = averages
            text = (
                f"{title}: step {step.step}/{step.steps}, loss {loss:.3f}, positives found for {found:.0%}, "
                f"dev {step.dev:.1%}"
            )
            bar.update(task, description=text, completed=step.step, total=step.steps)
            line.say(text)

        yield report


@contextmanager
def augmenting_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many paragraphs are read, and how many questions are kept."""
    bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=_console())
    line = _Lines()

    with bar:
        task = bar.add_task(title, total=None)

        def report(paragraphs: int, questions: int) -> None:
            text = f"{title}: {paragraphs:,} paragraphs, {questions:,} questions"
            bar.update(task, description=text)
            line.say(text)

        yield report


@contextmanager
def counting_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many of a known number are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar, line = Progress(*columns, console=_console()), _Lines()

    with bar:
        task = bar.add_task(title, total=None)

        def report(done: int, total: int) -> None:
            text = f"{title}: {done:,} of {total:,}"
            bar.update(task, description=text, completed=done, total=total)
            line.say(text)

        yield report


class _Lines:
    """Plain lines, not too many, for logs."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        if not sys.stderr.isatty() and time.monotonic() - self._last > LINE_SECONDS:
            self._last = time.monotonic()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def _console() -> Console:
    return Console(stderr=True, quiet=not sys.stderr.isatty())
