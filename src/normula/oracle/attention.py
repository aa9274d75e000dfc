"""Here lives multi-head attention: of a sequence to itself, or to a memory.

    heads = softmax(scale * Q K^T + bias) V, y = W_o heads + b_o

Vaswani et al., Attention Is All You Need, 2017, equation 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from normula.oracle.norms import Array, NamedPullback, Pullback
from normula.oracle.steps import NO_NORMS, Step, Weights, check, in_turn, norm, project

Mask = NDArray[np.bool_]


def attention(
    x: Array,
    weights: Weights,
    *,
    heads: int,
    key_heads: int | None = None,
    visible: Mask | None = None,
    memory: Array | None = None,
    bias: Array | None = None,
    angles: Array | None = None,
    scale: float | None = None,
    inner: Mapping[str, str] = NO_NORMS,
    over: Literal["width", "head"] = "width",
    eps: float = 1e-5,
) -> tuple[Array, NamedPullback]:
    """Each token takes a mean of the values it sees, weighted by softmax(scale q.k + bias).

    x is (B, T, D), K = D / H the width of a head. `weights` has q, k, v, o, each `.weight` (out, in) and perhaps
    `.bias`; k and v have `key_heads` heads, each shared by H / key_heads query heads (Ainslie et al., GQA, 2023).

    Args:
        memory: (B, S, M), where keys and values come from; x itself without it.
        visible: true where a query may see a key, broadcast to (B, 1, T, S). A token that sees no key at all takes
            zeros, not NaN: its output is the bias of `o`.
        bias: (H, T, S), added to the scores.
        angles: (T, K / 2), by which pairs of features of queries and keys are turned (Su et al., RoFormer, 2021); the
            i-th feature of the first half of a head makes a pair with the i-th of the second half.
        scale: 1 / sqrt(K) without it.
        inner: norms at the sites q, k, v and heads, by kind.
        over: whether those at q, k and v are over all heads side by side or over each.

    Returns:
        The output and its pullback; the gradients of `memory` and `bias` stand among those of the weights, by name.

    >>> eye = {f"{name}.weight": np.eye(2) for name in "qkvo"}
    >>> attention(np.array([[[1.0, 3.0]]]), eye, heads=1)[0]
    array([[[1., 3.]]])
    """
    check(weights, ("q", "k", "v", "o"), inner, ("q", "k", "v", "heads"))
    if x.shape[-1] % heads:
        raise ValueError(f"The width must be a multiple of the number of heads; got {x.shape[-1]} and {heads} heads.")
    groups = heads // (key_heads or heads)
    source = x if memory is None else memory

    def normed(site: str) -> Step:
        own = norm(weights, inner, eps, site)
        return own if over == "width" or site == "heads" else _each_head(own, x.shape[-1] // heads)

    steps = {site: (project(weights, site), normed(site)) for site in "qkv"}
    (q, back_q), (k, back_k), (v, back_v) = (
        in_turn(given, *steps[site]) for site, given in (("q", x), ("k", source), ("v", source))
    )
    queries = _turn(_split(q, heads), angles)
    keys = _repeat(_turn(_split(k, heads // groups), angles), groups)
    values = _repeat(_split(v, heads // groups), groups)
    mixed, back_mix = _mix(queries, keys, values, scale, visible, bias)
    y, back_out = in_turn(_join(mixed), normed("heads"), project(weights, "o"))

    def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
        dmixed, gradients = back_out(dy)
        dq, dk, dv, dbias = back_mix(_split(dmixed, heads))
        dx, named = back_q(_join(_turn(dq, angles, -1)))
        dkeys, more = back_k(_join(_turn(_summed(dk, groups), angles, -1)))
        dvalues, most = back_v(_join(_summed(dv, groups)))
        gradients = gradients | named | more | most
        if bias is not None:
            gradients["bias"] = dbias.sum(axis=0)
        if memory is None:
            return dx + dkeys + dvalues, gradients
        return dx, gradients | {"memory": dkeys + dvalues}

    return y, pullback


def visibility(tokens: int, *, causal: bool = False, mask: Mask | None = None) -> Mask:
    """Which key each query sees: (1, 1, T, T), or with a mask (B, 1, T, T).

    `causal`: a token sees itself and what came before. `mask` (B, T) is true at a real token; nobody sees padding as a
    key, and the padded tokens' own outputs are computed all the same.
    """
    visible = np.ones((1, 1, tokens, tokens), dtype=np.bool_)
    if causal:
        visible = np.tril(visible)
    return visible if mask is None else visible & mask[:, None, None, :]


def _mix(
    q: Array, k: Array, v: Array, scale: float | None, visible: Mask | None, bias: Array | None
) -> tuple[Array, Pullback]:
    """softmax(scale q k^T + bias) v over the visible keys; all (B, H, T, K). Pulls back to (dq, dk, dv, dbias)."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * q @ _transposed(k) + (0 if bias is None else bias)
    scores = scores if visible is None else np.where(visible, scores, -np.inf)
    highest = np.max(scores, axis=-1, keepdims=True)
    # A row that sees nothing has only -inf; taking 0 from it instead of -inf leaves exp(-inf) = 0 and not exp(NaN).
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = exponentials.sum(axis=-1, keepdims=True)
    shares = exponentials / np.where(total > 0, total, 1)

    def pullback(dy: Array) -> tuple[Array, ...]:
        dshares = dy @ _transposed(v)
        dscores = shares * (dshares - np.sum(dshares * shares, axis=-1, keepdims=True))
        return scale * dscores @ k, scale * _transposed(dscores) @ q, _transposed(shares) @ dy, dscores

    return shares @ v, pullback


def _turn(x: Array, angles: Array | None, sign: int = 1) -> Array:
    """Turn the pairs of each head by the angles of their token; the transpose turns back."""
    if angles is None:
        return x
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), sign * np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _repeat(x: Array, groups: int) -> Array:
    """(B, G, T, K) -> (B, G * groups, T, K): each head of keys for the query heads of its group."""
    return np.repeat(x, groups, axis=1)


def _summed(x: Array, groups: int) -> Array:
    """The transpose of `_repeat`."""
    batch, heads, tokens, head_width = x.shape
    total: Array = x.reshape(batch, heads // groups, groups, tokens, head_width).sum(axis=2)
    return total


def _each_head(step: Step, head_width: int) -> Step:
    """A norm over each head instead of over all of them."""

    def over_heads(x: Array) -> tuple[Array, NamedPullback]:
        y, back = step(x.reshape(*x.shape[:-1], -1, head_width))

        def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
            dx, named = back(dy.reshape(y.shape))
            return dx.reshape(x.shape), named

        return y.reshape(x.shape), pullback

    return over_heads


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
