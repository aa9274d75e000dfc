"""Here lives Entry: one training run to be made, with an identity that all its results share."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from normula.data import Task
from normula.data import task as named_task
from normula.framework import room
from normula.race.outcome import outcome
from normula.record import Trial
from normula.spec import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A training run.

    Args:
        spec: what is trained; its seed is the run's, and orders the data too.
        task, path: what it is trained on: a task's name, and the user's text if there is one.
        steps, lr, warmup, batch, optimiser: as in training.
        framework: `torch` or `flax`.
    """

    spec: Spec
    task: str
    path: str | None
    steps: int
    lr: float
    warmup: int
    batch: int
    optimiser: str = "adam"
    framework: str = "torch"

    @property
    def data(self) -> Task:
        """The task."""
        return named_task(self.task, self.path, self.spec.context)

    def to_dict(self) -> dict[str, Any]:
        """All that can change the result."""
        return {
            "spec": self.spec.to_dict(),
            "task": self.task,
            "data": self.data.digest,
            "steps": self.steps,
            "lr": self.lr,
            "warmup": self.warmup,
            "batch": self.batch,
            "optimiser": self.optimiser,
            "framework": self.framework,
        }

    @property
    def identity(self) -> str:
        """Hash of all that can change the result."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(entry: Entry) -> Trial:
    """Make a run; also in a process of its own."""
    start = time.perf_counter()
    data = entry.data
    curve, loss = room(entry.framework).train(
        entry.spec,
        data,
        steps=entry.steps,
        lr=entry.lr,
        warmup=entry.warmup,
        batch=entry.batch,
        optimiser=entry.optimiser,
        seed=entry.spec.seed,
    )
    seconds = time.perf_counter() - start
    return Trial(
        identity=entry.identity,
        name=entry.spec.placed.name,
        init=entry.spec.init,
        lr=entry.lr,
        warmup=entry.warmup,
        seed=entry.spec.seed,
        curve=tuple(curve),
        loss=loss,
        stuck_loss=data.stuck_loss,
        outcome=outcome(curve, loss, data.stuck_loss),
        seconds=seconds,
        tokens_per_second=len(curve) * entry.batch * entry.spec.context / seconds,
    )
