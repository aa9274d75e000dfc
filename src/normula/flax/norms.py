"""Here live the norms in JAX: over the features of one token, with statistics in float32 or wider.

Half-precision input is normalised, scaled and shifted in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

Own: TypeAlias = Mapping[str, Array]


def norm(kind: str, x: Array, own: Own, eps: float, variance: str = "two-pass") -> Array:
    """A norm of one kind over the last axis; (..., D) to (..., D).

    Args:
        kind: layernorm, rmsnorm, l2norm, dyt, derf or none.
        x: what is normalised.
        own: the norm's parameters: `scale` and `bias` of shape (D,), `alpha` and `shift` of shape ().
        eps: epsilon under the root.
        variance: how LayerNorm finds it: two-pass or one-pass.
    """
    if kind == "none":
        return x
    wide = jnp.promote_types(x.dtype, jnp.float32)
    parameters = {name: array.astype(wide) for name, array in own.items()}
    function = _one_pass if kind == "layernorm" and variance == "one-pass" else _FUNCTIONS[kind]
    return function(x.astype(wide), parameters, eps).astype(x.dtype)


def _layernorm(x: Array, own: Own, eps: float) -> Array:
    centred = x - _mean(x)
    return centred * jax.lax.rsqrt(_mean(jnp.square(centred)) + eps) * own["scale"] + own["bias"]


def _one_pass(x: Array, own: Own, eps: float) -> Array:
    mean = _mean(x)
    variance = jnp.maximum(_mean(jnp.square(x)) - jnp.square(mean), 0)
    return (x - mean) * jax.lax.rsqrt(variance + eps) * own["scale"] + own["bias"]


def _rmsnorm(x: Array, own: Own, eps: float) -> Array:
    return x * jax.lax.rsqrt(_mean(jnp.square(x)) + eps) * own["scale"]


def _l2norm(x: Array, own: Own, eps: float) -> Array:
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + eps)


def _dyt(x: Array, own: Own, eps: float) -> Array:
    return own["scale"] * jnp.tanh(own["alpha"] * x) + own["bias"]


def _derf(x: Array, own: Own, eps: float) -> Array:
    return own["scale"] * jax.scipy.special.erf(own["alpha"] * x + own["shift"]) + own["bias"]


def _mean(x: Array) -> Array:
    return jnp.mean(x, axis=-1, keepdims=True)


_FUNCTIONS: Mapping[str, Callable[[Array, Own, float], Array]] = {
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "l2norm": _l2norm,
    "dyt": _dyt,
    "derf": _derf,
}
