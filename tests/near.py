"""Comparisons, each with a tolerance that says which rounding needs it."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from normula.oracle.norms import Array

SAME_PROGRAM: Final = 1e-12
"""Two float64 programs of the same numbers in another order: some hundred operations of 2^-53, times the condition."""

FLOAT64: Final = 1e-10
"""Two float64 implementations of a whole stack, forward and gradient: the promise of the library."""

FLOAT32: Final = 1e-6
"""Two float32 implementations of a shallow stack: some ten roundings of 2^-24."""

DIFFERENCES: Final = 1e-6
"""Central differences in float64 with h = 6e-6 err by 1e-10; a stack of norms multiplies third derivatives."""


def distance(actual: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected value; 0 where both are zero."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert actual.shape == expected.shape, f"{actual.shape} beside {expected.shape}"
    assert np.isfinite(actual).all(), "a value that is not finite"
    difference, size = np.abs(actual - expected).max(initial=0.0), np.abs(expected).max(initial=0.0)
    return float(difference / size) if size else float(difference)


def assert_near(actual: Array, expected: Array, tolerance: float, what: str = "") -> None:
    """The largest difference, relative to the largest expected value, is within the tolerance."""
    assert distance(actual, expected) <= tolerance, f"{what} {distance(actual, expected):.3g}".strip()


def assert_gradients_near(actual: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float) -> None:
    """The same names, and each gradient near; the scale is the largest gradient's.

    A gradient may be zero by an identity (the keys' biases: the softmax does not see them) and then has no scale.
    """
    assert actual.keys() == expected.keys()
    size = max((np.abs(array).max() for array in expected.values()), default=0.0)
    for name, array in expected.items():
        difference = np.abs(np.asarray(actual[name]) - array).max()
        assert difference <= tolerance * size, f"{name}: {difference / size:.3g}"
