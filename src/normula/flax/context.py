"""What a layer reads besides its input: who sees whom, positions, the encoder's memory, dropout."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from normula.spec import Spec
from normula.spec.positions import relative_buckets, rotary_angles


class Context(NamedTuple):
    """The same for every layer of one pass.

    Attributes:
        visible: which keys each query sees, broadcast to (B, H, T, S); None for all.
        bias: added to the scores, (1, H, T, S); None for nothing.
        turns: cosines and sines of the rotary angles, each (T, K / 2).
        memory, memory_visible: what `cross` attends to, and which of it is real.
        training_step: what `step` stands for, a number.
        key: of the dropout; None where nothing is dropped.
        dtype: that the stream is computed in.
    """

    visible: Array | None = None
    bias: Array | None = None
    turns: tuple[Array, Array] | None = None
    memory: Array | None = None
    memory_visible: Array | None = None
    training_step: Array | None = None
    key: Array | None = None
    dtype: Any = jnp.float32


def context(
    spec: Spec,
    x: Array,
    mask: Array | None,
    relative: Array | None,
    memory: Array | None,
    memory_mask: Array | None,
    training_step: Array,
    key: Array | None,
) -> Context:
    """The context of a pass over x, (B, T, D).

    Args:
        spec: the stack.
        x: the embedded input.
        mask: (B, T), true at real tokens.
        relative: the learned table of relative positions, (buckets, H).
        memory, memory_mask: the encoder's output, and which of it is real.
        training_step: updates made so far.
        key: of the dropout.
    """
    training_step = training_step.astype(x.dtype)
    if not spec.words & {"attn", "cross"}:
        return Context(training_step=training_step, key=key, dtype=x.dtype)
    T = x.shape[1]
    visible = None if mask is None else mask.astype(bool)[:, None, None, :]
    if spec.causal:
        before = jnp.tril(jnp.ones((T, T), bool))[None, None]
        visible = before if visible is None else visible & before
    bias = turns = None
    if relative is not None:
        bias = relative[relative_buckets(T, T, causal=spec.causal)].transpose(2, 0, 1)[None]
    if spec.positions == "rotary":
        angles = jnp.asarray(rotary_angles(T, spec.head_width, spec.rotary_base))
        turns = (jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype))
    memory_visible = None if memory_mask is None else memory_mask.astype(bool)[:, None, None, :]
    return Context(visible, bias, turns, memory, memory_visible, training_step, key, x.dtype)


def dropped(x: Array, share: float, key: Array | None, place: int) -> Array:
    """x with a share of its values set to 0 and the others made larger; x itself without a key."""
    if key is None or not share:
        return x
    kept = jax.random.bernoulli(jax.random.fold_in(key, place), 1 - share, x.shape)
    return jnp.where(kept, x / (1 - share), jnp.zeros_like(x))
