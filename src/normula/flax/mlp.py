"""Here live the MLP in JAX, gated or not, and the mixture of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from normula.flax.attention import linear
from normula.flax.context import Context, dropped
from normula.flax.norms import norm
from normula.spec import Spec
from normula.spec.plan import norm_kind


def mlp(
    spec: Spec,
    x: Float[Array, "*B D"],
    own: Mapping[str, Any],
    inner: Mapping[str, str],
    around: Context,
    place: int,
) -> Float[Array, "*B D"]:
    """down(activation(up x)), or gated: down(activation(gate x) * up x).

    Args:
        spec: activation, whether it is gated, epsilon, dropout.
        x: (..., D).
        own: the matrices up, gate, down and the norm in the middle.
        inner: the word of that norm, by `mid`, where there is one.
        around: the key of the dropout.
        place: number of this sublayer in its layer, for the dropout.
    """
    activation = ACTIVATIONS[spec.activation]
    up = linear(x, own["up"])
    h = activation(linear(x, own["gate"])) * up if spec.gated else activation(up)
    h = dropped(h, spec.dropout, around.key, 3 * place)
    if inner:
        h = norm(norm_kind(spec, inner["mid"]), h, own.get("norm_mid", {}), spec.eps, spec.variance)
    return dropped(linear(h, own["down"]), spec.dropout, around.key, 3 * place + 1)


def experts(
    spec: Spec, x: Float[Array, "*B D"], own: Mapping[str, Any], around: Context, place: int
) -> Float[Array, "*B D"]:
    """A mixture of E experts of which each token uses the k with the highest router scores.

    The shares are the softmax over the chosen scores alone: Jiang et al., Mixtral of Experts, 2024, section 2.1.
    Every expert is computed for every token and weighted, which is exact and simple.
    """
    activation = ACTIVATIONS[spec.activation]
    scores = linear(x, own["router"])
    top, chosen = jax.lax.top_k(scores, spec.experts_used)
    shares = jnp.put_along_axis(jnp.zeros_like(scores), chosen, jax.nn.softmax(top, axis=-1), axis=-1, inplace=False)
    up = _stacked(x, own["up"])
    h = activation(_stacked(x, own["gate"])) * up if spec.gated else activation(up)
    h = dropped(h, spec.dropout, around.key, 3 * place)
    y = jnp.einsum("...ef,efd,...e->...d", h, own["down"]["kernel"].astype(x.dtype), shares)
    return dropped(y, spec.dropout, around.key, 3 * place + 1)


def _stacked(x: Array, own: Mapping[str, Array]) -> Array:
    """(..., in) to (..., E, out), with a matrix for each expert, (E, in, out)."""
    return jnp.einsum("...i,eio->...eo", x, own["kernel"].astype(x.dtype))


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _gelu_tanh(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=True)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": jax.nn.silu,
}
