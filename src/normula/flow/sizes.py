"""Sizes of arrays in double precision: norm, root mean square, cosines between tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def length(x: NDArray[Any] | None) -> float:
    """Norm over everything; 0 for a gradient that never came."""
    return 0.0 if x is None else float(np.linalg.norm(x.ravel()))


def rms(x: NDArray[Any]) -> float:
    """Root mean square over everything."""
    return math.sqrt(float(np.square(x).mean()))


def token_cosine(x: NDArray[Any]) -> float:
    """Mean cosine between two different tokens of a sequence, (B, T, D); nan for a single token."""
    T = x.shape[1]
    if T == 1:
        return math.nan
    units = _unit(x)
    # less each token with itself: 1, or 0 for a token of zeros, which is like no other
    pairs = np.square(units.sum(axis=1)).sum(axis=-1) - np.square(units).sum(axis=(1, 2))
    return float((pairs / (T * (T - 1))).mean())


def centred(x: NDArray[Any]) -> NDArray[Any]:
    """Each token without its mean, features last."""
    rest: NDArray[Any] = x - x.mean(axis=-1, keepdims=True)
    return rest


def swallowed(branch: NDArray[Any], skip: NDArray[Any]) -> float:
    """Share of the numbers of a branch that bfloat16, with 8 bits, loses when they are added; zeros do not count.

    A number in [2**(e - 1), 2**e) is 2**(e - 8) from the next one; half of that is 2**(e - 9).
    """
    _, exponents = np.frexp(skip)
    lost = (np.abs(branch) < np.ldexp(1.0, exponents - 9)) & (skip != 0)
    added = branch != 0
    return float(lost[added].mean()) if added.any() else 0.0


def step_cosine(before: NDArray[Any], after: NDArray[Any]) -> float:
    """Mean cosine between a token before and after a step, features last."""
    return float((_unit(before) * _unit(after)).sum(axis=-1).mean())


def _unit(x: NDArray[Any]) -> NDArray[Any]:
    """Each token at length 1; a token of zeros stays."""
    sizes = np.linalg.norm(x, axis=-1, keepdims=True)
    unit: NDArray[Any] = x / np.where(sizes > 0, sizes, 1)
    return unit
