"""Evaluation: passages of one word have one answer."""

import pytest

from kbq.model.model import Model
from kbq.training.batches import Passage, TrainingQuery
from kbq.training.quantisation import ReadingScores, evaluate_reading


def passage(text: str, *answers: str) -> Passage:
    queries = tuple(
        TrainingQuery("", "Where?", ((0, len(answer)),), (answer,)) for answer in answers
    )
    return Passage("the city", text, queries, "g")


@pytest.mark.parametrize(
    ("passages", "scores"),
    [
        ([passage("Paris", "Paris")], ReadingScores(1, 100, 100, 100, 100, 100, 100, 100)),
        ([passage("Paris", "the paris!")], ReadingScores(1, 100, 100, 100, 100, 100, 100, 100)),
        ([passage("Paris", "Paris", "Warsaw")], ReadingScores(2, 50, 50, 50, 50, 100, 100, 100)),
        ([passage("Paris", "Paris Warsaw")], ReadingScores(1, 0, 66.67, 0, 66.67, 100, 100, 100)),
    ],
)
def test_scores(passages: list[Passage], scores: ReadingScores, model: Model) -> None:
    assert evaluate_reading(model, passages) == scores


def test_the_given_passage_is_read_and_all_passages_are_searched(model: Model) -> None:
    passages = [passage(word, word) for word in ("Paris", "Warsaw", "river")]
    scores = evaluate_reading(model, passages)
    assert (scores.queries, scores.gold_em, scores.gold_f1) == (3, 100, 100)
    # All queries are the same, so all are answered with the same passage.
    assert scores.open_em == scores.open_passage == pytest.approx(33.33)
    assert scores.open_passage_5 == 100
