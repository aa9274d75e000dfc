"""What claims about training share: how runs are made in a framework, and how their losses are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from normula.race import Grid, Job, run
from normula.race.bootstrap import is_large, mean_interval
from normula.race.field import Field, Setting
from normula.race.words import count
from normula.record import Figure, Interval, Trial

TITLES = {"post": "Post-LN", "pre": "Pre-LN", "deepnorm": "DeepNorm", "peri": "Peri-LN", "lns": "LayerNorm Scaling"}

Point = tuple[str, Setting]
"""A contestant, and its rate and warmup."""


def jobs(grids: Iterable[Grid], framework: str) -> tuple[Job, ...]:
    """The runs of grids in a framework."""
    return tuple(Job(run, (entry,)) for grid in grids for entry in replace(grid, framework=framework).entries)


def mean(field: Field, point: Point) -> Interval:
    """The loss there, over the seeds."""
    return mean_interval(np.array(list(field.losses(*point).values())))


def gap(field: Field, above: Point, below: Point) -> Interval:
    """How far one loss lies above another, by pairs of runs with the same seed."""
    high, low = field.losses(*above), field.losses(*below)
    return mean_interval(np.array([high[seed] - low[seed] for seed in sorted(set(high) & set(low))]))


def is_shown(one: Interval) -> bool:
    """Whether a gap matters, and its interval leaves chance out."""
    return one.low > 0 and is_large(one)


def learned(trials: Sequence[Trial]) -> int:
    """How many of the runs learned."""
    return sum(trial.outcome == "learned" for trial in trials)


def title(point: Point) -> str:
    """A contestant at a setting, in words.

    >>> title(("post", (1e-3, 75)))
    'Post-LN, rate 0.001, warmup 75'
    """
    name, (lr, warmup) = point
    return f"{TITLES[name]}, rate {lr:g}, {f'warmup {warmup}' if warmup else 'no warmup'}"


def table(field: Field, points: Iterable[Point], known: Mapping[Point, str] | None = None) -> list[Figure]:
    """A row for each point: mean loss, its interval, runs that learned.

    Args:
        field: the runs.
        points: of the table.
        known: what another implementation gives for the loss.
    """
    found: list[Figure] = []
    for point in points:
        found += row(title(point), mean(field, point), field.trials[point], (known or {}).get(point, ""))
    return found


def row(label: str, loss: Interval, trials: Sequence[Trial], known: str = "") -> list[Figure]:
    """A loss, its interval, and how many of its runs learned."""
    return [
        Figure(label=f"{label}: loss", value=loss.value, expected=known),
        Figure(label=f"{label}: from", value=loss.low),
        Figure(label=f"{label}: to", value=loss.high),
        Figure(label=f"{label}: learned of {count(len(trials), 'run')}", value=float(learned(trials))),
    ]
