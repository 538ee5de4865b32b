"""Submission: prediction files become upload-ready files with a manifest; nothing is sent anywhere."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kbq.errors import EvaluationError
from kbq.kilt.checks import Expectations, expect
from kbq.kilt.files import Finding, write_lines
from kbq.kilt.rules import SEMANTICS
from kbq.kilt.task import Task, known_tasks
from kbq.kilt.validation import clean, validate
from kbq.storage.files import run_file
from kbq.storage.folders import discard_folder, make_folders
from kbq.storage.locks import writing_alone
from kbq.storage.records import read_object
from kbq.storage.writing import move, writing_to

MANIFEST = "submission.json"
PART = ".part-"
STEPS = """\
# How to upload

The leaderboard is EvalAI challenge 689, https://eval.ai/web/challenges/challenge-page/689/submission.
Each data set has a phase of its own and takes one file. The number of submissions is limited, and whether
a phase is still open shows only there.

1. Log in, join the challenge as a team, and open "Submit".
2. Choose the phase of the data set, then upload its file:

{files}

3. Name the method and the paper, and submit; scores appear under "My Submissions".

`submission.json` has the checksums: compare them after copying the files to another machine.
"""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One upload-ready file; `sha256` and `bytes` are those of the file as uploaded."""

    task: str
    file: str
    source: str
    metrics: tuple[str, ...]
    lines: int
    bytes: int
    sha256: str
    warnings: dict[str, int]  # the first of each kind, and how often the kind was found


def submit(
    predictions: Sequence[Path], tasks: Sequence[Task], inputs: Sequence[Path], out: Path, is_strict: bool = False
) -> tuple[ManifestEntry, ...]:
    """Clean, check and write upload-ready files with `submission.json` and `UPLOAD.md`; all of them or none.

    Args:
        tasks: of each prediction file, in the same order.
        inputs: the official file of each task in the same order, or none at all.
        out: a folder, new or of an earlier submission, whose files for other tasks stay.

    Raises:
        EvaluationError: numbers of files differ, or a file has errors; it carries all of them.
    """
    if len(tasks) != len(predictions) or len(inputs) not in (0, len(predictions)):
        raise EvaluationError(
            f"{len(predictions)} prediction files, {len(tasks)} tasks and {len(inputs)} input files: "
            "name a task, and if any then an input file, for each prediction file in the same order",
            is_usage=True,
        )
    official: Sequence[Path | None] = inputs or [None] * len(tasks)
    files = list(zip(predictions, tasks, official, strict=True))
    expectations = []
    for path, task, given in files:
        _refuse_other_task(path, task)
        # Where a task's answers are not spans they come from another system: the leaderboard refuses lines without.
        lines = tuple(count for split, count in task.lines.items() if split == "test")
        expectations.append(replace(expect(task, given, is_strict), wants_answers=True, lines=lines))
    names = Counter(task.name for task in tasks)
    if repeated := sorted(name for name, count in names.items() if count > 1):
        several = ", ".join(repeated)
        raise EvaluationError(f"{several} has several prediction files: submit one for each task", is_usage=True)
    with writing_to(out, EvaluationError, "choose another folder"):
        make_folders(out)
    with writing_alone(out):  # of two that add to an earlier submission at once, one would be lost
        _refuse_other_content(out)
        entries: list[ManifestEntry] = []
        errors: list[str] = []
        with TemporaryDirectory(dir=out, prefix=PART) as part:
            for (path, task, given), expected in zip(files, expectations, strict=True):
                entry, found = _prepare_file(path, task, given, expected, Path(part))
                entries.append(entry)
                errors += [f"{path}: in the cleaned file: {finding}".replace(f"{part}/", "") for finding in found]
            if errors:
                raise EvaluationError(f"nothing was written: {errors[0]} (in all {len(errors):,})", errors)
            for entry in entries:
                move(Path(part) / entry.file, out / entry.file)
        write_manifest([*_earlier(out, {entry.file for entry in entries}), *entries], out)
        return tuple(entries)


def _refuse_other_task(predictions: Path, task: Task) -> None:
    """Raise EvaluationError if the file that `kbq predict` writes beside predictions names another task."""
    beside = run_file(predictions)
    try:
        predicted = read_object(beside)["task"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if predicted != task.name and predicted in known_tasks():  # else a task of one's own, for the same inputs
        raise EvaluationError(
            f"{predictions} was predicted for the task {predicted} (see {beside.name}), not for {task.name}: name that "
            "one"
        )


def _refuse_other_content(folder: Path) -> None:
    for left in folder.glob(f"{PART}*"):  # of a run that was killed
        discard_folder(left)
    if any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise EvaluationError(f"{folder} holds something other than an earlier submission: choose another folder")


def _earlier(folder: Path, replaced: Collection[str]) -> list[ManifestEntry]:
    """Return the files of earlier submissions for other data sets that have not been changed since."""
    try:
        written = read_object(folder / MANIFEST)["files"]
        entries = [ManifestEntry(**entry | {"metrics": tuple(entry["metrics"])}) for entry in written]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
        return []
    return [
        entry
        for entry in entries
        if entry.file not in replaced
        and (folder / entry.file).is_file()
        and hashlib.sha256((folder / entry.file).read_bytes()).hexdigest() == entry.sha256
    ]


def _prepare_file(
    path: Path, task: Task, inputs: Path | None, expected: Expectations, folder: Path
) -> tuple[ManifestEntry, tuple[Finding, ...]]:
    """Write one cleaned file without texts and probabilities, and return what is wrong with it."""
    target = folder / f"{task.name}.jsonl"
    lines = clean(path, target, inputs)
    validation = validate(target, inputs, expected)
    warnings = {str(first).replace(str(target), target.name): count for first, count in validation.first_warnings()}
    official = task.official_file("test")
    if inputs is None and official:
        warnings[f"not compared with {official}: give it with --inputs"] = 1
    if not expected.lines:
        warnings[f"the leaderboard has no data set called {task.name}"] = 1
    content = target.read_bytes()
    entry = ManifestEntry(
        task=task.name,
        file=target.name,
        source=path.name,
        metrics=task.columns,
        lines=lines,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        warnings=warnings,
    )
    return entry, validation.errors


def write_manifest(entries: Sequence[ManifestEntry], folder: Path) -> None:
    """Write `submission.json` and the manual steps. Raises EvaluationError if a file cannot be written."""
    manifest = {"semantics": SEMANTICS, "files": [asdict(entry) for entry in entries]}
    write_lines(folder / MANIFEST, [json.dumps(manifest, indent=2)])
    listed = []
    for entry in entries:
        listed.append(f"   * {entry.task}: `{entry.file}`, {entry.lines:,} lines, {entry.metrics[0]}")
        listed += [f"     * warning: {warning}" for warning in entry.warnings]
    write_lines(folder / "UPLOAD.md", [STEPS.format(files="\n".join(listed)).rstrip("\n")])
