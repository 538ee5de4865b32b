"""Confidence: measure how well the probabilities of answers tell right from wrong.

`confidences` has the probability of each answer, and `right` whether it is right. Shapes: (items,).
A score is None where it does not exist because there are no answers, or all are right, or all
wrong.

A prediction has its probability in `output[0].meta.probability`. An empty answer was withheld, and
nobody knows whether the best guess was right: it counts as a query without an answer, and takes
part in no other score.
"""

import importlib
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Bools, Doubles, Rows
from kbq.errors import EvaluationError
from kbq.kilt import records
from kbq.kilt.analysis import CONFIDENCE, LOW_END, Analysis, Cell, Form, ScoreTable, block_sizes
from kbq.kilt.scores import Scores
from kbq.storage.folders import make_folders
from kbq.storage.writing import replacing, writing_to

BINS = 15  # bins of equal mass; more would mostly show chance
RESAMPLES = 1_000  # fewer than for a mean, since every answer is drawn by itself

PRECISIONS = (0.9, 0.95)
FEW = 30  # fewer answers cannot promise 90 %, even if all are right
POINTS = 200  # most points of a risk-coverage curve in JSON
MISSING = "has an answer without a probability (output[0].meta.probability)"


# Which answers to accept


@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverage:
    """Answers accepted from the most confident downward, equal confidences together. Shape of each:
    (steps,).
    """

    thresholds: Doubles  # the distinct confidences, descending
    accepted: Rows  # number of answers with at least that confidence
    right: Rows  # number of these that are right
    queries: int  # answered or not

    @property
    def coverage(self) -> Doubles:
        """The share of the queries whose answer is accepted. Shape: (steps,)."""
        return self.accepted / self.queries

    @property
    def risk(self) -> Doubles:
        """The share of the accepted answers that are wrong. Shape: (steps,)."""
        return 1 - self.right / self.accepted


def risk_coverage(confidences: Doubles, right: Bools, queries: int | None = None) -> RiskCoverage:
    """Count the answers that each threshold would accept. Source: El-Yaniv and Wiener, JMLR 11
    (2010).

    `queries`: the number of queries, if some got no answer.

    >>> curve = risk_coverage(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    >>> curve.thresholds.tolist(), curve.accepted.tolist(), curve.right.tolist()
    ([0.9, 0.5, 0.1], [1, 3, 4], [1, 2, 2])
    """
    negated, steps = np.unique(-confidences, return_inverse=True)
    accepted = np.bincount(steps, minlength=len(negated)).cumsum()
    among = np.bincount(steps[right], minlength=len(negated)).cumsum()
    if queries is None:
        queries = len(confidences)
    return RiskCoverage(-negated, accepted, among, queries)


def auroc(confidences: Doubles, right: Bools) -> float | None:
    """Return the chance that a right answer is more confident than a wrong one; equal confidences
    count half.

    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    curve = risk_coverage(confidences, right)
    wrong = curve.accepted - curve.right
    if not right.any() or right.all():
        return None
    right_here = np.diff(curve.right, prepend=0)
    wrong_here = np.diff(wrong, prepend=0)
    pairs = right_here * (wrong[-1] - wrong + wrong_here / 2)
    return float(pairs.sum() / (curve.right[-1] * wrong[-1]))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The largest share of the queries that can be answered at this precision, with its bootstrap
    interval.
    """

    precision: float
    share: float
    low: float
    high: float


def coverage_at(
    confidences: Doubles,
    right: Bools,
    precision: float,
    queries: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Coverage:
    """Accept as many answers as possible while this share is right. For unseen answers, see
    `promised_threshold`.

    >>> coverage_at(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, True]), 0.75).share
    1.0
    """
    curve = risk_coverage(confidences, right, queries)
    if not curve.queries:
        return Coverage(precision, 0.0, 0.0, 0.0)
    share = _most_accepted(curve.accepted, curve.right, precision) / curve.queries
    right_here = np.diff(curve.right, prepend=0)
    wrong_here = np.diff(curve.accepted, prepend=0) - right_here
    unanswered = curve.queries - len(right)
    weights = np.array([*right_here, *wrong_here, unanswered]) / curve.queries
    generator = np.random.default_rng(seed)
    shares = []

    for size in block_sizes(resamples, len(weights)):
        drawn = (
            generator.multinomial(curve.queries, weights, size=size)[:, :-1]
            .reshape(size, 2, -1)
            .cumsum(axis=2)
        )
        shares.append(_most_accepted(drawn.sum(axis=1), drawn[:, 0], precision) / curve.queries)

    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(shares), [tail, 1 - tail])
    return Coverage(precision, float(share), float(low), float(high))


def _most_accepted(accepted: Rows, right: Rows, precision: float) -> Rows:
    """Return the most answers that a threshold accepts at this precision, or 0. Shapes: (…, steps)
    → (…).
    """
    is_precise = right / np.maximum(accepted, 1) >= precision
    most: Rows = np.max(accepted * is_precise, axis=-1, initial=0)
    return most


# Whether a probability means what it says


def brier(confidences: Doubles, right: Bools) -> float | None:
    """Return the mean squared distance from 1 where right and 0 where wrong; lower is better.

    >>> brier(np.array([1.0, 0.5]), np.array([True, False]))
    0.125
    """
    if len(right):
        return float(((confidences - right) ** 2).mean())
    return None


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers of similar confidence."""

    count: int
    confidence: float  # mean
    right: float  # share
    low: float  # 95 % of calibrated models have a share from `low` to `high`
    high: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """The expected calibration error, and its noise floor: the error of perfectly calibrated models
    by chance.
    """

    bins: tuple[ReliabilityBin, ...]  # the least confident first
    ece: float  # mean distance of confidence and share right, over answers
    floor: float  # mean of calibrated models
    floor_high: float  # 95 % of them are below


def reliability(
    confidences: Doubles, right: Bools, bins: int = BINS, resamples: int = RESAMPLES, seed: int = 0
) -> Reliability | None:
    """Compare confidence and share right in bins, and with calibrated models, drawn by parametric
    bootstrap.

    Bins have equally many answers (arXiv 1904.01685), except that equal confidences share one.
    Sources: arXiv 2012.08668 (the bias of the error), Bröcker and Smith 2007 (consistency
    intervals).

    >>> found = reliability(np.array([0.25, 0.25, 0.75, 0.75]), np.array([False, False, True, False]), bins=2)
    >>> [(one.count, one.confidence, one.right) for one in found.bins], found.ece
    ([(2, 0.25, 0.0), (2, 0.75, 0.5)], 0.25)
    """
    if not len(right):
        return None
    members = _equal_mass(confidences, bins)  # (items, bins)
    counts = members.sum(axis=0)
    means = confidences @ members / counts
    shares = right @ members / counts
    drawn = _calibrated_shares(confidences, members, resamples, seed)
    floors = np.abs(drawn - means) @ counts / len(right)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    columns = [column.tolist() for column in (counts.astype(int), means, shares, low, high)]
    ece = np.abs(shares - means) @ counts / len(right)

    return Reliability(
        bins=tuple(ReliabilityBin(*row) for row in zip(*columns, strict=True)),
        ece=float(ece),
        floor=float(floors.mean()),
        floor_high=float(np.quantile(floors, CONFIDENCE)),
    )


def _equal_mass(confidences: Doubles, bins: int) -> Doubles:
    """Put each answer into a bin, by its rank. Returns 0 or 1. Shape: (items, bins that are not
    empty).
    """
    _, places, counts = np.unique(confidences, return_inverse=True, return_counts=True)
    middle_ranks = counts.cumsum() - counts / 2
    used, numbers = np.unique(
        (middle_ranks * bins // len(confidences)).astype(int)[places], return_inverse=True
    )
    return np.eye(len(used))[numbers]


def _calibrated_shares(
    confidences: Doubles, members: Doubles, resamples: int, seed: int
) -> Doubles:
    """Draw the shares right by bin of models whose probabilities are true. Shape: (resamples,
    bins).
    """
    generator = np.random.default_rng(seed)
    sizes = members.sum(axis=0)
    drawn: list[Doubles] = []
    for size in block_sizes(resamples, len(confidences)):
        are_right = generator.random((size, len(confidences))) < confidences
        drawn.append(are_right @ members / sizes)
    return np.concatenate(drawn)


# What can be promised


def promised_threshold(
    confidences: Doubles, right: Bools, precision: float, certainty: float = 0.95
) -> float | None:
    """Return the lowest threshold for which a precision can be promised, or None.

    The promise: of all answers to queries like these that reach the threshold, at least the share
    `precision` is right. Made for many samples of answers, it is kept with a frequency of
    `certainty` or more. Confidences must not have been fitted to these answers.

    The lowest of all thresholds that pass a test would promise too much, since of many tests some
    pass by luck. So the order of the tests is fixed without looking at what is right: downward,
    until the first fails. Then no correction
    is needed: to promise too much, the first threshold that is truly too low would have to pass,
    with a chance of at most 1 - `certainty`. The order begins where one wrong answer, and one more
    for each thousand answers, do not fail the test; an earlier beginning would stop at the first
    slips among the top answers.

    Sources: arXiv 1705.08500 (thresholds by the exact bound of Clopper and Pearson), arXiv
    2506.20178 (for question answering), arXiv 2110.01052 (fixed sequences).

    Raises:
        ValueError: precision or certainty is not between 0 and 1.

    >>> confidences = np.arange(100, 0, -1) / 100
    >>> promised_threshold(confidences, confidences > 0.4, precision=0.9)  # 60 of 62 pass, 60 of 63 do not
    0.39
    """
    for name, value in (("precision", precision), ("certainty", certainty)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}, must be between 0 and 1")

    def passes(count: int, accepted: int) -> bool:
        return _log_tail(count, accepted, precision) <= math.log1p(-certainty)

    curve = risk_coverage(confidences, right)
    slips = 1 + len(right) // 1000
    start = bisect_left(
        curve.accepted, True, key=lambda accepted: passes(max(0, accepted - slips), accepted)
    )
    steps = list(
        zip(curve.thresholds.tolist(), curve.right.tolist(), curve.accepted.tolist(), strict=True)
    )
    promised = None

    for threshold, count, accepted in steps[start:] or steps[-1:]:
        if not passes(count, accepted):
            break
        promised = threshold

    return promised


def _log_tail(right: int, accepted: int, precision: float) -> float:
    """Return the logarithm of the chance that at least `right` of the accepted answers are right."""
    wrong = np.arange(accepted - right + 1)
    choices = np.log((accepted - wrong[1:] + 1) / wrong[1:]).cumsum()
    terms = (
        np.append(0, choices)
        + wrong * math.log1p(-precision)
        + (accepted - wrong) * math.log(precision)
    )
    return float(np.logaddexp.reduce(terms))


@dataclass(frozen=True, slots=True, eq=False)
class Confidence:
    """All scores of the probabilities of some answers."""

    right_by: str  # the score that tells which answers are right
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
        """Return the scores as JSON, with at most POINTS points of the curve."""
        curve = self.curve
        steps = len(curve.thresholds)
        shown = np.unique(np.linspace(0, steps - 1, min(steps, POINTS)).round().astype(int))
        rows = {"threshold": curve.thresholds, "coverage": curve.coverage, "risk": curve.risk}
        return asdict(self) | {"curve": {name: row[shown].tolist() for name, row in rows.items()}}

    def notes(self) -> list[str]:
        """Return what a reader of the scores should know, in sentences."""
        reasons = {
            f"only {self.answers:,} answers: of fewer than {FEW} hardly anything can be promised": self.answers
            < FEW,
            f"by {self.right_by}, no answer is right: AUROC does not exist": self.right == 0,
            f"by {self.right_by}, all answers are right: AUROC does not exist": self.right == 1,
        }
        return [note for note, applies in reasons.items() if applies]

    def rows(self) -> list[tuple[Cell, ...]]:
        """Return name, n and value of each score, with the ends of its interval, if any."""
        n = self.answers
        rows: list[tuple[Cell, ...]] = [
            ("answered", self.queries, self.answered, None, None),
            ("right", n, self.right, None, None),
            ("AUROC", n, self.auroc, None, None),
        ]
        for coverage in self.coverages:
            name = f"coverage at {round(coverage.precision * 100)} % precision"
            rows.append((name, self.queries, coverage.share, coverage.low, coverage.high))

        rows.append(("Brier", n, self.brier, None, None))
        errors = self.reliability
        if errors is None:
            ece = None
            floor = None
            floor_high = None
        else:
            ece = errors.ece
            floor = errors.floor
            floor_high = errors.floor_high

        rows.append(("ECE", n, ece, None, None))
        rows.append(("ECE noise floor", n, floor, None, floor_high))
        return rows


def calibrated(
    predictions: records.Source,
    scores: Scores | None,
    answer_metric: str,
    by: str,
    plots: str | PathLike[str] | None,
) -> Analysis:
    """Score the probabilities of predictions by answers, by answers with their pages and, with
    `by`, by group.

    `scores`: their downstream evaluation. `answer_metric`: accuracy or em. `plots`: a folder for
    pictures.
    """
    if scores is None:
        return Analysis(None, notes=["there is no calibration: it needs the downstream evaluation"])
    probabilities = read_probabilities(predictions, scores.ids)
    names = (answer_metric, f"KILT-{answer_metric}") if scores.with_gold_pages else (answer_metric,)
    right = {name: scores.column(name) == 1 for name in names}
    confidences = [confidence_in(probabilities, marks, name) for name, marks in right.items()]
    columns: dict[str, Form] = {"right by": "text", "score": "text", "n": "count"}
    columns |= dict.fromkeys(("value", LOW_END, "to"), "decimals")
    tables = [
        ScoreTable(
            "calibration",
            columns,
            [
                (confidence.right_by, *row)
                for confidence in confidences
                for row in confidence.rows()
            ],
        )
    ]
    document: dict[str, object] = {"scores": [confidence.to_dict() for confidence in confidences]}
    if by:
        names_of = np.array(scores.groups, dtype=object)
        rows = list[tuple[Any, ...]]()
        for group in set(scores.groups):
            inside = names_of == group
            in_group = confidence_in(probabilities[inside], right[answer_metric][inside], "")
            rows.append(
                (
                    group,
                    in_group.answers,
                    in_group.right,
                    in_group.auroc,
                    in_group.coverages[0].share,
                )
            )

        rows.sort(key=lambda row: (-row[1], row[0]))
        fields = ("group", "answers", "right", "auroc", "coverage")
        document["groups"] = [dict(zip(fields, row, strict=True)) for row in rows]
        columns = {"group": "text", "n": "count", answer_metric: "percent", "AUROC": "decimals"}
        columns |= {f"coverage at {round(PRECISIONS[0] * 100)} % precision": "percent"}
        tables.append(ScoreTable(f"calibration by {by}", columns, rows))

    if plots is not None:
        _draw_reliability(confidences[0], Path(plots) / "reliability.png")
        _draw_risk_coverage(confidences[0], Path(plots) / "risk-coverage.png")

    return Analysis(
        document, tables, [note for confidence in confidences for note in confidence.notes()]
    )


def confidence_in(probabilities: Doubles, right: Bools, right_by: str) -> Confidence:
    """Compute all scores; a probability is NaN if no answer was given. Shape of each: (queries,)."""
    is_answered = ~np.isnan(probabilities)
    queries = len(probabilities)
    answers = int(is_answered.sum())
    given = probabilities[is_answered]
    right = right[is_answered]
    share_right = float(right.mean()) if answers else None
    errors = reliability(given, right)
    coverages = [coverage_at(given, right, precision, queries) for precision in PRECISIONS]

    return Confidence(
        right_by=right_by,
        queries=queries,
        answers=answers,
        answered=answers / queries,
        right=share_right,
        auroc=auroc(given, right),
        coverages=tuple(coverages),
        brier=brier(given, right),
        reliability=errors,
        curve=risk_coverage(given, right, queries),
    )


def read_probabilities(predictions: records.Source, ids: Sequence[str]) -> Doubles:
    """Return the probability of the answer to each query, or NaN without an answer. Shape: (ids,).

    Raises an EvaluationError that carries all problems if an answer has no probability between 0
    and 1.
    """
    known = set(ids)
    problems = records.Problems()

    def read(record_id: str, line: int, record: records.JsonObject) -> tuple[str, float]:
        if record_id not in known:
            return record_id, math.nan
        probability = records.probability_of(records.only_output(record, "answer"))
        if not records.parse_answer(record_id, line, record).answer:
            return record_id, math.nan
        if probability is None:
            raise records.UnfitError(MISSING)
        return record_id, probability

    by_id = dict(records.parse_records(predictions, problems, read))
    if np.isnan(list(by_id.values())).all() and {problem.kind for problem in problems.found} == {
        MISSING
    }:
        raise EvaluationError(
            f"no answer in {predictions} has a probability (output[0].meta.probability): kbq "
            "predict with a calibrated model writes them"
        )

    problems.raise_if_any(f"the calibration of {predictions}")
    return np.array([by_id.get(record_id, math.nan) for record_id in ids])


# Pictures


def require_matplotlib() -> None:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise EvaluationError(
            "matplotlib is not installed, which --plots needs: pip install matplotlib"
        ) from error


def _draw_reliability(calibration: Confidence, path: Path) -> None:
    """Draw how often answers of each confidence are right."""
    bins = calibration.reliability.bins if calibration.reliability else ()
    confidences = np.array([bin_.confidence for bin_ in bins])
    ends = np.array([(bin_.low, bin_.high) for bin_ in bins]).reshape(-1, 2)
    with _picture(path) as axes:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
        axes.vlines(
            confidences, *ends.T, color="tab:blue", alpha=0.3, linewidth=6, label="calibrated: 95 %"
        )
        axes.plot(
            confidences,
            [bin_.right for bin_ in bins],
            "o-",
            color="tab:blue",
            label="these predictions",
        )
        axes.set(
            xlabel="probability", ylabel=f"right ({calibration.right_by})", xlim=(0, 1), ylim=(0, 1)
        )


def _draw_risk_coverage(calibration: Confidence, path: Path) -> None:
    """Draw the share of wrong answers among the most confident ones."""
    curve = calibration.curve
    coverage = np.arange(1, calibration.answers + 1) / calibration.queries
    right = calibration.answered * (calibration.right or 0)
    with _picture(path) as axes:
        axes.plot(curve.coverage, curve.risk, color="tab:blue", label="these predictions")
        axes.plot(
            coverage,
            np.maximum(0, 1 - right / coverage),
            "--",
            color="grey",
            label="the best order of them",
        )
        axes.set(
            xlabel="coverage: queries answered",
            ylabel=f"risk: answers wrong ({calibration.right_by})",
            xlim=(0, 1),
        )
        axes.set_ylim(bottom=0)


@contextmanager
def _picture(path: Path) -> Iterator[Any]:
    """Yield axes to draw on, and save the picture."""
    # Figure, not pyplot: no window opens.
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(6.4, 4.8))
    axes = figure.subplots()
    yield axes
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    with writing_to(path, EvaluationError, "choose another folder"):
        make_folders(path.parent)
        with replacing(path) as partial:
            figure.savefig(partial, format="png", dpi=110)
