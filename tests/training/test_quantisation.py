"""Calibration: what the curve says is what a search finds, and the cheapest good threshold is
taken.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbq.model.model import Model
from kbq.model.tokenizer import tokenize
from kbq.training import quantisation as calibration
from kbq.training.batches import Passage, read_examples
from kbq.training.quantisation import (
    DevSample,
    FilterPoint,
    best_ahead,
    encode_tokens,
    evaluate_reading,
    filter_curve,
    quantisation_of,
)


@pytest.fixture
def passages(examples_file: Path, few_passages: list[Passage]) -> list[Passage]:
    return [*read_examples([examples_file])[0], *few_passages]


def dev_sample(model: Model, passages: list[Passage]) -> DevSample:
    return DevSample.of(model, passages, encode_tokens(model, passages))


def test_the_curve_is_what_a_search_finds(
    new_model: Callable[..., Model], passages: list[Passage]
) -> None:
    model = new_model()
    points = quantisation_of(model, passages)
    kept = [point.kept for point in points]
    assert kept == sorted(kept, reverse=True)
    assert points[0].kept == 100
    tokens = sum(
        len(text.ids) for text in tokenize(model.tokenizer, [one.text for one in passages])
    )
    assert points[0].vectors == round(tokens / len(passages), 2)
    for point in points[::3]:
        model.config = replace(
            model.config, filter_threshold=point.threshold, edge_threshold=float("-inf")
        )
        scores = evaluate_reading(model, passages)
        assert scores.queries == 27
        assert scores.kept == pytest.approx(point.kept, abs=0.01)
        assert (scores.open_em, scores.gold_em) == (point.open_em, point.gold_em)
        assert scores.open_passage_5 == point.open_passage_5


@pytest.mark.parametrize("side", ["open_em", "gold_em"])
@pytest.mark.parametrize(
    ("ems", "chosen"),
    [
        ([50, 50, 40], 1),
        ([50, 49.6, 49.5], 1),
        ([50, 40, 49.9], 2),
        ([0, 0, 0], 2),
        ([50, 1, 1], 0),
    ],
)
def test_the_cheapest_threshold_that_loses_less_than_half_a_point_is_taken(
    ems: list[float],
    chosen: int,
    side: str,
    new_model: Callable[..., Model],
    passages: list[Passage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = FilterPoint(0.0, 100.0, 1.0, 50.0, 0.0, 50.0)
    points = tuple(
        replace(same, threshold=float(place), **{side: em}) for place, em in enumerate(ems)
    )
    monkeypatch.setattr(calibration, "filter_curve", lambda *_: points)
    model = new_model()
    assert quantisation_of(model, passages) == points
    assert model.config.filter_threshold == max(chosen, model.config.edge_threshold)
    penalty = model.config.length_penalty
    assert model.config.edge_threshold == calibration.best_edges(
        dev_sample(model, passages), chosen, penalty
    )


@pytest.mark.parametrize("edge", [-0.5, 0.0, 0.2])
def test_edges_are_what_a_search_goes_by(
    edge: float, new_model: Callable[..., Model], passages: list[Passage]
) -> None:
    model = new_model()
    quantisation_of(model, passages)
    asked = dev_sample(model, passages)
    model.config = replace(model.config, filter_threshold=-0.1, edge_threshold=edge)
    ((open_em, passage_5, gold_em),) = asked.read(
        [(asked.tokens.edges(-0.1, edge), model.config.length_penalty)]
    )
    scores = evaluate_reading(model, passages)
    assert (scores.open_em, scores.open_passage_5, scores.gold_em) == (open_em, passage_5, gold_em)


@pytest.mark.parametrize(
    ("open_ems", "gold_ems", "chosen"),
    [
        ([50] * 6, [60] * 6, 5),
        ([50, 50, 50.2, 49.9, 49.8, 40], [60] * 6, 3),
        ([50] * 6, [60, 59.95, 59.8, 50, 50, 50], 1),
    ],
)
def test_the_highest_edges_that_lose_a_tenth_of_a_point_at_most_are_taken(
    open_ems: list[float],
    gold_ems: list[float],
    chosen: int,
    new_model: Callable[..., Model],
    passages: list[Passage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = dev_sample(new_model(), passages)
    read = [[one, 0.0, other] for one, other in zip(open_ems, gold_ems, strict=True)]
    monkeypatch.setattr(DevSample, "read", lambda *_: read)
    assert calibration.best_edges(asked, 0.0, 0.1) == calibration.EDGE_THRESHOLDS[chosen]


def test_a_step_is_a_127th_of_the_largest_value(
    new_model: Callable[..., Model], passages: list[Passage]
) -> None:
    model = new_model()
    quantisation_of(model, passages)
    tokens = encode_tokens(model, passages)
    assert model.scale.dtype == np.float32
    assert model.scale == pytest.approx(np.abs(tokens.vectors).max(axis=0) / 127, rel=0.05)


@pytest.mark.parametrize(
    ("ems", "chosen"), [([50, 51, 52, 52, 51, 40], 0.1), ([50, 50, 49, 0, 0, 0], 0.0)]
)
def test_the_smallest_penalty_with_the_best_answers_is_taken(
    ems: list[float],
    chosen: float,
    new_model: Callable[..., Model],
    passages: list[Passage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        DevSample, "read", lambda _, ways: [[em, 0.0, 0.0] for em in ems[: len(ways)]]
    )
    monkeypatch.setattr(
        calibration, "filter_curve", lambda *_: (FilterPoint(0.0, 100.0, 1.0, 50.0, 0.0, 50.0),)
    )
    model = new_model()
    quantisation_of(model, passages)
    assert model.config.length_penalty == chosen
    quantisation_of(model, passages, (0.0,))
    assert model.config.length_penalty == 0


def test_what_is_asked_is_bounded(
    new_model: Callable[..., Model], passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "MOST_QUERIES", 4)
    points = filter_curve(dev_sample(new_model(), passages), 0.1)
    assert {point.open_em % 25 for point in points} == {0}


def test_best_ahead_looks_at_twenty_places() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 70)).astype(np.float32)
    expected = [[max(row[place : place + 20]) for place in range(70)] for row in scores]
    assert best_ahead(scores).tolist() == expected


def test_where_nothing_is_answered_everything_is_kept(
    new_model: Callable[..., Model], passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = tuple(FilterPoint(float(place), 100.0, 1.0, 0.0, 0.0, 0.0) for place in range(3))
    monkeypatch.setattr(calibration, "filter_curve", lambda *_: points)
    model = new_model()
    assert quantisation_of(model, passages) == points
    assert (model.config.filter_threshold, model.config.edge_threshold) == (-np.inf, -np.inf)
