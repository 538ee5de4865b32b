"""Error kinds: why a prediction scores no KILT point, with samples and their evidence."""

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from kbq.errors import EvaluationError
from kbq.kilt.files import Problems
from kbq.kilt.records import PAGE, EvidencePlace, Gold, Guess, parse_answer, read_golds, read_guesses
from kbq.kilt.report import ScoreTable
from kbq.kilt.rules import evidence_sets, r_precision, rank_evidence
from kbq.kilt.scores import Pairs
from kbq.kilt.task import Task
from kbq.text.answer_scores import normalise, parts
from kbq.text.letters import normal_form

ErrorKind = Literal[
    "right",  # answer and pages: no error
    "answer-right-page-wrong",  # lucky, or another place that says so
    "answer-form",  # only case, punctuation, accents or Unicode differ from a gold answer
    "answer-number-format",  # the same numbers, written differently; words differ at most by some more
    "answer-partial",  # some words of more than three letters, or numbers, are right
    "page-right-answer-wrong",
    "page-not-in-knowledge-base",  # renamed, or another dump
    "page-namesake",  # the first page is called like a gold page, up to what is in brackets
    "page-too-low",  # a gold page was found, but not all of those needed among the first R
    "page-not-found",
    "no-prediction",
]
KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

IN_BRACKETS = re.compile(r"\([^()]*\)\s*$")
WORD = re.compile(r"[^\W\d_]+")
EvidenceOf = Callable[[str, int | None], str | None]  # page and paragraph → its text, if the knowledge base has it


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """A prediction with its kind of error and what explains it."""

    id: str
    kind: ErrorKind
    input: str
    answer: str
    gold_answers: tuple[str, ...]
    top: EvidencePlace | None
    gold_places: tuple[EvidencePlace, ...]
    rank: int | None  # of the first complete evidence set, from 1
    found: int | None = None  # rank of the first gold page
    evidence: str | None = None  # text of the top place
    gold_evidence: str | None = None  # text of the first gold place


@dataclass(frozen=True, slots=True)
class ErrorSurvey:
    """Counts by kind, and sampled cases, in the order of the kinds."""

    counts: Counter[ErrorKind]
    cases: tuple[ErrorCase, ...]
    notes: tuple[str, ...]  # where the two files do not fit together

    def table(self) -> ScoreTable:
        """Return one row for each kind that occurs."""
        total = max(1, self.counts.total())
        rows = [(kind, self.counts[kind], self.counts[kind] / total) for kind in KINDS if self.counts[kind]]
        return ScoreTable("predictions by kind", {"kind": "text", "n": "count", "share": "percent"}, rows)

    def to_dict(self) -> dict[str, object]:
        """Return counts and cases as JSON."""
        return {"counts": self.counts, "cases": [asdict(case) for case in self.cases]}


def find_errors(
    predictions: Path,
    gold: Path,
    task: Task | None = None,
    kind: str | None = None,
    sample: int = 3,
    is_known_page: Callable[[str], bool] | None = None,
    evidence_of: EvidenceOf | None = None,
) -> ErrorSurvey:
    """Count all predictions by kind of error, and sample some, always the same ones.

    Args:
        task: decides how a right answer is recognised: by EM where it ranks by that, else letter by letter.
        kind: the only kind to sample; None: every kind that is an error.
        sample: cases of each kind.

    Raises:
        EvaluationError: the files cannot be read, do not fit together or cannot be scored, or there is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise EvaluationError(f"{kind!r} is not a kind of error: choose from {', '.join(KINDS)}", is_usage=True)
    problems = Problems()
    pairs = Pairs(read_golds(gold, PAGE, problems), read_guesses(predictions, parse_answer, problems))
    cases = []
    for record, guess in pairs:
        if guess is not None and guess.problem is not None:
            problems.add(predictions, guess.line, guess.id, guess.problem)
        else:
            cases.append(explain(record, guess, is_known_page, task.answer_metric if task else "accuracy"))
    problems.raise_if_any(f"the error analysis of {predictions} against {gold}{pairs.hint()}")
    if not pairs.golds:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if not pairs.matched:
        none = f"{predictions} has no prediction for any of the {pairs.golds:,} records of {gold}"
        raise EvaluationError(f"{none}: is it for another file?")

    def text_of(place: EvidencePlace | None) -> str | None:
        return evidence_of(place.page_id, place.paragraph) if evidence_of and place else None

    chosen = []
    for wanted in [kind] if kind else KINDS[1:]:
        of_kind = [case for case in cases if case.kind == wanted]
        for place in sorted(random.Random(0).sample(range(len(of_kind)), min(sample, len(of_kind)))):
            case = of_kind[place]
            texts = text_of(case.top), text_of(next(iter(case.gold_places), None))
            chosen.append(replace(case, evidence=texts[0], gold_evidence=texts[1]))
    return ErrorSurvey(Counter(case.kind for case in cases), tuple(chosen), pairs.mismatches())


def explain(
    gold: Gold,
    made: Guess | None,
    is_known_page: Callable[[str], bool] | None = None,
    answer_metric: str = "accuracy",
) -> ErrorCase:
    """Find the kind of error of a prediction, or of a missing one."""
    guess = made or Guess(gold.id, line=0)
    positions = rank_evidence(guess.pages, evidence_sets(gold.outputs)).positions
    has_pages = r_precision(guess.pages, gold.outputs) == 1
    pages = {page for output in gold.outputs for page in output.pages}
    found = next((rank for rank, page in enumerate(guess.pages, 1) if page in pages), None)
    kind = "no-prediction" if made is None else answer_kind(guess.answer, gold.answers, has_pages, answer_metric)
    return ErrorCase(
        id=gold.id,
        kind=kind or page_kind(gold, guess, found is not None, is_known_page),
        input=gold.input or "",
        answer=guess.answer,
        gold_answers=tuple(sorted(gold.answers)),
        top=guess.top,
        gold_places=tuple(dict.fromkeys(place for output in gold.outputs for place in output.places)),
        rank=positions[0] if positions else None,
        found=found,
    )


def answer_kind(
    answer: str, gold_answers: frozenset[str], has_pages: bool, answer_metric: str = "accuracy"
) -> ErrorKind | None:
    """Say what the answer, which may be long, shows about the error; None where only the pages can tell."""
    is_right = answer in gold_answers
    if answer_metric == "em":
        is_right = bool(answer) and normalise(answer) in map(normalise, gold_answers)
    if is_right:
        return "right" if has_pages else "answer-right-page-wrong"
    if answer and bare(answer) in map(bare, gold_answers):
        return "answer-form"
    if is_other_format(answer, gold_answers):
        return "answer-number-format"
    gold_words = {word for gold in gold_answers for word in telling_words(gold)}
    if any(not gold_words.isdisjoint(telling_words(part)) for part in parts(answer)):
        return "answer-partial"
    return "page-right-answer-wrong" if has_pages else None


def page_kind(gold: Gold, guess: Guess, is_found: bool, is_known_page: Callable[[str], bool] | None) -> ErrorKind:
    """Say what the pages show about the error, where neither answer nor pages are right."""
    places = [place for output in gold.outputs for place in output.places]
    if is_known_page and places and not any(is_known_page(place.page_id) for place in places):
        return "page-not-in-knowledge-base"
    if is_found:
        return "page-too-low"
    if guess.top and guess.top.title and any(stem(guess.top.title) == stem(place.title) for place in places):
        return "page-namesake"
    return "page-not-found"


def bare(text: str) -> str:
    """Return the text as normalised for EM, and without accents and Unicode variants."""
    decomposed = normal_form("NFKD", text.casefold())
    marks = [character for character in set(decomposed) if unicodedata.combining(character)]
    return normalise(decomposed.translate(dict.fromkeys(map(ord, marks))) if marks else decomposed)


def is_other_format(answer: str, gold_answers: Iterable[str]) -> bool:
    """Whether a text has the same numbers as one of others, and all words of the one are among those of the other.

    >>> is_other_format("03 May 1999", ["1999", "May 3, 1999"]), is_other_format("1,200", ["1200 people"])
    (True, True)
    >>> is_other_format("May 3, 1999", ["June 3, 1999"]), is_other_format("5.1", ["1.5"])
    (False, False)
    """
    gold_numbers = {gold: numbers(gold) for gold in gold_answers}
    found = numbers(answer, 1 + max(map(len, gold_numbers.values()), default=0))  # with more, it is none of them
    same = [words_of(gold) for gold, others in gold_numbers.items() if found and others == found]
    words = words_of(answer) if same else set()
    return any(words <= gold_words or gold_words <= words for gold_words in same)


def words_of(text: str) -> set[str]:
    """Return the distinct words of a text without numbers."""
    return {word for part in parts(text) for word in WORD.findall(normalise(part))}


def telling_words(text: str) -> set[str]:
    """Return the words of a text that say something: of more than three letters, or with a digit."""
    return {word for word in normalise(text).split() if len(word) > 3 or any(map(str.isdigit, word))}


def numbers(text: str, most: int | None = None) -> tuple[str, ...]:
    """Return the first numbers of a text, or all, ascending, without thousands separators and needless zeros.

    >>> numbers("1,200 on 03.05.1999") == numbers("3/5/1999: 1200"), numbers("1.50") == numbers("1.5")
    (True, True)
    """
    return tuple(sorted(number.lstrip("0") or "0" for number in islice(_numbers(text), most)))


def _numbers(text: str) -> Iterator[str]:
    for found in re.finditer(r"\d+(?:\.\d+)*", re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)):
        # One dot makes a decimal fraction; more of them part day, month and year.
        yield from [found[0].rstrip("0").rstrip(".")] if found[0].count(".") == 1 else found[0].split(".")


def stem(title: str) -> str:
    """Return a title without the brackets that tell namesakes apart.

    >>> stem("Mercury (planet)")
    'mercury'
    """
    found = IN_BRACKETS.search(title)
    return (title[: found.start()].rstrip() if found else title).casefold()
