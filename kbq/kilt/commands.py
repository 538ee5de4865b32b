"""Commands: what the KILT commands do, without the command line. `evaluate` has its own, reporting/summary.py.

Nothing here opens a knowledge base: whoever has one passes what it knows of its pages.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt.checks import expect
from kbq.kilt.error_kinds import KINDS, ErrorCase, ErrorKind, EvidenceOf, sample_errors, survey_errors
from kbq.kilt.lines import refuse_missing, refuse_replacing
from kbq.kilt.passages import PassageScores, export_for_readers, read_questions, score_passages
from kbq.kilt.report import Column, Table
from kbq.kilt.submission import ManifestEntry, SubmissionFile, prepare_submission
from kbq.kilt.task import Task, known_tasks
from kbq.kilt.validation import Validation, fix, validate
from kbq.system.files import run_file

IsKnownPage = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """What to check against what; see `kbq validate --help`."""

    guess: Path
    inputs: Path | None = None
    task: Task | None = None
    fixed: Path | None = None
    is_strict: bool = False
    is_known_page: IsKnownPage | None = None


def check(request: ValidationRequest) -> Validation:
    """The findings about a prediction file; with `fixed`, about the repaired file that is written first.

    Raises:
        EvaluationError: the inputs cannot be read, or the predictions cannot be repaired.
    """
    expected = expect(request.task, request.inputs, request.is_strict, request.is_known_page)
    refuse_replacing([request.fixed], [request.guess, request.inputs])
    if request.fixed is None:
        return validate(request.guess, request.inputs, expected)
    fix(request.guess, request.fixed, request.inputs)
    return validate(request.fixed, request.inputs, expected)


@dataclass(frozen=True, slots=True)
class ErrorsRequest:
    """Which errors to show; see `kbq errors --help`."""

    guess: Path
    gold: Path
    kind: str | None = None  # None: every kind that is an error
    sample: int = 3  # of each kind
    is_known_page: IsKnownPage | None = None
    evidence_of: EvidenceOf | None = None
    task: Task | None = None  # says when an answer is right


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """How often each kind occurs, and samples in the order of the kinds."""

    counts: Counter[ErrorKind]
    cases: tuple[ErrorCase, ...]
    notes: tuple[str, ...]  # where the two files do not belong together

    def table(self) -> Table:
        """One row for each kind that occurs."""
        total = max(1, self.counts.total())
        rows = [(kind, self.counts[kind], self.counts[kind] / total) for kind in KINDS if self.counts[kind]]
        return Table(
            "predictions by kind", (Column("kind"), Column("n", "count"), Column("share", "percent")), tuple(rows)
        )


def find_errors(request: ErrorsRequest) -> ErrorReport:
    """Count all predictions by kind of error, and sample some.

    Raises:
        EvaluationError: the files cannot be read or scored, or there is no such kind.
    """
    answer_metric = request.task.answer_metric if request.task else "accuracy"
    survey = survey_errors(request.gold, request.guess, request.is_known_page, answer_metric)
    kinds = [request.kind] if request.kind else [kind for kind in KINDS if kind != "right"]
    samples = [sample_errors(survey, kind, request.sample, evidence_of=request.evidence_of) for kind in kinds]
    return ErrorReport(survey.counts, tuple(case for sample in samples for case in sample), survey.notes)


def submit(
    guesses: Sequence[Path], tasks: Sequence[Task], inputs: Sequence[Path], out: Path, is_strict: bool = False
) -> tuple[ManifestEntry, ...]:
    """Check and write upload-ready files, one for each task, with a manifest and the manual steps.

    Args:
        inputs: the official file of each task in the same order, or none at all.

    Raises:
        EvaluationError: numbers of files differ, or a file has errors; it carries all of them.
    """
    if len(tasks) != len(guesses) or len(inputs) not in (0, len(guesses)):
        raise EvaluationError(
            f"{len(guesses)} prediction files, {len(tasks)} tasks and {len(inputs)} input files: "
            "name a task, and if any then an input file, for each prediction file in the same order",
            is_usage=True,
        )
    files = []
    for number, (guess, task) in enumerate(zip(guesses, tasks, strict=True)):
        _refuse_other_task(guess, task)
        own_inputs = inputs[number] if inputs else None
        # Where a task's answers are no spans they come from another system: the leaderboard refuses lines without.
        lines = tuple(count for split, count in task.lines.items() if split == "test")
        expected = replace(expect(task, own_inputs, is_strict), wants_answers=True, lines=lines)
        files.append(SubmissionFile(task.name, guess, task.columns, own_inputs, task.official_file("test"), expected))
    return prepare_submission(files, out)


def _refuse_other_task(guess: Path, task: Task) -> None:
    """What `kbq predict` has written beside a file says which task it is for."""
    beside = run_file(guess)
    try:
        predicted = json.loads(beside.read_text("utf-8"))["task"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if predicted != task.name and predicted in known_tasks():  # else a task of one's own, for the same inputs
        raise EvaluationError(
            f"{guess} was predicted for the task {predicted} (see {beside.name}), not for {task.name}: name that one"
        )


def evaluate_passages(guess: Path, gold: Path, ks: Sequence[int], export: Path | None = None) -> PassageScores:
    """Score the texts of predicted provenance, and write them for readers where wanted.

    Raises:
        EvaluationError: the files cannot be read or written, or no prediction has a text.
    """
    refuse_missing(guess, gold)
    refuse_replacing([export], [guess, gold])
    questions = read_questions(gold, guess)
    if not questions:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if not any(passage.text for question in questions for passage in question.passages):
        raise EvaluationError(f"{guess} holds no text in its provenance: make it with kbq predict --with-text")
    if export is not None:
        export_for_readers(questions, export)
    return score_passages(questions, ks)
