"""The law by which the stream grows with depth: fitted, with how well it fits.

    RMS ~ (n + m)**p    or    RMS ~ exp(p n)

Branches of equal size and independent directions add up to p = 1/2; m is the size of the stream before the first
step, in steps: without it a stream that starts large looks as if it grew exponentially.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from normula.record import GrowthLaw, Pass

FLAT = 1.15
"""A stream whose largest size is at most this times its smallest does not grow."""


def growth(passes: Sequence[Pass]) -> GrowthLaw | None:
    """Fit log RMS, mean over seeds, against log(n + m) and against n; the better one is the law.

    None with fewer than four steps, or where a size is not a finite positive number.
    """
    sizes = np.array([[step.rms_after for step in one.steps] for one in passes])
    if sizes.size == 0 or sizes.shape[1] < 4 or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        return None
    logs = np.log(sizes).mean(axis=0)
    if math.exp(logs.max() - logs.min()) <= FLAT:
        return GrowthLaw(kind="flat", exponent=0.0, r2=1.0)
    n = np.arange(1, len(logs) + 1, dtype=np.float64)
    # a larger m than there are steps makes every power an exponential
    exponent, r2, offset = max(((*_fit(np.log(n + m), logs), m) for m in range(len(logs) + 1)), key=lambda fit: fit[1])
    rate, exponential_r2 = _fit(n, logs)
    if r2 >= exponential_r2:
        return GrowthLaw(kind="power", exponent=exponent, offset=offset, r2=r2)
    return GrowthLaw(kind="exponential", exponent=rate, r2=exponential_r2)


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of the least-squares line, and the share of the variance that it explains."""
    slope, level = np.polyfit(x, y, 1)
    rest = y - (slope * x + level)
    return float(slope), float(1 - rest.var() / y.var())
