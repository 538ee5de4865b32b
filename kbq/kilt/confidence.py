"""Confidence: probabilities of answers, and whether these are right, become scores of how well the two agree.

`confidences` has the probability of each answer, from 0 to 1, and `right` whether it is right. Shapes: (items,). A
score is None where it does not exist, since there are no answers, or all are right, or all wrong.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from kbq.array_types import Bools, Doubles, Rows
from kbq.kilt.analysis import CONFIDENCE, block_sizes

BINS = 15  # of equal mass; more would mostly show chance
RESAMPLES = 1_000  # fewer than for a mean: here every answer is drawn by itself


# Which answers to accept


@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverage:
    """Answers accepted from the most confident downward, equal confidences together. Shape of each: (steps,)."""

    thresholds: Doubles  # the distinct confidences, descending
    accepted: Rows  # how many answers have at least that confidence
    right: Rows  # how many of these are right
    queries: int  # answered or not

    @property
    def coverage(self) -> Doubles:
        """Share of the queries whose answer is accepted. Shape: (steps,)."""
        return self.accepted / self.queries

    @property
    def risk(self) -> Doubles:
        """Share of the accepted answers that are wrong. Shape: (steps,)."""
        return 1 - self.right / self.accepted


def risk_coverage(confidences: Doubles, right: Bools, queries: int | None = None) -> RiskCoverage:
    """Count the answers that each threshold would accept. Source: El-Yaniv and Wiener, JMLR 11 (2010).

    `queries`: how many there are, with those that got no answer; None: all got one.

    >>> curve = risk_coverage(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    >>> curve.thresholds.tolist(), curve.accepted.tolist(), curve.right.tolist()
    ([0.9, 0.5, 0.1], [1, 3, 4], [1, 2, 2])
    """
    negated, steps = np.unique(-confidences, return_inverse=True)
    accepted = np.bincount(steps, minlength=len(negated)).cumsum()
    among = np.bincount(steps[right], minlength=len(negated)).cumsum()
    return RiskCoverage(-negated, accepted, among, len(confidences) if queries is None else queries)


def auroc(confidences: Doubles, right: Bools) -> float | None:
    """Return the chance that a right answer is more confident than a wrong one; equal confidences count half.

    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    curve = risk_coverage(confidences, right)
    wrong = curve.accepted - curve.right
    if not right.any() or right.all():
        return None
    right_here, wrong_here = np.diff(curve.right, prepend=0), np.diff(wrong, prepend=0)
    pairs = right_here * (wrong[-1] - wrong + wrong_here / 2)
    return float(pairs.sum() / (curve.right[-1] * wrong[-1]))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The largest share of the queries that can be answered at this precision, with its bootstrap interval."""

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
    """Accept as many answers as possible while this share is right. It knows what is right: see `promised_threshold`.

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
        drawn = generator.multinomial(curve.queries, weights, size=size)[:, :-1].reshape(size, 2, -1).cumsum(axis=2)
        shares.append(_most_accepted(drawn.sum(axis=1), drawn[:, 0], precision) / curve.queries)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(shares), [tail, 1 - tail])
    return Coverage(precision, float(share), float(low), float(high))


def _most_accepted(accepted: Rows, right: Rows, precision: float) -> Rows:
    """Return the most answers that a threshold accepts at this precision, 0 if none does. Shapes: (…, steps) → (…)."""
    is_precise = right / np.maximum(accepted, 1) >= precision
    most: Rows = np.max(accepted * is_precise, axis=-1, initial=0)
    return most


# Whether a probability means what it says


def brier(confidences: Doubles, right: Bools) -> float | None:
    """Return the mean squared distance from 1 where right and 0 where wrong; lower is better.

    >>> brier(np.array([1.0, 0.5]), np.array([True, False]))
    0.125
    """
    return float(((confidences - right) ** 2).mean()) if len(right) else None


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers of similar confidence."""

    count: int
    confidence: float  # mean
    right: float  # share
    low: float  # to `high`: the share right of 95 % of calibrated models by chance
    high: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """The expected calibration error, and its noise floor: what a perfectly calibrated model would show by chance."""

    bins: tuple[ReliabilityBin, ...]  # the least confident first
    ece: float  # mean distance of confidence and share right, over answers
    floor: float  # the mean over calibrated models
    floor_high: float  # 95 % of them are below


def reliability(
    confidences: Doubles, right: Bools, bins: int = BINS, resamples: int = RESAMPLES, seed: int = 0
) -> Reliability | None:
    """Compare confidence and share right, bin by bin, with what parametric bootstrap draws from the confidences.

    Bins have equally many answers (as in arXiv 1904.01685), except that equal confidences are never parted. Sources:
    arXiv 2012.08668 (the bias of the error), Bröcker and Smith 2007 (consistency intervals).

    >>> found = reliability(np.array([0.25, 0.25, 0.75, 0.75]), np.array([False, False, True, False]), bins=2)
    >>> [(one.count, one.confidence, one.right) for one in found.bins], found.ece
    ([(2, 0.25, 0.0), (2, 0.75, 0.5)], 0.25)
    """
    if not len(right):
        return None
    members = _equal_mass(confidences, bins)  # (items, bins)
    counts = members.sum(axis=0)
    means, shares = confidences @ members / counts, right @ members / counts
    drawn = _calibrated_shares(confidences, members, resamples, seed)
    floors = np.abs(drawn - means) @ counts / len(right)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    rows = zip(counts.astype(int).tolist(), *(each.tolist() for each in (means, shares, low, high)), strict=True)
    return Reliability(
        bins=tuple(ReliabilityBin(*row) for row in rows),
        ece=float(np.abs(shares - means) @ counts / len(right)),
        floor=float(floors.mean()),
        floor_high=float(np.quantile(floors, CONFIDENCE)),
    )


def _equal_mass(confidences: Doubles, bins: int) -> Doubles:
    """Put each answer into a bin, by its rank; equal confidences share one. Shape: (items, bins not empty), 0 or 1."""
    _, places, counts = np.unique(confidences, return_inverse=True, return_counts=True)
    middle_ranks = counts.cumsum() - counts / 2
    used, numbers = np.unique((middle_ranks * bins // len(confidences)).astype(int)[places], return_inverse=True)
    return np.eye(len(used))[numbers]


def _calibrated_shares(confidences: Doubles, members: Doubles, resamples: int, seed: int) -> Doubles:
    """Draw shares right by bin, were every answer right with its probability. Shape: (resamples, bins)."""
    generator = np.random.default_rng(seed)
    drawn = [
        (generator.random((size, len(confidences))) < confidences) @ members / members.sum(axis=0)
        for size in block_sizes(resamples, len(confidences))
    ]
    return np.concatenate(drawn)


# What can be promised


def promised_threshold(confidences: Doubles, right: Bools, precision: float, certainty: float = 0.95) -> float | None:
    """Return the lowest threshold for which a precision can be promised, None if there is none.

    The promise: of all answers to queries like these that reach the threshold, at least the share `precision` is right.
    Made again and again for other samples of answers, it is kept at least with the frequency `certainty`. Confidences
    must not have been fitted to these answers.

    Taking the lowest of all thresholds that pass a test would promise too much: of many tests, some pass by luck. So
    thresholds are tested in an order that is fixed without looking at what is right, downward until the first that
    fails. Then no correction is needed: to promise too much, the first threshold that is in truth too low would have
    to pass, and that has a chance of at most 1 - `certainty`. The order begins where one wrong answer, and one more for
    each thousand answers, do not fail the test; beginning earlier would stop at the first slips among the top answers.

    Sources: arXiv 1705.08500 (thresholds by the exact bound of Clopper and Pearson), arXiv 2506.20178 (for question
    answering), arXiv 2110.01052 (fixed sequences).

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

    curve, slips = risk_coverage(confidences, right), 1 + len(right) // 1000
    start = bisect_left(curve.accepted, True, key=lambda accepted: passes(max(0, accepted - slips), accepted))
    steps = list(zip(curve.thresholds.tolist(), curve.right.tolist(), curve.accepted.tolist(), strict=True))
    promised = None
    for threshold, count, accepted in steps[start:] or steps[-1:]:
        if not passes(count, accepted):
            break
        promised = threshold
    return promised


def _log_tail(right: int, accepted: int, precision: float) -> float:
    """Return ln of the chance that at least `right` of the accepted answers are right."""
    wrong = np.arange(accepted - right + 1)
    choices = np.log((accepted - wrong[1:] + 1) / wrong[1:]).cumsum()
    terms = np.append(0, choices) + wrong * math.log1p(-precision) + (accepted - wrong) * math.log(precision)
    return float(np.logaddexp.reduce(terms))
