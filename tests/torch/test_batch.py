"""A batch of every task, given to a PyTorch model: the truth of the oracle, and a loss that can be learnt from."""

import math

import numpy as np
import pytest
import torch

from normula import oracle
from normula.data import TASKS, Batch, Task, task
from normula.spec import Spec
from normula.torch import build
from normula.torch.batch import loss, predict
from tests.cases import random_weights
from tests.near import FLOAT64, assert_near
from tests.torch.models import model_of

NAMES = [name for name in TASKS if not name.startswith("hf:")]


@pytest.fixture(params=NAMES)
def data(request: pytest.FixtureRequest) -> Task:
    if request.param == "digits":
        pytest.importorskip("sklearn")
    return task(request.param)


def spec_of(data: Task) -> Spec:
    return data.spec(placement="pre", layers=1, width=8, heads=2, eps=0.01)


def test_a_model_answers_what_the_oracle_answers(data: Task) -> None:
    """With padding and a source where the task has them."""
    spec, batch = spec_of(data), data.validation(6)
    arrays = random_weights(spec)
    truth = oracle.run(spec, arrays, batch.inputs, source=batch.source, source_mask=batch.source_mask).output

    found = predict(model_of(spec, arrays), batch)

    assert_near(found.detach().numpy(), truth, FLOAT64)
    assert found.shape == (*batch.targets.shape, data.classes or data.vocab)
    logits, targets = truth.reshape(-1, truth.shape[-1]), batch.targets.ravel()
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -np.mean([row[target] for row, target in zip(logs, targets, strict=True) if target >= 0])
    # the loss is float32's: some ten roundings of 2^-24
    assert loss(model_of(spec, arrays), batch).item() == pytest.approx(expected, rel=1e-5)


def test_padding_and_targets_that_are_not_scored_change_nothing() -> None:
    data = task("translate")
    batch = data.validation(6)
    assert batch.source is not None
    assert batch.source_mask is not None
    other = Batch(
        np.where(batch.targets < 0, 7, batch.inputs),
        batch.targets,
        source=np.where(batch.source_mask, batch.source, 9),
        source_mask=batch.source_mask,
    )
    model = build(spec_of(data))
    assert loss(model, other).item() == pytest.approx(loss(model, batch).item(), rel=1e-6)
    unmasked = Batch(other.inputs, other.targets, source=other.source)
    assert loss(model, unmasked).item() != pytest.approx(loss(model, batch).item(), rel=1e-4)


def test_a_few_steps_on_a_batch_make_its_loss_smaller(data: Task) -> None:
    model, batch = build(spec_of(data)), next(iter(data.batches(0, 16)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    curve = []
    for _ in range(20):
        value = loss(model, batch)
        optimiser.zero_grad()
        torch.autograd.backward(value)
        optimiser.step()
        curve.append(value.item())
    assert all(map(math.isfinite, curve))
    assert curve[-1] < curve[0] - 0.1
