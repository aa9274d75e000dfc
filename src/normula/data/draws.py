"""Random inputs and random directions, the same for every framework."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from normula.spec import Spec


def random_input(spec: Spec, seed: int, batch: int, tokens: int) -> NDArray[Any]:
    """Standard normal vectors (B, T, D) or values (B, T, P), float64; ids (B, T) where the spec has a vocabulary."""
    random = np.random.default_rng([seed, 3])
    if spec.vocab is not None:
        return random.integers(0, spec.vocab, (batch, tokens))
    return random.standard_normal((batch, tokens, spec.features or spec.width))


def random_direction(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """A random direction of length 1 over all axes."""
    direction = np.random.default_rng([seed, 4]).standard_normal(shape)
    unit: NDArray[np.float64] = direction / np.linalg.norm(direction)
    return unit
