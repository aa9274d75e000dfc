"""Here live dots with whiskers: a number and its interval on a line below each name, all on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from normula.report.canvas import WIDTH, End, T, canvas, text
from normula.report.scale import Scale, scale
from normula.report.svg import PAINTS, Hover
from normula.report.words import plain

_ROW: Final = 40
_BOTTOM: Final = 40
_MARGIN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A number with its interval.

    Args:
        label: stands above its line.
        value, low, high: what is not finite is left out.
        text: what is written at the right end of the label's line.
        colour, marker: of the one it belongs to.
        tells: all of it, for a pointer.
    """

    label: str
    value: float
    low: float
    high: float
    text: str
    colour: str
    marker: str
    tells: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whiskers:
    """Dots, the first on top.

    Args:
        title: what it is of.
        seen: what is to be seen in it.
        log: whether the axis is logarithmic.
        x_label: what is on the axis, with its unit.
    """

    title: str
    seen: str
    dots: Sequence[Dot]
    x_label: str
    log: bool
    x_scale: Scale | None = None
    notes: Sequence[str] = ()

    @property
    def scale(self) -> Scale:
        """Of the numbers and their intervals."""
        values = [value for dot in self.dots for value in (dot.value, dot.low, dot.high)]
        return self.x_scale or scale(values, log=self.log)


def drawn_whiskers(chart: Whiskers, key: str, end: End[T]) -> T:
    """The dots, drawn; `end` makes of the figure what is wanted."""
    height = _ROW * len(chart.dots) + _BOTTOM
    low, high = chart.scale.limits
    hovers = []

    def place(value: float) -> float:
        return _MARGIN + (chart.scale.place(value) - low) / (high - low) * (WIDTH - 2 * _MARGIN)

    with canvas(height, key) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(0, height))
        axes.axis("off")
        for tick, words in zip(*chart.scale.ticks, strict=True):
            x = _MARGIN + (tick - low) / (high - low) * (WIDTH - 2 * _MARGIN)
            axes.plot((x, x), (_BOTTOM - 6, height), color=PAINTS["grid"], linewidth=1, zorder=0)
            text(figure, min(max(x, 14), WIDTH - 14), 22, words, "soft", ha="center")
        text(figure, WIDTH / 2, 5, chart.x_label, "soft", ha="center")
        for number, dot in enumerate(chart.dots):
            top = height - number * _ROW
            text(figure, 0, top - 13, dot.label, dot.colour)
            text(figure, WIDTH, top - 13, dot.text, "ink", ha="right")
            if not math.isfinite(dot.value):
                continue
            if math.isfinite(dot.low) and math.isfinite(dot.high):
                ends = (place(dot.low), place(dot.high))
                axes.plot(ends, (top - 25, top - 25), color=PAINTS[dot.colour], linewidth=2)
                for x in ends:
                    axes.plot((x, x), (top - 29, top - 21), color=PAINTS[dot.colour], linewidth=1.4)
            axes.plot([place(dot.value)], [top - 25], dot.marker, color=PAINTS[dot.colour], markersize=7, zorder=3)
            hovers.append(Hover(0, top - _ROW + 2, WIDTH, _ROW - 2, plain(dot.tells or f"{dot.label}: {dot.text}")))
        description = "; ".join(f"{dot.label}: {dot.text}" for dot in chart.dots)
        return end(figure, key, chart.title, f"Dots with intervals: {chart.seen} {description}.", hovers)
