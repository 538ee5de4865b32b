"""Parsing: JSON objects become gold records and predictions, as strictly and leniently as officially."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbq.kilt.lines import JsonObject, read_records, shown
from kbq.kilt.records import PAGE, Gold, GoldOutput, Guess, Place, Problems, Text, UnfitError


def read_golds(path: Path, rank_keys: Sequence[str], problems: Problems) -> Iterator[Gold]:
    """The gold records in order."""
    for record_id, line, record in read_records(path, problems):
        try:
            yield parse_gold(record_id, line, record, rank_keys)
        except UnfitError as error:
            problems.add(path, line, record_id, str(error))


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
        UnfitError: it is a value other than text.
    """
    value = holder.get(key)
    if not value:
        return ""
    if not isinstance(value, str):
        raise UnfitError(f"has the gold {key} {shown(value)}, must be text")
    return value.strip()


GuessParser = Callable[[str, int, JsonObject], Guess]


def read_guesses(path: Path, parse: GuessParser, problems: Problems) -> Iterator[Guess]:
    """The predictions in order; what is wrong inside one is kept with it, as its id may not count."""
    for record_id, line, record in read_records(path, problems):
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
    pages = complete_pages(items, PAGE)
    # str: the official evaluation scores null as the text None
    answer = str(outputs[0]["answer"]).strip()
    return Guess(record_id, line, answer, pages, texts=guess_texts(items, depth=5))


def parse_ranking(record_id: str, line: int, record: JsonObject, rank_keys: Sequence[str], depth: int) -> Guess:
    """A predicted line for the retrieval evaluation: of its outputs, exactly one has provenance.

    Args:
        depth: the largest k; texts after it are not read.

    Raises:
        UnfitError: not exactly one output has provenance.
    """
    items = provenance_items(only_output(record, "provenance"))
    pages = complete_pages(items, rank_keys)
    return Guess(record_id, line, pages=pages, texts=guess_texts(items, depth))


def guess_texts(items: Sequence[JsonObject], depth: int) -> tuple[Text, ...]:
    """Texts among the first `depth` items."""
    given = [(position, item["text"]) for position, item in enumerate(items[:depth], 1) if "text" in item]
    return tuple(Text(position, text if isinstance(text, str) else None) for position, text in given)


def counted(outputs: object) -> str:
    """How many outputs there are, for a message."""
    if outputs is None:
        return "has no output"
    if not isinstance(outputs, list):
        return f"has the output {shown(outputs)}"
    return f"has {len(outputs)} outputs" + (" (is this a gold file?)" if len(outputs) > 1 else "")


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
    """The one output that has the key; others may stand beside it.

    Raises:
        UnfitError: none or several outputs have it.
    """
    outputs = record.get("output")
    objects = [as_output(output, (key,)) for output in outputs] if isinstance(outputs, list) else []
    with_key = [output for output in objects if key in output]
    if len(with_key) != 1:
        raise UnfitError(f"has {len(with_key)} outputs with {key}, must have exactly one")
    return with_key[0]


def score_of(item: JsonObject) -> float | None:
    """The score of a provenance item; None where it has none, or one that is no number."""
    score = item.get("score")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        number = float(score)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def provenance_items(output: JsonObject) -> Sequence[JsonObject]:
    """The provenance of an output, () if it has none.

    Raises:
        UnfitError: it is no list of objects.
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


def place_of(item: JsonObject, title: str) -> Place:
    """Where a provenance item points to."""
    paragraph = item.get("start_paragraph_id")
    page_id = str(item.get("wikipedia_id", "")).strip()
    return Place(page_id, title, paragraph if isinstance(paragraph, int) else None)


class Pairing:
    """Pairs in gold order. Predictions wait in memory only while the two files differ in order."""

    def __init__(self, golds: Iterator[Gold], guesses: Iterator[Guess]) -> None:
        self._golds = golds
        self._guesses = guesses
        self.unknown = 0  # predictions whose id is not in the gold file, known at the end

    def __iter__(self) -> Iterator[tuple[Gold, Guess | None]]:
        """Each gold record with its prediction, None where there is none."""
        waiting: dict[str, Guess] = {}
        for gold in self._golds:
            while gold.id not in waiting:
                guess = next(self._guesses, None)
                if guess is None:
                    break
                waiting[guess.id] = guess
            yield gold, waiting.pop(gold.id, None)
        # Lines after the last gold record must still be readable, and their ids unique.
        self.unknown = len(waiting) + sum(1 for _ in self._guesses)


@dataclass(slots=True)
class Observations:
    """Counts over one evaluation."""

    golds: int = 0
    matched: int = 0
    unknown: int = 0  # predictions whose id is not in the gold file
    no_input: int = 0
    empty_evidence: int = 0

    def look_at(self, gold: Gold, guess: Guess | None) -> None:
        """Count one pair."""
        self.golds += 1
        self.matched += guess is not None
        self.no_input += gold.input is None
        self.empty_evidence += any(output.evidence == frozenset() for output in gold.outputs)

    def hint(self) -> str:
        """The likely reason for many problems, "" if there is none."""
        if self.golds and self.unknown and not self.matched:
            return f" (no id of its {self.unknown:,} predictions is in the gold file: for another file?)"
        return ""

    def partners(self) -> tuple[str, ...]:
        """One sentence for each way in which the two files do not belong together."""
        guesses = self.matched + self.unknown
        found = {
            "the gold file holds no record, so that every score is 0: is it the file you mean?": not self.golds,
            f"{self.golds:,} gold records, {guesses:,} predictions": guesses != self.golds,
            f"{self.unknown:,} predictions have ids that the gold file lacks: ignored": self.unknown,
        }
        return tuple(note for note, applies in found.items() if applies)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing worth knowing."""
        found = {
            f"{self.no_input:,} gold records have no input: entity_in_input is left out": self.no_input,
            f"{self.empty_evidence:,} gold records have empty provenance lists, which lower recall@k as "
            "evidence sets that cannot be found (files exported from the Hugging Face hub have them, the "
            "official files do not)": self.empty_evidence,
        }
        return (*self.partners(), *(note for note, applies in found.items() if applies))
