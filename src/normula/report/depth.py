"""Stacks of different depth at initialisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normula.record import DepthPoint
from normula.report.chart import Chart, Line
from normula.report.contestants import Shown
from normula.report.plates import Group, missing, plates, wide
from normula.report.words import capital, init_words, number

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is plotted against depth; `probed` where a blind probe makes it void."""

    title: str
    unit: str
    of: Callable[[DepthPoint], Triple]
    log: bool | None
    probed: bool = False


QUANTITIES = (
    Quantity(
        title="Gradient that reaches the input",
        unit="for a gradient of 1 at the output",
        of=lambda point: point.input_gradient,
        log=True,
        probed=True,
    ),
    Quantity(
        title="Gradient that the skip path alone carries",
        unit="for a gradient of 1 at the output",
        of=lambda point: point.skip_gradient,
        log=True,
        probed=True,
    ),
    Quantity(title="Size of the stream after the last layer", unit="RMS over D", of=lambda point: point.rms, log=None),
    Quantity(
        title="Likeness of the tokens after the last layer",
        unit="mean cosine between tokens",
        of=lambda point: point.token_cosine,
        log=False,
    ),
)


def depth_groups(contestants: Sequence[Shown], points: Sequence[DepthPoint]) -> list[Group]:
    """A group for each rule of initial weights and width that was measured."""
    kinds = list(dict.fromkeys((point.init, point.width) for point in points))
    return [
        Group(
            title=capital(f"{init_words(init)}, width {width}"),
            plates=plates(
                _charts(contestants, [point for point in points if (point.init, point.width) == (init, width)]),
                f"depth-{place}",
            ),
        )
        for place, (init, width) in enumerate(kinds, start=1)
    ]


def _charts(contestants: Sequence[Shown], points: Sequence[DepthPoint]) -> list[Chart]:
    charts = []
    for quantity in QUANTITIES:
        values = [value for point in points for value in quantity.of(point)]
        log = quantity.log if quantity.log is not None else wide(values)
        lines, seen, notes = [], [], []
        for one in contestants:
            of = sorted((point for point in points if point.name == one.name), key=lambda point: point.depth)
            if not of:
                notes.append(f"{one.title}: not measured.")
                continue
            triples = [quantity.of(point) for point in of]
            means = [mean for mean, _, _ in triples]
            lines.append(
                Line(
                    label=one.label,
                    x=[point.depth for point in of],
                    y=means,
                    low=[low for _, low, _ in triples],
                    high=[high for _, _, high in triples],
                    colour=one.colour,
                    marker=one.marker,
                    hollow=[point.void for point in of] if quantity.probed else (),
                )
            )
            ends = list(dict.fromkeys((0, len(of) - 1)))
            seen.append(f"{one.title} " + ", ".join(f"{number(means[i])} at depth {of[i].depth}" for i in ends))
            notes += missing(one.title, means, log)
        charts.append(
            Chart(
                title=quantity.title,
                seen="; ".join(seen) + ".",
                lines=lines,
                x_label="depth (layers)",
                y_label=quantity.unit,
                log=log,
                notes=notes,
            )
        )
    return charts
