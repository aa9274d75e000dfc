"""Here lives the heat map: a table whose cells are the fuller the better, with signs for what did not learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from normula.report.canvas import WIDTH, End, T, canvas, text, text_width
from normula.report.svg import PAINTS, Hover
from normula.report.words import plain

_LEFT: Final = 40
_TOP: Final = 34
_ROW: Final = 36
_GAP: Final = 2
_FULLEST: Final = 0.45
"""Opacity of the best cell: dark letters on it keep 4.5:1 on light, light ones on dark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A cell of a heat map.

    Args:
        words: its number; empty for a cell that holds nothing.
        sign, short: a second line, such as ✕ 2/3, and what is left of it where that is too wide.
        fill: how good it is, from 0 to 1.
        colour: of its ground, by its name in the theme; empty for the scale's.
        framed: whether it is the best of its row's contestant.
        tells: all of it, for a pointer.
    """

    words: str
    sign: str = ""
    short: str = ""
    fill: float = 0.0
    colour: str = ""
    framed: bool = False
    tells: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A heat map.

    Args:
        title: what it is of.
        seen: what is to be seen in it.
        rows, columns: what stands before and above them.
        row_label, column_label: what they are.
        spots: row by row.
    """

    title: str
    seen: str
    rows: Sequence[str]
    columns: Sequence[str]
    row_label: str
    column_label: str
    spots: Sequence[Sequence[Spot]]
    notes: Sequence[str] = ()


def drawn_heat(heat: Heat, key: str, end: End[T]) -> T:
    """The heat map, drawn; `end` makes of the figure what is wanted."""
    height = _TOP + _ROW * len(heat.rows) + 4
    each = (WIDTH - _LEFT) / max(1, len(heat.columns))
    hovers = []
    with canvas(height, key) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(0, height))
        axes.axis("off")
        text(figure, 0, height - 12, heat.row_label, "soft")
        text(figure, _LEFT + (WIDTH - _LEFT) / 2, height - 12, heat.column_label, "soft", ha="center")
        every = max(1, math.ceil(max(map(text_width, heat.columns), default=0) / each))
        for place, column in list(enumerate(heat.columns))[::every]:
            text(figure, _LEFT + (place + 0.5) * each, height - 28, column, "ink", ha="center")
        for line, (row, spots) in enumerate(zip(heat.rows, heat.spots, strict=True)):
            bottom = height - _TOP - (line + 1) * _ROW
            text(figure, 0, bottom + _ROW / 2 - 4, row, "ink")
            for place, spot in enumerate(spots):
                box = (_LEFT + place * each + _GAP / 2, bottom + _GAP / 2, each - _GAP, _ROW - _GAP)
                axes.add_patch(_ground(spot, *box))
                _write(figure, spot, box[0] + box[2] / 2, bottom, each)
                if spot.tells:
                    hovers.append(Hover(*box, plain(spot.tells)))
        told = "; ".join(spot.tells for spots in heat.spots for spot in spots if spot.tells)
        return end(figure, key, heat.title, f"Map: {heat.seen} {told}.", hovers)


def _ground(spot: Spot, x: float, y: float, width: float, height: float) -> Rectangle:
    face, share = (spot.colour, 1.0) if spot.colour else ("accent", _FULLEST * spot.fill)
    if not spot.words:
        face, share = "grid", 0.0
    edge = {"edgecolor": PAINTS["ink"], "linewidth": 1.8} if spot.framed else {"linewidth": 0}
    ground = Rectangle((x, y), width, height, facecolor=(PAINTS[face], share), **edge)
    if not spot.words:
        ground.set(edgecolor=PAINTS["rule"], linewidth=1, linestyle=(0, (2, 2)))
    return ground


def _write(figure: Figure, spot: Spot, x: float, bottom: float, width: float) -> None:
    """The number and the sign; where the cell is too narrow for a number the sign alone."""
    middle = bottom + _ROW / 2 - 4
    fits = text_width(spot.words) <= width
    if fits:
        text(figure, x, middle + (7 if spot.sign else 0), spot.words, "ink", ha="center")
    if spot.sign:
        sign = spot.sign if text_width(spot.sign) <= width else spot.short
        text(figure, x, middle - (7 if fits else 0), sign, "ink", ha="center")
