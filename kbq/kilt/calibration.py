"""Calibration: predictions with probabilities become how well these tell right from wrong answers; tables, pictures.

A prediction has its probability in `output[0].meta.probability`. An empty answer was withheld: whether the best guess
was right is not known, so it counts as a query without an answer and is in no other score.
"""

import importlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Bools, Doubles
from kbq.errors import EvaluationError
from kbq.kilt import confidence
from kbq.kilt.analysis import LOW_END
from kbq.kilt.confidence import Coverage, Reliability, RiskCoverage
from kbq.kilt.files import JsonObject, Problems, Source, UnfitError, parse_records
from kbq.kilt.records import only_output, parse_answer, probability_of
from kbq.kilt.report import Analysis, Cell, Form, ScoreTable
from kbq.kilt.scores import Scores
from kbq.storage.folders import make_folders
from kbq.storage.writing import replacing, writing_to

PRECISIONS = (0.9, 0.95)
FEW = 30  # answers: with fewer, 90 % cannot be promised even if all are right
POINTS = 200  # of a risk-coverage curve in JSON, at most
MISSING = "has an answer without a probability (output[0].meta.probability)"


@dataclass(frozen=True, slots=True, eq=False)
class Confidence:
    """The scores of kbq.kilt.confidence over the answers; None where a score does not exist."""

    right_by: str  # the score that says which answers are right
    queries: int  # answered or not
    answers: int
    answered: float  # share of the queries
    right: float | None  # share of the answers
    auroc: float | None
    coverages: tuple[Coverage, ...]  # shares of the queries
    brier: float | None
    reliability: Reliability | None
    curve: RiskCoverage

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON; the curve has at most POINTS points."""
        curve = self.curve
        steps = len(curve.thresholds)
        shown = np.unique(np.linspace(0, steps - 1, min(steps, POINTS)).round().astype(int))
        rows = {"threshold": curve.thresholds, "coverage": curve.coverage, "risk": curve.risk}
        return asdict(self) | {"curve": {name: row[shown].tolist() for name, row in rows.items()}}

    def notes(self) -> list[str]:
        """Return sentences that a reader of the numbers should know."""
        found = {
            f"only {self.answers:,} answers: of fewer than {FEW} hardly anything can be promised": self.answers < FEW,
            f"by {self.right_by}, no answer is right: AUROC does not exist": self.right == 0,
            f"by {self.right_by}, all answers are right: AUROC does not exist": self.right == 1,
        }
        return [note for note, applies in found.items() if applies]

    def rows(self) -> list[tuple[Cell, ...]]:
        """Return name, n and value of each score, with the ends of its interval if it has one."""
        n, errors = self.answers, self.reliability
        floor = (errors.floor, None, errors.floor_high) if errors else (None, None, None)
        return [
            ("answered", self.queries, self.answered, None, None),
            ("right", n, self.right, None, None),
            ("AUROC", n, self.auroc, None, None),
            *(
                (f"coverage at {round(one.precision * 100)} % precision", self.queries, one.share, one.low, one.high)
                for one in self.coverages
            ),
            ("Brier", n, self.brier, None, None),
            ("ECE", n, errors.ece if errors else None, None, None),
            ("ECE noise floor", n, *floor),
        ]


@dataclass(frozen=True, slots=True)
class GroupCalibration:
    """Some of these scores for one group of queries."""

    group: str
    answers: int
    right: float | None
    auroc: float | None
    coverage: float  # at the first of the precisions


def calibrated(
    predictions: Source, scores: Scores | None, answer_metric: str, by: str, plots: str | PathLike[str] | None
) -> Analysis:
    """Score the probabilities of predictions by answers, by answers and pages and, with `by`, by group.

    `scores`: of their downstream evaluation. `answer_metric`: accuracy or em. `plots`: a folder for pictures.
    """
    if scores is None:
        return Analysis(None, notes=["there is no calibration: it needs the downstream evaluation"])
    probabilities = read_probabilities(predictions, scores.ids)
    names = (answer_metric, f"KILT-{answer_metric}") if scores.with_gold_pages else (answer_metric,)
    right = {name: scores.column(name) == 1 for name in names}
    found = [confidence_in(probabilities, marks, name) for name, marks in right.items()]
    columns: dict[str, Form] = {"right by": "text", "score": "text", "n": "count"}
    columns |= dict.fromkeys(("value", LOW_END, "to"), "decimals")
    tables = [ScoreTable("calibration", columns, [(one.right_by, *row) for one in found for row in one.rows()])]
    document: dict[str, object] = {"scores": [one.to_dict() for one in found]}
    if by:
        groups = calibrate_groups(probabilities, right[answer_metric], scores.groups)
        document["groups"] = [asdict(group) for group in groups]
        columns = {"group": "text", "n": "count", answer_metric: "percent", "AUROC": "decimals"}
        columns |= {f"coverage at {round(PRECISIONS[0] * 100)} % precision": "percent"}
        tables.append(ScoreTable(f"calibration by {by}", columns, [astuple(one) for one in groups]))
    if plots is not None:
        _draw_reliability(found[0], Path(plots) / "reliability.png")
        _draw_risk_coverage(found[0], Path(plots) / "risk-coverage.png")
    return Analysis(document, tables, [note for one in found for note in one.notes()])


def confidence_in(probabilities: Doubles, right: Bools, right_by: str) -> Confidence:
    """Compute all scores; a probability is NaN where no answer was given. Shape of each: (queries,)."""
    is_answered = ~np.isnan(probabilities)
    queries, answers = len(probabilities), int(is_answered.sum())
    given, right = probabilities[is_answered], right[is_answered]
    return Confidence(
        right_by=right_by,
        queries=queries,
        answers=answers,
        answered=answers / queries,
        right=float(right.mean()) if answers else None,
        auroc=confidence.auroc(given, right),
        coverages=tuple(confidence.coverage_at(given, right, precision, queries) for precision in PRECISIONS),
        brier=confidence.brier(given, right),
        reliability=confidence.reliability(given, right),
        curve=confidence.risk_coverage(given, right, queries),
    )


def calibrate_groups(probabilities: Doubles, right: Bools, groups: Sequence[str]) -> tuple[GroupCalibration, ...]:
    """Compute the main scores by group, the largest first; all three are by query. Shape of each: (queries,)."""
    names = np.array(groups, dtype=object)
    found = []
    for group in set(groups):
        one = confidence_in(probabilities[names == group], right[names == group], "")
        found.append(GroupCalibration(group, one.answers, one.right, one.auroc, one.coverages[0].share))
    return tuple(sorted(found, key=lambda one: (-one.answers, one.group)))


def read_probabilities(predictions: Source, ids: Sequence[str]) -> Doubles:
    """Return the probability of the answer to each query, NaN where there is no answer. Shape: (ids,).

    Raises EvaluationError if an answer has no probability, or one is not a number from 0 to 1; it carries all problems.
    """
    wanted = set(ids)
    problems = Problems()

    def read(record_id: str, line: int, record: JsonObject) -> tuple[str, float]:
        if record_id not in wanted:
            return record_id, math.nan
        probability = probability_of(only_output(record, "answer"))
        if not parse_answer(record_id, line, record).answer:
            return record_id, math.nan
        if probability is None:
            raise UnfitError(MISSING)
        return record_id, probability

    found = dict(parse_records(predictions, problems, read))
    if np.isnan(list(found.values())).all() and {problem.kind for problem in problems.found} == {MISSING}:
        raise EvaluationError(
            f"no answer in {predictions} has a probability (output[0].meta.probability): kbq predict with a calibrated "
            "model writes them"
        )
    problems.raise_if_any(f"the calibration of {predictions}")
    return np.array([found.get(record_id, math.nan) for record_id in ids])


# Pictures


def require_matplotlib() -> None:
    """Raise EvaluationError if matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise EvaluationError("matplotlib is not installed, which --plots needs: pip install matplotlib") from error


def _draw_reliability(calibration: Confidence, path: Path) -> None:
    """Draw the share right of each bin over its confidence; bars show where it lies for 95 % of calibrated models."""
    bins = calibration.reliability.bins if calibration.reliability else ()
    confidences = np.array([one.confidence for one in bins])
    ends = np.array([(one.low, one.high) for one in bins]).reshape(-1, 2)
    with _picture(path) as axes:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
        axes.vlines(confidences, *ends.T, color="tab:blue", alpha=0.3, linewidth=6, label="calibrated: 95 %")
        axes.plot(confidences, [one.right for one in bins], "o-", color="tab:blue", label="these predictions")
        axes.set(xlabel="probability", ylabel=f"right ({calibration.right_by})", xlim=(0, 1), ylim=(0, 1))


def _draw_risk_coverage(calibration: Confidence, path: Path) -> None:
    """Draw the share of wrong answers over the share of queries answered, beside that of the best order of answers."""
    curve = calibration.curve
    coverage = np.arange(1, calibration.answers + 1) / calibration.queries
    right = calibration.answered * (calibration.right or 0)
    with _picture(path) as axes:
        axes.plot(curve.coverage, curve.risk, color="tab:blue", label="these predictions")
        axes.plot(coverage, np.maximum(0, 1 - right / coverage), "--", color="grey", label="the best order of them")
        axes.set(
            xlabel="coverage: queries answered", ylabel=f"risk: answers wrong ({calibration.right_by})", xlim=(0, 1)
        )
        axes.set_ylim(bottom=0)


@contextmanager
def _picture(path: Path) -> Iterator[Any]:
    """Yield axes to draw in; on leaving, write the picture."""
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(6.4, 4.8))  # without pyplot: no window
    axes = figure.subplots()
    yield axes
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    with writing_to(path, EvaluationError, "choose another folder"):
        make_folders(path.parent)
        with replacing(path) as partial:
            figure.savefig(partial, format="png", dpi=110)
