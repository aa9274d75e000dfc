"""Here lives Entry: one training run to be made, with an identity that all its results share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from normula.data import Task
from normula.data import task as named_task
from normula.framework import room
from normula.race.factory import made
from normula.race.memory import peak_memory
from normula.race.outcome import outcome, spikes
from normula.record import Training, Trial
from normula.spec import Recipe, Spec

Save = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtHand:
    """A task, and what takes time to find out about it."""

    task: Task
    digest: str
    stuck_loss: float


@lru_cache(maxsize=8)
def at_hand(task: str, data: str | tuple[str, ...] | None, context: int | None) -> AtHand:
    """A task by name; the user's files are read once, until `at_hand.cache_clear()`."""
    found = named_task(task, data, context)
    return AtHand(task=found, digest=found.digest, stuck_loss=found.stuck_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A training run.

    Args:
        spec: what is trained; its seed is the run's.
        recipe: how; its seed orders the data.
        task, data: what it is trained on: a task's name, and the user's files if there are any.
        name, init: what the placement and the rule for initial weights are called in the race; None for the spec's.
        model: `package.module:function` that makes the model in place of the spec, as `factory.made` calls it.
        framework: `torch` or `flax`.
        device: cpu, cuda ...
    """

    spec: Spec
    recipe: Recipe
    task: str
    data: str | tuple[str, ...] | None = None
    name: str | None = None
    init: str | None = None
    model: str | None = None
    framework: str = "torch"
    device: str = "cpu"

    @property
    def at_hand(self) -> AtHand:
        """The task and what is known about it."""
        return at_hand(self.task, self.data, self.spec.context)

    @property
    def of(self) -> Task:
        """The task."""
        return self.at_hand.task

    @property
    def looks(self) -> tuple[int, ...]:
        """Updates at which stream, gradient and held-out loss are looked at: the first, the last and three between."""
        steps = self.recipe.steps
        return tuple(sorted({0, steps // 4, steps // 2, 3 * steps // 4, steps - 1}))

    def to_dict(self) -> dict[str, Any]:
        """All that can change the result."""
        return {
            "spec": self.spec.to_dict(),
            "recipe": asdict(self.recipe),
            "task": self.task,
            "data": self.at_hand.digest,
            "model": self.model,
            "framework": self.framework,
            "device": self.device,
        }

    @property
    def identity(self) -> str:
        """Hash of all that can change the result."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def trial(self, training: Training, **known: Any) -> Trial:
        """The record of what a training of this entry came to."""
        curve, spec, recipe = training.curve, self.spec, self.recipe
        stuck_loss = self.at_hand.stuck_loss
        values: dict[str, Any] = dict(
            identity=self.identity,
            name=self.name or spec.placed.name,
            init=self.init or spec.init,
            lr=recipe.lr,
            warmup=recipe.warmup,
            seed=recipe.seed,
            layers=spec.layers,
            width=spec.width,
            batch=recipe.batch,
            optimiser=recipe.optimiser,
            norm=spec.norm,
            steps=recipe.steps,
            curve=curve,
            loss=training.loss,
            accuracy=training.accuracy,
            stuck_loss=stuck_loss,
            outcome=outcome(curve, training.loss, stuck_loss),
            evaluations=training.evaluations,
            snapshots=training.snapshots,
            spikes=spikes(curve),
            seconds=training.seconds,
            tokens_per_second=training.tokens / training.seconds if training.seconds else 0.0,
        )
        return Trial(**(values | known))


def run(entry: Entry) -> Trial:
    """Make a run, whole; also in a process of its own."""
    return advance(entry)[0]


def advance(
    entry: Entry,
    state: bytes | None = None,
    *,
    until: int | None = None,
    seconds: float = math.inf,
    save: Save | None = None,
    save_seconds: float = 60.0,
) -> tuple[Trial, bytes | None]:
    """Make a run, or a part of it: the trial so far, and a state to go on from where it is not over.

    Args:
        entry: the run.
        state: to go on from.
        until: stop after this many updates in all.
        seconds: stop when so much time was spent in updates.
        save: called with a state now and then.
        save_seconds: that pass between two calls.
    """
    training = room(entry.framework).train(
        entry.spec if entry.model is None else made(entry.model, entry.spec),
        entry.of,
        entry.recipe,
        looks=entry.looks,
        state=state,
        until=until,
        seconds=seconds,
        save=save,
        save_seconds=save_seconds,
        device=entry.device,
    )
    return entry.trial(training, memory=peak_memory()), training.state


def failure(entry: Entry, note: str) -> Trial:
    """The record of a run that could not be made."""
    return entry.trial(Training(curve=(), evaluations=()), outcome="failed", note=note)
