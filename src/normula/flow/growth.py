"""The law by which the stream grows with depth: fitted, with how well it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from normula.record import GrowthLaw, Pass

FLAT = 1.15
"""A stream whose largest size is at most this times its smallest does not grow."""


def growth(passes: Sequence[Pass]) -> GrowthLaw | None:
    """Fit log RMS, mean over seeds, against log n and against n; the better one is the law.

    None with fewer than four steps, or where a size is not a finite positive number.
    """
    sizes = np.array([[step.rms_after for step in one.steps] for one in passes])
    if sizes.size == 0 or sizes.shape[1] < 4 or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        return None
    logs = np.log(sizes).mean(axis=0)
    if math.exp(logs.max() - logs.min()) <= FLAT:
        return GrowthLaw(kind="flat", exponent=0.0, r2=1.0)
    n = np.arange(1, len(logs) + 1, dtype=np.float64)
    power, exponential = _fit(np.log(n), logs), _fit(n, logs)
    kind, (exponent, r2) = ("power", power) if power[1] >= exponential[1] else ("exponential", exponential)
    return GrowthLaw(kind="power" if kind == "power" else "exponential", exponent=exponent, r2=r2)


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of the least-squares line, and the share of the variance that it explains."""
    slope, level = np.polyfit(x, y, 1)
    rest = y - (slope * x + level)
    return float(slope), float(1 - rest.var() / y.var())
