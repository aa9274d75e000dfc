"""Here lives the line chart: lines with bands, each with its name at its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normula.report.canvas import FONT, WIDTH, End, T, canvas, finish, text, text_width
from normula.report.chart import Chart, Line
from normula.report.scale import Scale, scale, spread
from normula.report.svg import CLASS, PAINTS, Hover
from normula.report.words import number, plain, tick

# All lengths are in pixels.
_HEIGHT: Final = 236
_TOP, _BOTTOM, _LEFT = 26, 38, 40
_MOST_TICKS: Final = 9
"""Of x, where each point has one."""
_LABEL: Final = 13
"""Height of a label at the end of a line."""


def line_chart(chart: Chart, key: str) -> str:
    """The chart as SVG; `key` is a word that no other chart of the page has."""
    return drawn_lines(chart, key, finish)


def drawn_lines(chart: Chart, key: str, end: End[T]) -> T:
    """The chart, drawn; `end` makes of the figure what is wanted."""
    labels = [_end_label(line) for line in chart.lines if line.label] + [label for _, label in chart.references]
    height = max(_HEIGHT, _LABEL * len(labels) + _TOP + _BOTTOM)
    right = min(max(map(text_width, labels), default=0) + 22, WIDTH / 2)
    with canvas(height, key) as figure:
        axes = _axes(figure, height, right)
        _set_axes(axes, chart)
        for line in chart.lines:
            _draw_line(axes, line, chart.scale)
        for value, _ in chart.references:
            axes.axhline(chart.scale.place(value), color=PAINTS["soft"], linewidth=1.1, dashes=(2, 2))
        _label_ends(figure, axes, chart)
        text(figure, 1, height - 12, chart.y_label, "soft")
        text(figure, (_LEFT + WIDTH - right) / 2, 5, chart.x_label, "soft", ha="center")
        kind = f"{chart.y_label} against {chart.x_label}{', logarithmic axis' if chart.log else ''}."
        description = " ".join(("Line chart:", kind, chart.seen, *chart.notes))
        return end(figure, key, chart.title, description, list(_hovers(axes, chart)) if chart.hover else ())


def _hovers(axes: Axes, chart: Chart) -> Iterator[Hover]:
    """A place for each point of the lines that have a name."""
    limits = axes.get_window_extent()
    for line in chart.lines:
        for x, y in zip(line.x, line.y, strict=True) if line.label else ():
            at = axes.transData.transform((x, chart.scale.place(y)))
            if all(map(math.isfinite, at)) and limits.ymin <= at[1] <= limits.ymax:
                words = f"{line.label}, {chart.x_label} {tick(x)}: {number(y)}"
                yield Hover(float(at[0]) - 4, float(at[1]) - 4, 8, 8, plain(words))


def _set_axes(axes: Axes, chart: Chart) -> None:
    xs = scale(x for line in chart.lines for x in line.x)
    axes.set_xlim(*xs.limits)
    axes.set_ylim(*chart.scale.limits)
    axes.set_yticks(*chart.scale.ticks)
    points = sorted({x for line in chart.lines for x in line.x if x == round(x)})
    axes.set_xticks(*(_ticks_at(points) if 0 < len(points) <= _MOST_TICKS else xs.whole_ticks))


def _ticks_at(points: Sequence[float]) -> tuple[list[float], list[str]]:
    """A tick at the first and the last point, and at each between them that leaves room for its label."""
    first, last = points[0], points[-1]
    least = (last - first) / _MOST_TICKS * 0.8
    kept = [first]
    for x in points[1:-1]:
        if x - kept[-1] >= least and last - x >= least:
            kept.append(x)
    kept += [last] if last > first else []
    return kept, [tick(x) for x in kept]


def _draw_line(axes: Axes, line: Line, y_scale: Scale) -> None:
    y = [y_scale.place(value) for value in line.y]
    paint = PAINTS[line.colour]
    if line.low:
        low, high = ([y_scale.place(value) for value in band] for band in (line.low, line.high))
        if y_scale.log:  # a band that reaches down to 0 reaches down to the axis
            low = [
                y_scale.limits[0] if math.isnan(a) and not math.isnan(b) else a for a, b in zip(low, high, strict=True)
            ]
        axes.fill_between(line.x, low, high, color=paint, alpha=0.16, linewidth=0)
    (drawn,) = axes.plot(line.x, y, color=paint, linewidth=line.weight)
    if line.dash:
        drawn.set_dashes(line.dash)
    if line.marker:
        every = max(1, math.ceil(len(y) / line.marks))
        marked = [i for i in range(len(y)) if (len(y) - 1 - i) % every == 0]
        for hollow in (False, True):
            here = [i for i in marked if bool(line.hollow and line.hollow[i]) == hollow]
            face = PAINTS["panel" if hollow else line.colour]
            x_marks, y_marks = [line.x[i] for i in here], [y[i] for i in here]
            axes.plot(x_marks, y_marks, line.marker, color=paint, markerfacecolor=face, markersize=5 + hollow, zorder=3)
    last = _last(y)
    if line.stops and last is not None:
        axes.plot([line.x[last]], [y[last]], "x", color=paint, markersize=7, markeredgewidth=2, zorder=4)
    void = [i for i, hollow in enumerate(line.hollow) if hollow and math.isfinite(y[i])]
    if void:
        at = void[len(void) // 2]
        word = axes.annotate("VOID", (line.x[at], y[at]), xytext=(0, 9), textcoords="offset points", ha="center")
        word.set(color=paint, fontsize=FONT, fontweight="bold", gid=f"{CLASS}halo")


def _label_ends(figure: Figure, axes: Axes, chart: Chart) -> None:
    """The name of each line where it ends, moved apart where ends lie close, with a thin line to its own."""
    low, high = axes.get_ylim()
    ends: list[tuple[float, float, str, str]] = []
    for line in chart.lines:
        y = [chart.scale.place(value) for value in line.y]
        last = _last(y)
        if last is not None and line.label:
            arrow = " ↑" if y[last] > high else " ↓" if y[last] < low else ""
            ends.append((line.x[last], min(max(y[last], low), high), _end_label(line) + arrow, line.colour))
    right = axes.get_xlim()[1]
    ends += [(right, chart.scale.place(value), label, "soft") for value, label in chart.references]
    if not ends:
        axes.text(
            0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color=PAINTS["soft"], fontsize=FONT
        )
        return
    pixels = [axes.transData.transform((x, y)).tolist() for x, y, _, _ in ends]
    (_, bottom), (edge, top) = axes.get_window_extent().get_points().tolist()
    places = spread([y for _, y in pixels], _LABEL, bottom + 3, top - 3)
    back = axes.transData.inverted()
    for (x, y), place, (_, _, label, colour) in zip(pixels, places, ends, strict=True):
        corners = [(x, y), (edge + 3, y), (edge + 12, place)] if x < edge - 12 else [(x, y), (edge + 12, place)]
        thin = back.transform(corners)
        axes.plot(thin[:, 0], thin[:, 1], color=PAINTS[colour], linewidth=0.6, clip_on=False, zorder=1)
        text(figure, edge + 15, place - 4, label, colour)
    axes.set(xlim=axes.get_xlim(), ylim=(low, high))


def _end_label(line: Line) -> str:
    marks = (" VOID" if any(line.hollow) else "", " ✕" if line.stops else "")
    return line.label + "".join(marks)


def _last(y: Sequence[float]) -> int | None:
    """The last point that has a place."""
    return next((i for i in range(len(y) - 1, -1, -1) if math.isfinite(y[i])), None)


def _axes(figure: Figure, height: float, right: float) -> Axes:
    axes = figure.add_axes(
        (_LEFT / WIDTH, _BOTTOM / height, (WIDTH - _LEFT - right) / WIDTH, (height - _BOTTOM - _TOP) / height)
    )
    axes.patch.set_visible(False)
    axes.grid(axis="y", color=PAINTS["grid"], linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=FONT, labelcolor=PAINTS["soft"], pad=5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=PAINTS["soft"], linewidth=1)
    return axes
