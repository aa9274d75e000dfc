"""Here lives the course of a training: batches in order, looks on the way, where it stops and how it goes on.

Whichever framework makes the updates, a Learner brings what only the framework knows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from normula.data.batch import Batch
from normula.data.task import Task
from normula.record import Evaluation, Snapshot, Training, from_dict, to_dict
from normula.spec import Recipe


class Learner(Protocol):
    """A model with its optimiser, in one framework. A step is the number of updates made before."""

    def loss(self, step: int, batch: Batch, rate: float) -> float:
        """The loss of a batch in nats, with all made ready for an update at this learning rate."""
        ...

    def snapshot(self, step: int, batch: Batch) -> Snapshot:
        """The gradient that this loss has, and the stream of its batch without dropout; it changes nothing."""
        ...

    def update(self) -> None:
        """Make the update."""
        ...

    def evaluate(self, step: int, batch: Batch) -> tuple[float, float]:
        """Loss in nats and accuracy on a batch, without dropout; it changes nothing."""
        ...

    def state(self, course: str) -> bytes:
        """All that is needed to go on bit for bit, and a text with it."""
        ...

    def load(self, state: bytes) -> str:
        """Go on from a state; the text that came with it."""
        ...


def follow(
    learner: Learner,
    task: Task,
    recipe: Recipe,
    *,
    looks: Sequence[int] = (),
    observe: Callable[[int], None] | None = None,
    state: bytes | None = None,
    until: int | None = None,
    seconds: float = math.inf,
    save: Callable[[bytes], None] | None = None,
    save_seconds: float = 60.0,
) -> Training:
    """Let a learner go through a training, or a part of it.

    Args:
        learner: at its start, also where there is a state to go on from.
        task, recipe: what is learnt, and how.
        looks: updates at which the stream and the gradient are looked at, and after which the held-out data are.
        observe: called with the number of updates made, before each update and at the end.
        state: of a training of the same recipe that was stopped, to go on from.
        until: stop after this many updates in all.
        seconds: stop when this much time was spent in updates, in all.
        save: called with the state now and then.
        save_seconds: that pass between two calls.

    Returns:
        The training; with a state to go on from where it was stopped. It ends early where a loss is not finite.

    Raises:
        ValueError: a state of another recipe.
    """
    course = _Course(learner, task, recipe, frozenset(looks))
    if state is not None:
        course.load(learner.load(state))
    last = recipe.steps if until is None else min(until, recipe.steps)
    batches = task.batches(recipe.seed, recipe.batch, first=course.step)
    saved = time.perf_counter()
    while course.step < last and course.seconds < seconds and course.is_finite:
        if observe is not None:
            observe(course.step)
        course.advance(next(batches))
        if save is not None and not course.is_over and time.perf_counter() - saved >= save_seconds:
            save(course.state())
            saved = time.perf_counter()
    if observe is not None and course.step == recipe.steps and course.is_finite:
        observe(course.step)
    return course.training()


@dataclass(slots=True)
class _Course:
    """A training in progress."""

    learner: Learner
    task: Task
    recipe: Recipe
    looks: frozenset[int]
    held: Batch = field(init=False)
    curve: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.held = self.task.validation()

    @property
    def step(self) -> int:
        """Updates made."""
        return len(self.curve)

    @property
    def is_finite(self) -> bool:
        return not self.curve or math.isfinite(self.curve[-1])

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.step == self.recipe.steps or not self.is_finite

    def advance(self, batch: Batch) -> None:
        """One update, with what is to be seen around it; none where the loss is not finite."""
        step = self.step
        begun = time.perf_counter()
        value = self.learner.loss(step, batch, self.recipe.rate(step))
        spent = time.perf_counter() - begun
        self.curve.append(value)
        self.tokens += batch.tokens
        if self.is_finite:
            if step in self.looks:
                self.snapshots.append(self.learner.snapshot(step, batch))
            begun = time.perf_counter()
            self.learner.update()
            spent += time.perf_counter() - begun
            if step in self.looks:
                self.evaluations.append(self._evaluation())
        self.seconds += spent

    def training(self) -> Training:
        """What it came to, judged where it stands; with a state where there is more to do."""
        state = None if self.is_over else self.state()
        seen = tuple(self.evaluations)
        if not self.is_finite or not seen or seen[-1].step != self.step:
            seen += (self._evaluation(),)
        return self._so_far(seen, state)

    def state(self) -> bytes:
        """All that is needed to go on."""
        course = {"recipe": asdict(self.recipe), "training": to_dict(self._so_far(tuple(self.evaluations)))}
        return self.learner.state(json.dumps(course))

    def load(self, text: str) -> None:
        """Go on from what `state` wrote."""
        course = json.loads(text)
        recipe = asdict(self.recipe)
        for name, value in course["recipe"].items():
            if recipe[name] != value:
                raise ValueError(
                    f"this state is of a training with {name}={value!r}, not {recipe[name]!r}; "
                    "go on with the recipe that it was begun with"
                )
        before = from_dict(Training, course["training"])
        self.curve, self.seconds, self.tokens = list(before.curve), before.seconds, before.tokens
        self.evaluations, self.snapshots = list(before.evaluations), list(before.snapshots)

    def _so_far(self, evaluations: tuple[Evaluation, ...], state: bytes | None = None) -> Training:
        return Training(
            curve=tuple(self.curve),
            evaluations=evaluations,
            snapshots=tuple(self.snapshots),
            seconds=self.seconds,
            tokens=self.tokens,
            state=state,
        )

    def _evaluation(self) -> Evaluation:
        """The held-out data as they look now; where the training has ended early there is nothing to look at."""
        loss, accuracy = self.learner.evaluate(self.step, self.held) if self.is_finite else (math.nan, math.nan)
        return Evaluation(step=self.step, loss=loss, accuracy=accuracy)
