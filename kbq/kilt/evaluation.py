"""Evaluation: a gold file and a prediction file become the official KILT scores, to the last digit.

Source: arXiv 2009.02252 and the official evaluation. What it rejects is refused here, all problems at once.
"""

from collections.abc import Iterable
from functools import partial
from os import PathLike
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt.reading.parsing import parse_answer, parse_ranking
from kbq.kilt.scoring.deviations import OFFICIAL, Deviations
from kbq.kilt.scoring.grouping import GroupOf, relation_of
from kbq.kilt.scoring.metrics import RANK_KEYS, STANDARD_CUTOFFS, Cutoffs, downstream_metrics, retrieval_metrics
from kbq.kilt.scoring.scores import Scores, Scoring

AnyPath = str | PathLike[str]


def evaluate_downstream(
    gold_path: AnyPath, guess_path: AnyPath, deviations: Deviations = OFFICIAL
) -> dict[str, dict[str, float]]:
    """The scores of the leaderboard, `{"kilt": …, "downstream": …, "retrieval": …}`, unrounded.

    Raises:
        EvaluationError: the official downstream evaluation rejects the files; it carries all problems.
    """
    return score_downstream(gold_path, guess_path, deviations).downstream_layout()


def evaluate_retrieval(
    gold_path: AnyPath,
    guess_path: AnyPath,
    ks: Iterable[int] = STANDARD_CUTOFFS.ks,
    rank_keys: Iterable[str] = STANDARD_CUTOFFS.rank_keys,
    deviations: Deviations = OFFICIAL,
) -> dict[str, float]:
    """The scores of predicted pages, `{"Rprec": …, "precision@1": …}`, unrounded.

    `entity_in_input` is left out where a gold record has no input.

    Raises:
        EvaluationError: the official retrieval evaluation rejects the files; it carries all problems.
    """
    if isinstance(rank_keys, str):  # its letters would be taken for keys
        raise EvaluationError(f"rank_keys is the text {rank_keys!r}, give a tuple of keys")
    cutoffs = Cutoffs(tuple(ks), tuple(rank_keys))
    return score_retrieval(gold_path, guess_path, cutoffs, deviations).retrieval_layout()


def score_downstream(
    gold_path: AnyPath,
    guess_path: AnyPath,
    deviations: Deviations = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Like `evaluate_downstream`, but the scores of every record, with diagnostics."""
    metrics = downstream_metrics(deviations)
    scoring = Scoring(Path(gold_path), Path(guess_path), metrics, deviations, group_of)
    return scoring.run(RANK_KEYS["page"], parse_answer)


def score_retrieval(
    gold_path: AnyPath,
    guess_path: AnyPath,
    cutoffs: Cutoffs = STANDARD_CUTOFFS,
    deviations: Deviations = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Like `evaluate_retrieval`, but the scores of every record."""
    metrics = retrieval_metrics(cutoffs, deviations)
    parse = partial(parse_ranking, rank_keys=cutoffs.rank_keys, depth=max(cutoffs.ks, default=0))
    scoring = Scoring(Path(gold_path), Path(guess_path), metrics, deviations, group_of)
    return scoring.run(cutoffs.rank_keys, parse)
