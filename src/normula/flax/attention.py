"""Here lives multi-head attention in JAX: of a sequence to itself, or to an encoder's memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from normula.flax.context import Context, dropped
from normula.flax.norms import norm
from normula.spec import Spec
from normula.spec.plan import norm_kind


def attention(
    spec: Spec,
    x: Float[Array, "B T D"],
    own: Mapping[str, Any],
    inner: Mapping[str, str],
    around: Context,
    place: int,
    *,
    crosses: bool = False,
) -> Float[Array, "B T D"]:
    """softmax(scale q k^T + bias) v, then the output projection.

    Vaswani et al., Attention Is All You Need, 2017, equation 1. The scores and their softmax are float32 or wider. A
    token that sees no key takes zeros.

    Args:
        spec: sizes, heads, epsilon, dropout.
        x: (B, T, D).
        own: the matrices q, k, v, o (each `kernel`, (in, out), and perhaps `bias`) and the inner norms.
        inner: the word of a norm for each of q, k, v, heads that has one.
        around: what else attention reads.
        place: number of this sublayer in its layer, for the dropout.
        crosses: whether keys and values come from the memory.
    """
    B, T, D = x.shape
    H, G, K = spec.heads, spec.key_heads, spec.head_width
    over_heads = spec.qk_norm == "head"
    source = x if not crosses else around.memory
    assert source is not None

    def normed(part: str, value: Array) -> Array:
        if part not in inner:
            return value
        return norm(norm_kind(spec, inner[part]), value, own.get(f"norm_{part}", {}), spec.eps, spec.variance)

    def projected(part: str, given: Array, heads: int) -> Array:
        """(B, S, H, K), normed on the way where there is a norm."""
        value = linear(given, own[part])
        value = value if over_heads else normed(part, value)
        value = value.reshape(*value.shape[:-1], heads, K)
        return normed(part, value) if over_heads else value

    q, k, v = projected("q", x, H), projected("k", source, G), projected("v", source, G)
    if around.turns is not None and not crosses:
        q, k = turned(q, *around.turns), turned(k, *around.turns)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    grouped = q.reshape(B, T, G, H // G, K)
    scores = jnp.einsum("btghk,bsgk->bghts", grouped, k, preferred_element_type=wide)
    scores = scores.reshape(B, H, T, -1) * (1 / math.sqrt(K) if spec.scale is None else spec.scale)
    if around.bias is not None and not crosses:
        scores = scores + around.bias.astype(wide)
    visible = around.memory_visible if crosses else around.visible
    shares = dropped(_softmax(scores, visible), spec.dropout, around.key, 3 * place)
    shares = shares.reshape(B, G, H // G, T, -1).astype(x.dtype)
    mixed = jnp.einsum("bghts,bsgk->btghk", shares, v).reshape(B, T, D)
    return dropped(linear(normed("heads", mixed), own["o"]), spec.dropout, around.key, 3 * place + 1)


def linear(x: Array, own: Mapping[str, Array]) -> Array:
    """X kernel + bias, in the type of x; (..., in) to (..., out)."""
    y = x @ own["kernel"].astype(x.dtype)
    return y + own["bias"].astype(x.dtype) if "bias" in own else y


def turned(x: Float[Array, "B T H K"], cos: Array, sin: Array) -> Float[Array, "B T H K"]:
    """Pairs of features turned by the angle of their token: feature i of a head's first half with i of its second.

    Su et al., RoFormer, 2021. Differs: the paper pairs neighbours; the halves are Llama's and GPT-NeoX's order.
    """
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _softmax(scores: Array, visible: Array | None) -> Array:
    """Over the last axis, with 0 for what is not visible; all 0 where nothing is."""
    if visible is None:
        highest = scores.max(axis=-1, keepdims=True)
        visible = jnp.ones((), bool)
    else:
        scores = jnp.where(visible, scores, -jnp.inf)
        highest = scores.max(axis=-1, keepdims=True)
        highest = jnp.where(jnp.isfinite(highest) | jnp.isnan(highest), highest, 0)
    exponentials = jnp.where(visible, jnp.exp(jnp.where(visible, scores - highest, 0)), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / jnp.where(total == 0, 1, total)
