"""The figures of a race: map, ranking, curves, stream; for the page, and as files fit for a paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from normula.record import Race
from normula.report.canvas import End, T, finish, raster
from normula.report.chart import Chart
from normula.report.contestants import shown
from normula.report.heat import Heat, drawn_heat
from normula.report.lines import drawn_lines
from normula.report.plates import Group, Plate
from normula.report.race_curves import curves, streams
from normula.report.race_groups import Found
from normula.report.race_map import maps
from normula.report.race_ranking import rankings
from normula.report.standalone import standalone
from normula.report.whiskers import Whiskers, drawn_whiskers
from normula.report.words import plain

Drawable: TypeAlias = Chart | Heat | Whiskers


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures that belong together.

    Attributes:
        kind: map, ranking, curves or stream.
        groups: titles and what is drawn below them.
    """

    kind: str
    groups: Sequence[tuple[str, Sequence[Drawable]]]

    @property
    def plates(self) -> list[Group]:
        """Drawn for a page."""
        return [
            Group(title=title, plates=[_plate(one, f"{self.kind}-{place}-{i}") for i, one in enumerate(drawable, 1)])
            for place, (title, drawable) in enumerate(self.groups, start=1)
        ]


def race_figures(race: Race) -> tuple[Figures, ...]:
    """All figures of a race; a kind of which there is nothing to show has no groups."""
    found, contestants = Found(race), shown(race.contestants)
    if not race.trials:
        return tuple(Figures(kind=kind, groups=()) for kind in ("map", "ranking", "curves", "stream"))
    return (
        Figures(kind="map", groups=maps(found, contestants)),
        Figures(kind="ranking", groups=[("", rankings(found, contestants))]),
        Figures(kind="curves", groups=curves(found, contestants)),
        Figures(kind="stream", groups=streams(found, contestants)),
    )


def svg_files(race: Race) -> Iterator[tuple[str, str]]:
    """Each figure as an SVG file that stands alone: its name and its text."""
    for name, key, one in _named(race):
        yield f"{name}.svg", standalone(draw(one, key, finish), plain(one.title))


def png_files(race: Race) -> Iterator[tuple[str, bytes]]:
    """Each figure as a PNG file, 300 dots an inch: its name and its bytes."""
    for name, key, one in _named(race):
        yield f"{name}.png", draw(one, key, raster)


def draw(one: Drawable, key: str, end: End[T]) -> T:
    """A figure, drawn; `end` makes of it what is wanted."""
    match one:
        case Chart():
            return drawn_lines(one, key, end)
        case Heat():
            return drawn_heat(one, key, end)
        case Whiskers():
            return drawn_whiskers(one, key, end)


def _plate(one: Drawable, key: str) -> Plate:
    svg = Markup(draw(one, key, finish))  # made by us, with every text escaped
    return Plate(title=one.title, seen=one.seen, notes=one.notes, svg=svg)


def _named(race: Race) -> Iterator[tuple[str, str, Drawable]]:
    """Each figure with the name of its file and a key: the kind, its number, and what it is of."""
    for figures in race_figures(race):
        number = 0
        for title, drawable in figures.groups:
            for one in drawable:
                number += 1
                words = _slug(" ".join(part for part in (title, one.title) if part))
                yield f"{figures.kind}-{number:02d}-{words}", f"{figures.kind}-{number}", one


def _slug(text: str) -> str:
    """As it may stand in the name of a file anywhere."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60] or "figure"


FILES: dict[str, Callable[[Race], Iterator[tuple[str, str | bytes]]]] = {"svg": svg_files, "png": png_files}
"""By the ending of the files."""
