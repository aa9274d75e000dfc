"""The ranking: each contestant at its best setting, as dots with intervals and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from normula.race.words import interval
from normula.record import Facet, Interval, Standing
from normula.report.contestants import Shown
from normula.report.plates import wide
from normula.report.race_groups import Found
from normula.report.scale import scale
from normula.report.whiskers import Dot, Whiskers
from normula.report.words import SYMBOLS, capital, count, listed

RANKING = ("loss, nats", "rate", "warmup", "came to", "steps", "seconds", "tokens", "runs")
"""Of the table of standings, behind the place and the contestant: always with the compute that each got."""

STABILITY = ("sensitivity to the rate, nats", "largest stable rate", "warmup needed")
"""Of the table of what each minds."""

EDGE = "*"
"""Marks a rate or warmup on the edge of the grid."""

Row: TypeAlias = tuple[str, str, tuple[str, ...]]
"""What stands before the numbers: a facet, where there are several, and a contestant; and the numbers."""


def rankings(found: Found, contestants: Sequence[Shown]) -> list[Whiskers]:
    """A chart for each facet, all on one axis."""
    by_name = {one.name: one for one in contestants}
    charts = [_chart(found, facet, by_name) for facet in found.facets]
    values = [v for chart in charts for dot in chart.dots for v in (dot.value, dot.low, dot.high)]
    log = wide(value for value in values if not math.isnan(value))
    return [replace(chart, log=log, x_scale=scale(values, log=log)) for chart in charts]


def ranking_rows(found: Found, titles: Mapping[str, str]) -> list[Row]:
    """The standings facet by facet, the best first, in the order of RANKING."""
    return [
        (found.label(row.facet), f"{_place(row)} {titles[row.name]}", _ranking(row))
        for facet in found.facets
        for row in found.rows(facet)
    ]


def stability_rows(found: Found, titles: Mapping[str, str]) -> list[Row]:
    """What each minds, in the order of STABILITY; nothing where neither rate nor warmup was varied."""
    rows = [
        (found.label(row.facet), titles[row.name], _stability(row))
        for facet in found.facets
        for row in found.rows(facet)
    ]
    return rows if any(cells[0] != "–" or cells[2] != "–" for _, _, cells in rows) else []


def _place(row: Standing) -> str:
    return f"{row.place}." if row.place else "–"


def _ranking(row: Standing) -> tuple[str, ...]:
    edge = {end.split()[1]: EDGE for end in row.edges}
    best = (interval(row.loss), f"{row.lr:g}{edge.get('rate', '')}", f"{row.warmup}{edge.get('warmup', '')}")
    came = ", ".join(f"{amount} {SYMBOLS[word]}" for word, amount in row.outcomes.items())
    compute = (str(row.steps), f"{row.seconds:.1f}", str(row.tokens), str(row.runs))
    return (*(best if row.place else ("none", "", "")), came or "not run", *compute)


def _stability(row: Standing) -> tuple[str, ...]:
    sensitivity = "–" if math.isnan(row.sensitivity.value) else interval(row.sensitivity)
    return (sensitivity, _whole(row.stable_rate, _rate), _whole(row.warmup_needed, _steps))


def _chart(found: Found, facet: Facet, contestants: Mapping[str, Shown]) -> Whiskers:
    rows = [row for row in found.rows(facet) if not math.isnan(row.loss.value)]
    lost = [contestants[row.name].title for row in found.rows(facet) if math.isnan(row.loss.value)]
    held = "held-out loss" if all(row.held_out for row in rows) else f"training loss at update {rows[0].at}"
    return Whiskers(
        title=capital(found.label(facet)) or "Ranking",
        seen=_seen(rows, contestants),
        dots=[_dot(row, contestants[row.name]) for row in rows],
        x_label=f"{held} (nats)" if rows else "nats",
        log=False,
        notes=[f"{one}: no run that counts." for one in lost],
    )


def _seen(rows: Sequence[Standing], contestants: Mapping[str, Shown]) -> str:
    if not rows:
        return "No contestant has a run that counts."
    if any(math.isnan(row.loss.low) for row in rows) and len(rows) > 1:
        return "One seed: chance is not ruled out."
    first = [contestants[row.name].title for row in rows if row.place == 1]
    return f"First: {listed(first)}." if len(first) < len(rows) or len(rows) == 1 else "No difference is shown."


def _dot(row: Standing, one: Shown) -> Dot:
    words = interval(row.loss)
    return Dot(
        label=f"{_place(row)} {one.label}",
        value=row.loss.value,
        low=row.loss.low,
        high=row.loss.high,
        text=words,
        colour=one.colour,
        marker=one.marker,
        tells=f"{one.title}: {words} nats at rate {row.lr:g}, warmup {row.warmup}; {count(row.runs, 'run')}, "
        f"{count(row.steps, 'step')}, {row.seconds:.1f} seconds",
    )


def _whole(one: Interval, words: Callable[[float], str]) -> str:
    """A value of the grid: with its interval only where the resamples differ."""
    if math.isnan(one.value):
        return "–"
    sure = math.isnan(one.low) or one.low == one.high
    return words(one.value) if sure else f"{words(one.value)} [{words(one.low)}, {words(one.high)}]"


def _rate(value: float) -> str:
    return f"{value:g}" if value else "none"


def _steps(value: float) -> str:
    return f"{value:g}" if math.isfinite(value) else "none is enough"
