"""Pieces that the sublayers are made of: projections, inner norms, activations, one after another, with pullbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from normula.oracle.activations import ACTIVATION_FUNCTIONS
from normula.oracle.norms import Array, NamedPullback, Pullback, normalise
from normula.spec.kinds import NORM_KINDS

Weights = Mapping[str, Array]
Step = Callable[[Array], tuple[Array, NamedPullback]]

NO_NORMS: Mapping[str, str] = MappingProxyType({})


def linear(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Pullback]:
    """Project: y = x W^T + b; the pullback returns (dx, dweight), and dbias after them where there is a bias.

    x is (..., in), weight (out, in), bias (out,).

    >>> import numpy as np
    >>> linear(np.array([1.0, 3.0]), np.array([[2.0, 0.0]]), np.array([1.0]))[0]
    array([3.])
    """
    out, inputs = weight.shape

    def pullback(dy: Array) -> tuple[Array, ...]:
        tokens = dy.reshape(-1, out)
        gradients = dy @ weight, tokens.T @ x.reshape(-1, inputs)
        return gradients if bias is None else (*gradients, tokens.sum(axis=0))

    return x @ weight.T + (0 if bias is None else bias), pullback


def in_turn(x: Array, *steps: Step) -> tuple[Array, NamedPullback]:
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


def project(weights: Weights, name: str) -> Step:
    """The projection by `name.weight`, and `name.bias` where there is one."""

    def step(x: Array) -> tuple[Array, NamedPullback]:
        y, pull = linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

        def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
            dx, *gradients = pull(dy)
            # zip stops at the shorter: without a bias there is no second gradient.
            return dx, dict(zip((f"{name}.weight", f"{name}.bias"), gradients, strict=False))

        return y, pullback

    return step


def norm(weights: Weights, inner: Mapping[str, str], eps: float, site: str) -> Step:
    """The norm at an inner site; nothing where there is none."""
    prefix = f"norm_{site}."
    parameters = {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}

    def step(x: Array) -> tuple[Array, NamedPullback]:
        y, pull = normalise(inner.get(site, "none"), x, parameters, eps=eps)

        def pullback(dy: Array) -> tuple[Array, dict[str, Array]]:
            dx, gradients = pull(dy)
            return dx, {prefix + name: gradient for name, gradient in gradients.items()}

        return y, pullback

    return step


def activate(activation: str, x: Array) -> tuple[Array, NamedPullback]:
    """An activation, which has no weights."""
    y, pull = ACTIVATION_FUNCTIONS[activation](x)
    return y, lambda dy: (pull(dy)[0], {})


def check(weights: Weights, projections: tuple[str, ...], inner: Mapping[str, str], sites: tuple[str, ...]) -> None:
    """Every weight that is needed is there, and none is there that would have no effect."""
    if unknown := inner.keys() - set(sites):
        raise ValueError(f"No inner norm can sit at {sorted(unknown)}. The sites are {', '.join(sites)}.")
    needed = {f"{name}.weight" for name in projections}
    needed |= {f"norm_{site}.{p.name}" for site, kind in inner.items() for p in NORM_KINDS[kind].parameters}
    missing, unused = needed - weights.keys(), weights.keys() - needed - {f"{name}.bias" for name in projections}
    if missing or unused:
        raise ValueError(f"Each weight must be used once; missing {sorted(missing)}, without effect {sorted(unused)}.")
