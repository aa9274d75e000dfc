"""The course of a training, with a learner that only writes down what it is asked."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from normula.data import Batch, Task, task
from normula.data.course import follow
from normula.record import Snapshot, Training
from normula.spec import Recipe

RECIPE = Recipe(steps=4, lr=1.0, warmup=2, batch=3)


class Writer:
    """Gives the losses that it was given."""

    def __init__(self, losses: Sequence[float] = (4.0, 3.0, 2.0, 1.0)) -> None:
        self.losses, self.said, self.seen = losses, [], []

    def loss(self, step: int, batch: Batch, rate: float) -> float:
        self.said.append(("loss", step, rate))
        self.seen.append(batch.inputs)
        return self.losses[step]

    def snapshot(self, step: int, batch: Batch) -> Snapshot:
        self.said.append(("snapshot", step))
        assert batch.inputs is self.seen[-1]
        return Snapshot(step=step, gradient=1.0)

    def update(self) -> None:
        self.said.append(("update",))

    def evaluate(self, step: int, batch: Batch) -> tuple[float, float]:
        self.said.append(("evaluate", step))
        return float(step), 0.5

    def state(self, course: str) -> bytes:
        return course.encode()

    def load(self, state: bytes) -> str:
        return state.decode()


def followed(writer: Writer, recipe: Recipe = RECIPE, **options: Any) -> Training:
    return follow(writer, task("copy"), recipe, **options)


def test_what_is_done_in_which_order() -> None:
    writer = Writer()
    followed(writer, looks=[1, 3], observe=lambda step: writer.said.append(("observe", step)))
    assert writer.said == [
        ("observe", 0), ("loss", 0, 0.5), ("update",),
        ("observe", 1), ("loss", 1, 1.0), ("snapshot", 1), ("update",), ("evaluate", 2),
        ("observe", 2), ("loss", 2, 1.0), ("update",),
        ("observe", 3), ("loss", 3, 1.0), ("snapshot", 3), ("update",), ("evaluate", 4),
        ("observe", 4),
    ]  # fmt: skip


def test_it_is_judged_at_the_end_without_looks() -> None:
    found = followed(Writer())
    assert [(one.step, one.loss) for one in found.evaluations] == [(4, 4.0)]
    assert found.state is None


def test_it_sees_each_batch_of_the_task_once_wherever_it_stops() -> None:
    expected = [batch.inputs for batch, _ in zip(task("copy").batches(0, 3), range(4), strict=False)]
    writer, state = Writer(), None
    for until in (1, 1, 3, 4):
        state = followed(writer, until=until, state=state).state
    np.testing.assert_array_equal(writer.seen, expected)


def test_the_judgement_where_it_was_stopped_is_not_part_of_the_state() -> None:
    half = followed(Writer(), until=2)
    assert [one.step for one in half.evaluations] == [2]
    assert half.state is not None
    assert json.loads(half.state)["training"]["evaluations"] == []
    assert [one.step for one in followed(Writer(), state=half.state).evaluations] == [4]


def test_it_observes_each_update_once_however_often_it_stops() -> None:
    steps: list[int] = []
    state = followed(Writer(), until=2, observe=steps.append).state
    followed(Writer(), state=state, observe=steps.append)
    assert steps == [0, 1, 2, 3, 4]


@pytest.mark.negative
@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_no_update(last: float) -> None:
    writer = Writer((4.0, last, 0.0, 0.0))
    found = followed(writer, looks=[0, 1, 2, 3], save=lambda state: None, save_seconds=0.0)
    assert writer.said[-1] == ("loss", 1, 1.0)
    assert writer.said.count(("update",)) == 1
    assert len(found.curve) == 2
    assert (found.evaluations[-1].step, found.state) == (2, None)
    assert math.isnan(found.loss)


def test_seconds_are_those_of_updates_alone_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr("normula.data.course.time.perf_counter", lambda: float(next(clock)))
    half = followed(Writer(), until=2, looks=[0, 1])
    assert half.seconds == 2 * 2  # one tick for the loss, one for the update
    assert followed(Writer(), state=half.state).seconds == 4 * 2
    assert len(followed(Writer(), seconds=3.0).curve) == 2


class Counting:
    """A task that counts how far its batches were drawn."""

    def __init__(self) -> None:
        self.inner, self.drawn = task("copy"), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        for batch in self.inner.batches(seed, size, first):
            self.drawn += 1
            yield batch


def test_no_batch_is_drawn_in_vain() -> None:
    counting = Counting()
    assert isinstance(counting, Task)
    follow(Writer(), counting, RECIPE)
    assert counting.drawn == 4


@pytest.mark.negative
@pytest.mark.parametrize("change", [dict(lr=2.0), dict(steps=5), dict(clip=1.0), dict(seed=1)])
def test_a_state_goes_with_its_recipe(change: dict[str, Any]) -> None:
    state = followed(Writer(), until=2).state
    [name] = change
    with pytest.raises(ValueError, match=f"with {name}=.*go on with the recipe that it was begun with"):
        followed(Writer(), Recipe(**(dict(steps=4, lr=1.0, warmup=2, batch=3) | change)), state=state)
