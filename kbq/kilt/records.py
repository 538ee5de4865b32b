"""Records: the lines of KILT files, read exactly as the official evaluation does."""

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Literal, TypeVar, cast

from kbq.errors import EvaluationError, KbqError
from kbq.kilt.open_questions import has_open_questions, read_questions
from kbq.storage.folders import make_folders
from kbq.storage.lines import ARRAY, COMPRESSED, Line, parse_json_lines, read_lines, with_json
from kbq.storage.paths import pipe_name, run_file
from kbq.storage.reading import unreadable
from kbq.storage.records import parsed_json
from kbq.storage.writing import replacing, writing_to

JsonObject = Mapping[str, object]
Parsed = TypeVar("Parsed")

# Ends the names of qrels.
RELEVANCE = re.compile(rf"\.(?:tsv|qrels)(?:{'|'.join(map(re.escape, COMPRESSED))})?$")
PAGE = "wikipedia_id"  # the key of an item that names its page


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

    Raises EvaluationError if these are neither a path nor an iterable of dicts that JSON can hold,
    or if it is empty.
    """
    if isinstance(given, str | PathLike):
        return Path(given)
    if isinstance(given, RecordList):
        return given
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise EvaluationError(
            f"{name} is of type {kind}: give the path of a KILT file, or a list of KILT records"
        )

    records = []
    for number, record in enumerate(given, 1):
        if not isinstance(record, Mapping):
            raise EvaluationError(
                f"record {number} of {name} is of type {type(record).__name__}, must be a dict"
            )
        try:
            records.append(json.loads(json.dumps(dict(record))))
        except (TypeError, ValueError, RecursionError) as error:
            raise EvaluationError(
                f"record {number} of {name} cannot be written as JSON: {error}"
            ) from None

    if not records:
        raise EvaluationError(f"{name} is empty: give at least one KILT record")
    return RecordList(name, tuple(records))


def gold_of(given: AnyRecords) -> Source:
    """Return gold records as `source_of`; qrels of TREC, MS MARCO and BEIR (.tsv, .qrels) become
    such records.

    Each relevant passage is an evidence set of its own, with its grade. Open questions become
    records, too.
    """
    if isinstance(given, str | PathLike) and has_open_questions(Path(given)):
        return RecordList(
            str(given), tuple(record for _, record in read_questions(str(given), EvaluationError))
        )

    if not isinstance(given, str | PathLike):
        return source_of(given, "gold")
    if not RELEVANCE.search(str(given)):
        return source_of(given, "gold")
    items: dict[str, list[JsonObject]] = {}
    for number, line in read_lines(str(given), EvaluationError):
        row = line.split()  # query, page, grade; of TREC, with a column between the first two
        if not row:
            continue
        if number == 1 and not row[-1].isdecimal():
            continue
        if len(row) not in (3, 4) or not row[-1].removeprefix("-").isdecimal():
            raise EvaluationError(
                f"{given}:{number}: {line!r:.60} does not name a query, a passage and its relevance"
            )
        if int(row[-1]) > 0:
            items.setdefault(row[0], []).append({PAGE: row[-2], "relevance": int(row[-1])})

    records = (
        {"id": query, "output": [{"provenance": [hit]} for hit in hits]}
        for query, hits in items.items()
    )

    return RecordList(str(given), tuple(records))


# Problems


class UnfitError(ValueError):
    """A record that cannot be scored; the message says why, without file and line."""


Severity = Literal["error", "warning"]
WANTED = "give lines of KILT; `kbq evaluate-table` scores tables"
HAS_MARK = "starts with a byte order mark: save the file as UTF-8 without it"
IS_ARRAY = "is an array, which the official evaluation does not read: write one object per line"
IS_BLANK = "is blank"
# The official evaluation refuses them, but their content can be read.
HARMLESS = (HAS_MARK, IS_ARRAY, IS_BLANK)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or doubtful about a line of a file, or about the whole file."""

    severity: Severity
    place: str  # the known parts of file:line:id; "" where `kind` says it
    kind: str  # the same for all lines that have it
    detail: str = ""

    def __str__(self) -> str:
        return (
            (f"{self.place}: " if self.place else "")
            + self.kind
            + (f" ({self.detail})" if self.detail else "")
        )


def place_name(source: Source, line: int | None = None, record_id: str | None = None) -> str:
    """Return a place in a file as messages name it."""
    return ":".join(str(part) for part in (source, line, record_id) if part)


class Problems:
    """The errors found so far, in order."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def add(
        self, source: Source, line: int | None, record_id: str | None, what: str, detail: str = ""
    ) -> None:
        self.found.append(Finding("error", place_name(source, line, record_id), what, detail))

    def note(self, bad: KbqError) -> None:
        """Note an error that names its place."""
        self.found.append(Finding("error", "", str(bad)))

    def raise_if_any(self, purpose: str, ignoring: Iterable[str] = ()) -> None:
        """Raise an EvaluationError that carries all errors, except those of the kinds to ignore."""
        listed = [str(problem) for problem in self.found if problem.kind not in ignoring]
        if listed:
            others = ""
            if len(listed) > 1:
                others = f" (and {len(listed) - 1:,} more)"
            raise EvaluationError(f"{purpose} is not possible: {listed[0]}{others}", listed)


# Reading


def parse_records(
    source: Source, problems: Problems, parse: Callable[[str, int, JsonObject], Parsed]
) -> Iterator[Parsed]:
    """Yield each record as `parse` returns it from id, line number and object; an unfit one is a
    problem.
    """
    for record_id, line, record in read_records(source, problems):
        try:
            yield parse(record_id, line, record)
        except UnfitError as error:
            problems.add(source, line, record_id, str(error))


def read_records(source: Source, problems: Problems) -> Iterator[tuple[str, int, JsonObject]]:
    """Yield ids, line numbers and objects; a missing or repeated id is a problem."""
    lines: dict[str, int] = {}
    for line, record in read_objects(source, problems):
        record_id = identity(record)
        if record_id is None:
            problems.add(source, line, None, "has no id")
        elif record_id in lines:
            problems.add(
                source,
                line,
                record_id,
                f"has the id of line {lines[record_id]}, ids must be unique",
            )
        else:
            lines[record_id] = line
            yield record_id, line, record


def read_objects(source: Source, problems: Problems) -> Iterator[tuple[int, JsonObject]]:
    """Yield line numbers (from 1) and objects; a blank line is a problem, as in the official
    evaluation.
    """
    if isinstance(source, RecordList):
        yield from enumerate(source.records, 1)
        return

    if source.is_file():
        with source.open("rb") as stream:
            if stream.read(3) == codecs.BOM_UTF8:  # `read_lines` drops it
                problems.add(source, 1, None, HAS_MARK)

    try:
        lines = with_json(_every_line(source, problems), str(source), EvaluationError, WANTED)
        for number, line in lines:
            if number == 1 and ARRAY.match(line):
                problems.add(source, number, None, IS_ARRAY)
                yield from parse_json_lines(
                    chain([(number, line)], lines), str(source), EvaluationError
                )
                return

            if not line.strip():
                problems.add(source, number, None, IS_BLANK)
                continue

            try:
                record = parsed_json(line)
            except ValueError as error:
                where = (
                    f"{error.msg}, column {error.colno}"
                    if isinstance(error, json.JSONDecodeError)
                    else str(error)
                )
                problems.add(source, number, None, "is not JSON", where)
                continue

            if isinstance(record, dict):
                yield number, record
            else:
                problems.add(source, number, None, "is not an object", as_short_json(record))
    except EvaluationError as error:  # nothing more can be read
        problems.note(error)


def _every_line(path: Path, problems: Problems) -> Iterator[Line]:
    """Yield numbered lines; a lone carriage return ends a line, too, as in the official evaluation."""
    returns = 0
    for number, line in read_lines(str(path), EvaluationError, problems.note):
        pieces = line.split("\r")
        yield from enumerate(pieces, number + returns)
        returns += len(pieces) - 1


def as_short_json(value: object) -> str:
    """Return a value as JSON, shortened for a message."""
    # Quotes are two more.
    if isinstance(value, str):
        value = value[:40]
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 40:
        return text
    return f"{text[:37]}..."


def identity(record: JsonObject) -> str | None:
    """Return the id as text without outer blanks, or None: 7, "7" and " 7" are the same record."""
    if "id" in record:
        return str(record["id"]).strip()
    return None


# Files


def check_paths(
    inputs: Iterable[Source | None], outputs: Iterable[Path | None] = (), is_read_twice: bool = True
) -> None:
    """Raise EvaluationError if an input cannot be read as often as needed, or an output would
    replace another file.
    """
    taken: dict[Path, str] = {}
    for path in inputs:
        if not isinstance(path, Path):
            continue
        try:
            pipe = pipe_name(path)
            if not pipe and S_ISDIR(path.stat().st_mode):
                raise IsADirectoryError
        except OSError as error:  # records as text, say, given for a path
            raise EvaluationError(unreadable(path, error)) from None
        if pipe and is_read_twice:
            raise EvaluationError(
                f"{pipe} can be read only once, and is needed several times: give the name of a "
                "file"
            )

        taken[path.resolve()] = "one of the inputs"

    for path in filter(None, outputs):
        if path.is_dir():
            raise EvaluationError(f"{path} is a folder: give the name of a file")
        if path.resolve() in taken:
            raise EvaluationError(f"{path} is {taken[path.resolve()]}: write to another file")
        taken[path.resolve()] = "another output, too"


def refuse_predictions_as_gold(predictions: Source, gold: Source) -> None:
    """Raise EvaluationError if the gold data are predictions of kbq, and the predictions are not."""
    if _is_predicted(gold) and not _is_predicted(predictions):
        raise EvaluationError(
            f"{gold} holds predictions of kbq, {predictions} does not: predictions come first, "
            "gold second",
            is_usage=True,
        )


def _is_predicted(source: Source) -> bool:
    """Whether `kbq predict` has written a file, or its first record has a probability."""
    with suppress(OSError, KbqError, UnfitError):
        if isinstance(source, Path) and pipe_name(source):
            return False
        if isinstance(source, Path) and run_file(source).is_file():
            return True
        for _, record in read_objects(source, Problems()):
            return probability_of(only_output(record, "answer")) is not None
    return False


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write UTF-8 lines, each ended by a line feed, and return how many; an old file is replaced at
    the end.
    """
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


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """The place that a provenance item points to."""

    page_id: str
    title: str  # stripped of outer blanks, or ""
    paragraph: int | None
    characters: tuple[int, int] | None = None  # [start, end) of the paragraph


@dataclass(frozen=True, slots=True)
class GoldOutput:
    """One gold output: an answer, an evidence set, or both."""

    answer: str  # stripped of outer blanks, or ""
    pages: tuple[str, ...]  # distinct pages of the items that name one
    # Pages of all items, "" of one that names none; None without provenance.
    evidence: frozenset[str] | None
    places: tuple[EvidencePlace, ...]


@dataclass(frozen=True)
class Gold:
    """A gold line; `line` counts from 1."""

    id: str
    line: int
    input: str | None
    meta: Mapping[str, object]
    outputs: tuple[GoldOutput, ...]

    @cached_property
    def answers(self) -> frozenset[str]:
        return frozenset(output.answer for output in self.outputs if output.answer)

    @cached_property
    def titles(self) -> frozenset[str]:
        return frozenset(
            place.title for output in self.outputs for place in output.places if place.title
        )


def read_golds(source: Source, problems: Problems) -> Iterator[Gold]:
    return parse_records(source, problems, parse_gold)


def parse_gold(record_id: str, line: int, record: JsonObject) -> Gold:
    """Parse a gold line, or raise UnfitError if the official evaluation fails on it.

    The input may be missing: only the newest official evaluation fails without it.
    """
    text = record.get("input")
    if "input" in record and not isinstance(text, str):
        raise UnfitError(f"has the input {as_short_json(text)}, must be text")
    outputs = record.get("output")
    if not isinstance(outputs, list | dict | str) or not outputs:
        raise UnfitError("has no gold output: is this the test file without answers?")
    parsed = tuple(_gold_output(as_output(output, ("answer", "provenance"))) for output in outputs)
    meta = record.get("meta")
    return Gold(
        record_id, line, cast(str | None, text), meta if isinstance(meta, dict) else {}, parsed
    )


def _gold_output(output: JsonObject) -> GoldOutput:
    items = provenance_items(output)
    evidence = None
    if "provenance" in output:
        evidence = frozenset(map(page_of, items))
    places = tuple(place_of(item, _gold_text(item, "title")) for item in items)
    return GoldOutput(_gold_text(output, "answer"), distinct_pages(items), evidence, places)


def _gold_text(holder: JsonObject, key: str) -> str:
    value = holder.get(key) or ""
    if not isinstance(value, str):
        raise UnfitError(f"has the gold {key} {as_short_json(value)}, must be text")
    return value.strip()


# Predictions


@dataclass(frozen=True, slots=True)
class Guess:
    """The parts of a predicted line that one kind of evaluation reads."""

    id: str
    line: int
    answer: str = ""  # stripped of outer blanks; "" scores 0
    pages: tuple[str, ...] = ()  # distinct, best first
    top: EvidencePlace | None = None  # the first item
    # Key: position from 1; None: not text.
    texts: Mapping[int, str | None] = field(default_factory=dict)
    problem: str | None = None  # why it cannot be scored, if the gold file has its id


GuessParser = Callable[[str, int, JsonObject], Guess]


def read_guesses(source: Source, parse: GuessParser, problems: Problems) -> Iterator[Guess]:
    """Yield the predictions in order; each carries its own problem, since the gold file may lack
    its id.
    """
    for record_id, line, record in read_records(source, problems):
        try:
            guess = parse(record_id, line, record)
        except UnfitError as error:
            guess = Guess(record_id, line, problem=str(error))
        yield guess


def parse_answer(record_id: str, line: int, record: JsonObject) -> Guess:
    """Parse a predicted line for the downstream evaluation: one output, with an answer and perhaps
    pages.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or len(outputs) != 1:
        if isinstance(outputs, list):
            problem = f"has {len(outputs)} outputs" + " (is this a gold file?)" * (len(outputs) > 1)
        else:
            problem = (
                "has no output" if outputs is None else f"has the output {as_short_json(outputs)}"
            )
        raise UnfitError(f"{problem}, must have exactly one")

    if not isinstance(outputs[0], dict) or "answer" not in outputs[0]:
        raise UnfitError("has no answer in its output")
    items = provenance_items(outputs[0])
    # str: the official evaluation scores null as the text None
    answer = str(outputs[0]["answer"]).strip()
    title = items[0].get("title") if items else None
    top = None
    if items:
        if not isinstance(title, str):
            title = ""
        top = place_of(items[0], title.strip())

    return Guess(record_id, line, answer, distinct_pages(items), top, texts_of(items, depth=5))


def parse_ranking(record_id: str, line: int, record: JsonObject, depth: int) -> Guess:
    """Parse a predicted line for the retrieval evaluation; `depth`: the largest k, up to which
    texts are read.
    """
    items = provenance_items(only_output(record, "provenance"))
    return Guess(record_id, line, pages=distinct_pages(items), texts=texts_of(items, depth))


def texts_of(items: Sequence[JsonObject], depth: int) -> dict[int, str | None]:
    """Return the texts among the first `depth` items, by position from 1, and None for one that is
    not text.
    """
    given = {
        position: item["text"] for position, item in enumerate(items[:depth], 1) if "text" in item
    }
    return {position: text if isinstance(text, str) else None for position, text in given.items()}


# Parts of either


def as_output(value: object, keys: Sequence[str]) -> JsonObject:
    """Return an output; as in the official evaluation, a text or list without the keys' words is an
    empty one.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, str | list) and not any(key in value for key in keys):
        return {}
    raise UnfitError(f"has the output {as_short_json(value)}, must be an object")


def only_output(record: JsonObject, key: str) -> JsonObject:
    """Return the one output that has the key. Raises UnfitError if none has it, or several have."""
    outputs = record.get("output")
    objects = []
    if isinstance(outputs, list):
        objects = [as_output(output, (key,)) for output in outputs]
    with_key = [output for output in objects if key in output]
    if len(with_key) != 1:
        raise UnfitError(f"has {len(with_key)} outputs with {key}, must have exactly one")
    return with_key[0]


def provenance_items(output: JsonObject) -> Sequence[JsonObject]:
    """Return the provenance of an output, perhaps none. Raises UnfitError if it is not a list of
    objects.
    """
    items = output.get("provenance", [])
    if items in ({}, ""):  # the official evaluation only loops over it
        return ()
    if not isinstance(items, list):
        raise UnfitError(f"has the provenance {as_short_json(items)}, must be a list")
    for item in items:
        if not isinstance(item, dict):
            raise UnfitError(f"has the provenance item {as_short_json(item)}, must be an object")
    return items


def page_of(item: JsonObject) -> str:
    """Return the page of a provenance item, or "": strings and numbers agree, and null is the text
    None.
    """
    return str(item.get(PAGE, "")).strip()


def distinct_pages(items: Sequence[JsonObject]) -> tuple[str, ...]:
    """Return the pages of provenance items in order, each once."""
    return tuple(dict.fromkeys(page_of(item) for item in items if PAGE in item))


def place_of(item: JsonObject, title: str) -> EvidencePlace:
    """Return the place that a provenance item names."""
    paragraph, start, end = (
        item.get(key) for key in ("start_paragraph_id", "start_character", "end_character")
    )
    characters = None
    if isinstance(start, int) and isinstance(end, int):
        characters = (start, end)
    return EvidencePlace(
        page_of(item), title, paragraph if isinstance(paragraph, int) else None, characters
    )


def score_of(item: JsonObject) -> float | None:
    """Return the score of a provenance item, or None if it has no finite number."""
    score = item.get("score")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        number = float(score)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def probability_of(output: JsonObject) -> float | None:
    """Return the probability under meta.probability, or None. Raises UnfitError if it is not
    between 0 and 1.
    """
    meta = output.get("meta")
    if not isinstance(meta, dict) or "probability" not in meta:
        return None
    value = meta["probability"]
    # Nor NaN.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise UnfitError(
            f"has the probability {as_short_json(value)}, must be a number from 0 to 1"
        )
    return float(value)
