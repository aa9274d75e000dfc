"""How they trained: curves of the loss, the grid of outcomes, and what explains the final losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from normula.record import Share
from normula.report.chart import DASHES, Bar, Chart, Line
from normula.report.contestants import Shown
from normula.report.runs import Cell, Grid, curve, summary
from normula.report.scale import Scale
from normula.report.words import capital, count, init_words, nats

SMALLEST = 0.005
"""Of the shares that are shown; below it a share is 0 % when rounded."""
MOST_LINES = 12
"""In one panel; with more, each placement has a panel of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The part of the grid with one rule of initial weights and one warmup: for each rate a cell for each placement."""

    title: str
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def loss_charts(contestants: Sequence[Shown], runs: Grid) -> list[Chart]:
    """One panel for each rule of initial weights and warmup, all on one axis."""
    apart = len(contestants) * len(runs.rates) > MOST_LINES
    groups = [[one] for one in contestants] if apart else [list(contestants)]
    charts = [
        _loss_chart(group, runs, init, warmup, apart)
        for init in runs.inits
        for warmup in runs.warmups
        for group in groups
        if any(runs.cells(one.name, init, warmup) for one in group)
    ]
    return [replace(chart, y_scale=held) for chart in charts] if (held := _window(charts, runs)) else charts


def smoothing(runs: Grid) -> int:
    """Training steps in one point of a curve."""
    return curve(runs.trials).size if runs.trials else 1


def _window(charts: Sequence[Chart], runs: Grid) -> Scale | None:
    """From the lowest loss to where the runs end, with room above; the first descent, the same for all, may be cut.

    A run that rises out of it is marked by an arrow at its name.
    """
    lines = [line for chart in charts for line in chart.lines if line.y]
    stuck = _stuck(runs)
    levels = [line.y[-1] for line in lines if not line.stops] + ([stuck] if math.isfinite(stuck) else [])
    if not lines or not levels:
        return None
    low = min(value for line in lines for value in (*line.y, *line.low, stuck) if math.isfinite(value))
    high = max(levels)
    return Scale(low, min(high + max(1.1 * (high - low), 0.3), max(high, *(line.y[0] for line in lines))))


def blocks(contestants: Sequence[Shown], runs: Grid) -> list[Block]:
    """The grid, block by block."""
    return [
        Block(
            title=_title(init, warmup),
            rows=tuple(
                (f"{lr:g}", tuple(runs.cell(one.name, init, warmup, lr) for one in contestants)) for lr in runs.rates
            ),
        )
        for init in runs.inits
        for warmup in runs.warmups
    ]


def share_bars(shares: Sequence[Share]) -> list[Bar]:
    """What explains the final losses; factors by themselves in one colour, pairs in another, the rest grey."""
    return [
        Bar(
            label=capital(" × ".join(share.factors)),
            share=share.share,
            text=f"{share.share:.1%}" if math.isfinite(share.share) else "not finite",
            colour="series-4"
            if len(share.factors) > 1
            else "soft"
            if share.factors[0].startswith("all")
            else "series-1",
        )
        for share in shares
        if share.factors and not share.share < SMALLEST
    ]


def _stuck(runs: Grid) -> float:
    return next((trial.stuck_loss for trial in runs.trials if math.isfinite(trial.stuck_loss)), math.nan)


def _title(init: str, warmup: int) -> str:
    words = f"warmup over {count(warmup, 'step')}" if warmup else "no warmup"
    return capital(f"{init_words(init)}, {words}")


def _loss_chart(group: Sequence[Shown], runs: Grid, init: str, warmup: int, apart: bool) -> Chart:
    lines, notes, seen = [], [], []
    for one in group:
        for place, lr in enumerate(runs.rates):
            cell = runs.cell(one.name, init, warmup, lr)
            if not cell.trials:
                continue
            found = curve(cell.trials)
            label = f"{lr:g}" if apart else f"{one.label} {lr:g}"
            banded = len(cell.trials) > 1
            lines.append(
                Line(
                    label=label,
                    x=found.steps,
                    y=found.mean,
                    low=found.low if banded else (),
                    high=found.high if banded else (),
                    colour=one.colour,
                    dash=DASHES[place % len(DASHES)],
                    marker=one.marker,
                    marks=3,
                    stops=found.ended,
                )
            )
            if not found.steps:
                notes.append(f"{one.title} at rate {lr:g}: not even the first loss is finite.")
            elif found.ended:
                worst = min(len(trial.curve) for trial in cell.trials)
                diverged = sum(trial.outcome == "diverged" for trial in cell.trials)
                notes.append(
                    f"{one.title} at rate {lr:g}: {diverged} of {count(len(cell.trials), 'run')} diverged"
                    f"{f', drawn up to step {found.steps[-1]:.0f}' if found.steps[-1] < worst else ''}."
                )
        seen.append(f"{one.title} {summary(runs.cells(one.name, init, warmup))}")
    stuck = _stuck(runs)
    return Chart(
        title=_title(init, warmup) + (f": {group[0].title}" if apart else ""),
        seen="; ".join(seen) + ".",
        lines=lines,
        x_label="training step",
        y_label="training loss (nats)",
        references=((stuck, f"unigram {nats(stuck)}"),) if math.isfinite(stuck) else (),
        notes=notes,
    )
