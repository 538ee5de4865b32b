"""Submission: prediction files become a checked package for upload; nothing is sent anywhere."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kbq.errors import EvaluationError
from kbq.kilt.error_kinds import (
    USUAL,
    Expectations,
    check_record,
    error,
    expect,
    ranking_scores,
    warning,
)
from kbq.kilt.records import (
    HARMLESS,
    Finding,
    JsonObject,
    Problems,
    UnfitError,
    identity,
    parse_answer,
    parse_records,
    place_name,
    provenance_items,
    read_objects,
    read_records,
    score_of,
    write_lines,
)
from kbq.kilt.scores import SEMANTICS
from kbq.kilt.task import Task, known_tasks
from kbq.storage.folders import discard_folder, make_folders
from kbq.storage.paths import run_file
from kbq.storage.records import read_object
from kbq.storage.writing import move, writing_alone, writing_to
from kbq.text.normal_forms import normal_form

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


@dataclass(slots=True)
class Validation:
    """The findings about one file: about its lines, what cannot be read, and the file as a whole."""

    path: Path
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that the leaderboard would refuse, or score as something else."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are allowed, but seldom meant."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def first_warnings(self) -> list[tuple[Finding, int]]:
        """Return the first warning of each kind, and the number of that kind."""
        firsts = {finding.kind: finding for finding in reversed(self.warnings)}
        counts = Counter(finding.kind for finding in self.warnings)
        return [(firsts[kind], count) for kind, count in counts.items()]

    def to_dict(self) -> dict[str, object]:
        return {
            "file": str(self.path),
            "records": self.records,
            "counts": Counter(finding.kind for finding in self.findings),
            "errors": [asdict(finding) for finding in self.errors],
            "warnings": [asdict(finding) for finding in self.warnings],
        }

    def add(self, finding: Finding, line: int | None = None, record_id: str | None = None) -> None:
        self.findings.append(replace(finding, place=place_name(self.path, line, record_id)))


def validate(
    guess_path: Path, inputs_path: Path | None = None, expected: Expectations = USUAL
) -> Validation:
    """Check a prediction file. Raises EvaluationError if the inputs cannot be read.

    `inputs_path`: the KILT file that the predictions are for; without one, any ids will do.
    """
    validation = Validation(guess_path)
    reading = Problems()
    lines: dict[str, int] = {}
    answers: Counter[str] = Counter()
    types: set[str] = set()

    for line, record in read_objects(guess_path, reading):
        validation.records += 1
        record_id = identity(record)
        if record_id is None:
            validation.add(error("no id"), line)
        elif record_id in lines:
            validation.add(
                error("repeated id", f"also on line {lines[record_id]}"), line, record_id
            )
        else:
            lines[record_id] = line

        types.add(type(record.get("id")).__name__)
        for finding in check_record(record, expected):
            validation.add(finding, line, record_id)
        answers[_answer_of(record)] += 1

    for problem in reading.found:
        validation.findings.append(problem)

    if len(types) > 1:
        validation.add(warning("ids of several types", ", ".join(sorted(types))))
    if inputs_path is not None:
        wanted = read_ids(inputs_path)
        for record_id, line in wanted.items():
            if record_id not in lines:
                validation.add(
                    error(
                        "no prediction for an input", f"{record_id}, line {line} of {inputs_path}"
                    )
                )
        for record_id, line in lines.items():
            if record_id not in wanted:
                validation.add(warning("id is not in the inputs", "ignored"), line, record_id)

    _check_file(validation, answers, expected)
    return validation


def _answer_of(record: JsonObject) -> str:
    try:
        return parse_answer("", 0, record).answer
    except UnfitError:
        return ""


def read_ids(path: Path) -> dict[str, int]:
    """Return the ids of a KILT file in order, with their lines, or raise EvaluationError."""
    problems = Problems()
    ids = {record_id: line for record_id, line, _ in read_records(path, problems)}
    problems.raise_if_any(f"reading the ids of {path}")
    return ids


def _check_file(validation: Validation, answers: Counter[str], expected: Expectations) -> None:
    """Add findings about all records together."""
    if not validation.records and not validation.errors:
        validation.add(error("no record", "nothing is predicted"))
    if expected.lines and validation.records not in expected.lines:
        official = " or ".join(f"{lines:,}" for lines in dict.fromkeys(expected.lines))
        detail = f"{validation.records:,} lines, the official files have {official}"
        validation.add(warning("number of lines", detail))

    answers.pop("", None)
    for answer, count in answers.most_common(1):
        if (
            expected.max_same_answers is not None
            and count > expected.max_same_answers * validation.records > 1
        ):
            detail = f"{answer!r:.200} for {count:,} of {validation.records:,} records"
            validation.add(warning("one answer for many records", detail))


# Cleaning


PROVENANCE_KEYS = (
    "wikipedia_id", "title", "section", "start_paragraph_id", "start_character", "end_paragraph_id",
    "end_character", "bleu_score", "meta", "score",
)  # fmt: skip


def clean(guess_path: Path, out_path: Path, inputs_path: Path | None = None) -> int:
    """Write the predictions in the order of the inputs, and return the number of lines.

    Text becomes NFC, page ids become strings, and items are sorted by score if all have one. Texts
    of items, `meta` of answers, unknown keys, byte order marks, blank lines and predictions for
    other inputs are left out.
    """
    problems = Problems()

    def clean_line(record_id: str, line: int, record: JsonObject) -> tuple[str, str]:
        return record_id, json.dumps(clean_record(record), ensure_ascii=False)

    cleaned = dict(parse_records(guess_path, problems, clean_line))
    problems.raise_if_any(f"cleaning {guess_path}", ignoring=HARMLESS)
    ids = cleaned if inputs_path is None else read_ids(inputs_path)
    return write_lines(out_path, [cleaned[record_id] for record_id in ids if record_id in cleaned])


def clean_record(record: JsonObject) -> JsonObject:
    """Return a clean copy of a predicted record; its id stays as it is. Raises UnfitError if it is
    malformed.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise UnfitError("has no list of outputs")
    kept = {key: record[key] for key in ("id", "input") if key in record}
    return {**kept, "output": [_clean_output(output) for output in outputs]}


def _clean_output(output: JsonObject) -> JsonObject:
    kept = {}
    if "answer" in output:
        kept = {"answer": _in_nfc(output["answer"])}
    if "provenance" in output:
        items = provenance_items(output)
        if ranking_scores(items):
            items = sorted(items, key=lambda item: score_of(item) or 0.0, reverse=True)
        kept["provenance"] = [_clean_item(item) for item in items]
    return kept


def _in_nfc(value: object) -> object:
    if isinstance(value, str):
        return normal_form("NFC", value)
    return value


def _clean_item(item: JsonObject) -> JsonObject:
    kept = {key: item[key] for key in PROVENANCE_KEYS if key in item}
    kept |= {key: _in_nfc(kept[key]) for key in ("title", "section") if key in kept}
    if isinstance(kept.get("score"), float) and score_of(kept) is None:
        del kept["score"]  # NaN is neither JSON nor an order
    if isinstance(kept.get("wikipedia_id"), int):
        kept["wikipedia_id"] = str(kept["wikipedia_id"])
    return kept


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
    warnings: dict[str, int]  # the first of each kind, and the number of that kind


def submit(
    predictions: Sequence[Path],
    tasks: Sequence[Task],
    inputs: Sequence[Path],
    out: Path,
    is_strict: bool = False,
) -> tuple[ManifestEntry, ...]:
    """Clean, check and write all upload-ready files with `submission.json` and `UPLOAD.md`, or
    none.

    Args:
        tasks: the task of each prediction file.
        inputs: the official file of each task, or none at all.
        out: a folder, new or of an earlier submission, whose files for other tasks stay.

    Raises:
        EvaluationError: numbers of files differ, or a file has errors; it carries all of them.
    """
    if len(tasks) != len(predictions) or len(inputs) not in (0, len(predictions)):
        raise EvaluationError(
            f"{len(predictions)} prediction files, {len(tasks)} tasks and {len(inputs)} input "
            "files: name a task, and if any then an input file, for each prediction file in the "
            "same order",
            is_usage=True,
        )

    official: Sequence[Path | None] = inputs or [None] * len(tasks)
    files = list(zip(predictions, tasks, official, strict=True))
    expectations = []
    for path, task, given in files:
        _refuse_other_task(path, task)
        # Answers that are not spans come from another system: the leaderboard refuses lines without
        # them.
        lines = tuple(count for split, count in task.lines.items() if split == "test")
        expectations.append(
            replace(expect(task, given, is_strict), wants_answers=True, lines=lines)
        )

    names = Counter(task.name for task in tasks)
    if repeated := sorted(name for name, count in names.items() if count > 1):
        several = ", ".join(repeated)
        raise EvaluationError(
            f"{several} has several prediction files: submit one for each task", is_usage=True
        )

    with writing_to(out, EvaluationError, "choose another folder"):
        make_folders(out)
    with writing_alone(out):  # two that add to an earlier submission at once would lose one
        for left in out.glob(f"{PART}*"):  # left by a run that was killed
            discard_folder(left)
        if any(out.iterdir()) and not (out / MANIFEST).exists():
            raise EvaluationError(
                f"{out} holds something other than an earlier submission: choose another folder"
            )

        entries: list[ManifestEntry] = []
        errors: list[str] = []
        with TemporaryDirectory(dir=out, prefix=PART) as part:
            for (path, task, given), expected in zip(files, expectations, strict=True):
                entry, found = _prepare_file(path, task, given, expected, Path(part))
                entries.append(entry)
                errors += [
                    f"{path}: in the cleaned file: {finding}".replace(f"{part}/", "")
                    for finding in found
                ]

            if errors:
                raise EvaluationError(
                    f"nothing was written: {errors[0]} (in all {len(errors):,})", errors
                )

            for entry in entries:
                move(Path(part) / entry.file, out / entry.file)

        _write_manifest([*_earlier(out, {entry.file for entry in entries}), *entries], out)
        return tuple(entries)


def _refuse_other_task(predictions: Path, task: Task) -> None:
    """Raise EvaluationError if predictions were made for another task."""
    beside = run_file(predictions)
    try:
        predicted = read_object(beside)["task"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    # Else a task of one's own, for the same inputs.
    if predicted != task.name and predicted in known_tasks():
        raise EvaluationError(
            f"{predictions} was predicted for the task {predicted} (see {beside.name}), not for "
            f"{task.name}: name that one"
        )


def _earlier(folder: Path, replaced: Collection[str]) -> list[ManifestEntry]:
    """Return the entries of files that were put there before, and are still there."""
    try:
        written = read_object(folder / MANIFEST)["files"]
        entries = [
            ManifestEntry(**entry | {"metrics": tuple(entry["metrics"])}) for entry in written
        ]
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
    """Write one cleaned file, and return its entry and its errors."""
    target = folder / f"{task.name}.jsonl"
    lines = clean(path, target, inputs)
    validation = validate(target, inputs, expected)
    warnings = {
        str(first).replace(str(target), target.name): count
        for first, count in validation.first_warnings()
    }
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


def _write_manifest(entries: Sequence[ManifestEntry], folder: Path) -> None:
    """Write the list of files for programs and, with the steps to upload them, for people."""
    manifest = {"semantics": SEMANTICS, "files": [asdict(entry) for entry in entries]}
    write_lines(folder / MANIFEST, [json.dumps(manifest, indent=2)])
    listed = []
    for entry in entries:
        listed.append(
            f"   * {entry.task}: `{entry.file}`, {entry.lines:,} lines, {entry.metrics[0]}"
        )
        listed += [f"     * warning: {warning}" for warning in entry.warnings]
    write_lines(folder / "UPLOAD.md", [STEPS.format(files="\n".join(listed)).rstrip("\n")])
