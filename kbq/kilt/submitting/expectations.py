"""Expectations: what a task, its input file and a knowledge base say about a prediction file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbq.kilt.reading.lines import JsonObject, read_records, refuse_pipes
from kbq.kilt.reading.problems import Problems
from kbq.task import Task

MAX_ANSWER_WORDS = 30  # of a phrase


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is checked besides what every prediction file must have; None means not checked.

    Attributes:
        lines: how many lines the official input files have, any of these; () is not checked.
        is_known_page: whether a page id is in the knowledge source.
        has_integer_pages: page ids must be numbers, as in KILT's own knowledge source; None: a warning where not.
        wants_answers: off for a task that gives pages only.
        max_answer_words: longest plausible answer, in words.
        answers_are_titles: entity linking, where the answer is the title of the first page.
        max_same_answers: share of the records, from 0 to 1, that may plausibly have one answer.
    """

    lines: tuple[int, ...] = ()
    is_known_page: Callable[[str], bool] | None = None
    has_integer_pages: bool | None = None
    wants_answers: bool = True
    max_answer_words: int | None = None
    answers_are_titles: bool = False
    max_same_answers: float | None = 0.5


USUAL = Expectations()


def expect(
    task: Task | None,
    inputs_path: Path | None,
    is_strict: bool = False,
    is_known_page: Callable[[str], bool] | None = None,
) -> Expectations:
    """What a task and its input file say.

    Page ids must be integers where that is wanted (`is_strict`) or where those of the inputs' gold are; where the gold
    has others, they may be anything; without gold, others are a warning.

    Raises:
        EvaluationError: the inputs cannot be read, or not twice.
    """
    refuse_pipes(inputs_path)
    gold_is_integer = None if inputs_path is None else has_integer_pages(inputs_path)
    integers = True if is_strict else gold_is_integer
    if task is None:
        return Expectations(is_known_page=is_known_page, has_integer_pages=integers)
    return Expectations(
        lines=tuple(task.lines.values()),
        is_known_page=is_known_page,
        has_integer_pages=integers,
        wants_answers=task.answer != "none",
        max_answer_words=MAX_ANSWER_WORDS if task.answer == "phrase" else None,
        answers_are_titles=task.answer == "title",
        max_same_answers=None if task.answer == "none" else Expectations().max_same_answers,  # labels are few
    )


def has_integer_pages(inputs_path: Path) -> bool | None:
    """Whether all gold pages of a KILT file are numbers; None where it has no gold.

    Raises:
        EvaluationError: the file cannot be read.
    """
    problems = Problems()
    pages = [page for _, _, record in read_records(inputs_path, problems) for page in gold_pages(record)]
    problems.raise_if_any(f"reading {inputs_path}")
    return all(map(is_integer, pages)) if pages else None


def gold_pages(record: JsonObject) -> Iterator[str]:
    """Page ids of a record's provenance, as far as it has any."""
    outputs = record.get("output")
    for output in outputs if isinstance(outputs, list) else []:
        items = output.get("provenance") if isinstance(output, dict) else None
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and "wikipedia_id" in item:
                yield str(item["wikipedia_id"]).strip()


def is_integer(page: str) -> bool:
    """Whether a page id is a plain number."""
    return page.isascii() and page.isdigit()
