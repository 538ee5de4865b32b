"""Error kinds: why a prediction scores no KILT point, with samples and their evidence."""

import random
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kbq.errors import EvaluationError
from kbq.kilt.files import Problems
from kbq.kilt.records import EvidencePlace, Gold, Guess, parse_answer, read_golds, read_guesses
from kbq.kilt.report import ScoreTable
from kbq.kilt.rules import evidence_sets, r_precision, rank_evidence
from kbq.kilt.scores import Pairs
from kbq.kilt.task import Task
from kbq.text.answer_scores import normalise
from kbq.text.letters import normal_form

ErrorKind = Literal[
    "right",  # answer and pages: no error
    "answer-right-page-wrong",  # lucky, or another place that says so
    "answer-form",  # only case, punctuation, accents or Unicode differ from a gold answer
    "page-right-answer-wrong",
    "page-not-found",  # or not all of those needed among the first R
    "no-prediction",
]
KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

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
    pairs = Pairs(read_golds(gold, problems), read_guesses(predictions, parse_answer, problems))
    cases = []
    for record, guess in pairs:
        if guess is not None and guess.problem is not None:
            problems.add(predictions, guess.line, guess.id, guess.problem)
        else:
            cases.append(explain(record, guess, task.answer_metric if task else "accuracy"))
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


def explain(gold: Gold, made: Guess | None, answer_metric: str = "accuracy") -> ErrorCase:
    """Find the kind of error of a prediction, or of a missing one."""
    guess = made or Guess(gold.id, line=0)
    positions = rank_evidence(guess.pages, evidence_sets(gold.outputs)).positions
    has_pages = r_precision(guess.pages, gold.outputs) == 1
    pages = {page for output in gold.outputs for page in output.pages}
    return ErrorCase(
        id=gold.id,
        kind="no-prediction" if made is None else kind_of(guess.answer, gold.answers, has_pages, answer_metric),
        input=gold.input or "",
        answer=guess.answer,
        gold_answers=tuple(sorted(gold.answers)),
        top=guess.top,
        gold_places=tuple(dict.fromkeys(place for output in gold.outputs for place in output.places)),
        rank=positions[0] if positions else None,
        found=next((rank for rank, page in enumerate(guess.pages, 1) if page in pages), None),
    )


def kind_of(answer: str, gold_answers: frozenset[str], has_pages: bool, answer_metric: str = "accuracy") -> ErrorKind:
    """Find the kind of error of a predicted answer, which may be long, and its pages."""
    is_right = answer in gold_answers
    if answer_metric == "em":
        is_right = bool(answer) and normalise(answer) in map(normalise, gold_answers)
    if is_right:
        return "right" if has_pages else "answer-right-page-wrong"
    if answer and bare(answer) in map(bare, gold_answers):
        return "answer-form"
    return "page-right-answer-wrong" if has_pages else "page-not-found"


def bare(text: str) -> str:
    """Return the text as normalised for EM, and without accents and Unicode variants."""
    decomposed = normal_form("NFKD", text.casefold())
    marks = [character for character in set(decomposed) if unicodedata.combining(character)]
    return normalise(decomposed.translate(dict.fromkeys(map(ord, marks))) if marks else decomposed)
