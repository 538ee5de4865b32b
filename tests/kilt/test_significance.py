"""Confidence intervals, permutation tests and Holm's correction."""

import numpy as np
import pytest

from kbq.kilt.analysis import Interval, bootstrap_interval, holm, permutation_p


def test_the_interval_of_a_share_is_that_of_the_binomial_law() -> None:
    values = np.array([1.0] * 3750 + [0.0] * 1250)
    interval = bootstrap_interval(values)
    margin = 1.96 * (0.75 * 0.25 / 5000) ** 0.5  # 1.2 points
    assert interval.mean == 0.75
    assert interval.low == pytest.approx(0.75 - margin, abs=5e-4)
    assert interval.high == pytest.approx(0.75 + margin, abs=5e-4)


def test_the_interval_of_many_values_is_that_of_the_normal_law() -> None:
    values = np.linspace(0, 1, 1001)
    interval = bootstrap_interval(values)
    margin = 1.96 * float(values.std()) / 1001**0.5
    assert interval.high - interval.low == pytest.approx(2 * margin, rel=0.03)


@pytest.mark.parametrize(
    ("values", "interval"),
    [([], Interval(0, 0, 0)), ([1.0], Interval(1, 1, 1)), ([0.5, 0.5], Interval(0.5, 0.5, 0.5))],
)
def test_intervals_without_variance(values: list[float], interval: Interval) -> None:
    assert bootstrap_interval(np.array(values)) == interval


def test_a_seed_gives_the_same_numbers_and_confidence_widens() -> None:
    values = np.array([0.0, 0.25, 1.0] * 50)
    few = bootstrap_interval(values, resamples=500)
    assert few == bootstrap_interval(values, resamples=500)
    assert few != bootstrap_interval(values, resamples=500, seed=1)
    assert bootstrap_interval(values, resamples=500, confidence=0.99).low < few.low


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0], 1.0),  # either sign is as extreme
        ([1.0, -1.0], 1.0),
        ([1.0] * 5, 2 / 2**5),
        ([0.5] * 10 + [-0.5], 24 / 2**11),  # 11 signs: 0, 1, 10 or 11 of them positive
    ],
)
def test_permutation_p(differences: list[float], p: float) -> None:
    assert permutation_p(np.array(differences)) == pytest.approx(p, abs=0.005)


def test_the_smallest_p_is_one_in_all_resamples() -> None:
    assert permutation_p(np.ones(100), resamples=999) == 0.001


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([], []),
        ([0.5], [0.5]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.9, 0.8], [1.0, 1.0]),
    ],
)
def test_holm(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted)
