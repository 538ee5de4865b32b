"""Calibration: features become the chance that a phrase is right, by logistic regression; a file of a few kB.

It holds for the model and the way of searching that it was fitted with, and says which these are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from kbq.array_types import Bools, Doubles
from kbq.errors import ModelError
from kbq.reading.probability_features import FEATURES, features
from kbq.reading.reranker import Look
from kbq.storage.files import reading_problem
from kbq.storage.records import OtherFormatError, read_record, write_record
from kbq.storage.writing import writing_to

CALIBRATION = "calibration.json"
FORMAT = 2  # 2: phrases that mean the same support each other
HIDDEN = 0.3  # share of the queries that are asked again without their pages, to fit one
PENALTY = 1.0  # of half the sum of squared weights
BELIEF = 30.0  # of half their squared distance from those of another calibration, if there is one
MOST = 30.0  # a logit: a chance is never 0 or 1
STEPS, CLOSE = 100, 1e-9  # of Newton's method: most, and the change of weights after the last
Number = Annotated[float, Meta(ge=-1e9, le=1e9)]


@dataclass(frozen=True, slots=True)
class SearchMode:
    """What decides the scores that a calibration reads."""

    query_encoder: str  # its fingerprint
    reader: str  # the digest of its file
    scores: str  # what they are made of
    second_look: int  # phrases that are reranked: files have it under this name

    def differences(self, other: "SearchMode") -> list[str]:
        """What differs, in words."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        words = {"query_encoder": "query encoder", "second_look": "rerank"}
        return [f"{words.get(name, name)} {mine}, not {theirs}" for name, mine, theirs in pairs if mine != theirs]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression over `FEATURES`, as written into a file."""

    mode: SearchMode
    weights: dict[str, Number]  # of each feature
    intercept: Number
    queries: int  # it was fitted on
    right: int  # of these answers
    thresholds: dict[str, float | None]  # by precision: the chance above which it can be promised; None: none can
    facts: dict[str, object]  # command, data, versions, scores on relations that were left out

    def __post_init__(self) -> None:
        if tuple(self.weights) != FEATURES:
            raise ValueError(f"it has weights for {', '.join(self.weights)}, not for {', '.join(FEATURES)}")

    def probabilities(self, text: str, looks: Sequence[Look]) -> list[float]:
        """The chance of each phrase that was found for a query to be right, best first; none exceeds one before it."""
        rows = features(text, looks).astype(np.float64)
        chances = chances_of(rows, list(self.weights.values()), self.intercept)
        found: list[float] = np.minimum.accumulate(chances).tolist()
        return found

    def applied(self, text: str, looks: Sequence[Look]) -> list[Look]:
        """The phrases that were found for a query, with their probabilities."""
        chances = self.probabilities(text, looks)
        return [
            look._replace(answer=replace(look.answer, probability=chance))
            for look, chance in zip(looks, chances, strict=True)
        ]

    def write(self, path: Path) -> None:
        """Replace a file.

        Raises:
            ModelError: it cannot be written.
        """
        with writing_to(path, ModelError):
            write_record(path, self, FORMAT)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            ModelError: it is missing, damaged, or of another format version.
        """
        again = "calibrate again with `kbq calibrate`"
        try:
            return read_record(path, cls, FORMAT)
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist: make it with `kbq calibrate`") from None
        except OtherFormatError as error:
            if error.found is None:
                raise ModelError(f"{path} is not a calibration: make one with `kbq calibrate`") from None
            raise ModelError(f"{path} has format version {error.found}, this kbq reads {FORMAT}: {again}") from None
        except (OSError, ValueError) as error:
            raise ModelError(reading_problem(path, error, again)) from None


def chances_of(rows: Doubles, weights: Sequence[float], intercept: float) -> Doubles:
    """What a logistic regression says. Shapes: rows (items, features), result (items,)."""
    chances: Doubles = 1 / (1 + np.exp(-np.clip(rows @ np.asarray(weights) + intercept, -MOST, MOST)))
    return chances


def fit(rows: Doubles, right: Bools, before: Calibration | None = None) -> tuple[list[float], float]:
    """The weights and the intercept of a logistic regression with an L2 penalty on standardised features.

    Newton's method, in float64. Shape of `rows`: (items, features).

    Args:
        before: a calibration to which the weights are drawn, instead of 0: few items change little of it.
    """
    if before is not None and not len(rows):
        return list(before.weights.values()), before.intercept
    means, scales = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
    inputs = np.column_stack([(rows - means) / scales, np.ones(len(rows))])
    goal = right.astype(np.float64)
    if before is None:
        expected, penalty = np.zeros(inputs.shape[1]), np.diag([PENALTY] * rows.shape[1] + [0.0])
    else:
        weights = np.array(list(before.weights.values()))
        expected = np.append(weights * scales, before.intercept + weights @ means)
        penalty = BELIEF * np.eye(len(expected))
    solution = expected.copy()
    for _ in range(STEPS):
        chances = chances_of(inputs, solution.tolist(), 0.0)
        slope = inputs.T @ (chances - goal) + penalty @ (solution - expected)
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + penalty
        change = np.linalg.solve(curvature, slope)
        solution -= change
        if np.abs(change).max() < CLOSE:
            break
    found = solution[:-1] / scales
    return found.tolist(), float(solution[-1] - found @ means)
