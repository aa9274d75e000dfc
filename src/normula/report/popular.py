"""The popular figure, both ways: with the summed output as the loss, and with a random probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normula.flow.findings import NULL
from normula.record import PopularPoint
from normula.report.chart import Chart, Line, shared
from normula.report.contestants import Shown
from normula.report.plates import Plate, missing, plates
from normula.report.words import number

DEPTH = 20
"""Of the figure, as it goes round."""
PROBES = {
    "sum": "Loss: the sum of the output, as the figure has it",
    "random": "Loss: a random weighting of the output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A placement at one depth: the gradient for each probe, to four digits after the point as the figure prints it."""

    shown: Shown
    values: tuple[str, ...]
    void: tuple[bool, ...]
    passes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Popular:
    """All that the section shows.

    Attributes:
        depth: that of the rows.
        ratios: for each probe the largest over the smallest of the rows.
        said: the same in a sentence for each probe.
        shallow: what a void point reads at the smallest depth, with who and where; None where no point is void.
        left_out: titles of placements without the figure.
    """

    plates: Sequence[Plate]
    depth: int
    rows: Sequence[Row]
    ratios: tuple[str, ...]
    said: Sequence[str]
    shallow: tuple[str, int, str] | None
    left_out: Sequence[str]


def popular(contestants: Sequence[Shown], points: Sequence[PopularPoint]) -> Popular | None:
    """The section, or None where nothing was measured."""
    if not points:
        return None
    depths = {point.depth for point in points}
    depth = DEPTH if DEPTH in depths else max(depths)
    titles = {one.name: one.title for one in contestants}
    rows, ratios, said = [], [], []
    for one in contestants:
        found = [_at(points, one.name, probe, depth) for probe in PROBES]
        if any(found):
            rows.append(
                Row(
                    shown=one,
                    values=tuple(_four(point.input_gradient) if point else "not run" for point in found),
                    void=tuple(point is not None and is_void(point) for point in found),
                    passes=_passes(found[0]),
                )
            )
    for probe in PROBES:
        at = [point for one in contestants if (point := _at(points, one.name, probe, depth))]
        ratios.append(_ratio([point.input_gradient for point in at]))
        said += _said(probe, at, titles, ratios[-1])
    void = min((point for point in points if is_void(point)), key=lambda point: point.depth, default=None)
    measured = {point.name for point in points}
    charts = [_chart(contestants, points, probe) for probe in PROBES]
    return Popular(
        plates=plates(shared(charts), "popular"),
        depth=depth,
        rows=rows,
        ratios=tuple(ratios),
        said=said,
        shallow=(titles.get(void.name, void.name), void.depth, number(void.input_gradient)) if void else None,
        left_out=[one.title for one in contestants if one.name not in measured],
    )


def is_void(point: PopularPoint) -> bool:
    """Whether the last norm lets so little through that rounding is all that is left; False where there is no norm."""
    return point.norm_passes < NULL


def _at(points: Sequence[PopularPoint], name: str, probe: str, depth: int) -> PopularPoint | None:
    return next((p for p in points if (p.name, p.probe, p.depth) == (name, probe, depth)), None)


def _four(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) and abs(value) < 1e6 else number(value)


def _passes(point: PopularPoint | None) -> str:
    return "no last norm" if point is None or math.isnan(point.norm_passes) else number(point.norm_passes, 2)


def _ratio(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "needs two placements"
    low, high = min(values), max(values)
    if not all(map(math.isfinite, values)):
        return "none: a value is not finite"
    return number(high / low) if low > 0 else "none: a value is exactly 0"


def _said(probe: str, at: Sequence[PopularPoint], titles: dict[str, str], ratio: str) -> list[str]:
    """The largest and the smallest value, and how they compare."""
    if len(at) < 2 or not all(math.isfinite(point.input_gradient) for point in at):
        return []
    low, high = (pick(at, key=lambda point: point.input_gradient) for pick in (min, max))
    ends = [f"{_four(point.input_gradient)} for {titles[point.name]}" for point in (high, low)]
    void = ", which is void: the ratio is one of rounding" if is_void(low) else ""
    times = "" if low.input_gradient <= 0 else f", {ratio} times as much"
    return (
        [f"With the {probe} probe: {ends[0]}{times} as the {ends[1]}{void}."]
        if times
        else [f"With the {probe} probe: {ends[0]}, and {ends[1]}{void}."]
    )


def _chart(contestants: Sequence[Shown], points: Sequence[PopularPoint], probe: str) -> Chart:
    lines, seen, notes = [], [], []
    for one in contestants:
        of = sorted((p for p in points if (p.name, p.probe) == (one.name, probe)), key=lambda point: point.depth)
        if not of:
            continue
        values = [point.input_gradient for point in of]
        hollow = [is_void(point) for point in of]
        lines.append(
            Line(
                label=one.label,
                x=[point.depth for point in of],
                y=values,
                colour=one.colour,
                marker=one.marker,
                hollow=hollow,
            )
        )
        void = " (void)" if any(hollow) else ""
        seen.append(
            f"{one.title} {number(values[0])} at depth {of[0].depth}, {number(values[-1])} at {of[-1].depth}{void}"
        )
        notes += missing(one.title, values, log=True)
    return Chart(
        title=PROBES[probe],
        seen="; ".join(seen) + ".",
        lines=lines,
        x_label="depth (blocks)",
        y_label="norm of the gradient at the input",
        log=True,
        notes=notes,
    )
