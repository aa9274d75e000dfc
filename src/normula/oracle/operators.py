"""The registered operators in float64: begin, read, write, end, on a tape.

    hyper-connections     h = sum_k a_k X_k;   X_i <- sum_j R_ij X_j + b_i y
    mhc                   the same with a = sigmoid(.), b = 2 sigmoid(.), R = Sinkhorn(exp(.)), each of them
                          alpha theta x + bias with x the RMS-normed streams side by side
    attention-residuals   h = sum_i softmax_i(w . RMSNorm(v_i)) v_i over all values written so far

X is (B, T, n, D) and y (B, T, D). Sources: see `normula.spec.operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from normula.oracle.norms import Array
from normula.oracle.tape import Value, einsum, exp, joined, reshape, total
from normula.spec.operators import STREAMS

SINKHORN_STEPS = 20
EPS = 1e-6  # under the root of the operators' own norms

Own = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The four parts of an operator."""

    begin: Callable[[Value], Value]
    read: Callable[[Value, Own], Value]
    write: Callable[[Value, Value, Own], Value]
    end: Callable[[Value, Own], Value]


def _copies(x: Value) -> Value:
    """(B, T, D) -> (B, T, n, D), n times the same."""
    return einsum("btd,n->btnd", x, Value(np.ones(STREAMS)))


def _sum(state: Value, own: Own) -> Value:
    return einsum("btnd,n->btd", state, Value(np.ones(STREAMS)))


def _first(x: Value) -> Value:
    """(B, T, D) -> (B, T, 1, D): the list of values, with one in it."""
    B, T, D = x.array.shape
    return reshape(x, (B, T, 1, D))


def _hyper_read(state: Value, own: Own) -> Value:
    return einsum("btnd,n->btd", state, own["shares"])


def _hyper_write(state: Value, y: Value, own: Own) -> Value:
    return einsum("ij,btjd->btid", own["mix"], state) + einsum("btd,i->btid", y, own["branch"])


def _scores(state: Value, own: Own, part: str = "") -> Value:
    """alpha theta x + bias; (B, T, rows)."""
    B, T, n, D = state.array.shape
    flat = _rms_normed(reshape(state, (B, T, n * D)))
    return own[f"{part}alpha"] * einsum("btk,rk->btr", flat, own[f"{part}theta"]) + own[f"{part}bias"]


def _manifold_read(state: Value, own: Own) -> Value:
    return einsum("btnd,btn->btd", state, _sigmoid(_scores(state, own)))


def _manifold_write(state: Value, y: Value, own: Own) -> Value:
    B, T, n, _ = state.array.shape
    mix = exp(reshape(_scores(state, own, "mix_"), (B, T, n, n)))
    for _ in range(SINKHORN_STEPS):
        mix = mix / total(mix, axis=-1)
        mix = mix / total(mix, axis=-2)
    post = Value(np.array(2.0)) * _sigmoid(_scores(state, own, "post_"))
    return einsum("btij,btjd->btid", mix, state) + einsum("btd,bti->btid", y, post)


def _attend(state: Value, own: Own) -> Value:
    scores = exp(einsum("btmd,d->btm", _rms_normed(state), own["query"]))
    return einsum("btmd,btm->btd", state, scores / total(scores, axis=-1))


def _append(state: Value, y: Value, own: Own) -> Value:
    return joined(state, _first(y), axis=2)


def _rms_normed(x: Value) -> Value:
    width = x.array.shape[-1]
    mean = total(x * x, axis=-1) * Value(np.array(1.0 / width)) + Value(np.array(EPS))
    return x * mean ** Value(np.array(-0.5))


def _sigmoid(x: Value) -> Value:
    def value(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    return x.map(value, lambda z: value(z) * (1 - value(z)))


TRUTHS: Mapping[str, Truth] = {
    "hyper-connections": Truth(begin=_copies, read=_hyper_read, write=_hyper_write, end=_sum),
    "mhc": Truth(begin=_copies, read=_manifold_read, write=_manifold_write, end=_sum),
    "attention-residuals": Truth(begin=_first, read=_attend, write=_append, end=_attend),
}
