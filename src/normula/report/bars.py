"""Here lives the bar chart: horizontal bars, each below its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from normula.report.canvas import WIDTH, canvas, finish, text
from normula.report.chart import Bar
from normula.report.svg import PAINTS

_BAR: Final = 38
"""Height of a bar with its name, in pixels."""


def bar_chart(bars: Sequence[Bar], key: str, title: str) -> str:
    """Horizontal bars as SVG, each below its label."""
    height = _BAR * len(bars) + 6
    longest = max((bar.share for bar in bars if math.isfinite(bar.share)), default=0) or 1
    with canvas(height, key) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(0, height))
        axes.axis("off")
        for place, bar in enumerate(bars):
            top = height - _BAR * place
            length = max(0.0, bar.share if math.isfinite(bar.share) else 0.0) / longest * (WIDTH - 56)
            axes.barh(top - 26, max(length, 1), height=13, left=0, color=PAINTS[bar.colour], linewidth=0)
            text(figure, 0, top - 13, bar.label, "ink")
            text(figure, length + 6, top - 30, bar.text, "ink")
        description = "; ".join(f"{bar.label}: {bar.text}" for bar in bars)
        return finish(figure, key, title, f"Bar chart: {description}.")
