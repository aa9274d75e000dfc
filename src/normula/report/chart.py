"""Here live charts as data: lines with bands, and bars; what draws them knows nothing of where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from normula.report.scale import Scale, scale

DASHES: Final = ((), (5, 2.2), (1.6, 1.8), (7, 2, 1.6, 2), (10, 2.5), (3, 1.2, 3, 4))
"""Lengths of line and gap; () is solid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a chart.

    Args:
        label: stands at its end; nothing for one that needs no name.
        x, y: its points; what is not finite is left out.
        low, high: of its band; empty for none.
        colour: by its name in the theme.
        dash: one of DASHES.
        marker: matplotlib's name of it; empty for none.
        marks: how many of them at most.
        hollow: for each point whether it is void, which is drawn hollow and said.
        stops: whether its end is the end of the run itself, such as by divergence.
        weight: width of the line.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: tuple[float, ...] = ()
    marker: str = ""
    marks: int = 7
    hollow: Sequence[bool] = ()
    stops: bool = False
    weight: float = 1.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one axis each way.

    Args:
        title: what is plotted.
        seen: what is to be seen in it.
        x_label, y_label: with units.
        log: whether the axis of y is logarithmic.
        references: values of y with a line across, and what they are.
        y_scale: None for one that holds all lines.
        notes: what the lines cannot show.
        hover: whether each point tells its value where there is a pointer.
    """

    title: str
    seen: str
    lines: Sequence[Line]
    x_label: str
    y_label: str
    log: bool = False
    references: Sequence[tuple[float, str]] = ()
    y_scale: Scale | None = None
    notes: Sequence[str] = ()
    hover: bool = False

    @property
    def scale(self) -> Scale:
        """Of y."""
        return self.y_scale or scale(_values((self,)), log=self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar: what it is, how long (0 to 1 of the width), and what is written at its end."""

    label: str
    share: float
    text: str
    colour: str


def shared(charts: Sequence[Chart]) -> list[Chart]:
    """The same charts with one axis of y for all, so that they compare."""
    common = scale(_values(charts), log=all(chart.log for chart in charts))
    return [replace(chart, y_scale=common) for chart in charts]


def _values(charts: Iterable[Chart]) -> Iterator[float]:
    for chart in charts:
        for line in chart.lines:
            yield from (*line.y, *line.low, *line.high)
        yield from (value for value, _ in chart.references)
