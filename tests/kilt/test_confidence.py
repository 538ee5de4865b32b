"""Scores of confidence: against definitions written out, published numbers and scipy; what is
promised is kept.
"""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from kbq.array_types import Bools, Doubles
from kbq.kilt.confidence import (
    Coverage,
    auroc,
    brier,
    coverage_at,
    promised_threshold,
    reliability,
    risk_coverage,
)

Answers = tuple[Doubles, Bools]
NONE: Answers = np.zeros(0), np.zeros(0, dtype=bool)
ONE_RIGHT: Answers = np.array([0.75]), np.array([True])
ONE_WRONG: Answers = np.array([0.75]), np.array([False])
BOTH: Answers = np.array([0.75, 0.25]), np.array([True, False])

few_answers = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=6
).map(
    lambda pairs: (
        np.array([one for one, _ in pairs]),
        np.array([is_right for _, is_right in pairs]),
    )
)


def calibrated(count: int, seed: int, shape: tuple[float, float] = (0.7, 0.7)) -> Answers:
    """Answers that are right with exactly their probability."""
    generator = np.random.default_rng(seed)
    confidences = generator.beta(*shape, count)
    return confidences, generator.random(count) < confidences


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (NONE, (None, None)),
        (ONE_RIGHT, (None, 0.0625)),
        (ONE_WRONG, (None, 0.5625)),
        (BOTH, (1.0, 0.0625)),
    ],
    ids=["none", "all right", "all wrong", "both"],
)
def test_what_does_not_exist_is_none(answers: Answers, expected: tuple[float | None, ...]) -> None:
    assert (auroc(*answers), brier(*answers)) == pytest.approx(expected)


def test_without_answers_nothing_is_covered_or_promised() -> None:
    assert risk_coverage(*NONE).coverage.tolist() == []
    assert (
        coverage_at(*NONE, 0.9)
        == coverage_at(*NONE, 0.9, queries=4)
        == Coverage(0.9, 0.0, 0.0, 0.0)
    )
    assert reliability(*NONE) is None
    assert promised_threshold(*NONE, 0.9) is None


# Which answers to accept


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(few_answers)
def test_auroc_is_that_of_its_definition(answers: Answers) -> None:
    confidences, right = answers
    pairs = list(product(confidences[right], confidences[~right]))
    wins = [(one > other) + (one == other) / 2 for one, other in pairs]
    assert auroc(*answers) == (pytest.approx(np.mean(wins)) if pairs else None)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(few_answers, st.sampled_from([0.25, 0.5, 2 / 3, 0.9]))
def test_coverage_is_that_of_the_lowest_threshold_at_this_precision(
    answers: Answers, precision: float
) -> None:
    confidences, right = answers
    accepted = [confidences >= threshold for threshold in confidences]
    possible = [each.mean() for each in accepted if right[each].mean() >= precision]
    found = coverage_at(confidences, right, precision, resamples=20)
    assert found.share == max(possible, default=0)
    assert found.low <= found.high


def test_unanswered_queries_lower_coverage_and_nothing_else() -> None:
    curve = risk_coverage(*BOTH, queries=4)
    assert (curve.coverage.tolist(), curve.risk.tolist()) == ([0.25, 0.5], [0.0, 0.5])
    assert coverage_at(*BOTH, 0.9, queries=4).share == 0.25


def test_the_interval_of_coverage_is_as_wide_as_new_samples_differ() -> None:
    shares = [coverage_at(*calibrated(700, seed), 0.9, resamples=1).share for seed in range(200)]
    widths = [
        found.high - found.low
        for found in (coverage_at(*calibrated(700, seed), 0.9) for seed in range(10))
    ]
    assert np.std(shares) == pytest.approx(0.043, abs=0.005)
    assert np.mean(widths) == pytest.approx(2 * 1.96 * 0.043, rel=0.15)
    assert coverage_at(*calibrated(700, 0), 0.9) == coverage_at(*calibrated(700, 0), 0.9)
    assert coverage_at(*calibrated(700, 0), 0.9) != coverage_at(*calibrated(700, 0), 0.9, seed=1)


# Whether a probability means what it says


def test_a_constant_confidence_has_a_fine_ece_and_no_auroc_to_speak_of() -> None:
    constant: Answers = np.full(8, 0.75), np.arange(8) < 6
    found = reliability(*constant)
    assert found
    assert [(each.count, each.right) for each in found.bins] == [(8, 0.75)]
    assert (found.ece, auroc(*constant)) == (0.0, 0.5)


@pytest.mark.parametrize("count", [1, 14, 15, 16, 100])
def test_bins_have_equally_many_answers_whatever_their_order(count: int) -> None:
    confidences, right = calibrated(count, seed=3)
    order = np.argsort(confidences)
    places = np.array([(2 * rank + 1) * 15 // (2 * count) for rank in range(count)])
    expected = (
        sum(abs((confidences - right)[order][places == place].sum()) for place in range(15)) / count
    )
    found, turned = reliability(confidences, right), reliability(confidences[::-1], right[::-1])
    assert found
    assert turned
    assert found.ece == pytest.approx(expected)
    assert [(each.count, each.right) for each in found.bins] == [
        (each.count, each.right) for each in turned.bins
    ]
    counts = [each.count for each in found.bins]
    assert (sum(counts), max(counts) - min(counts) <= 1) == (count, True)


@pytest.mark.parametrize(
    ("count", "mean", "high"),
    [(200, 0.079, None), (500, 0.050, None), (700, 0.043, 0.059), (1830, 0.026, 0.036)],
)
def test_the_noise_floor_is_what_calibrated_models_show(
    count: int, mean: float, high: float | None
) -> None:
    found = [reliability(*calibrated(count, seed)) for seed in range(20)]
    assert np.mean([each.floor for each in found if each]) == pytest.approx(mean, abs=0.002)
    assert np.mean([each.ece for each in found if each]) == pytest.approx(mean, abs=0.006)
    if high:
        assert np.mean([each.floor_high for each in found if each]) == pytest.approx(
            high, abs=0.003
        )


def test_consistency_intervals_hold_the_bins_of_calibrated_models() -> None:
    found = [reliability(*calibrated(700, seed)) for seed in range(40)]
    held = [one.low <= one.right <= one.high for each in found if each for one in each.bins]
    assert np.mean(held) == pytest.approx(0.96, abs=0.02)  # more than 95 %, as shares are coarse
    tilted = reliability(np.full(400, 0.9), np.arange(400) < 200)
    assert tilted
    assert tilted.bins[0].high < 0.95
    assert tilted.bins[0].low > 0.85 > tilted.bins[0].right


# What can be promised


def lower_bound(right: int, accepted: int) -> float:
    """The exact one-sided bound of Clopper and Pearson, with a certainty of 0.95."""
    return float(beta.ppf(0.05, right, accepted - right + 1))


@pytest.mark.parametrize(
    ("accepted", "needed"), [(30, 30), (60, 59), (100, 96), (200, 188), (500, 462)]
)
def test_how_many_must_be_right_to_promise_nine_of_ten(accepted: int, needed: int) -> None:
    assert lower_bound(needed, accepted) >= 0.9 > lower_bound(needed - 1, accepted)
    alike, descending = np.full(accepted, 0.8), np.linspace(1, 0.5, accepted)
    for confidences, lowest in ((alike, 0.8), (descending, 0.5)):
        ranks = np.arange(accepted)
        assert promised_threshold(confidences, ranks < needed, 0.9) == lowest
        assert promised_threshold(confidences, ranks < needed - 1, 0.9) != lowest


def test_a_threshold_below_one_that_fails_is_not_promised() -> None:
    ranks = np.arange(1000)
    is_right = (ranks < 30) | (ranks >= 40)  # 10 wrong ones, after which the whole passes again
    assert lower_bound(int(is_right.sum()), 1000) > 0.9
    assert promised_threshold(1 - ranks / 1000, is_right, 0.9) is None
    assert promised_threshold(1 - ranks / 1000, ranks != 40, 0.9) == pytest.approx(0.001)


@pytest.mark.parametrize("size", [700, 4000])  # one slip is allowed at the top, and five
@pytest.mark.parametrize("shape", [(0.7, 0.7), (1.0, 0.4), (0.7, 1.2)])
def test_promises_are_kept_and_worth_something(shape: tuple[float, float], size: int) -> None:
    # All the answers there are.
    confidences = np.sort(np.random.default_rng(0).beta(*shape, 100_000))[::-1]
    precisions = confidences.cumsum() / np.arange(1, len(confidences) + 1)
    kept, coverages = [], []
    for seed in range(200):
        promised = promised_threshold(*calibrated(size, seed, shape), 0.9)
        accepted = (
            0 if promised is None else int(np.searchsorted(-confidences, -promised, side="right"))
        )
        kept.append(accepted == 0 or precisions[accepted - 1] >= 0.9)
        coverages.append(accepted / len(confidences))
    possible = float((precisions >= 0.9).mean())
    assert np.mean(kept) >= 0.92  # 0.95, less twice the error of 200 draws
    assert (
        np.mean(coverages) > {(0.7, 0.7): 0.45, (1.0, 0.4): 0.8, (0.7, 1.2): 0.09}[shape] * possible
    )


def test_a_few_slips_at_the_top_of_many_answers_are_survived() -> None:
    ranks = np.arange(4000)
    is_right = ~np.isin(ranks, (3, 20, 40, 55)) & (ranks < 1000)
    assert lower_bound(996, 1088) >= 0.9 > lower_bound(996, 1089)
    assert promised_threshold(1 - ranks / 4000, is_right, 0.9) == pytest.approx(1 - 1087 / 4000)
    assert promised_threshold(1 - ranks[:999] / 4000, is_right[:999], 0.9) is None


@pytest.mark.parametrize("size", [1000, 4000])
def test_luck_is_not_taken_for_precision(size: int) -> None:
    generator = np.random.default_rng(1)
    ranks = np.arange(1, size + 1)
    # No threshold has a precision of 0.9.
    samples = [generator.random(size) < 0.895 for _ in range(500)]
    promised = [promised_threshold(1 / ranks, is_right, 0.9) is not None for is_right in samples]
    lowest_that_passes = [
        (binom.sf(is_right.cumsum() - 1, ranks, 0.9) <= 0.1).any() for is_right in samples
    ]
    assert np.mean(promised) <= 0.1
    assert np.mean(lowest_that_passes) > 0.2  # would promise too much


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=60).map(np.array))
def test_more_precision_or_certainty_never_lowers_the_threshold(right: Bools) -> None:
    levels = [(0.3, 0.5), (0.3, 0.8), (0.6, 0.8), (0.6, 0.9)]
    found = [
        promised_threshold(1 / np.arange(1, len(right) + 1), right, *level) for level in levels
    ]
    thresholds = [math.inf if threshold is None else threshold for threshold in found]
    assert all(low <= high for low, high in pairwise(thresholds))


@pytest.mark.parametrize(
    ("precision", "certainty", "name"),
    [(0, 0.9, "precision"), (1.0, 0.9, "precision"), (0.9, 1, "certainty")],
)
def test_what_nobody_can_promise_is_refused(precision: float, certainty: float, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*, must be between 0 and 1"):
        promised_threshold(*BOTH, precision, certainty)
