"""Lessons: correct the probabilities of a relation's values by what people decided on some of them.

A calibration is right on average, and may be too sure of one relation and not sure enough of
another. A lesson is a logistic regression of people's decisions on the log odds that the
calibration gave, with an intercept of its own. The calibration counts like 30 decisions, so that
few decisions, or contradictory ones, change little. Learning takes milliseconds and nothing is
stored: a run without decisions knows nothing of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kbq.answers import Answer
from kbq.array_types import Doubles
from kbq.reading.probability import chances_of
from kbq.reading.reranker import MOST_LOGIT

LEAST = 10  # decided cells of a relation: fewer teach nothing
BELIEF = 30  # decisions that the calibration counts like
# Limits of Newton's method: most steps, and the change of weights after the last.
STEPS = 50
CLOSE = 1e-9


class Judged(NamedTuple):
    """The probability that the calibration gave a value, and what a person says of it."""

    probability: float
    is_right: bool


@dataclass(frozen=True, slots=True)
class RelationLesson:
    """What decisions taught of a relation: log odds become `slope` × log odds + `intercept`.

    >>> round(RelationLesson(1.0, -math.log(3), 20).probability(0.75), 6)
    0.5
    """

    slope: float  # above 0: values keep their order
    intercept: float
    decisions: int

    def probability(self, before: float) -> float:
        """Return the probability of a value to which the calibration gives this one."""
        rows = log_odds([before])[:, None]
        return float(chances_of(rows, [self.slope], self.intercept)[0])

    def applied(self, answer: Answer) -> Answer:
        """Give an answer its new probability, if it has one."""
        if answer.probability is None:
            return answer
        return replace(answer, probability=self.probability(answer.probability))


def learned(judged: Sequence[Judged]) -> RelationLesson | None:
    """Fit a lesson to decisions on values of one relation, or return None if they are too few.

    Each target is a mean of what the person said and, with the weight of BELIEF decisions in all,
    of what the calibration said. If the decisions are against the order of the probabilities, the
    intercept alone is learned.
    """
    count = len(judged)
    if count < LEAST:
        return None
    before = np.array([judged_answer.probability for judged_answer in judged])
    said = np.array([judged_answer.is_right for judged_answer in judged], np.float64)
    targets = (count * said + BELIEF * before) / (count + BELIEF)
    odds = log_odds(before)
    slope, intercept = _fitted(
        np.column_stack([odds, np.ones(count)]), targets, np.zeros(count), [1.0, 0.0]
    )
    if slope <= 0:
        slope = 1.0
        (intercept,) = _fitted(np.ones((count, 1)), targets, odds, [0.0])

    return RelationLesson(slope, intercept, count)


def log_odds(chances: Sequence[float] | Doubles) -> Doubles:
    """Return the log odds of probabilities, within the bounds of a logit. Shape: that of `chances`."""
    within = np.clip(
        np.asarray(chances, np.float64),
        1 / (1 + math.exp(MOST_LOGIT)),
        1 / (1 + math.exp(-MOST_LOGIT)),
    )
    odds: Doubles = np.log(within) - np.log1p(-within)
    return odds


def _fitted(
    inputs: Doubles, targets: Doubles, offsets: Doubles, start: Sequence[float]
) -> list[float]:
    """Fit a logistic regression to targets between 0 and 1, by Newton's method from `start`.

    Shapes: inputs (items, weights), targets and offsets (items,).
    """
    weights = np.array(start)
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ weights + offsets, -MOST_LOGIT, MOST_LOGIT)))
        slope = inputs.T @ (chances - targets)
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + 1e-6 * np.eye(len(weights))
        change = np.linalg.solve(curvature, slope)
        # A full step from flat parts of the curve would overshoot.
        weights -= np.clip(change, -1, 1)
        if np.abs(change).max() < CLOSE:
            break
    return [float(weight) for weight in weights]
