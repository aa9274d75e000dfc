"""Training as a practitioner does it: one model, one task, a linear warmup, Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array

from normula.data import Task
from normula.flax.core import apply, init
from normula.flax.measure import entropy_loss
from normula.flax.network import Network, network
from normula.flax.tree import Tree
from normula.spec import Spec

Observer: TypeAlias = Callable[[int, Network, Tree], None]

OPTIMISERS: Mapping[str, Callable[[Any], optax.GradientTransformation]] = {
    "adam": lambda lr: optax.adam(lr, b1=0.9, b2=0.999, eps=1e-8),
    "sgd": lambda lr: optax.sgd(lr),
}
"""The optimisers, with every setting written out."""


def train(
    spec: Spec,
    task: Task,
    *,
    steps: int,
    lr: float,
    warmup: int = 0,
    batch: int = 16,
    optimiser: str = "adam",
    seed: int = 0,
    observe: Observer | None = None,
) -> tuple[list[float], float]:
    """Train a network of a spec from its initial weights.

    Args:
        spec: what to train; it needs a vocabulary.
        task: gives the batches; their order depends on `seed` alone.
        steps: updates.
        lr: learning rate after the warmup; it stays constant.
        warmup: updates over which the rate rises linearly from 0; 0 for none.
        batch: B, sequences in a batch.
        optimiser: adam or sgd.
        seed: of the order of the data, and of the dropout.
        observe: called with the number of updates made, the network and its parameters, before each update and at the
            end.

    Returns:
        The training loss at each step in nats, and the loss on the task's validation batch. Training ends early where
        a loss is not finite: the curve is then shorter, and its last value says what it became.
    """
    net = network(spec)
    params = init(net)
    state = OPTIMISERS[optimiser](1.0).init(params)
    batches = task.batches(seed, batch)
    key = jax.random.key(seed)
    curve: list[float] = []
    for step in range(steps):
        if observe is not None:
            observe(step, net, params)
        one = next(batches)
        rate = lr * min(1.0, (step + 1) / warmup) if warmup else lr
        value, new, state = _update(
            net, params, state, one.inputs, one.targets, jnp.asarray(step), rate, key, optimiser=optimiser
        )
        curve.append(float(value))
        if not math.isfinite(curve[-1]):
            return curve, math.nan
        params = new
    if observe is not None:
        observe(steps, net, params)
    held = task.validation()
    return curve, float(_loss(params, net, held.inputs, held.targets, jnp.asarray(steps), None))


@partial(jax.jit, static_argnames=("network", "optimiser"))
def _update(
    network: Network,
    params: Tree,
    state: Any,
    inputs: Array,
    targets: Array,
    step: Array,
    rate: Array | float,
    key: Array,
    *,
    optimiser: str,
) -> tuple[Array, Tree, Any]:
    """The loss, and the parameters after one update."""
    key = jax.random.fold_in(key, step)
    value, gradients = jax.value_and_grad(_loss)(params, network, inputs, targets, step, key)
    updates, state = OPTIMISERS[optimiser](rate).update(gradients, state, params)
    return value, optax.apply_updates(params, updates), state


@partial(jax.jit, static_argnames=("network",))
def _loss(params: Tree, network: Network, inputs: Array, targets: Array, step: Array, key: Array | None) -> Array:
    """Mean cross-entropy over all positions, in nats; without a key nothing is dropped."""
    logits = apply(network, params, inputs, training_step=step, deterministic=key is None, key=key)
    return entropy_loss(logits, targets)
