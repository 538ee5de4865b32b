"""Diagnosis: where KILT points are lost, at the answer or at the page, and what could be reached at best."""

from dataclasses import dataclass

import numpy as np

from kbq.kilt.scoring.scores import Scores


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Shares of all queries, 1 together; pages are right where R-precision is 1."""

    both_right: float  # the KILT score
    only_answer_right: float
    only_pages_right: float
    both_wrong: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What cannot be exceeded, as shares of all queries."""

    r_precision: float  # by any ranking
    recall_at_5: float  # by any ranking: more than 5 evidence sets do not fit into 5 positions
    kilt_by_these_pages: float  # if every answer were right: the share of R-precision 1
    kilt_by_these_parts: float  # if right answers and right pages met as often as they can


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the points are lost, and how many can be had."""

    decomposition: Decomposition
    ceilings: Ceilings


def decompose(scores: Scores, answer: str = "accuracy") -> Decomposition:
    """The 2×2 table of a downstream evaluation; `answer` is the score that says right: accuracy or em.

    Raises:
        EvaluationError: there is no such score.
    """
    answer_right = scores.column(answer) == 1
    pages_right = scores.column("Rprec") == 1
    return Decomposition(
        both_right=share(answer_right & pages_right),
        only_answer_right=share(answer_right & ~pages_right),
        only_pages_right=share(~answer_right & pages_right),
        both_wrong=share(~answer_right & ~pages_right),
    )


def find_ceilings(scores: Scores, answer: str = "accuracy") -> Ceilings:
    """The ceilings of a downstream evaluation.

    Raises:
        EvaluationError: there is no such score.
    """
    pages_right = share(scores.column("Rprec") == 1)
    return Ceilings(
        r_precision=scores.mean("attainable Rprec"),
        recall_at_5=scores.mean("attainable recall@5"),
        kilt_by_these_pages=pages_right,
        kilt_by_these_parts=min(scores.mean(answer), pages_right),
    )


def share(marks: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """How many of the items are marked, from 0 to 1; 0 without items. Shape: (items,)."""
    return float(np.count_nonzero(marks) / len(marks)) if len(marks) else 0.0
