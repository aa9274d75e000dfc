"""Here lives `migrate`: a trained model moved to another placement, trained meanwhile on a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normula.data import Task
from normula.formula import Formula, Placement
from normula.formula.errors import nearest
from normula.framework import room
from normula.record import Training
from normula.record.migration import Migrated
from normula.record.rewiring import Plan
from normula.rewire.errors import RewireError
from normula.rewire.migration import migration
from normula.rewire.plan import Example
from normula.rewire.rewire import rewire
from normula.rewire.understood import check_torch
from normula.spec import Recipe

Wanted = str | Formula | Placement


def migrate(
    model: Any,
    to: Wanted,
    *,
    example: Example,
    task: Task,
    recipe: Recipe,
    kind: str = "path",
    move_steps: int | None = None,
) -> tuple[Any, Migrated]:
    """A trained model with another placement, trained on a task while it is moved; the model itself stays as it was.

    Args:
        model: a PyTorch module that `read` understands, which maps what the task gives to logits.
        to: the wanted placement, by name, formula or as a `Placement`.
        example: arguments of its forward, a tuple or a dictionary.
        task: what it is trained on: best what it was trained on before.
        recipe: how.
        kind: `path`: the formula changes by degrees; `distil`: the rewired model learns what the old one says.
        move_steps: updates that this takes; what is left of the recipe is plain training. None for half of them on the
            path, and for all of them where it is distilled.

    Returns:
        A module of the model's class with the wanted placement, as `rewire` returns it, and what became of the loss.

    Raises:
        RewireError: the model cannot be rewired so, or a loss was not finite.
        ValueError: the task does not fit the model, or there is no such kind or placement.
    """
    if kind not in KINDS:
        raise ValueError(f"A kind of move is one of {', '.join(KINDS)}, not {kind!r}{nearest(kind, KINDS)}")
    steps = _move_steps(kind, recipe) if move_steps is None else move_steps
    if not 1 <= steps <= recipe.steps:
        raise ValueError(f"The move takes 1 to {recipe.steps} updates, all that the recipe has, not {steps!r}.")
    check_torch(model, "A move with normula's trainer")
    there = room("torch").rewire
    blind = rewire(model, to, example=example, accept_inexact=True)
    there.check_task(model, task)
    losses = there.held_out(model, task), there.held_out(blind, task)
    way = KINDS[kind](model, to, example, blind, steps)
    training = room("torch").train(
        way.model, task, recipe, observe=way.observe, objective=way.objective, device=there.where(model)
    )
    if not math.isfinite(training.curve[-1]):
        raise RewireError(
            f"The loss was not finite any more at update {len(training.curve)} of {recipe.steps}. Take a smaller rate "
            f"than {recipe.lr:g}, or a longer warmup."
        )
    new = way.finished()
    there.set_modes(model, new)
    return new, _record(kind, new.rewiring, task, recipe, steps, losses, training)


def _move_steps(kind: str, recipe: Recipe) -> int:
    """How long a move takes: measured by `benchmarks/migrate.py`; more of a path, or less of a teacher, is worse."""
    return (recipe.steps + 1) // 2 if kind == "path" else recipe.steps


@dataclass(frozen=True, slots=True)
class _Way:
    """What is trained, what happens before each update, what it makes smaller, and what comes of it."""

    model: Any
    observe: Callable[[int, Any], None] | None
    objective: Any
    finished: Callable[[], Any]


def _path(model: Any, to: Wanted, example: Example, blind: Any, steps: int) -> _Way:
    move = migration(model, to, example=example)
    return _Way(move.model, move.along(steps), None, move.finished)


def _distil(model: Any, to: Wanted, example: Example, blind: Any, steps: int) -> _Way:
    return _Way(blind, None, room("torch").rewire.distilling(model, steps), lambda: blind)


KINDS: Mapping[str, Callable[[Any, Wanted, Example, Any, int], _Way]] = {"path": _path, "distil": _distil}
"""The kinds of move."""


def _record(
    kind: str,
    plan: Plan,
    task: Task,
    recipe: Recipe,
    steps: int,
    losses: tuple[float, float],
    training: Training,
) -> Migrated:
    return Migrated(
        kind=kind,
        to=plan.to,
        before=plan.before,
        after=plan.after,
        task=task.name,
        recipe=recipe,
        move_steps=steps,
        old=losses[0],
        blind=losses[1],
        moved=training.evaluations[-1].loss,
        curve=training.curve,
    )
