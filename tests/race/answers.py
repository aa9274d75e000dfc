"""Answers of races whose runs are made by hand: each run's curve and loss come from a function, none is trained."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from normula.race import Entry, Grid, answer
from normula.record import Evaluation, Race, Snapshot, Training, Trial, environment

START = 3.2
"""First loss of every run."""

Loss = Callable[[Entry], float]


def run_of(entry: Entry, loss: float, steps: int | None = None, **known: Any) -> Trial:
    """A run whose loss falls in a straight line from START to this; nan for one that is not finite at its end."""
    steps = entry.recipe.steps if steps is None else steps
    end = loss if math.isfinite(loss) else START
    curve = [START + (end - START) * i / max(1, steps - 1) for i in range(steps)]
    if not math.isfinite(loss):
        curve = [*curve[: steps // 2], math.nan]
    layers = entry.spec.layers
    looks = tuple(
        Snapshot(
            step=step, gradient=1.0, gradients=tuple(0.5 + i for i in range(layers)), rms=(1.0, *[1.5 + step] * layers)
        )
        for step in (0, steps // 2)
    )
    training = Training(
        curve=tuple(curve),
        evaluations=(Evaluation(step=len(curve), loss=loss, accuracy=0.5),),
        snapshots=looks,
        seconds=0.25,
        tokens=len(curve) * 10,
    )
    return entry.trial(training, memory=1 << 20, **known)


def grid_of(*placements: str, **fields: Any) -> Grid:
    usual: dict[str, Any] = dict(task="copy", depth=(2,), steps=20, seeds=3, init=("xavier",))
    return Grid(placements=placements or ("pre", "post"), **(usual | fields))


def answered(grid: Grid, trials: Sequence[Trial], **fields: Any) -> Race:
    return answer(grid, trials, environment=environment("torch"), digest=grid.of.digest, seconds=1.5, **fields)


def raced(loss: Loss, *placements: str, **fields: Any) -> Race:
    """The answer of a grid whose runs end at these losses."""
    grid = grid_of(*placements, **fields)
    return answered(grid, [run_of(entry, loss(entry)) for entry in grid.entries])


def said(race: Race, kind: str) -> list[str]:
    return [one.text for one in race.verdict if one.kind == kind]
