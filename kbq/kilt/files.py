"""Files: KILT files or records in memory are read, all problems gathered; lines are written whole or not at all."""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

from kbq.errors import EvaluationError, KbqError
from kbq.storage.files import pipe_name
from kbq.storage.folders import make_folders
from kbq.storage.lines import ARRAY, Line, parse_json_lines, read_lines
from kbq.storage.records import parsed_json
from kbq.storage.writing import replacing, writing_to

JsonObject = Mapping[str, object]
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class RecordList:
    """Records in memory; messages call them by `name`."""

    name: str
    records: tuple[JsonObject, ...]

    def __str__(self) -> str:
        return self.name


Source = Path | RecordList
AnyRecords = str | PathLike[str] | RecordList | Iterable[Mapping[str, Any]]


def source_of(given: AnyRecords, name: str) -> Source:
    """Return a path, or a copy of the records as a file would hold them.

    Raises EvaluationError if neither a path nor an iterable of dicts, no record, or a record that is not JSON.
    """
    if isinstance(given, RecordList):
        return given
    if isinstance(given, str | PathLike):
        return Path(given)
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise EvaluationError(f"{name} is of type {kind}: give the path of a KILT file, or a list of KILT records")
    records = []
    for number, record in enumerate(given, 1):
        if not isinstance(record, Mapping):
            raise EvaluationError(f"record {number} of {name} is of type {type(record).__name__}, must be a dict")
        try:
            records.append(json.loads(json.dumps(dict(record))))
        except (TypeError, ValueError, RecursionError) as error:
            raise EvaluationError(f"record {number} of {name} cannot be written as JSON: {error}") from None
    if not records:
        raise EvaluationError(f"{name} is empty: give at least one KILT record")
    return RecordList(name, tuple(records))


# Problems


class UnfitError(ValueError):
    """A record that cannot be scored; the message says why, without file and line."""


Severity = Literal["error", "warning"]
HAS_MARK = "starts with a byte order mark: save the file as UTF-8 without it"
IS_ARRAY = "is an array, which the official evaluation does not read: write one object per line"
IS_BLANK = "is blank"
HARMLESS = (HAS_MARK, IS_ARRAY, IS_BLANK)  # refused by the official evaluation, but a repair loses no content


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or doubtful about a line of a file, or about the whole file."""

    severity: Severity
    place: str  # the known parts of file:line:id; "" where `kind` says it
    kind: str  # the same for all lines that have it
    detail: str = ""

    def __str__(self) -> str:
        return (f"{self.place}: " if self.place else "") + self.kind + (f" ({self.detail})" if self.detail else "")


def place_name(source: Source, line: int | None = None, record_id: str | None = None) -> str:
    """Return a place as `file:line:id`; line and id are left out where unknown."""
    return ":".join([str(source), *([str(line)] if line else []), *([record_id] if record_id else [])])


class Problems:
    """The errors found so far, in order."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def add(self, source: Source, line: int | None, record_id: str | None, what: str, detail: str = "") -> None:
        """Note an error."""
        self.found.append(Finding("error", place_name(source, line, record_id), what, detail))

    def raise_if_any(self, purpose: str, ignoring: Iterable[str] = ()) -> None:
        """Raise an EvaluationError that carries all errors, except those of the kinds to ignore."""
        listed = [str(problem) for problem in self.found if problem.kind not in ignoring]
        if listed:
            others = f" (and {len(listed) - 1:,} more)" if len(listed) > 1 else ""
            raise EvaluationError(f"{purpose} is not possible: {listed[0]}{others}", listed)


# Reading


def parse_records(
    source: Source, problems: Problems, parse: Callable[[str, int, JsonObject], Parsed]
) -> Iterator[Parsed]:
    """Yield what `parse` makes of the id, the line number and the object of each record; an unfit one is a problem."""
    for record_id, line, record in read_records(source, problems):
        try:
            yield parse(record_id, line, record)
        except UnfitError as error:
            problems.add(source, line, record_id, str(error))


def read_records(source: Source, problems: Problems) -> Iterator[tuple[str, int, JsonObject]]:
    """Yield ids, line numbers and objects; a missing id, or the id of an earlier line, is a problem."""
    lines: dict[str, int] = {}
    for line, record in read_objects(source, problems):
        record_id = identity(record)
        if record_id is None:
            problems.add(source, line, None, "has no id")
        elif record_id in lines:
            problems.add(source, line, record_id, f"has the id of line {lines[record_id]}, ids must be unique")
        else:
            lines[record_id] = line
            yield record_id, line, record


def read_objects(source: Source, problems: Problems) -> Iterator[tuple[int, JsonObject]]:
    """Yield line numbers (from 1) and objects; a blank line is a problem, as in the official evaluation."""
    if isinstance(source, RecordList):
        yield from enumerate(source.records, 1)
        return
    if _starts_with_mark(source):
        problems.add(source, 1, None, HAS_MARK)
    lines = _every_line(source, problems)
    try:
        for number, line in lines:
            if number == 1 and ARRAY.match(line):
                problems.add(source, number, None, IS_ARRAY)
                yield from parse_json_lines(chain([(number, line)], lines), str(source), EvaluationError)
                return
            if not line.strip():
                problems.add(source, number, None, IS_BLANK)
                continue
            try:
                record = parsed_json(line)
            except ValueError as error:
                where = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
                problems.add(source, number, None, "is not JSON", where)
                continue
            if isinstance(record, dict):
                yield number, record
            else:
                problems.add(source, number, None, "is not an object", shown(record))
    except EvaluationError as error:  # nothing more can be read
        problems.found.append(Finding("error", "", str(error)))


def _every_line(path: Path, problems: Problems) -> Iterator[Line]:
    """Yield numbered lines; a lone carriage return ends a line, too, as in the official evaluation."""

    def note(bad: KbqError) -> None:
        problems.found.append(Finding("error", "", str(bad)))

    returns = 0
    for number, line in read_lines(str(path), EvaluationError, note):
        pieces = line.split("\r")
        yield from enumerate(pieces, number + returns)
        returns += len(pieces) - 1


def _starts_with_mark(path: Path) -> bool:
    """Whether a plain file starts with a byte order mark (`read_lines` drops it)."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(3) == codecs.BOM_UTF8


def shown(value: object) -> str:
    """Return a value as JSON, shortened for a message."""
    text = json.dumps(value[:40] if isinstance(value, str) else value, ensure_ascii=False)  # quotes are two more
    return text if len(text) <= 40 else f"{text[:37]}..."


def identity(record: JsonObject) -> str | None:
    """Return the id as text without outer blanks, None without one: 7, "7" and " 7" are the same record."""
    return str(record["id"]).strip() if "id" in record else None


# Files that a command cannot use, and writing


def refuse_missing(*sources: Source) -> None:
    """Raise EvaluationError if a path is not a file, before every record of another one misses its partner."""
    for path in sources:
        if not isinstance(path, Path) or str(path) == "-":
            continue
        try:
            why = "a folder" if path.is_dir() else "" if path.exists() else "no such file"
        except OSError as error:  # records as text, say, given for a path
            why = error.strerror or "no such file"
        if why:
            raise EvaluationError(f"{path} cannot be read ({why})")


def refuse_pipes(*sources: Source | None) -> None:
    """Raise EvaluationError for standard input and other pipes: read several times, they are empty from the second."""
    for path in sources:
        if isinstance(path, Path) and (pipe := pipe_name(path)):
            raise EvaluationError(f"{pipe} can be read only once, and is needed several times: give the name of a file")


def refuse_replacing(outputs: Iterable[Path | None], inputs: Iterable[Source | None]) -> None:
    """Raise EvaluationError if an output is one of the inputs, another output, or a folder."""
    taken = {path.resolve(): "one of the inputs" for path in inputs if isinstance(path, Path)}
    for path in outputs:
        if path is None:
            continue
        if path.is_dir():
            raise EvaluationError(f"{path} is a folder: give the name of a file")
        if path.resolve() in taken:
            raise EvaluationError(f"{path} is {taken[path.resolve()]}: write to another file")
        taken[path.resolve()] = "another output, too"


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write UTF-8 lines, each ended by a line feed, and return how many; an old file is replaced at the end.

    Raises EvaluationError if the file cannot be written.
    """
    if path.is_dir():
        raise EvaluationError(f"{path}: cannot be written (a folder): give the name of a file")
    count = 0
    with writing_to(path, EvaluationError, "check the folder and its rights"):
        make_folders(path.parent)
        # Half a surrogate pair is not UTF-8: its escape is valid JSON.
        with (
            replacing(path) as partial,
            partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
        ):
            for line in lines:
                stream.write(line + "\n")
                count += 1
    return count
