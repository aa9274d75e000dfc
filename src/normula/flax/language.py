"""Two looks at a language model at its initial weights: the gradient of its loss, and what one update does."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from normula.data import Batch
from normula.flax.core import apply, init, states
from normula.flax.measure import Case, entropy_loss, measure
from normula.flax.network import network
from normula.flax.train import OPTIMISERS
from normula.flax.tree import leaves, put
from normula.record import Start
from normula.spec import Spec


def start(spec: Spec, batch: Batch, weights: Sequence[str] = ()) -> Start:
    """A model with a vocabulary at its initial weights, on one batch.

    Args:
        spec: what to build.
        batch: ids that go in and ids that should come out.
        weights: names of the parameters whose gradients are wanted.
    """
    net = network(spec)
    params, inputs, targets = init(net, seed=spec.seed), jnp.asarray(batch.inputs), jnp.asarray(batch.targets)
    case = Case(seed=spec.seed, training_step=0, params=params, inputs=inputs, target=targets)
    (one,) = measure(net, [case], entropy_loss, is_loss=True)
    gradients = {weight.name: weight.gradient for weight in one.weights}
    stream = np.asarray(states(net, params, inputs).stream, dtype=np.float64)
    return Start(
        loss=one.loss,
        input_gradient=one.input_gradient,
        gradients=tuple(gradients[name] for name in weights),
        variances=tuple(float(x.var(axis=-1).mean()) for x in stream),
    )


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

    @jax.jit
    def moved(params: dict[str, object]) -> tuple[jax.Array, jax.Array]:
        def loss(params: dict[str, object]) -> tuple[jax.Array, jax.Array]:
            logits = apply(net, params, inputs)
            return entropy_loss(logits, targets), logits

        gradients, before = jax.grad(loss, has_aux=True)(params)
        optimizer = OPTIMISERS[optimiser](lr)
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        shares = jax.tree.map(lambda share, update: share * update, chosen, updates)
        return before, apply(net, jax.tree.map(jnp.add, params, shares), inputs)

    chosen: dict[str, object] = {}
    for leaf in leaves(net):
        share = jnp.array([float(weights is None or name in weights) for name in leaf.names])
        put(chosen, leaf.path, share.reshape(-1, *[1] * (len(leaf.shape) - 1)) if leaf.stacked else share[0])
    before, after = (np.asarray(one, dtype=np.float64) for one in moved(params))
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))
