"""Fixing: a prediction file becomes one that is clean without guessing: form changes, content does not."""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbq.kilt.reading.lines import JsonObject, read_records, write_lines
from kbq.kilt.reading.parsing import provenance_items, score_of
from kbq.kilt.reading.problems import Problems, UnfitError
from kbq.kilt.submitting.checks import ranking_scores
from kbq.kilt.submitting.validation import read_ids

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
    keep_texts: bool = True,
) -> int:
    """Write the predictions in the order of the inputs, and return how many lines there are.

    Text becomes NFC, items are sorted by their scores where all have one, page ids become strings, unknown
    keys, byte order marks, blank lines and predictions for other inputs go. `out_path` may be `guess_path`.

    Raises:
        EvaluationError: lines that cannot be repaired, or a file that cannot be read or written.
    """
    problems = Problems()
    fixed = dict(fixed_lines(guess_path, problems, keep_texts))
    problems.raise_if_any(f"fixing {guess_path}")
    if inputs_path is None:
        return write_lines(out_path, fixed.values())
    ordered = [fixed[record_id] for record_id in read_ids(inputs_path) if record_id in fixed]
    return write_lines(out_path, ordered)


def fixed_lines(path: Path, problems: Problems, keep_texts: bool) -> Iterator[tuple[str, str]]:
    """Ids and clean JSON lines; what cannot be repaired becomes a problem."""
    reading = Problems()
    for record_id, line, record in read_records(path, reading):
        try:
            yield record_id, json.dumps(fixed_record(record, keep_texts), ensure_ascii=False)
        except UnfitError as error:
            reading.add(path, line, record_id, str(error))
    problems.found += [problem for problem in reading.found if not problem.is_harmless]


def fixed_record(record: JsonObject, keep_texts: bool) -> JsonObject:
    """A clean copy of a predicted record; its id stays as it is written.

    Raises:
        UnfitError: it has no list of outputs, or provenance that is none.
    """
    outputs = record.get("output")
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise UnfitError("has no list of outputs")
    kept = {key: record[key] for key in ("id", "input") if key in record}
    return {**kept, "output": [fixed_output(output, keep_texts) for output in outputs]}


def fixed_output(output: JsonObject, keep_texts: bool) -> JsonObject:
    """A clean copy of an output.

    Raises:
        UnfitError: its provenance is no list of objects.
    """
    kept: dict[str, object] = {}
    if "answer" in output:
        answer = output["answer"]
        kept["answer"] = unicodedata.normalize("NFC", answer) if isinstance(answer, str) else answer
    if "provenance" in output:
        kept["provenance"] = [fixed_item(item, keep_texts) for item in by_score(provenance_items(output))]
    return kept


def by_score(items: Sequence[JsonObject]) -> list[JsonObject]:
    """The items by descending score where all have one; equal scores keep their order."""
    scores = ranking_scores(items)
    if not scores:
        return list(items)
    order = sorted(range(len(items)), key=lambda index: -scores[index])
    return [items[index] for index in order]


def fixed_item(item: JsonObject, keep_texts: bool) -> JsonObject:
    """A provenance item with known keys only, its page id as a string and its text in NFC."""
    kept = {key: item[key] for key in PROVENANCE_KEYS if key in item and (keep_texts or key != "text")}
    for key in ("title", "section", "text"):
        value = kept.get(key)
        if isinstance(value, str):
            kept[key] = unicodedata.normalize("NFC", value)
    if isinstance(kept.get("score"), float) and score_of(kept) is None:
        del kept["score"]  # NaN is no JSON, and no order
    if isinstance(kept.get("wikipedia_id"), int):
        kept["wikipedia_id"] = str(kept["wikipedia_id"])
    return kept
