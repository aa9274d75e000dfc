"""Parameters that stand for any: what is special at the start of training is drawn at random, in copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def drawn(value: Any, seed: int) -> NDArray[Any]:
    """A parameter as it may be after training.

    One that holds one value everywhere, or in each layer, or is a vector, is what it is at the start of training;
    there placements agree that later do not (a branch of zeros, a gain of ones).
    """
    array = np.asarray(value)
    if not array.size or not _is_special(array):
        return array
    generator = np.random.default_rng(seed)
    noise, other = generator.uniform(-0.5, 0.5, (2, *array.shape))
    spread = 0.6 if array.ndim <= 1 else 2 / max(array.shape[-2:]) ** 0.5  # products keep the size of their input
    return np.asarray(array.astype(np.float64) * (1 + noise) + other * spread, array.dtype)


def _is_special(array: NDArray[Any]) -> bool:
    if array.ndim <= 1:
        return True
    rows = array.reshape(array.shape[0], -1).astype(np.float64)
    return bool((rows == rows[:, :1]).all())
