"""Calibration: predictions with probabilities, and their scores, become how well these tell right from wrong answers.

A prediction has its probability in `output[0].meta.probability`. An empty answer was withheld: whether the best guess
was right is not known, so it counts as a query without an answer and is in no other score.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kbq.array_types import Bools, Doubles
from kbq.errors import EvaluationError
from kbq.kilt.confidence import (
    Coverage,
    Reliability,
    RiskCoverage,
    augrc,
    aurc,
    auroc,
    brier,
    coverage_at,
    e_aurc,
    log_loss,
    macro_ce,
    reliability,
    risk_coverage,
)
from kbq.kilt.records import Problems, Source, UnfitError, only_output, parse_answer, probability_of, read_records
from kbq.kilt.scores import Scores

PRECISIONS = (0.9, 0.95)
FEW = 30  # answers, of which all must be right for 90 % to be promised
POINTS = 200  # of a risk-coverage curve in JSON, at most
MISSING = "has an answer without a probability (output[0].meta.probability)"


@dataclass(frozen=True, slots=True, eq=False)
class Confidence:
    """The scores of kbq.kilt.confidence over the answers; None where a score does not exist.

    Attributes:
        right_by: the score that says which answers are right.
        queries: answered or not.
        answered: share of the queries.
        right: share of the answers.
        coverages: as shares of the queries.
    """

    right_by: str
    queries: int
    answers: int
    answered: float
    right: float | None
    auroc: float | None
    aurc: float | None
    augrc: float | None
    e_aurc: float | None
    coverages: tuple[Coverage, ...]
    brier: float | None
    reliability: Reliability | None
    log_loss: float | None
    macro_ce: float | None
    curve: RiskCoverage

    def to_dict(self) -> dict[str, object]:
        """All of it as JSON: an infinite log loss is null, the curve has some of its points only."""
        curve = self.curve
        steps = len(curve.thresholds)
        shown = np.unique(np.linspace(0, steps - 1, min(steps, POINTS)).round().astype(int))
        rows = {"threshold": curve.thresholds, "coverage": curve.coverage, "risk": curve.risk}
        return asdict(self) | {
            "log_loss": None if self.log_loss == math.inf else self.log_loss,
            "curve": {name: row[shown].tolist() for name, row in rows.items()},
        }

    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        found = {
            f"only {self.answers:,} answers: of fewer than {FEW} hardly anything can be promised": self.answers < FEW,
            f"by {self.right_by}, no answer is right: AUROC and MacroCE do not exist": self.right == 0,
            f"by {self.right_by}, all answers are right: AUROC and MacroCE do not exist": self.right == 1,
            f"by {self.right_by}, log loss is infinite: a certainty is wrong": self.log_loss == math.inf,
        }
        return [note for note, applies in found.items() if applies]


@dataclass(frozen=True, slots=True)
class GroupCalibration:
    """Some of this for one group of queries; `coverage` is that at the first of the precisions."""

    group: str
    answers: int
    right: float | None
    auroc: float | None
    coverage: float


def reliability_of(probabilities: Doubles, right: Bools, right_by: str) -> Confidence:
    """All scores.

    Args:
        probabilities: NaN where no answer was given. Shape: (queries,).
        right: Shape: (queries,).
    """
    is_answered = ~np.isnan(probabilities)
    queries, answers = len(probabilities), int(is_answered.sum())
    confidences, right = probabilities[is_answered], right[is_answered]
    return Confidence(
        right_by=right_by,
        queries=queries,
        answers=answers,
        answered=answers / queries,
        right=float(right.mean()) if answers else None,
        auroc=auroc(confidences, right),
        aurc=aurc(confidences, right),
        augrc=augrc(confidences, right),
        e_aurc=e_aurc(confidences, right),
        coverages=tuple(coverage_at(confidences, right, precision, queries) for precision in PRECISIONS),
        brier=brier(confidences, right),
        reliability=reliability(confidences, right),
        log_loss=log_loss(confidences, right),
        macro_ce=macro_ce(confidences, right),
        curve=risk_coverage(confidences, right, queries),
    )


def calibrate_groups(probabilities: Doubles, right: Bools, groups: Sequence[str]) -> tuple[GroupCalibration, ...]:
    """The main scores by group, the largest first; all three are by query. Shape of each: (queries,)."""
    names = np.array(groups, dtype=object)
    found = []
    for group in set(groups):
        one = reliability_of(probabilities[names == group], right[names == group], "")
        found.append(GroupCalibration(group, one.answers, one.right, one.auroc, one.coverages[0].share))
    return tuple(sorted(found, key=lambda one: (-one.answers, one.group)))


def right_answers(scores: Scores, answer_metric: str) -> dict[str, Bools]:
    """Which queries are right by the answer and, where gold has pages, by answer and pages. Shape of each: (queries,).

    Args:
        scores: of a downstream evaluation.
        answer_metric: accuracy or em.
    """
    has_pages = scores.mean("attainable Rprec") > 0
    names = (answer_metric, f"KILT-{answer_metric}") if has_pages else (answer_metric,)
    return {name: scores.column(name) == 1 for name in names}


def read_probabilities(predictions: Source, ids: Sequence[str]) -> Doubles:
    """The probability of the answer to each query, NaN where there is no answer. Shape: (ids,).

    Raises:
        EvaluationError: an answer has no probability, or one is not a number from 0 to 1; it carries all problems.
    """
    wanted = set(ids)
    problems = Problems()
    found: dict[str, float] = {}
    for record_id, line, record in read_records(predictions, problems):
        if record_id not in wanted:
            continue
        try:
            probability = probability_of(only_output(record, "answer"))
            if not parse_answer(record_id, line, record).answer:
                continue
            if probability is None:
                raise UnfitError(MISSING)
            found[record_id] = probability
        except UnfitError as error:
            problems.add(predictions, line, record_id, str(error))
    if not found and {problem.what for problem in problems.found} == {MISSING}:
        raise EvaluationError(
            f"no answer in {predictions} has a probability (output[0].meta.probability): kbq predict with a calibrated "
            "model writes them"
        )
    problems.raise_if_any(f"the calibration of {predictions}")
    return np.array([found.get(record_id, math.nan) for record_id in ids])
