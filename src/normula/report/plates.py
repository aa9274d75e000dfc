"""Here lives the plate: a chart with its caption, as a page sets it; and what the sections share in making charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from normula.report.bars import bar_chart
from normula.report.chart import Bar, Chart
from normula.report.lines import line_chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """A drawn chart, what it shows, what is to be seen, and what it cannot show."""

    title: str
    seen: str
    notes: Sequence[str]
    svg: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Plates that belong together, side by side where there is room."""

    title: str
    plates: Sequence[Plate]


def plates(charts: Iterable[Chart], key: str) -> list[Plate]:
    """Drawn, with keys that start with the one given."""
    return [
        Plate(
            title=chart.title,
            seen=chart.seen,
            notes=chart.notes,
            svg=Markup(line_chart(chart, f"{key}-{place}")),  # made by us, with every text escaped
        )
        for place, chart in enumerate(charts, start=1)
    ]


def bar_plate(bars: Sequence[Bar], key: str, title: str, seen: str) -> Plate:
    """Bars, drawn."""
    return Plate(title=title, seen=seen, notes=(), svg=Markup(bar_chart(bars, key, title)))


def wide(values: Iterable[float]) -> bool:
    """Whether values spread so far that a linear axis would show only the largest."""
    positive = [value for value in values if math.isfinite(value)]
    return bool(positive) and min(positive) > 0 and max(positive) > 50 * min(positive)


def missing(label: str, values: Sequence[float], log: bool) -> list[str]:
    """What of a line has no place in a chart, in words."""
    bad = sum(not math.isfinite(value) for value in values)
    zero = sum(value == 0 for value in values) if log else 0
    notes = []
    if bad:
        notes.append(f"{label}: {_share(bad, len(values))} not finite.")
    if zero:
        notes.append(f"{label}: {_share(zero, len(values))} exactly 0, which a logarithmic axis cannot show.")
    return notes


def _share(part: int, whole: int) -> str:
    return f"all {whole} values are" if part == whole else f"{part} of {whole} values {'is' if part == 1 else 'are'}"
