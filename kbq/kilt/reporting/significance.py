"""Significance: how far chance alone moves a mean, or the difference of two systems on the same queries.

Source: bootstrap and sign-flip permutation, as in Koehn, EMNLP 2004; Holm, Scand. J. Statistics 1979.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbq.array_types import Doubles

BLOCK = 2_000_000  # random numbers drawn at a time


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often to draw, from which seed, and which share of the draws an interval holds."""

    resamples: int = 10_000
    seed: int = 0
    confidence: float = 0.95


STANDARD = Resampling()


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap confidence interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def bootstrap_interval(values: Doubles, resampling: Resampling = STANDARD) -> Interval:
    """Percentile interval of the mean when the items are drawn anew with replacement.

    Items of equal value are drawn together, from the multinomial distribution: the same law, much faster.

    Args:
        values: Shape: (items,). Without items the interval is 0.
    """
    if len(values) == 0:
        return Interval(0.0, 0.0, 0.0)
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng(resampling.seed)
    means = [
        generator.multinomial(len(values), counts / len(values), size=size) @ distinct / len(values)
        for size in block_sizes(resampling.resamples, len(distinct))
    ]
    tail = (1 - resampling.confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def permutation_p(differences: Doubles, resampling: Resampling = STANDARD) -> float:
    """Two-sided p value of a mean difference when the sign of every pair's difference is a coin toss.

    Args:
        differences: second system minus first, paired by query. Shape: (items,).
    """
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    if len(sizes) == 0:
        return 1.0
    observed = abs(differences.sum())
    generator = np.random.default_rng(resampling.seed)
    extreme = 0
    for block in block_sizes(resampling.resamples, len(sizes)):
        positive = generator.binomial(counts, 0.5, size=(block, len(sizes)))
        sums = np.abs((2 * positive - counts) @ sizes)
        extreme += int((sums >= observed * (1 - 1e-12)).sum())
    return (extreme + 1) / (resampling.resamples + 1)


def block_sizes(resamples: int, width: int) -> list[int]:
    """Splits the resamples so that each block draws a bounded amount of numbers."""
    block = max(1, BLOCK // width)
    return [min(block, resamples - start) for start in range(0, resamples, block)]


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for testing several things at once, in the order given.

    >>> holm([0.25, 0.125, 0.5])
    [0.5, 0.375, 0.5]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    ascending = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for passed, index in enumerate(ascending):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - passed)))
        adjusted[index] = highest
    return adjusted
