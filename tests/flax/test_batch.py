"""A batch of every task, given to a network: PyTorch's answer and loss, also through `jit` as a tree of arrays."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import normula.torch.batch as in_torch
from normula.data import TASKS, Batch, Task, task
from normula.flax.batch import loss, predict
from normula.flax.core import init
from normula.flax.measure import entropy_loss
from normula.flax.network import network
from normula.torch import build
from tests.near import FLOAT32, assert_near

NAMES = [name for name in TASKS if not name.startswith("hf:")]


@pytest.fixture(params=NAMES)
def data(request: pytest.FixtureRequest) -> Task:
    if request.param == "digits":
        pytest.importorskip("sklearn")
    return task(request.param)


def test_the_frameworks_answer_alike(data: Task) -> None:
    spec, batch = data.spec(placement="pre", layers=1, width=8, heads=2), data.validation(6)
    net, model = network(spec), build(spec)
    with torch.no_grad():
        expected, value = in_torch.predict(model, batch), in_torch.loss(model, batch)

    found = predict(net, init(net), batch)

    assert_near(np.asarray(found), expected.numpy(), 10 * FLOAT32)  # a head over sums of both sides
    given = jax.tree.map(jnp.asarray, batch)
    assert isinstance(given, Batch)
    through, gradient = jax.jit(jax.value_and_grad(partial(loss, net)))(init(net), given)
    assert float(through) == pytest.approx(value.item(), rel=1e-5)
    assert all(bool(jnp.isfinite(one).all()) for one in jax.tree.leaves(gradient))


def test_the_entropy_is_over_what_is_scored() -> None:
    """Against PyTorch's, which takes the index to leave out."""
    random = np.random.default_rng(0)
    for shape in ((4, 5), (6,)):
        logits, targets = random.standard_normal((*shape, 3)), random.integers(-1, 3, shape)
        expected = torch.nn.functional.cross_entropy(
            torch.tensor(logits).flatten(0, -2), torch.tensor(targets).flatten(), ignore_index=-1
        )
        with jax.enable_x64(True):
            found = float(entropy_loss(jnp.asarray(logits), jnp.asarray(targets)))
        assert found == pytest.approx(expected.item(), rel=1e-12)
