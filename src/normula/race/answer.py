"""The answer of a race: everything that the runs of a grid say together, as one record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normula.race.contestants import of_lane, placed
from normula.race.effects import effects
from normula.race.field import fields
from normula.race.grid import Grid
from normula.race.ranking import differences, standings
from normula.race.structure import nonstandard
from normula.race.verdict import verdict
from normula.record import Environment, Race, Trial


def answer(
    grid: Grid,
    trials: Sequence[Trial],
    *,
    environment: Environment,
    digest: str,
    seconds: float,
    note: str = "",
    budget: Mapping[str, Any] | None = None,
) -> Race:
    """What the runs of a grid say.

    Args:
        grid: what was asked for.
        trials: the runs that were made, in the order of the grid; failed and dropped ones too.
        environment: where they were made.
        digest: of the task's data, which need not be at hand.
        seconds: that the whole took.
        note: why the race is not whole, such as `interrupted`; empty where it is.
        budget: its limits, by the names of the command's options, such as `{"max_seconds": 60}`.

    Returns:
        The record. But for seconds and what is measured in seconds it depends on the runs alone.
    """
    made = tuple(trials)
    contestants = tuple(of_lane(lane) for lane in grid.lanes)
    marked = {lane.name: why for lane in grid.lanes if (why := nonstandard(placed(lane)))}
    parts = fields(grid, made)
    gaps = [differences(one) for one in parts]
    ranks = [standings(one, found) for one, found in zip(parts, gaps, strict=True)]
    shares = effects(made)
    return Race(
        grid=grid.to_dict(),
        data={
            "name": grid.task,
            "digest": digest,
            "stuck_loss": made[0].stuck_loss if made else math.nan,
        },
        contestants=contestants,
        nonstandard=marked,
        trials=made,
        planned=grid.size,
        cells=tuple(cell for one in parts for cell in one.cells()),
        standings=tuple(row for rows in ranks for row in rows),
        differences=tuple(gap for found in gaps for gap in found),
        shares=shares,
        verdict=verdict(
            {one.name: one.title for one in contestants},
            list(zip(parts, ranks, gaps, strict=True)),
            made,
            planned=grid.size,
            shares=shares,
            marked=marked,
            unequal=[lane.name for lane in grid.lanes if lane.lr is not None],
            weights=grid.model is None,
            note=note,
        ),
        environment=environment,
        seconds=seconds,
        note=note,
        budget=dict(budget or {}),
    )
