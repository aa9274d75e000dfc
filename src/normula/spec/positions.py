"""Positions as numbers: the angles of rotary embeddings, the buckets of relative distances."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from normula.spec.parameters import RELATIVE_BUCKETS, RELATIVE_REACH


def rotary_angles(tokens: int, head_width: int, base: float, first: int = 0) -> NDArray[np.float64]:
    """Angle by which pair i of a head is turned at position t: t * base**(-2 i / K); (T, K / 2).

    Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021, equation 15.
    """
    pairs = np.arange(head_width // 2, dtype=np.float64)
    angles: NDArray[np.float64] = np.outer(np.arange(first, first + tokens), base ** (-2 * pairs / head_width))
    return angles


def relative_buckets(queries: int, keys: int, *, causal: bool, first: int = 0) -> NDArray[np.int64]:
    """The bucket of each pair of a query and a key: near distances one each, far ones in logarithmic steps; (T, S).

    Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, 2020, section
    2.1, as in the authors' code: 32 buckets, the last for 128 and beyond; half of them for keys that come later, where
    a query may see those.
    """
    distance = np.arange(keys)[None, :] - np.arange(first, first + queries)[:, None]
    buckets = RELATIVE_BUCKETS if causal else RELATIVE_BUCKETS // 2
    start = np.zeros_like(distance) if causal else np.where(distance > 0, buckets, 0)
    far = np.maximum(-distance, 0) if causal else np.abs(distance)
    exact = buckets // 2
    steps = np.log(np.maximum(far, 1) / exact) / math.log(RELATIVE_REACH / exact) * (buckets - exact)
    log = np.minimum(exact + steps.astype(np.int64), buckets - 1)
    result: NDArray[np.int64] = start + np.where(far < exact, far, log)
    return result
