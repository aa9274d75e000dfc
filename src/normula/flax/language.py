"""Two looks at a language model at its initial weights: the gradient of its loss, and what one update does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from normula.data import Batch
from normula.flax.core import Numbers, after_embedding, apply, embedded, init, numbers_of, surroundings
from normula.flax.measure import QUICK, entropy_loss, length
from normula.flax.network import Network, network
from normula.flax.train import optimiser as made
from normula.flax.tree import Tree, leaves, put, to_arrays
from normula.record import Start
from normula.spec import Recipe, Spec


def start(spec: Spec, batch: Batch, weights: Sequence[str] = ()) -> Start:
    """A model with a vocabulary at its initial weights, on one batch.

    Args:
        spec: what to build.
        batch: ids that go in and ids that should come out.
        weights: names of the parameters whose gradients are wanted.
    """
    net = network(spec)
    params, inputs, targets = init(net, seed=spec.seed), jnp.asarray(batch.inputs), jnp.asarray(batch.targets)
    value, first, gradients, variances = _start(net, params, numbers_of(net, jnp.float32), inputs, targets)
    by_name = to_arrays(net, gradients) if weights else {}
    return Start(
        loss=float(value),
        input_gradient=float(first),
        gradients=tuple(float(np.linalg.norm(np.asarray(by_name[name], np.float64))) for name in weights),
        variances=tuple(np.asarray(variances).tolist()),
    )


@partial(jax.jit, static_argnames=("network",), compiler_options=QUICK)
def _start(
    network: Network, params: Tree, numbers: Numbers, inputs: Array, targets: Array
) -> tuple[Array, Array, Tree, Array]:
    """The loss, the size of its gradient at the embedded input, that of all parameters, the stream's variances."""
    x, _ = embedded(network, params, inputs, jnp.float32, None)
    around = surroundings(network, params, x, None, None, None, jnp.zeros(()), None)

    def loss(x: Array, params: Tree) -> tuple[Array, Array]:
        states = after_embedding(network, params, numbers, x, None, around)
        return entropy_loss(states.output, targets), states.stream

    (value, stream), (first, gradients) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(x, params)
    return value, length(first), gradients, stream.var(axis=-1).mean(axis=(1, 2))


def one_step_update(
    spec: Spec, batch: Batch, *, optimiser: str, lr: float, weights: Collection[str] | None = None
) -> float:
    """How far one update moves the logits of the batch that it was made on: |F1 - F0| / |F0|, over B, T and V.

    Args:
        spec: what to build, at its initial weights.
        batch: ids that go in and ids that should come out.
        optimiser: adam or sgd.
        lr: learning rate.
        weights: names of the parameters that are updated; None for all.
    """
    net = network(spec)
    params, inputs, targets = init(net, seed=spec.seed), jnp.asarray(batch.inputs), jnp.asarray(batch.targets)
    chosen: dict[str, object] = {}
    for leaf in leaves(net):
        share = jnp.array([float(weights is None or name in weights) for name in leaf.names])
        put(chosen, leaf.path, share.reshape(-1, *[1] * (len(leaf.shape) - 1)) if leaf.stacked else share[0])
    moved = _moved(net, params, chosen, inputs, targets, lr, optimiser=optimiser)
    before, after = (np.asarray(one, dtype=np.float64) for one in moved)
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))


@partial(jax.jit, static_argnames=("network", "optimiser"), compiler_options=QUICK)
def _moved(
    network: Network, params: Tree, chosen: Any, inputs: Array, targets: Array, lr: float | Array, *, optimiser: str
) -> tuple[Array, Array]:
    """The logits before and after one update of the parameters that were chosen."""

    def loss(params: Tree) -> tuple[Array, Array]:
        logits = apply(network, params, inputs)
        return entropy_loss(logits, targets), logits

    gradients, before = jax.grad(loss, has_aux=True)(params)
    optimizer = made(Recipe(steps=1, lr=1.0, optimiser=optimiser), lr)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    shares = jax.tree.map(lambda share, update: share * update, chosen, updates)
    return before, apply(network, jax.tree.map(jnp.add, params, shares), inputs)
