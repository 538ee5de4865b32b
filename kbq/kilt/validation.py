"""Validation: a prediction file becomes a list of all findings, without gold; its form can be repaired."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kbq.kilt.checks import USUAL, Expectations, Remark, Severity, check_record, expect, ranking_scores
from kbq.kilt.lines import refuse_replacing, write_lines
from kbq.kilt.records import (
    JsonObject,
    Problems,
    UnfitError,
    identity,
    place_name,
    provenance_items,
    read_objects,
    read_records,
    score_of,
)
from kbq.kilt.task import Task
from kbq.text.letters import normal_form


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a line of a file, or about the whole file."""

    severity: Severity
    place: str  # file:line:id
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


@dataclass(slots=True)
class Validation:
    """All findings about one file: those about lines, unreadable lines, then those about the whole file."""

    path: Path
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What the leaderboard would refuse or score as something else."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is allowed, but seldom meant."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def counts(self) -> Counter[str]:
        """How often each kind was found."""
        return Counter(finding.kind for finding in self.findings)

    def first_warnings(self) -> list[tuple[Finding, int]]:
        """The first warning of each kind, and how often the kind was found."""
        firsts = {finding.kind: finding for finding in reversed(self.warnings)}
        counts = Counter(finding.kind for finding in self.warnings)
        return [(firsts[kind], count) for kind, count in counts.items()]

    def to_dict(self) -> dict[str, object]:
        """All findings as JSON."""
        listed = {"errors": self.errors, "warnings": self.warnings}
        findings = {severity: [asdict(finding) for finding in found] for severity, found in listed.items()}
        return {"file": str(self.path), "records": self.records, "counts": self.counts()} | findings

    def add(self, remark: Remark, line: int | None = None, record_id: str | None = None) -> None:
        """Note a remark about a line, or about the whole file."""
        place = place_name(self.path, line, record_id)
        self.findings.append(Finding(remark.severity, place, remark.kind, remark.detail))


def check(
    predictions: Path,
    inputs: Path | None = None,
    task: Task | None = None,
    fixed: Path | None = None,
    is_strict: bool = False,
    is_known_page: Callable[[str], bool] | None = None,
) -> Validation:
    """The findings about a prediction file; with `fixed`, about the repaired file that is written there first.

    Raises:
        EvaluationError: the inputs cannot be read, or the predictions cannot be repaired.
    """
    expected = expect(task, inputs, is_strict, is_known_page)
    refuse_replacing([fixed], [predictions, inputs])
    if fixed is None:
        return validate(predictions, inputs, expected)
    fix(predictions, fixed, inputs)
    return validate(fixed, inputs, expected)


def validate(
    guess_path: Path,
    inputs_path: Path | None = None,
    expected: Expectations = USUAL,
) -> Validation:
    """Check a prediction file.

    Args:
        inputs_path: the KILT file the predictions are for, with or without answers; None: any ids will do.

    Raises:
        EvaluationError: the inputs cannot be read.
    """
    validation = Validation(guess_path)
    lines: dict[str, int] = {}
    answers: Counter[str] = Counter()
    types: set[type] = set()
    for line, record in readable_lines(validation):
        validation.records += 1
        record_id = check_identity(validation, line, record, lines)
        types.add(type(record.get("id")))
        for remark in check_record(record, expected):
            validation.add(remark, line, record_id)
        answers[answer_of(record)] += 1
    if len(types) > 1:
        validation.add(Remark("warning", "ids of several types", ", ".join(sorted(t.__name__ for t in types))))
    check_against_inputs(validation, lines, inputs_path)
    check_file(validation, answers, expected)
    return validation


def readable_lines(validation: Validation) -> Iterator[tuple[int, JsonObject]]:
    """The lines that are objects; the others become findings."""
    problems = Problems()
    yield from read_objects(validation.path, problems)
    for problem in problems.found:
        if problem.place:
            validation.findings.append(Finding("error", problem.place, problem.what, problem.detail))
        else:
            validation.add(Remark("error", "cannot be read", problem.what))


def check_identity(validation: Validation, line: int, record: JsonObject, lines: dict[str, int]) -> str | None:
    """The id of a record, noted in `lines`; None where it has none."""
    try:
        record_id = identity(record)
    except UnfitError:
        validation.add(Remark("error", "no id"), line)
        return None
    if record_id in lines:
        validation.add(Remark("error", "repeated id", f"also on line {lines[record_id]}"), line, record_id)
    lines.setdefault(record_id, line)
    return record_id


def answer_of(record: JsonObject) -> str:
    """The answer of a record with one output, "" where it has none."""
    outputs = record.get("output")
    if not isinstance(outputs, list) or len(outputs) != 1 or not isinstance(outputs[0], dict):
        return ""
    answer = outputs[0].get("answer")
    return answer.strip() if isinstance(answer, str) else ""


def check_against_inputs(validation: Validation, lines: dict[str, int], inputs_path: Path | None) -> None:
    """Every input needs a prediction; other predictions are ignored by the leaderboard."""
    if inputs_path is None:
        return
    wanted = read_ids(inputs_path)
    for record_id, line in wanted.items():
        if record_id not in lines:
            detail = f"{record_id}, line {line} of {inputs_path}"
            validation.add(Remark("error", "no prediction for an input", detail))
    for record_id, line in lines.items():
        if record_id not in wanted:
            validation.add(Remark("warning", "id is not in the inputs", "ignored"), line, record_id)


def read_ids(path: Path) -> dict[str, int]:
    """The ids of a KILT file in order, with their lines.

    Raises:
        EvaluationError: the file cannot be read, or a line has no id or a repeated one.
    """
    problems = Problems()
    ids = {record_id: line for record_id, line, _ in read_records(path, problems)}
    problems.raise_if_any(f"reading the ids of {path}")
    return ids


def check_file(validation: Validation, answers: Counter[str], expected: Expectations) -> None:
    """What concerns the file as a whole."""
    if not validation.records and not validation.errors:
        validation.add(Remark("error", "no record", "nothing is predicted"))
    if expected.lines and validation.records not in expected.lines:
        official = " or ".join(f"{lines:,}" for lines in dict.fromkeys(expected.lines))
        detail = f"{validation.records:,} lines, the official files have {official}"
        validation.add(Remark("warning", "number of lines", detail))
    answers.pop("", None)
    for answer, count in answers.most_common(1):
        if expected.max_same_answers is not None and count > expected.max_same_answers * validation.records > 1:
            detail = f"{answer!r:.200} for {count:,} of {validation.records:,} records"
            validation.add(Remark("warning", "one answer for many records", detail))


PROVENANCE_KEYS = (
    "wikipedia_id",
    "title",
    "section",
    "start_paragraph_id",
    "start_character",
    "end_paragraph_id",
    "end_character",
    "bleu_score",
    "meta",
    "text",
    "score",
)


def fix(
    guess_path: Path,
    out_path: Path,
    inputs_path: Path | None = None,
    keep_extras: bool = True,
) -> int:
    """Write the predictions in the order of the inputs, and return how many lines there are.

    Text becomes NFC, items are sorted by their scores where all have one, page ids become strings, unknown
    keys, byte order marks, blank lines and predictions for other inputs go. `out_path` may be `guess_path`.

    Args:
        keep_extras: keep what the leaderboard does not read: the texts of items, and the `meta` of an answer with its
            probability.

    Raises:
        EvaluationError: lines that cannot be repaired, or a file that cannot be read or written.
    """
    problems = Problems()
    fixed = dict(fixed_lines(guess_path, problems, keep_extras))
    problems.raise_if_any(f"fixing {guess_path}")
    if inputs_path is None:
        return write_lines(out_path, fixed.values())
    ordered = [fixed[record_id] for record_id in read_ids(inputs_path) if record_id in fixed]
    return write_lines(out_path, ordered)


def fixed_lines(path: Path, problems: Problems, keep_extras: bool) -> Iterator[tuple[str, str]]:
    """Ids and clean JSON lines; what cannot be repaired becomes a problem."""
    reading = Problems()
    for record_id, line, record in read_records(path, reading):
        try:
            yield record_id, json.dumps(fixed_record(record, keep_extras), ensure_ascii=False)
        except UnfitError as error:
            reading.add(path, line, record_id, str(error))
    problems.found += [problem for problem in reading.found if not problem.is_harmless]


def fixed_record(record: JsonObject, keep_extras: bool) -> JsonObject:
    """A clean copy of a predicted record; its id stays as it is written.

    Raises:
        UnfitError: it has no list of outputs, or provenance that is not a list of objects.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise UnfitError("has no list of outputs")
    kept = {key: record[key] for key in ("id", "input") if key in record}
    return {**kept, "output": [fixed_output(output, keep_extras) for output in outputs]}


def fixed_output(output: JsonObject, keep_extras: bool) -> JsonObject:
    """A clean copy of an output.

    Raises:
        UnfitError: its provenance is not a list of objects.
    """
    kept: dict[str, object] = {}
    if "answer" in output:
        answer = output["answer"]
        kept["answer"] = normal_form("NFC", answer) if isinstance(answer, str) else answer
    if keep_extras and "meta" in output:
        kept["meta"] = output["meta"]
    if "provenance" in output:
        kept["provenance"] = [fixed_item(item, keep_extras) for item in by_score(provenance_items(output))]
    return kept


def by_score(items: Sequence[JsonObject]) -> list[JsonObject]:
    """The items by descending score where all have one; equal scores keep their order."""
    scores = ranking_scores(items)
    if not scores:
        return list(items)
    order = sorted(range(len(items)), key=lambda index: -scores[index])
    return [items[index] for index in order]


def fixed_item(item: JsonObject, keep_extras: bool) -> JsonObject:
    """A provenance item with known keys only, its page id as a string and its text in NFC."""
    kept = {key: item[key] for key in PROVENANCE_KEYS if key in item and (keep_extras or key != "text")}
    for key in ("title", "section", "text"):
        value = kept.get(key)
        if isinstance(value, str):
            kept[key] = normal_form("NFC", value)
    if isinstance(kept.get("score"), float) and score_of(kept) is None:
        del kept["score"]  # NaN is neither JSON nor an order
    if isinstance(kept.get("wikipedia_id"), int):
        kept["wikipedia_id"] = str(kept["wikipedia_id"])
    return kept
