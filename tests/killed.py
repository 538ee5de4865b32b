"""Runs that are killed, as `kill -9` would: no part of kbq catches it."""

from pathlib import Path

from kbq.training.engine import Run, StepReport


class Killed(BaseException):
    """Stands for `kill -9`."""


def steps_of(run: Run, checkpoint: Path, stop: int = 10**6) -> list[StepReport]:
    """What a run reports; it is killed in step `stop`."""
    reports: list[StepReport] = []

    def report(step: StepReport) -> None:
        reports.append(step)
        if step.step == stop:
            raise Killed

    run.run(checkpoint, report)
    return reports
