"""Here live the axes of a chart: from values to places on a linear or logarithmic scale, and the ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from matplotlib.ticker import MaxNLocator

from normula.report.words import power_of_ten, tick

LARGEST: Final = 1e300
"""Beyond it, a float has no room left for the margin of an axis."""
_MOST_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from low to high, in values; what is drawn are values, or their logarithms where `log`."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value is drawn; nan for what has no place: not finite, or on a logarithmic axis not positive."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return math.nan
        return math.log10(value) if self.log else min(max(value, -LARGEST), LARGEST)

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends as drawn, with a margin."""
        low, high = self.place(self.low), self.place(self.high)
        margin = 0.05 * (high - low) or (0.15 if self.log else 0.1 * abs(high) or 1.0)
        return low - margin, high + margin

    @property
    def ticks(self) -> tuple[list[float], list[str]]:
        """Where ticks are drawn, and what they say."""
        if not self.log:
            low, high = self.limits
            values = [
                float(v)
                for v in MaxNLocator(_MOST_TICKS - 1, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
                if low <= v <= high
            ]
            step = min((b - a for a, b in pairwise(values)), default=1.0)
            return values, [tick(0.0 if abs(v) < step / 1e6 else v) for v in values]
        low, high = self.limits
        first, last = math.ceil(low), math.floor(high)
        if last - first >= 2:
            step = math.ceil((last - first + 1) / _MOST_TICKS)
            powers = [power for power in range(first, last + 1) if power % step == 0]
            return [float(power) for power in powers], [_power(power) for power in powers]
        parts = (1, 2, 5) if high - low > 0.6 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        values = [part * 10.0**power for power in range(first - 1, last + 2) for part in parts]
        shown = [value for value in values if low <= math.log10(value) <= high]
        shown = shown[:: math.ceil(len(shown) / (_MOST_TICKS + 1)) or 1]
        return [math.log10(value) for value in shown], [tick(value) for value in shown]

    @property
    def whole_ticks(self) -> tuple[list[float], list[str]]:
        """Those of the ticks that are whole numbers: steps and layers come in no others."""
        whole = [(value, label) for value, label in zip(*self.ticks, strict=True) if value == round(value)]
        return [value for value, _ in whole], [label for _, label in whole]


def scale(values: Iterable[float], *, log: bool = False) -> Scale:
    """The scale that holds all values that have a place."""
    held = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    return Scale(min(held), max(held), log) if held else Scale(1.0 if log else 0.0, 1.0, log)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near as can be to those wanted, in their order, at least a gap apart and within bounds.

    Least squares under the order (pool adjacent violators). Where the bounds are too narrow for all, the gap gives way.

        >>> spread([5.0, 5.0, 20.0], 4.0, 0.0, 30.0)
        [3.0, 7.0, 20.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    pools: list[tuple[float, int]] = []
    for rank, i in enumerate(order):
        mean, size = wanted[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, size = (before * number + mean * size) / (number + size), size + number
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    top = high - (len(wanted) - 1) * gap
    places = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        places[i] = min(max(flat[rank], low), top) + rank * gap
    return places


def _power(power: int) -> str:
    """Plain where that is as short."""
    return tick(10.0**power) if -2 <= power <= 3 else power_of_ten(power)
