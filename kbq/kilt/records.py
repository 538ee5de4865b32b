"""Records: lines of a KILT file become gold records and predictions, as in the official evaluation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kbq.kilt.files import JsonObject, Problems, Source, UnfitError, parse_records, read_records, shown

PAGE = "wikipedia_id"  # the key of an item that names its page


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """The place that a provenance item points to."""

    page_id: str
    title: str  # without outer blanks; "" where it is missing
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class GoldOutput:
    """One gold output: an answer, an evidence set, or both."""

    answer: str  # without outer blanks; "" where it is missing, null or blank
    pages: tuple[str, ...]  # distinct pages of the items that name one
    evidence: frozenset[str] | None  # pages of all items, "" of one that names none; None: no provenance
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
        """Return the answers of all outputs."""
        return frozenset(output.answer for output in self.outputs if output.answer)

    @cached_property
    def titles(self) -> frozenset[str]:
        """Return the titles of all provenance."""
        return frozenset(place.title for output in self.outputs for place in output.places if place.title)


def read_golds(source: Source, problems: Problems) -> Iterator[Gold]:
    """Yield the gold records in order."""
    return parse_records(source, problems, parse_gold)


def parse_gold(record_id: str, line: int, record: JsonObject) -> Gold:
    """Parse a gold line, or raise UnfitError if the official evaluation fails on it.

    The input may be missing: only the newest official evaluation fails without it.
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
        outputs=tuple(parse_gold_output(output) for output in objects),
    )


def parse_gold_output(output: JsonObject) -> GoldOutput:
    """Parse a gold output. Raises UnfitError as `parse_gold`."""
    items = provenance_items(output)
    evidence = frozenset(page_of(item) for item in items)
    return GoldOutput(
        answer=text_or_nothing(output, "answer"),
        pages=distinct_pages(items),
        evidence=evidence if "provenance" in output else None,
        places=tuple(place_of(item, text_or_nothing(item, "title")) for item in items),
    )


def text_or_nothing(holder: JsonObject, key: str) -> str:
    """Return the text under a key without outer blanks, "" for an empty value. Raises UnfitError if it is not text."""
    value = holder.get(key)
    if not value:
        return ""
    if not isinstance(value, str):
        raise UnfitError(f"has the gold {key} {shown(value)}, must be text")
    return value.strip()


# Predictions


@dataclass(frozen=True, slots=True)
class Guess:
    """The parts of a predicted line that one kind of evaluation reads."""

    id: str
    line: int
    answer: str = ""  # without outer blanks; "" scores 0
    pages: tuple[str, ...] = ()  # distinct, best first
    top: EvidencePlace | None = None  # the first item
    texts: Mapping[int, str | None] = field(default_factory=dict)  # by position from 1; None: given, but not text
    problem: str | None = None  # why it cannot be scored; counts only if the gold file has its id


GuessParser = Callable[[str, int, JsonObject], Guess]


def read_guesses(source: Source, parse: GuessParser, problems: Problems) -> Iterator[Guess]:
    """Yield the predictions in order; a problem inside one is kept with it, as its id may not count."""
    for record_id, line, record in read_records(source, problems):
        try:
            guess = parse(record_id, line, record)
        except UnfitError as error:
            guess = Guess(record_id, line, problem=str(error))
        yield guess


def parse_answer(record_id: str, line: int, record: JsonObject) -> Guess:
    """Parse a predicted line for the downstream evaluation: one output, with an answer and perhaps pages.

    Raises UnfitError if there are several outputs, or no answer.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or len(outputs) != 1:
        raise UnfitError(f"{counted(outputs)}, must have exactly one")
    if not isinstance(outputs[0], dict) or "answer" not in outputs[0]:
        raise UnfitError("has no answer in its output")
    items = provenance_items(outputs[0])
    # str: the official evaluation scores null as the text None
    answer = str(outputs[0]["answer"]).strip()
    title = items[0].get("title") if items else None
    top = place_of(items[0], title.strip() if isinstance(title, str) else "") if items else None
    return Guess(record_id, line, answer, distinct_pages(items), top, texts_of(items, depth=5))


def parse_ranking(record_id: str, line: int, record: JsonObject, depth: int) -> Guess:
    """Parse a predicted line for the retrieval evaluation; texts after `depth`, the largest k, are not read.

    Raises UnfitError if not exactly one output has provenance.
    """
    items = provenance_items(only_output(record, "provenance"))
    return Guess(record_id, line, pages=distinct_pages(items), texts=texts_of(items, depth))


def texts_of(items: Sequence[JsonObject], depth: int) -> dict[int, str | None]:
    """Return the texts among the first `depth` items, by position from 1; None for one that is not text."""
    given = [(position, item["text"]) for position, item in enumerate(items[:depth], 1) if "text" in item]
    return {position: text if isinstance(text, str) else None for position, text in given}


def counted(outputs: object) -> str:
    """Say how many outputs there are, for a message."""
    if outputs is None:
        return "has no output"
    if not isinstance(outputs, list):
        return f"has the output {shown(outputs)}"
    return f"has {len(outputs)} outputs" + (" (is this a gold file?)" if len(outputs) > 1 else "")


# Parts of either


def as_output(value: object, keys: Sequence[str]) -> JsonObject:
    """Return an output; text or a list without the words of the keys counts as an output without keys.

    Raises UnfitError if the official evaluation fails on such a value.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, str | list) and not any(key in value for key in keys):
        return {}
    raise UnfitError(f"has the output {shown(value)}, must be an object")


def only_output(record: JsonObject, key: str) -> JsonObject:
    """Return the one output that has the key; others may be beside it. Raises UnfitError if none or several have it."""
    outputs = record.get("output")
    objects = [as_output(output, (key,)) for output in outputs] if isinstance(outputs, list) else []
    with_key = [output for output in objects if key in output]
    if len(with_key) != 1:
        raise UnfitError(f"has {len(with_key)} outputs with {key}, must have exactly one")
    return with_key[0]


def provenance_items(output: JsonObject) -> Sequence[JsonObject]:
    """Return the provenance of an output, () if it has none. Raises UnfitError if it is not a list of objects."""
    items = output.get("provenance", [])
    if items in ({}, ""):  # the official evaluation only loops over it
        return ()
    if not isinstance(items, list):
        raise UnfitError(f"has the provenance {shown(items)}, must be a list")
    for item in items:
        if not isinstance(item, dict):
            raise UnfitError(f"has the provenance item {shown(item)}, must be an object")
    return items


def page_of(item: JsonObject) -> str:
    """Return the page of a provenance item, "" if it names none: strings and numbers agree, null is 'None'."""
    return str(item.get(PAGE, "")).strip()


def distinct_pages(items: Sequence[JsonObject]) -> tuple[str, ...]:
    """Return the distinct pages, in order, of the items that name one."""
    return tuple(dict.fromkeys(page_of(item) for item in items if PAGE in item))


def place_of(item: JsonObject, title: str) -> EvidencePlace:
    """Return the place that a provenance item points to."""
    paragraph = item.get("start_paragraph_id")
    return EvidencePlace(page_of(item), title, paragraph if isinstance(paragraph, int) else None)


def score_of(item: JsonObject) -> float | None:
    """Return the score of a provenance item; None where it is missing or not a finite number."""
    score = item.get("score")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        number = float(score)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def probability_of(output: JsonObject) -> float | None:
    """Return the probability that the answer of an output is right, None where it has none.

    Raises UnfitError if the value under meta.probability is not a number from 0 to 1.
    """
    meta = output.get("meta")
    if not isinstance(meta, dict) or "probability" not in meta:
        return None
    value = meta["probability"]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:  # nor NaN
        raise UnfitError(f"has the probability {shown(value)}, must be a number from 0 to 1")
    return float(value)
