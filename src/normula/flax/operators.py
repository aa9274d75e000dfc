"""The registered operators in JAX: functions that make a state, read it, write into it, and end it.

What they compute stands in `normula.oracle.operators`. A state has the same shape after every step, so that a scan can
carry it: the list of earlier values is an array with room for all of them, and the number of those that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from normula.oracle.operators import EPS, SINKHORN_STEPS
from normula.spec.operators import STREAMS

Own: TypeAlias = Mapping[str, Array]
State: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The four parts of an operator; `begin` also takes the number of steps that will write."""

    begin: Callable[[Array, int], State]
    read: Callable[[State, Own], Array]
    write: Callable[[State, Array, Own], State]
    end: Callable[[State, Own], Array]


def _copies(x: Array, steps: int) -> Array:
    """(B, T, D) -> (B, T, n, D), n times the same."""
    return jnp.broadcast_to(x[:, :, None, :], (*x.shape[:2], STREAMS, x.shape[2]))


def _sum(state: Array, own: Own) -> Array:
    return state.sum(axis=2)


def _hyper_read(state: Array, own: Own) -> Array:
    return jnp.einsum("btnd,n->btd", state, _as(state, own["shares"]))


def _hyper_write(state: Array, y: Array, own: Own) -> Array:
    mixed = jnp.einsum("ij,btjd->btid", _as(state, own["mix"]), state)
    return mixed + y[:, :, None, :] * _as(state, own["branch"])[:, None]


def _manifold_read(state: Array, own: Own) -> Array:
    return jnp.einsum("btnd,btn->btd", state, jax.nn.sigmoid(_scores(state, own)))


def _manifold_write(state: Array, y: Array, own: Own) -> Array:
    mix = jnp.exp(_scores(state, own, "mix_").reshape(*state.shape[:2], STREAMS, STREAMS))
    for _ in range(SINKHORN_STEPS):
        mix = mix / mix.sum(axis=-1, keepdims=True)
        mix = mix / mix.sum(axis=-2, keepdims=True)
    post = 2 * jax.nn.sigmoid(_scores(state, own, "post_"))
    return jnp.einsum("btij,btjd->btid", mix, state) + y[:, :, None, :] * post[..., None]


def _first(x: Array, steps: int) -> tuple[Array, Array]:
    """The values so far, (B, T, steps + 1, D), of which there is one."""
    room = jnp.zeros((*x.shape[:2], steps, x.shape[2]), x.dtype)
    return jnp.concatenate([x[:, :, None, :], room], axis=2), jnp.ones((), jnp.int32)


def _attend(state: tuple[Array, Array], own: Own) -> Array:
    values, count = state
    scores = _rms_normed(values) @ _as(values, own["query"])
    there = jnp.arange(values.shape[2]) < count
    shares = jax.nn.softmax(jnp.where(there, scores, -jnp.inf), axis=-1)
    return jnp.einsum("btmd,btm->btd", values, shares)


def _append(state: tuple[Array, Array], y: Array, own: Own) -> tuple[Array, Array]:
    values, count = state
    return jax.lax.dynamic_update_index_in_dim(values, y, count, axis=2), count + 1


FORMS: Mapping[str, Form] = {
    "hyper-connections": Form(begin=_copies, read=_hyper_read, write=_hyper_write, end=_sum),
    "mhc": Form(begin=_copies, read=_manifold_read, write=_manifold_write, end=_sum),
    "attention-residuals": Form(begin=_first, read=_attend, write=_append, end=_attend),
}


def _as(x: Array, parameter: Array) -> Array:
    return parameter.astype(x.dtype)


def _scores(state: Array, own: Own, name: str = "") -> Array:
    """alpha theta x + bias; (B, T, rows)."""
    flat = _rms_normed(state.reshape(*state.shape[:2], -1))
    alpha, theta, bias = (_as(state, own[f"{name}{part}"]) for part in ("alpha", "theta", "bias"))
    return alpha * (flat @ theta.T) + bias


def _rms_normed(x: Array) -> Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + EPS)).astype(x.dtype)
