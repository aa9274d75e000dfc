"""Intervals by the bootstrap: what a number would be with other seeds, drawn from those that were run.

Percentile intervals (Efron, Bootstrap methods: another look at the jackknife, 1979). With few seeds all resamples are
looked at, so nothing is drawn; with more, a generator of its own draws them, the same each time.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from normula.record import Interval

Indices = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[np.float64]]

COVERAGE = 0.95
MOST_EXACT = 5
"""Seeds up to which all resamples are looked at: 5**5 = 3125."""
SMALLEST = 0.02
"""Nats below which a difference is called none, whatever its interval: 2 % of the perplexity."""
DRAWN = 9999
"""Resamples of more seeds, as scipy.stats.bootstrap has it."""


@cache
def resamples(seeds: int) -> Indices:
    """Which seeds stand in each resample, (resamples, seeds)."""
    if seeds <= MOST_EXACT:
        return np.array(list(product(range(seeds), repeat=seeds)), dtype=np.int64).reshape(-1, seeds)
    return np.random.default_rng(seeds).integers(seeds, size=(DRAWN, seeds))


def interval(value: float, resampled: Values, *, seeds: int, whole: bool = False) -> Interval:
    """The interval that holds the middle 95 % of what the resamples gave.

    Args:
        value: from the seeds themselves.
        resampled: from each resample.
        seeds: how many there are; with fewer than two there is no interval.
        whole: whether only values that occur can be meant, such as rates of a grid.
    """
    if seeds < 2 or np.isnan(resampled).any():
        return Interval(value=value)
    tails = ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)
    if whole or not np.isfinite(resampled).all():
        low, high = np.quantile(resampled, tails, method="inverted_cdf")
    else:
        low, high = np.quantile(resampled, tails)
    return Interval(value=value, low=float(low), high=float(high))


def mean_interval(values: Values) -> Interval:
    """The mean of values, one a seed, with its interval; nan where there are none."""
    seeds = len(values)
    if not seeds:
        return Interval(value=math.nan)
    return interval(float(values.mean()), values[resamples(seeds)].mean(axis=1), seeds=seeds)


def is_large(gap: Interval) -> bool:
    """Whether a difference matters, chance or not."""
    return gap.value >= SMALLEST
