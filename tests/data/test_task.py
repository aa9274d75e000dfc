"""Batches: the same for the same seed, targets where they belong."""

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from normula.data import Copy, Task, Text, corpus, task

TASKS = {"text": lambda: task("text"), "copy": lambda: task("copy")}


@pytest.fixture(params=TASKS)
def data(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]()


def inputs(data: Task, seed: int, count: int = 3) -> np.ndarray:
    return np.stack([batch.inputs for batch in islice(data.batches(seed, 4), count)])


def test_a_seed_gives_the_same_batches_each_time_and_another_seed_others(data: Task) -> None:
    np.testing.assert_array_equal(inputs(data, 5), inputs(data, 5))
    assert (inputs(data, 5) != inputs(data, 6)).any()
    assert (inputs(data, 5)[0] != inputs(data, 5)[1]).any()


def test_the_validation_batch_is_fixed_and_in_no_training_batch(data: Task) -> None:
    fixed = data.validation()
    np.testing.assert_array_equal(fixed.inputs, data.validation().inputs)
    rows = {bytes(row) for batch in islice(data.batches(0, 64), 5) for row in batch.inputs}
    assert not rows & {bytes(row) for row in fixed.inputs}


def test_shapes_and_ids_are_what_the_task_says(data: Task) -> None:
    batch = next(data.batches(0, 5))
    assert batch.inputs.shape == batch.targets.shape == (5, data.context)
    assert batch.inputs.dtype == batch.targets.dtype == np.int64
    assert batch.inputs.min() >= 0
    assert max(batch.inputs.max(), batch.targets.max()) < data.vocab
    assert isinstance(data, Task)


def test_in_a_text_each_token_foretells_the_next() -> None:
    data = task("text", context=16)
    batch = next(data.batches(0, 8))
    np.testing.assert_array_equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    train = bytes(data.corpus.train)  # type: ignore[attr-defined]
    for row, last in zip(batch.inputs, batch.targets[:, -1], strict=True):
        assert bytes([*row.astype(np.uint8), last]) in train


def test_windows_reach_both_ends_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"<" + b"." * 178 + b">" + b"-" * 20)
    data = task("text", str(path), 4)
    seen = np.concatenate([np.concatenate([b.inputs, b.targets], 1).ravel() for b in islice(data.batches(0, 64), 60)])
    assert {ord("<"), ord(">")} <= set(seen)


def test_in_the_copy_task_each_position_gives_back_its_own() -> None:
    data = Copy(symbols=5, context=7)
    batch = next(data.batches(0, 100))
    np.testing.assert_array_equal(batch.inputs, batch.targets)
    assert set(batch.inputs.flat) == set(range(5))
    assert (data.vocab, data.context, data.causal) == (5, 7, False)
    assert data.stuck_loss == math.log(5)


def test_a_model_that_learns_how_often_each_byte_comes_ends_at_the_stuck_loss() -> None:
    data = task("text")
    assert isinstance(data, Text)
    assert data.stuck_loss == corpus().unigram_loss(data.validation().targets)
    assert 2.5 < data.stuck_loss < math.log(256)


def test_a_digest_tells_tasks_apart() -> None:
    digests = {task("text").digest, Copy().digest, Copy(symbols=5).digest, Copy(context=5).digest}
    assert len(digests) == 4


@pytest.mark.negative
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("txet",), "a task is text or copy, not 'txet'; did you mean 'text'?"),
        (("copy", "file.txt"), "the copy task makes its own data; give a file with the task text"),
        (("text", "/nowhere/file.txt"), "there is no file /nowhere/file.txt"),
    ],
    ids=["name", "copy of a file", "no file"],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        task(*arguments)
    assert str(error.value) == message


@pytest.mark.parametrize("context", [1, 5, None])
def test_the_context_is_the_tokens_that_a_model_sees(context: int | None) -> None:
    assert task("text", context=context).context == (context or 32)
    assert task("copy", context=context).context == (context or 8)
    assert next(task("text", context=context).batches(0, 2)).inputs.shape == (2, context or 32)
