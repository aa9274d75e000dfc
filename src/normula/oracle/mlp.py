"""Here live the MLP, gated or not, and the mixture of experts.

mlp     y = W_down h + b_down,  h = a(W_up x + b_up), or gated: h = a(W_gate x + b_gate) * (W_up x + b_up)
moe     y = sum over the k chosen experts e of p_e mlp_e(x),  p = softmax of the k largest router scores
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from normula.oracle.norms import Array, NamedPullback
from normula.oracle.steps import NO_NORMS, Weights, activate, check, in_turn, norm, project


def mlp(
    x: Array, weights: Weights, *, activation: str, inner: Mapping[str, str] = NO_NORMS, eps: float = 1e-5
) -> tuple[Array, NamedPullback]:
    """Two projections with an activation between them; gated where `weights` has a `gate`.

    x is (..., D). `weights` has `up.weight` (F, D), `down.weight` (D, F), perhaps `gate.weight` (F, D), and perhaps a
    `.bias` for each. `inner={"mid": kind}` puts a norm on the F hidden units, before `down`. A gated MLP whose
    activation is silu is SwiGLU: Shazeer, GLU Variants Improve Transformer, 2020, equation 6.

    >>> mlp(np.array([1.0, -3.0]), {"up.weight": np.eye(2), "down.weight": np.eye(2)}, activation="relu")[0]
    array([1., 0.])
    """
    gated = "gate.weight" in weights
    check(weights, ("up", "gate", "down") if gated else ("up", "down"), inner, ("mid",))
    hidden = partial(_gated, weights, activation) if gated else partial(_plain, weights, activation)
    return in_turn(x, hidden, norm(weights, inner, eps, "mid"), project(weights, "down"))


def moe(x: Array, weights: Weights, *, activation: str, used: int) -> tuple[Array, NamedPullback]:
    """A mixture of E experts of which each token uses the k with the highest router scores; no biases.

    x is (B, T, D). `weights` has `router.weight` (E, D), `up.weight` (E, F, D), `down.weight` (E, D, F) and perhaps
    `gate.weight` (E, F, D). The shares are the softmax over the chosen scores alone: Jiang et al., Mixtral of Experts,
    2024, section 2.1.
    """
    tokens = x.reshape(-1, x.shape[-1])
    scores = tokens @ weights["router.weight"].T
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, :used]
    top = np.take_along_axis(scores, chosen, axis=-1)
    shares = np.exp(top - top.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    y = np.zeros_like(tokens)
    runs = []
    for expert in range(len(scores[0])):
        token, place = np.nonzero(chosen == expert)
        own = {name: array[expert] for name, array in weights.items() if name != "router.weight"}
        out, back = mlp(tokens[token], own, activation=activation)
        y[token] += shares[token, place, None] * out
        runs.append((token, place, out, back))

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        dy = dy.reshape(tokens.shape)
        gradients = {name: np.zeros_like(array) for name, array in weights.items()}
        dx, dshares = np.zeros_like(tokens), np.zeros_like(shares)
        for expert, (token, place, out, back) in enumerate(runs):
            part, named = back(shares[token, place, None] * dy[token])
            dx[token] += part
            dshares[token, place] = (dy[token] * out).sum(axis=-1)
            for name, gradient in named.items():
                gradients[name][expert] += gradient
        dtop = shares * (dshares - (dshares * shares).sum(axis=-1, keepdims=True))
        dscores = np.zeros_like(scores)
        np.put_along_axis(dscores, chosen, dtop, axis=-1)
        gradients["router.weight"] = dscores.T @ tokens
        return (dx + dscores @ weights["router.weight"]).reshape(x.shape), gradients

    return y.reshape(x.shape), pullback


def _plain(weights: Weights, activation: str, x: Array) -> tuple[Array, NamedPullback]:
    return in_turn(x, project(weights, "up"), partial(activate, activation))


def _gated(weights: Weights, activation: str, x: Array) -> tuple[Array, NamedPullback]:
    up, back_up = project(weights, "up")(x)
    gate, back_gate = in_turn(x, project(weights, "gate"), partial(activate, activation))

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        first, named = back_up(dy * gate)
        second, more = back_gate(dy * up)
        return first + second, named | more

    return gate * up, pullback
