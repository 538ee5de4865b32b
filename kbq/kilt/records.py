"""Records: lines of a KILT file, or dicts, become gold records and predictions, as in the official evaluation.

A page is whatever the rank keys name: a Wikipedia page by default, else a section, a paragraph or a title. What is
wrong is collected in `Problems`, so that an error can list all of it.
"""

import codecs
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from kbq.errors import EvaluationError, KbqError
from kbq.storage.json_text import parsed_json
from kbq.storage.lines import ARRAY, Line, parse_json_lines, read_lines

JsonObject = Mapping[str, object]
PAGE = ("wikipedia_id",)  # the rank key of a page


# Sources and what is wrong with them


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
    """A path, or a copy of the records as they would be read from a file.

    Raises:
        EvaluationError: neither a path nor an iterable of dicts, no record, or a record that is not JSON.
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


class UnfitError(ValueError):
    """A record that cannot be scored; the message says why, without file and line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a place."""

    place: str  # file:line:id, as far as known; "" where `what` already says it
    what: str
    is_harmless: bool = False  # refused by the official evaluation, but no content is lost without it
    detail: str = ""  # what differs between places with the same problem

    def __str__(self) -> str:
        return (f"{self.place}: " if self.place else "") + self.what + (f" ({self.detail})" if self.detail else "")


def place_name(source: Source, line: int | None = None, record_id: str | None = None) -> str:
    """The place of a problem as `file:line:id`; line and id are left out where unknown."""
    return ":".join([str(source), *([str(line)] if line else []), *([record_id] if record_id else [])])


class Problems:
    """The problems found so far, in order."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, source: Source, line: int | None, record_id: str | None, what: str, detail: str = "") -> None:
        """Note a problem."""
        self.found.append(Problem(place_name(source, line, record_id), what, detail=detail))

    def raise_if_any(self, purpose: str) -> None:
        """Refuse the files.

        Raises:
            EvaluationError: there are problems; it carries all of them.
        """
        if not self.found:
            return
        count = len(self.found)
        others = f" (and {count - 1:,} more)" if count > 1 else ""
        listed = [str(problem) for problem in self.found]
        raise EvaluationError(f"{purpose} is not possible: {listed[0]}{others}", listed)


# JSON objects


def read_records(source: Source, problems: Problems) -> Iterator[tuple[str, int, JsonObject]]:
    """Ids, line numbers and objects; a missing id, or the id of an earlier line, is a problem."""
    lines: dict[str, int] = {}
    for line, record in read_objects(source, problems):
        try:
            record_id = identity(record)
        except UnfitError as error:
            problems.add(source, line, None, str(error))
            continue
        if record_id in lines:
            problems.add(source, line, record_id, f"has the id of line {lines[record_id]}, ids must be unique")
            continue
        lines[record_id] = line
        yield record_id, line, record


def read_objects(source: Source, problems: Problems) -> Iterator[tuple[int, JsonObject]]:
    """Line numbers (from 1) and objects; a blank line is a problem, as in the official evaluation."""
    if isinstance(source, RecordList):
        yield from enumerate(source.records, 1)
        return
    if starts_with_mark(source):
        what = "starts with a byte order mark: save the file as UTF-8 without it"
        problems.found.append(Problem(place_name(source, 1), what, is_harmless=True))
    lines = read_every_line(source, problems)
    try:
        for number, line in lines:
            if number == 1 and ARRAY.match(line):
                what = "is an array, which the official evaluation does not read: write one object per line"
                problems.found.append(Problem(place_name(source, number), what, is_harmless=True))
                yield from parse_json_lines(chain([(number, line)], lines), str(source), EvaluationError)
                return
            if not line.strip():
                problems.found.append(Problem(place_name(source, number), "is blank", is_harmless=True))
                continue
            try:
                record = parsed_json(line)
            except json.JSONDecodeError as error:
                problems.add(source, number, None, "is not JSON", f"{error.msg}, column {error.colno}")
                continue
            except ValueError as error:  # a number or a nesting beyond reading
                problems.add(source, number, None, "is not JSON", str(error))
                continue
            if isinstance(record, dict):
                yield number, record
            else:
                problems.add(source, number, None, "is not an object", shown(record))
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
    text = json.dumps(value[:40] if isinstance(value, str) else value, ensure_ascii=False)  # quotes are two more
    return text if len(text) <= 40 else f"{text[:37]}..."


def identity(record: JsonObject) -> str:
    """The id as text without outer blanks: 7, "7" and " 7" are the same record.

    Raises:
        UnfitError: the record has no id.
    """
    if "id" not in record:
        raise UnfitError("has no id")
    return str(record["id"]).strip()


# Gold records


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """Where a provenance item points to, whatever the rank keys are."""

    page_id: str
    title: str  # without outer blanks; "" where it is missing
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class GoldOutput:
    """One gold output: an answer, an evidence set, or both."""

    answer: str  # without outer blanks; "" where it is missing, null or blank
    pages: tuple[str, ...]  # distinct pages of the items that have every rank key
    evidence: frozenset[str] | None  # pages of all items, from the keys they have; None: no provenance
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
        """Every answer of every output."""
        return frozenset(output.answer for output in self.outputs if output.answer)

    @cached_property
    def titles(self) -> frozenset[str]:
        """Every title of every output's provenance."""
        return frozenset(place.title for output in self.outputs for place in output.places if place.title)


def read_golds(source: Source, rank_keys: Sequence[str], problems: Problems) -> Iterator[Gold]:
    """The gold records in order."""
    for record_id, line, record in read_records(source, problems):
        try:
            yield parse_gold(record_id, line, record, rank_keys)
        except UnfitError as error:
            problems.add(source, line, record_id, str(error))


def parse_gold(record_id: str, line: int, record: JsonObject, rank_keys: Sequence[str]) -> Gold:
    """A gold line. The input may be missing: only the newest official evaluation fails without it.

    Raises:
        UnfitError: the official evaluation fails on it.
    """
    text = record.get("input")
    if "input" in record and not isinstance(text, str):
        raise UnfitError(f"has the input {shown(text)}, must be text")
    outputs = record.get("output")
    if not isinstance(outputs, list | dict | str) or not outputs:
        raise UnfitError("has no gold output: is this the test file without answers?")
    objects = [as_output(output, ("answer", "provenance")) for output in outputs]
    meta = record.get("meta")
    return Gold(
        id=record_id,
        line=line,
        input=text if isinstance(text, str) else None,
        meta=meta if isinstance(meta, dict) else {},
        outputs=tuple(parse_gold_output(output, rank_keys) for output in objects),
    )


def parse_gold_output(output: JsonObject, rank_keys: Sequence[str]) -> GoldOutput:
    """One gold output.

    Raises:
        UnfitError: the official evaluation fails on it.
    """
    items = provenance_items(output)
    evidence = frozenset(page_of(item, rank_keys) for item in items)
    return GoldOutput(
        answer=text_or_nothing(output, "answer"),
        pages=complete_pages(items, rank_keys),
        evidence=evidence if "provenance" in output else None,
        places=tuple(place_of(item, text_or_nothing(item, "title")) for item in items),
    )


def text_or_nothing(holder: JsonObject, key: str) -> str:
    """The text under a key without outer blanks, "" where it is missing, null or another empty value.

    Raises:
        UnfitError: the value is not text.
    """
    value = holder.get(key)
    if not value:
        return ""
    if not isinstance(value, str):
        raise UnfitError(f"has the gold {key} {shown(value)}, must be text")
    return value.strip()


# Predictions


@dataclass(frozen=True, slots=True)
class Guess:
    """A predicted line, as far as one kind of evaluation reads it."""

    id: str
    line: int
    answer: str = ""  # without outer blanks; "" scores 0
    pages: tuple[str, ...] = ()  # distinct, best first
    top: EvidencePlace | None = None  # the first item, where it was asked for
    texts: Mapping[int, str | None] = field(default_factory=dict)  # by position from 1; None: given, but not text
    problem: str | None = None  # why it cannot be scored; counts only if the gold file has its id


GuessParser = Callable[[str, int, JsonObject], Guess]


def read_guesses(source: Source, parse: GuessParser, problems: Problems) -> Iterator[Guess]:
    """The predictions in order; what is wrong inside one is kept with it, as its id may not count."""
    for record_id, line, record in read_records(source, problems):
        try:
            guess = parse(record_id, line, record)
        except UnfitError as error:
            guess = Guess(record_id, line, problem=str(error))
        yield guess


def parse_answer(record_id: str, line: int, record: JsonObject) -> Guess:
    """A predicted line for the downstream evaluation: one output, with an answer and perhaps pages.

    Raises:
        UnfitError: it has several outputs, or no answer.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or len(outputs) != 1:
        raise UnfitError(f"{counted(outputs)}, must have exactly one")
    if not isinstance(outputs[0], dict) or "answer" not in outputs[0]:
        raise UnfitError("has no answer in its output")
    items = provenance_items(outputs[0])
    # str: the official evaluation scores null as the text None
    answer = str(outputs[0]["answer"]).strip()
    return Guess(record_id, line, answer, complete_pages(items, PAGE), texts=texts_of(items, depth=5))


def parse_ranking(record_id: str, line: int, record: JsonObject, rank_keys: Sequence[str], depth: int) -> Guess:
    """A predicted line for the retrieval evaluation: of its outputs, exactly one has provenance.

    Args:
        depth: the largest k; texts after it are not read.

    Raises:
        UnfitError: not exactly one output has provenance.
    """
    items = provenance_items(only_output(record, "provenance"))
    return Guess(record_id, line, pages=complete_pages(items, rank_keys), texts=texts_of(items, depth))


def texts_of(items: Sequence[JsonObject], depth: int) -> dict[int, str | None]:
    """Texts among the first `depth` items, by position from 1; None for one that is not text."""
    given = [(position, item["text"]) for position, item in enumerate(items[:depth], 1) if "text" in item]
    return {position: text if isinstance(text, str) else None for position, text in given}


def counted(outputs: object) -> str:
    """How many outputs there are, for a message."""
    if outputs is None:
        return "has no output"
    if not isinstance(outputs, list):
        return f"has the output {shown(outputs)}"
    return f"has {len(outputs)} outputs" + (" (is this a gold file?)" if len(outputs) > 1 else "")


# Parts of either


def as_output(value: object, keys: Sequence[str]) -> JsonObject:
    """An output; text or a list without the words of the keys counts as an output without keys.

    Raises:
        UnfitError: the official evaluation fails on such a value.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, str | list) and not any(key in value for key in keys):
        return {}
    raise UnfitError(f"has the output {shown(value)}, must be an object")


def only_output(record: JsonObject, key: str) -> JsonObject:
    """The one output that has the key; others may be beside it.

    Raises:
        UnfitError: none or several outputs have it.
    """
    outputs = record.get("output")
    objects = [as_output(output, (key,)) for output in outputs] if isinstance(outputs, list) else []
    with_key = [output for output in objects if key in output]
    if len(with_key) != 1:
        raise UnfitError(f"has {len(with_key)} outputs with {key}, must have exactly one")
    return with_key[0]


def provenance_items(output: JsonObject) -> Sequence[JsonObject]:
    """The provenance of an output, () if it has none.

    Raises:
        UnfitError: it is not a list of objects.
    """
    items = output.get("provenance", [])
    if items in ({}, ""):  # the official evaluation only loops over it
        return ()
    if not isinstance(items, list):
        raise UnfitError(f"has the provenance {shown(items)}, must be a list")
    for item in items:
        if not isinstance(item, dict):
            raise UnfitError(f"has the provenance item {shown(item)}, must be an object")
    return items


def page_of(item: JsonObject, rank_keys: Sequence[str]) -> str:
    """The page of a provenance item, from the rank keys it has: strings and numbers agree, null is 'None'."""
    return "+".join(str(item[key]).strip() for key in rank_keys if key in item)


def complete_pages(items: Sequence[JsonObject], rank_keys: Sequence[str]) -> tuple[str, ...]:
    """Distinct pages, in order, of the items that have every rank key."""
    complete = [item for item in items if all(key in item for key in rank_keys)]
    return tuple(dict.fromkeys(page_of(item, rank_keys) for item in complete))


def place_of(item: JsonObject, title: str) -> EvidencePlace:
    """Where a provenance item points to."""
    paragraph = item.get("start_paragraph_id")
    page_id = str(item.get("wikipedia_id", "")).strip()
    return EvidencePlace(page_id, title, paragraph if isinstance(paragraph, int) else None)


def score_of(item: JsonObject) -> float | None:
    """The score of a provenance item; None where it is missing or not a finite number."""
    score = item.get("score")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        number = float(score)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def probability_of(output: JsonObject) -> float | None:
    """How likely the answer of an output is right, from 0 to 1; None where that is not said.

    Raises:
        UnfitError: the value under meta.probability is something else.
    """
    meta = output.get("meta")
    if not isinstance(meta, dict) or "probability" not in meta:
        return None
    value = meta["probability"]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:  # nor NaN
        raise UnfitError(f"has the probability {shown(value)}, must be a number from 0 to 1")
    return float(value)
