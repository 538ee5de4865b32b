"""Submission: prediction files become upload-ready files with a manifest; nothing is sent anywhere."""

import hashlib
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kbq.errors import EvaluationError
from kbq.kilt.reading.lines import write_lines
from kbq.kilt.scoring.deviations import SEMANTICS
from kbq.kilt.submitting.expectations import USUAL, Expectations
from kbq.kilt.submitting.fixing import fix
from kbq.kilt.submitting.validation import Validation, validate

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
class SubmissionFile:
    """What is to be submitted for one data set."""

    task: str
    path: Path
    metrics: tuple[str, ...]  # the leaderboard's columns, the ranked one first
    inputs_path: Path | None = None  # the official file without answers
    official: str = ""  # the name of that file
    expected: Expectations = USUAL


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


def prepare_submission(files: Sequence[SubmissionFile], out: Path) -> tuple[ManifestEntry, ...]:
    """Clean, check and write every file with `submission.json` and `UPLOAD.md`; all of them or none.

    Raises:
        EvaluationError: a file has errors; it carries all of them.
    """
    folder = out
    check_tasks(files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EvaluationError(f"{folder} cannot be made ({error.strerror}): choose another folder") from error
    for left in folder.glob(f"{PART}*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    if any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise EvaluationError(f"{folder} holds something else than an earlier submission: choose another folder")
    with TemporaryDirectory(dir=folder, prefix=PART) as part:
        prepared = [prepare_file(file, Path(part)) for file in files]
        errors = [
            f"{file.path}: in the cleaned file: {finding}".replace(f"{part}/", "")
            for file, (_, validation) in zip(files, prepared, strict=True)
            for finding in validation.errors
        ]
        if errors:
            raise EvaluationError(f"nothing was written: {errors[0]} (in all {len(errors):,})", errors)
        for file in files:
            (Path(part) / f"{file.task}.jsonl").replace(folder / f"{file.task}.jsonl")
    entries = tuple(entry for entry, _ in prepared)
    write_manifest([*_earlier(folder, {entry.file for entry in entries}), *entries], folder)
    return entries


def _earlier(folder: Path, replaced: Collection[str]) -> list[ManifestEntry]:
    """What earlier submissions left there for other data sets and is still as it was."""
    try:
        written = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
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


def check_tasks(files: Sequence[SubmissionFile]) -> None:
    """Refuse two files for one data set.

    Raises:
        EvaluationError: a task is named twice.
    """
    tasks = [file.task for file in files]
    repeated = sorted({task for task in tasks if tasks.count(task) > 1})
    if repeated:
        raise EvaluationError(
            f"{', '.join(repeated)} has several prediction files: submit one for each task", is_usage=True
        )


def prepare_file(file: SubmissionFile, folder: Path) -> tuple[ManifestEntry, Validation]:
    """Write one cleaned file without texts, and check it.

    Raises:
        EvaluationError: the file cannot be read.
    """
    target = folder / f"{file.task}.jsonl"
    lines = fix(file.path, target, file.inputs_path, keep_texts=False)
    validation = validate(target, file.inputs_path, file.expected)
    warnings = {str(first).replace(str(target), target.name): count for first, count in validation.first_warnings()}
    if file.inputs_path is None and file.official:
        warnings[f"not compared with {file.official}: give it with --inputs"] = 1
    if not file.expected.lines:
        warnings[f"the leaderboard has no data set called {file.task}"] = 1
    content = target.read_bytes()
    entry = ManifestEntry(
        task=file.task,
        file=target.name,
        source=file.path.name,
        metrics=file.metrics,
        lines=lines,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        warnings=warnings,
    )
    return entry, validation


def write_manifest(entries: Sequence[ManifestEntry], folder: Path) -> None:
    """Write `submission.json` and the manual steps.

    Raises:
        EvaluationError: a file cannot be written.
    """
    manifest = {"semantics": SEMANTICS, "files": [asdict(entry) for entry in entries]}
    write_lines(folder / MANIFEST, [json.dumps(manifest, indent=2)])
    listed = []
    for entry in entries:
        listed.append(f"   * {entry.task}: `{entry.file}`, {entry.lines:,} lines, {entry.metrics[0]}")
        listed += [f"     * warning: {warning}" for warning in entry.warnings]
    write_lines(folder / "UPLOAD.md", [STEPS.format(files="\n".join(listed)).rstrip("\n")])
