"""Lines: a file becomes JSON objects with ids, as strictly as officially; lines become a file, whole or not."""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kbq.errors import EvaluationError, KbqError
from kbq.kilt.records import Problem, Problems, UnfitError, place_name
from kbq.system.files import pipe_name, replacing, writing_to
from kbq.system.lines import Line, read_lines

JsonObject = Mapping[str, object]


def read_records(path: Path, problems: Problems) -> Iterator[tuple[str, int, JsonObject]]:
    """Ids, line numbers and objects; a record without id, or with that of an earlier line, is a problem."""
    lines: dict[str, int] = {}
    for line, record in read_objects(path, problems):
        try:
            record_id = identity(record)
        except UnfitError as error:
            problems.add(path, line, None, str(error))
            continue
        if record_id in lines:
            what = f"has the id of line {lines[record_id]}, ids must be unique"
            problems.add(path, line, record_id, what)
            continue
        lines[record_id] = line
        yield record_id, line, record


def read_objects(path: Path, problems: Problems) -> Iterator[tuple[int, JsonObject]]:
    """Line numbers (from 1) and objects; a blank line is a problem, as in the official evaluation."""
    if starts_with_mark(path):
        what = "starts with a byte order mark: save the file as UTF-8 without it"
        problems.found.append(Problem(place_name(path, 1), what, is_harmless=True))
    try:
        for number, line in read_every_line(path, problems):
            if not line.strip():
                problems.found.append(Problem(place_name(path, number), "is blank", is_harmless=True))
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                problems.add(path, number, None, "is no JSON", f"{error.msg}, column {error.colno}")
                continue
            except (ValueError, RecursionError) as error:  # a number or a nesting beyond reading
                problems.add(path, number, None, "is no JSON", str(error))
                continue
            if isinstance(record, dict):
                yield number, record
            else:
                problems.add(path, number, None, "is no object", shown(record))
    except EvaluationError as error:  # nothing more can be read
        problems.found.append(Problem("", str(error)))


def read_every_line(path: Path, problems: Problems) -> Iterator[Line]:
    """Numbered lines; a lone carriage return ends a line, too, as in the official evaluation."""

    def note(bad: KbqError) -> None:
        problems.found.append(Problem("", str(bad)))

    returns = 0
    for number, line in read_lines(str(path), EvaluationError, note):
        pieces = line.split("\r")
        yield from enumerate(pieces, number + returns)
        returns += len(pieces) - 1


def starts_with_mark(path: Path) -> bool:
    """Whether a plain file starts with a byte order mark (`read_lines` drops it)."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(3) == codecs.BOM_UTF8


def shown(value: object) -> str:
    """A value as JSON, shortened for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def identity(record: JsonObject) -> str:
    """The id as text without outer blanks: 7, "7" and " 7" are the same record.

    Raises:
        UnfitError: the record has no id.
    """
    if "id" not in record:
        raise UnfitError("has no id")
    return str(record["id"]).strip()


def refuse_missing(*paths: Path) -> None:
    """Say once that a file cannot be read, before every record of another one misses its partner.

    Raises:
        EvaluationError: one is no file.
    """
    for path in paths:
        if str(path) != "-" and (path.is_dir() or not path.exists()):
            raise EvaluationError(f"{path} cannot be read ({'a folder' if path.is_dir() else 'no such file'})")


def refuse_pipes(*paths: Path | None) -> None:
    """What is read several times would be empty the second time.

    Raises:
        EvaluationError: one is standard input or another pipe.
    """
    for path in paths:
        if path is not None and (pipe := pipe_name(path)):
            raise EvaluationError(f"{pipe} can be read only once, and is wanted several times: give the name of a file")


def refuse_replacing(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """What is read is not written.

    Raises:
        EvaluationError: an output is one of the inputs, another output, or a folder.
    """
    taken = {path.resolve(): "one of the inputs" for path in inputs if path is not None}
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

    Raises:
        EvaluationError: the file cannot be written.
    """
    if path.is_dir():
        raise EvaluationError(f"{path}: cannot be written (a folder): give the name of a file")
    count = 0
    with writing_to(path, EvaluationError, "check the folder and its rights"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair is no UTF-8: its escape is valid JSON.
        with (
            replacing(path) as partial,
            partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
        ):
            for line in lines:
                stream.write(line + "\n")
                count += 1
    return count
