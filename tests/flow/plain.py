"""Stacks in plain torch, with nothing of normula in them but the parameters' names: what a flow must have seen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normula.spec import Spec

Weights = Mapping[str, Tensor]
Sublayer = Callable[[Tensor], Tensor]


@dataclass
class Point:
    """One step: the stream before and after, what was added to what."""

    layer: int
    name: str
    before: Tensor
    after: Tensor
    branch: Tensor
    skip: Tensor


@dataclass
class Site:
    """Where a step is: its parameters, its depth, and whether what the sublayers give is a constant."""

    weights: Weights
    prefix: str
    spec: Spec
    l: int
    hold: bool

    def norm(self, name: str, x: Tensor) -> Tensor:
        path = f"{self.prefix}.{name}" if self.prefix else name
        return F.layer_norm(
            x, x.shape[-1:], self.weights[f"{path}.weight"], self.weights[f"{path}.bias"], self.spec.eps
        )

    def gain(self) -> Tensor:
        return self.weights[f"{self.prefix}.gain"]

    def f(self, x: Tensor, word: str | None = None) -> Tensor:
        word = word or self.prefix.split(".")[-1]
        parent = self.prefix if self.prefix.endswith(word) else f"{self.prefix}.{word}"
        y = {"attn": self._attention, "mlp": self._mlp}[word](f"{parent}.f", x)
        return y.detach() if self.hold else y

    def _linear(self, path: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{path}.weight"].T + self.weights[f"{path}.bias"]

    def _mlp(self, path: str, x: Tensor) -> Tensor:
        return self._linear(f"{path}.down", F.gelu(self._linear(f"{path}.up", x)))

    def _attention(self, path: str, x: Tensor) -> Tensor:
        B, T, D = x.shape
        H = self.spec.heads
        q, k, v = (self._linear(f"{path}.{name}", x).view(B, T, H, D // H) for name in "qkv")
        shares = torch.softmax(torch.einsum("bqhk,bmhk->bhqm", q, k) / (D // H) ** 0.5, dim=-1)
        return self._linear(f"{path}.o", torch.einsum("bhqm,bmhk->bqhk", shares, v).reshape(B, T, D))


Streams = tuple[Tensor, ...]
Step = Callable[..., tuple[Tensor, Tensor, Streams]]


def _pre(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.f(at.norm("norm_in", x))
    return branch, x, (x + branch,)


def _post(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.f(x)
    return branch, x, (at.norm("norm_sum", x + branch),)


def _deepnorm(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch, skip = at.f(x), (2 * at.spec.layers) ** 0.25 * x
    return branch, skip, (at.norm("norm_sum", skip + branch),)


def _peri(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.norm("norm_out", at.f(at.norm("norm_in", x)))
    return branch, x, (x + branch,)


def _rezero(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.gain() * at.f(x)
    return branch, x, (x + branch,)


def _layerscale(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.gain() * at.f(at.norm("norm_in", x))
    return branch, x, (x + branch,)


def _lns(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.f(at.norm("norm_in", x) / at.l**0.5)
    return branch, x, (x + branch,)


def _normalised_residual(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    skip = at.norm("norm_in", x)
    branch = at.f(skip)
    return branch, skip, (skip + branch,)


def _parallel(at: Site, x: Tensor) -> tuple[Tensor, Tensor, Streams]:
    n = at.norm("norm_in", x)
    branch = at.f(n, "attn") + at.f(n, "mlp")
    return branch, x, (x + branch,)


def _residual_streams(at: Site, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Streams]:
    branch = at.f(x)
    return branch, x, (at.norm("norm_sum", x + branch), d + branch)


STEPS: Mapping[str, Step] = {
    "pre": _pre,
    "pre-no-final": _pre,
    "post": _post,
    "deepnorm": _deepnorm,
    "peri": _peri,
    "rezero": _rezero,
    "layerscale": _layerscale,
    "lns": _lns,
    "normalised-residual": _normalised_residual,
    "parallel": _parallel,
    "residual streams": _residual_streams,
}
"""A step's branch, what it is added to, and the streams after it, by the name of the placement."""

FINALS: Mapping[str, Callable[[Site, Streams], Tensor]] = {
    "x": lambda at, streams: streams[0],
    "norm(x)": lambda at, streams: at.norm("final.norm", streams[0]),
    "x + norm(d)": lambda at, streams: streams[0] + at.norm("final.norm", streams[1]),
}


def run(spec: Spec, name: str, weights: Weights, x: Tensor, hold: bool = False) -> tuple[list[Point], Tensor]:
    """The steps of a stack, every value of the stream with its gradient kept, and the output."""
    streams: Streams = (x, x) if name == "residual streams" else (x,)
    points = []
    for l in range(1, spec.layers + 1):
        for word in ("2",) if name == "parallel" else ("attn", "mlp"):
            prefix = f"layers.{l - 1}" + ("" if name == "parallel" else f".{word}")
            before = streams[0]
            branch, skip, streams = STEPS[name](Site(weights, prefix, spec, l, hold), *streams)
            streams[0].retain_grad()
            points.append(Point(l, word, before, streams[0], branch, skip))
    output = FINALS[str(spec.placed.final)](Site(weights, "", spec, 0, hold), streams)
    return points, output


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(_array(x)))))


def length(x: Any) -> float:
    return 0.0 if x is None else float(np.sqrt(np.sum(np.square(_array(x)))))


def token_cosine(x: Any) -> float:
    """Mean over all pairs of two different tokens of a sequence."""
    units = _array(x) / np.linalg.norm(_array(x), axis=-1, keepdims=True)
    T = units.shape[1]
    return float(np.mean([[u[i] @ u[j] for i in range(T) for j in range(T) if i != j] for u in units]))


def step_cosine(x: Any, y: Any) -> float:
    a, b = _array(x), _array(y)
    return float(np.mean((a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))))


def _array(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if isinstance(x, Tensor) else x, dtype=np.float64)
