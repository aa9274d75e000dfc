"""Bootstrap intervals, against the enumeration of all resamples and against SciPy's."""

import math
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normula.race.bootstrap import MOST_EXACT, interval, mean_interval, resamples


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.06, 0.07, 0.05], [0.86, 2.67, 2.32, 2.68]])
def test_the_interval_of_few_seeds_is_that_of_all_their_resamples(values: list[float]) -> None:
    means = sorted(fmean(drawn) for drawn in product(values, repeat=len(values)))
    found = mean_interval(np.array(values))
    assert found.value == pytest.approx(fmean(values))
    assert found.low == pytest.approx(np.percentile(means, 2.5))
    assert found.high == pytest.approx(np.percentile(means, 97.5))


def test_two_seeds_span_the_interval() -> None:
    """Of four resamples one has the smaller value twice: more than 2.5 % of them."""
    found = mean_interval(np.array([1.0, 3.0]))
    assert found.low == pytest.approx(1.0, abs=0.1)
    assert found.high == pytest.approx(3.0, abs=0.1)


def test_many_seeds_agree_with_scipy() -> None:
    """Both draw 9999 resamples; each end is known to about 2 % of the interval."""
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(5).normal(2.0, 0.3, 12)
    ours = mean_interval(values)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=9999, rng=1).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_one_seed_has_no_interval_and_none_no_value() -> None:
    alone = mean_interval(np.array([2.0]))
    assert alone.value == 2.0
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)
    assert math.isnan(mean_interval(np.array([])).value)


def test_the_same_seeds_give_the_same_interval() -> None:
    values = np.random.default_rng(1).normal(size=9)
    resamples.cache_clear()
    first = mean_interval(values)
    resamples.cache_clear()
    assert mean_interval(values) == first


def test_values_of_a_grid_are_not_mixed() -> None:
    """Half of the resamples say 0.001 and half 0.1: an end between the two would be no rate of the grid."""
    found = interval(0.001, np.array([0.001, 0.1] * 8), seeds=3, whole=True)
    assert (found.low, found.high) == (0.001, 0.1)


def test_infinite_values_stay() -> None:
    assert interval(0.0, np.array([0.0, math.inf, 0.0, math.inf]), seeds=2).high == math.inf


@pytest.mark.property
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=MOST_EXACT + 2), st.floats(-5, 5), st.floats(0.1, 4))
def test_an_interval_moves_and_stretches_with_its_values(values: list[float], shift: float, factor: float) -> None:
    found = mean_interval(np.array(values))
    moved = mean_interval(factor * np.array(values) + shift)
    assert min(values) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= max(values) + 1e-9
    assert moved.low == pytest.approx(factor * found.low + shift, abs=1e-9)
    assert moved.high == pytest.approx(factor * found.high + shift, abs=1e-9)
