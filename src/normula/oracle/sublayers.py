"""Here live the sublayers: multi-head self-attention and the MLP, with the norms that may sit inside them.

    attention   heads = softmax(Q K^T / sqrt(K)) V, y = W_o heads
    mlp         y = W_down activation(W_up x + b_up) + b_down

Vaswani et al., Attention Is All You Need, 2017, equations 1 and 2.

`weights` maps names to arrays: `q.weight` (out, in), `q.bias` (out,), ...; a bias that is absent is no bias. An inner
norm is named by its site and kind, `inner={"q": "rmsnorm"}`, its parameters lie in the same mapping: `norm_q.weight`.
Both return `(value, pullback)`; `pullback(dy)` returns (dx, gradients under the names of `weights`).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from normula.oracle.activations import ACTIVATION_FUNCTIONS
from normula.oracle.norms import Array, NamedPullback, Pullback, normalise
from normula.spec.kinds import NORM_KINDS

Weights = Mapping[str, Array]
Mask = NDArray[np.bool_]
Step = Callable[[Array], tuple[Array, NamedPullback]]

NO_NORMS: Mapping[str, str] = MappingProxyType({})


def linear(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Pullback]:
    """Project: y = x W^T + b; the pullback returns (dx, dweight), and dbias after them where there is a bias.

    x is (..., in), weight (out, in), bias (out,).

    >>> linear(np.array([1.0, 3.0]), np.array([[2.0, 0.0]]), np.array([1.0]))[0]
    array([3.])
    """
    out, inputs = weight.shape

    def pullback(dy: Array) -> tuple[Array, ...]:
        tokens = dy.reshape(-1, out)
        gradients = dy @ weight, tokens.T @ x.reshape(-1, inputs)
        return gradients if bias is None else (*gradients, tokens.sum(axis=0))

    return x @ weight.T + (0 if bias is None else bias), pullback


def attention(
    x: Array,
    weights: Weights,
    *,
    heads: int,
    causal: bool = False,
    mask: Mask | None = None,
    inner: Mapping[str, str] = NO_NORMS,
    eps: float = 1e-5,
) -> tuple[Array, NamedPullback]:
    """Multi-head self-attention: each token takes a mean of the values it sees, weighted by softmax(q.k / sqrt(K)).

    x is (B, T, D). `weights` has q, k, v, o: each `.weight` (D, D) and perhaps `.bias` (D,). `causal`: a token sees
    itself and what came before. `mask` (B, T) is True at a real token and False at padding, which nobody sees as a
    key; the padded tokens' own outputs are computed all the same. A token that sees no key at all takes zeros, not NaN:
    its output is the bias of `o`.
    `inner` puts norms at the sites q, k and v (over the whole width D, before the split into heads) and heads (over the
    heads put side by side again, before `o`).

    >>> eye = {f"{name}.weight": np.eye(2) for name in "qkvo"}
    >>> attention(np.array([[[1.0, 3.0]]]), eye, heads=1)[0]
    array([[[1., 3.]]])
    """
    _check(weights, ("q", "k", "v", "o"), inner, ("q", "k", "v", "heads"))
    if x.shape[-1] % heads:
        raise ValueError(f"The width must be a multiple of the number of heads; got {x.shape[-1]} and {heads} heads.")
    project, norm = partial(_project, weights), partial(_norm, weights, inner, eps)

    (q, back_q), (k, back_k), (v, back_v) = (_in_turn(x, project(name), norm(name)) for name in "qkv")
    visible = _visible(x.shape[1], causal, mask)
    mixed, back_mix = _mix(_split(q, heads), _split(k, heads), _split(v, heads), visible)
    y, back_out = _in_turn(_join(mixed), norm("heads"), project("o"))

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        dmixed, gradients = back_out(dy)
        dx = np.zeros_like(x)
        for back, gradient in zip((back_q, back_k, back_v), back_mix(_split(dmixed, heads)), strict=True):
            part, named = back(_join(gradient))
            dx, gradients = dx + part, gradients | named
        return dx, gradients

    return y, pullback


def mlp(
    x: Array, weights: Weights, *, activation: str, inner: Mapping[str, str] = NO_NORMS, eps: float = 1e-5
) -> tuple[Array, NamedPullback]:
    """Two projections with an activation between them: y = W_down activation(W_up x + b_up) + b_down.

    x is (..., D). `weights` has `up.weight` (F, D), `down.weight` (D, F) and perhaps `up.bias` (F,), `down.bias` (D,).
    `inner={"mid": kind}` puts a norm on the F activated hidden units, before `down`.

    >>> mlp(np.array([1.0, -3.0]), {"up.weight": np.eye(2), "down.weight": np.eye(2)}, activation="relu")[0]
    array([1., 0.])
    """
    _check(weights, ("up", "down"), inner, ("mid",))
    project, norm = partial(_project, weights), partial(_norm, weights, inner, eps)
    return _in_turn(x, project("up"), partial(_activate, activation), norm("mid"), project("down"))


def _visible(tokens: int, causal: bool, mask: Mask | None) -> Mask:
    """Which key each query sees: (B or 1, 1, T queries, T keys)."""
    visible = np.ones((1, 1, tokens, tokens), dtype=np.bool_)
    if causal:
        visible = np.tril(visible)
    return visible if mask is None else visible & mask[:, None, None, :]


def _mix(q: Array, k: Array, v: Array, visible: Mask) -> tuple[Array, Pullback]:
    """softmax(q k^T / sqrt(K)) v over the visible keys; all (B, H, T, K). The pullback returns (dq, dk, dv)."""
    scale = 1 / math.sqrt(q.shape[-1])
    scores = np.where(visible, scale * q @ _transposed(k), -np.inf)
    highest = np.max(scores, axis=-1, keepdims=True)
    # A row that sees nothing has only -inf; taking 0 from it instead of -inf leaves exp(-inf) = 0 and not exp(NaN).
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = exponentials.sum(axis=-1, keepdims=True)
    shares = exponentials / np.where(total > 0, total, 1)

    def pullback(dy: Array) -> tuple[Array, ...]:
        dshares = dy @ _transposed(v)
        dscores = scale * shares * (dshares - np.sum(dshares * shares, axis=-1, keepdims=True))
        return dscores @ k, _transposed(dscores) @ q, _transposed(shares) @ dy

    return shares @ v, pullback


def _split(x: Array, heads: int) -> Array:
    """(B, T, D) -> (B, H, T, K): head h holds the features from hK up to (h + 1)K."""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(0, 2, 1, 3)


def _join(x: Array) -> Array:
    """(B, H, T, K) -> (B, T, D), the inverse of `_split` and so also its transpose."""
    batch, heads, tokens, head_width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * head_width)


def _transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _in_turn(x: Array, *steps: Step) -> tuple[Array, NamedPullback]:
    """One step after another; the pullback runs them backwards and gathers the gradients of their weights."""
    backs = []
    for step in steps:
        x, back = step(x)
        backs.append(back)

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        gradients: dict[str, Array] = {}
        for back in reversed(backs):
            dy, named = back(dy)
            gradients |= named
        return dy, gradients

    return x, pullback


def _project(weights: Weights, name: str) -> Step:
    def step(x: Array) -> tuple[Array, NamedPullback]:
        y, pull = linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

        def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
            dx, *gradients = pull(dy)
            # zip stops at the shorter: without a bias there is no second gradient.
            return dx, dict(zip((f"{name}.weight", f"{name}.bias"), gradients, strict=False))

        return y, pullback

    return step


def _norm(weights: Weights, inner: Mapping[str, str], eps: float, site: str) -> Step:
    prefix = f"norm_{site}."
    parameters = {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}

    def step(x: Array) -> tuple[Array, NamedPullback]:
        y, pull = normalise(inner.get(site, "none"), x, parameters, eps=eps)

        def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
            dx, gradients = pull(dy)
            return dx, {prefix + name: gradient for name, gradient in gradients.items()}

        return y, pullback

    return step


def _activate(activation: str, x: Array) -> tuple[Array, NamedPullback]:
    y, pull = ACTIVATION_FUNCTIONS[activation](x)
    return y, lambda dy: (pull(dy)[0], {})


def _check(weights: Weights, projections: tuple[str, ...], inner: Mapping[str, str], sites: tuple[str, ...]) -> None:
    """Every weight that is needed is there, and none is there that would have no effect."""
    if unknown := inner.keys() - set(sites):
        raise ValueError(f"No inner norm can sit at {sorted(unknown)}. The sites are {', '.join(sites)}.")
    needed = {f"{name}.weight" for name in projections}
    needed |= {f"norm_{site}.{p.name}" for site, kind in inner.items() for p in NORM_KINDS[kind].parameters}
    missing, unused = needed - weights.keys(), weights.keys() - needed - {f"{name}.bias" for name in projections}
    if missing or unused:
        raise ValueError(f"Each weight must be used once; missing {sorted(missing)}, without effect {sorted(unused)}.")
