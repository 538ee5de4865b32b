"""Error kinds: find out why a prediction scores no KILT point, with or without gold."""

import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kbq.errors import EvaluationError
from kbq.kilt.analysis import ScoreTable
from kbq.kilt.records import (
    PAGE,
    EvidencePlace,
    Finding,
    Gold,
    Guess,
    JsonObject,
    Problems,
    as_short_json,
    check_paths,
    page_of,
    parse_answer,
    read_golds,
    read_guesses,
    read_records,
    refuse_predictions_as_gold,
    score_of,
)
from kbq.kilt.scores import Pairs, evidence_sets, r_precision, rank_evidence
from kbq.kilt.task import Task
from kbq.text.answer_scores import normalise_answer, parts
from kbq.text.normal_forms import is_normal, normal_form

ErrorKind = Literal[
    "right",  # answer and pages: no error
    "answer-right-page-wrong",  # lucky, or another place that says so
    "answer-form",  # only case, punctuation, accents or Unicode differ from a gold answer
    "page-right-answer-wrong",
    "page-not-found",  # or not all of those needed among the first R
    "no-prediction",
]
KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

# Page and paragraph → its text, if the knowledge base has it.
EvidenceOf = Callable[[str, int | None], str | None]

LEADERBOARD_PAGES = 5  # rank positions that the leaderboard's recall@5 reads
MAX_ANSWER_WORDS = 30  # longest plausible phrase
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # Unicode's category Cc


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """A prediction with its kind of error and its explanation."""

    id: str
    kind: ErrorKind
    input: str
    answer: str
    gold_answers: tuple[str, ...]
    top: EvidencePlace | None
    gold_places: tuple[EvidencePlace, ...]
    rank: int | None  # rank of the first complete evidence set, from 1
    found: int | None = None  # rank of the first gold page
    evidence: str | None = None  # text of the top place
    gold_evidence: str | None = None  # text of the first gold place


@dataclass(frozen=True, slots=True)
class ErrorSurvey:
    """The counts of all kinds, and sampled cases in the order of the kinds."""

    counts: Counter[ErrorKind]
    cases: tuple[ErrorCase, ...]
    notes: tuple[str, ...]  # remarks on what does not fit together in the two files

    def table(self) -> ScoreTable:
        total = max(1, self.counts.total())
        rows = [
            (kind, self.counts[kind], self.counts[kind] / total)
            for kind in KINDS
            if self.counts[kind]
        ]
        return ScoreTable(
            "predictions by kind", {"kind": "text", "n": "count", "share": "percent"}, rows
        )

    def to_dict(self) -> dict[str, object]:
        return {"counts": self.counts, "cases": [asdict(case) for case in self.cases]}


def find_errors(
    predictions: Path,
    gold: Path,
    task: Task | None = None,
    kind: str | None = None,
    sample: int = 3,
    evidence_of: EvidenceOf | None = None,
) -> ErrorSurvey:
    """Count all predictions by kind of error, and sample some, always the same ones.

    Args:
        task: a task that ranks by EM compares answers by EM, any other letter by letter.
        kind: the only kind to sample, instead of every kind of error.
        sample: cases of each kind.

    Raises:
        EvaluationError: the files cannot be read, do not fit together or cannot be scored, or there
            is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise EvaluationError(
            f"{kind!r} is not a kind of error: choose from {', '.join(KINDS)}", is_usage=True
        )

    refuse_predictions_as_gold(predictions, gold)
    problems = Problems()
    pairs = Pairs(read_golds(gold, problems), read_guesses(predictions, parse_answer, problems))
    cases = []
    for record, guess in pairs:
        if guess is not None and guess.problem is not None:
            problems.add(predictions, guess.line, guess.id, guess.problem)
        else:
            metric = "accuracy"
            if task:
                metric = task.answer_metric
            cases.append(explain(record, guess, metric))

    problems.raise_if_any(f"the error analysis of {predictions} against {gold}{pairs.hint()}")
    if not pairs.golds:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if not pairs.matched:
        none = f"{predictions} has no prediction for any of the {pairs.golds:,} records of {gold}"
        raise EvaluationError(f"{none}: is it for another file?")

    def text_of(place: EvidencePlace | None) -> str | None:
        if evidence_of and place:
            return evidence_of(place.page_id, place.paragraph)
        return None

    chosen = []
    for wanted in [kind] if kind else KINDS[1:]:
        of_kind = [case for case in cases if case.kind == wanted]
        for place in sorted(
            random.Random(0).sample(range(len(of_kind)), min(sample, len(of_kind)))
        ):
            case = of_kind[place]
            texts = text_of(case.top), text_of(next(iter(case.gold_places), None))
            chosen.append(replace(case, evidence=texts[0], gold_evidence=texts[1]))

    return ErrorSurvey(Counter(case.kind for case in cases), tuple(chosen), pairs.mismatches())


def explain(gold: Gold, made: Guess | None, answer_metric: str = "accuracy") -> ErrorCase:
    """Return what is wrong with a prediction, beside what would be right."""
    guess = made or Guess(gold.id, line=0)
    positions = rank_evidence(guess.pages, evidence_sets(gold.outputs)).positions
    has_pages = r_precision(guess.pages, gold.outputs) == 1
    kind: ErrorKind = "no-prediction"
    if made is not None:
        kind = kind_of(guess.answer, gold.answers, has_pages, answer_metric)
    gold_pages = {page for output in gold.outputs for page in output.pages}
    gold_places: list[EvidencePlace] = []
    for output in gold.outputs:
        gold_places.extend(output.places)
    gold_ranks = (rank for rank, page in enumerate(guess.pages, 1) if page in gold_pages)
    gold_answers = sorted(gold.answers)
    distinct_places = dict.fromkeys(gold_places)

    return ErrorCase(
        id=gold.id,
        kind=kind,
        input=gold.input or "",
        answer=guess.answer,
        gold_answers=tuple(gold_answers),
        top=guess.top,
        gold_places=tuple(distinct_places),
        rank=next(iter(positions), None),
        found=next(gold_ranks, None),
    )


def kind_of(
    answer: str, gold_answers: frozenset[str], has_pages: bool, answer_metric: str = "accuracy"
) -> ErrorKind:
    """Return the kind of error that an answer and its pages make."""
    is_right = answer in gold_answers
    if answer_metric == "em":
        is_right = bool(answer) and normalise_answer(answer) in map(normalise_answer, gold_answers)
    if is_right:
        return "right" if has_pages else "answer-right-page-wrong"
    if answer and bare(answer) in map(bare, gold_answers):
        return "answer-form"
    return "page-right-answer-wrong" if has_pages else "page-not-found"


def bare(text: str) -> str:
    """Normalise a text as for EM, and drop accents and Unicode variants."""
    decomposed = normal_form("NFKD", text.casefold())
    marks = [character for character in set(decomposed) if unicodedata.combining(character)]
    return normalise_answer(
        decomposed.translate(dict.fromkeys(map(ord, marks))) if marks else decomposed
    )


@dataclass(frozen=True, slots=True)
class Expectations:
    """The checks beyond those of every prediction file; what is None or empty is not checked."""

    lines: tuple[int, ...] = ()  # any of these, of the official input files
    is_known_page: Callable[[str], bool] | None = None  # whether the knowledge source has a page id
    # KILT's own knowledge source has integers; None: others are a warning.
    has_integer_pages: bool | None = None
    wants_answers: bool = True  # off for a task that predicts pages alone
    max_answer_words: int | None = None  # words of the longest plausible answer
    answers_are_titles: bool = False  # entity linking: the answer is the title of the first page
    max_same_answers: float | None = 0.5  # share of the records that may plausibly have one answer


USUAL = Expectations()


def expect(
    task: Task | None,
    inputs_path: Path | None,
    is_strict: bool = False,
    is_known_page: Callable[[str], bool] | None = None,
) -> Expectations:
    """Return the checks for a task and its input file, from whose gold pages it is told whether ids
    are integers.
    """
    check_paths([inputs_path])
    integers: bool | None = None
    if is_strict:
        integers = True
    elif inputs_path is not None:
        integers = _has_integer_pages(inputs_path)

    if task is None:
        return Expectations(is_known_page=is_known_page, has_integer_pages=integers)
    wants_answers = task.answer != "none"
    return Expectations(
        lines=tuple(task.lines.values()),
        is_known_page=is_known_page,
        has_integer_pages=integers,
        wants_answers=wants_answers,
        max_answer_words=MAX_ANSWER_WORDS if task.answer == "phrase" else None,
        answers_are_titles=task.answer == "title",
        max_same_answers=USUAL.max_same_answers if wants_answers else None,  # labels are few
    )


def _has_integer_pages(inputs_path: Path) -> bool | None:
    """Whether all gold pages of a KILT file are numbers; None if it has no gold."""
    problems = Problems()
    pages = list[str]()
    for _, _, record in read_records(inputs_path, problems):
        outputs = record.get("output")
        if not isinstance(outputs, list):
            continue
        for output in outputs:
            items = None
            if isinstance(output, dict):
                items = output.get("provenance")
            items = items if isinstance(items, list) else []
            for item in items:
                if isinstance(item, dict) and PAGE in item:
                    pages.append(page_of(item))
    problems.raise_if_any(f"reading {inputs_path}")
    if pages:
        return all(map(is_integer, pages))
    return None


def is_integer(page: str) -> bool:
    return page.isascii() and page.isdigit()


def error(kind: str, detail: str = "") -> Finding:
    """Return a finding about a line that the leaderboard would refuse, or score as something else."""
    return Finding("error", "", kind, detail)


def warning(kind: str, detail: str = "") -> Finding:
    """Return a finding about a line that is allowed, but seldom meant."""
    return Finding("warning", "", kind, detail)


def check_record(record: JsonObject, expected: Expectations) -> Iterator[Finding]:
    """Yield all findings about a predicted line, apart from its id."""
    outputs = record.get("output")
    if not isinstance(outputs, list) or len(outputs) != 1:
        yield error(
            "not exactly one output", f"{len(outputs) if isinstance(outputs, list) else 0} outputs"
        )
    elif not isinstance(outputs[0], dict):
        yield error("output is not an object", as_short_json(outputs[0]))
    else:
        yield from _check_answer(outputs[0], expected)
        yield from _check_provenance(outputs[0], expected)


def _check_answer(output: JsonObject, expected: Expectations) -> Iterator[Finding]:
    """Yield what the official evaluation would not take in an answer."""
    answer = output.get("answer")
    if "answer" not in output:
        yield (error if expected.wants_answers else warning)(
            "no answer", "the leaderboard wants one"
        )
        return

    if not isinstance(answer, str):
        # The official evaluation scores null as the answer None.
        yield error("answer is not text", as_short_json(answer))
        return

    stripped = answer.strip()
    if not stripped:
        yield warning("empty answer", "scores 0")
        return
    # Accuracy compares the characters one by one.
    if not is_normal("NFC", answer):
        yield warning("answer is not NFC", f"{as_short_json(answer)} scores 0 against NFC gold")
    if CONTROL.search(answer):
        yield warning("answer has control characters", as_short_json(answer))
    if stripped[0] in string.punctuation or stripped[-1] in string.punctuation:
        yield warning("answer begins or ends with punctuation", as_short_json(answer))
    words = sum(len(part.split()) for part in parts(answer))
    if expected.max_answer_words is not None and words > expected.max_answer_words:
        yield warning("long answer", f"{words} words")


def _check_provenance(output: JsonObject, expected: Expectations) -> Iterator[Finding]:
    """Yield what the official evaluation would not take in provenance."""
    items = output.get("provenance", [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        yield error("provenance is not a list of objects", as_short_json(items))
        return
    if not items:
        yield warning("no provenance", "page scores are 0")
        return

    for item in items:
        yield from _check_page(item, expected)
    yield from _check_ranking(items)
    if any("wikipedia_title" in item and "title" not in item for item in items):
        yield warning("wikipedia_title instead of title")
    if any("text" in item for item in items):
        yield warning("provenance has texts", "not scored, and the file grows")
    if len({type(item[PAGE]) for item in items if PAGE in item}) > 1:
        yield warning("page ids of several types")
    answer = output.get("answer")
    title = items[0].get("title")
    if expected.answers_are_titles and title is not None and answer != title:
        yield warning(
            "answer is not the title of the first page",
            f"{as_short_json(answer)}, {as_short_json(title)}",
        )


def _check_page(item: JsonObject, expected: Expectations) -> Iterator[Finding]:
    """Yield what is wrong with the page of a provenance item."""
    if PAGE not in item:
        yield error("no wikipedia_id")
        return

    page = page_of(item)
    if page in ("", "None"):
        yield error("empty wikipedia_id", as_short_json(item[PAGE]))
        return
    if expected.has_integer_pages is not False and not is_integer(page):
        found = error if expected.has_integer_pages else warning
        yield found("wikipedia_id is not an integer", as_short_json(item[PAGE]))
    if expected.is_known_page and not expected.is_known_page(page):
        yield error("page is not in the knowledge source", page)


def _check_ranking(items: Sequence[JsonObject]) -> Iterator[Finding]:
    """Check the order of the pages: the list is the ranking, and scores are not read."""
    pages = [page_of(item) for item in items if PAGE in item]
    distinct = len(set(pages))
    if distinct < len(pages):
        yield warning("repeated pages", f"{len(pages)} pages, {distinct} of them distinct")
    if distinct < LEADERBOARD_PAGES:
        yield warning(f"fewer than {LEADERBOARD_PAGES} distinct pages", str(distinct))
    scores = ranking_scores(items)
    if any("score" in item and score_of(item) is None for item in items):
        yield warning("scores are not all numbers", "the list order counts, not the score")
    if scores != sorted(scores, reverse=True):
        yield warning("scores do not descend", "the list order counts, not the score")


def ranking_scores(items: Sequence[JsonObject]) -> list[float]:
    """Return the scores in list order, or none unless every item has a number."""
    scores = [score for score in map(score_of, items) if score is not None]
    if len(scores) == len(items):
        return scores
    return []
