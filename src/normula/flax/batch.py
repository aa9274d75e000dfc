"""A batch of a task, given to a network. A Batch is a tree of arrays: it goes through `jax.jit` and `jax.grad`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from normula.data import Batch
from normula.flax import core
from normula.flax.core import States, apply
from normula.flax.measure import entropy_loss
from normula.flax.network import Network

jax.tree_util.register_dataclass(Batch, [field.name for field in fields(Batch)], [])


def predict(network: Network, params: Mapping[str, Any], batch: Batch, **settings: Any) -> Array:
    """What a network says to a batch: logits (B, T, V), or (B, classes) of a classifier.

    Args:
        network: what runs.
        params: its parameters.
        batch: of NumPy's arrays or of JAX's.
        settings: of `apply`: training_step, deterministic, key, dtype, unroll, remat.
    """
    given = _given(batch)
    return apply(network, params, given.pop("inputs"), **given, **settings)


def states(network: Network, params: Mapping[str, Any], batch: Batch, **settings: Any) -> States:
    """All that a pass over a batch shows; arguments as for `predict`."""
    given = _given(batch)
    return core.states(network, params, given.pop("inputs"), **given, **settings)


def loss(network: Network, params: Mapping[str, Any], batch: Batch, **settings: Any) -> Array:
    """Mean cross-entropy over all that is scored, in nats; arguments as for `predict`."""
    return entropy_loss(predict(network, params, batch, **settings), jnp.asarray(batch.targets))


def _given(batch: Batch) -> dict[str, Any]:
    return {name: jnp.asarray(array) for name, array in batch.arguments.items()}
