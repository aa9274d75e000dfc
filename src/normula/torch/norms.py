"""Here live the norms in PyTorch: over the features of one token, with statistics in float32 or wider.

Half-precision input is normalised, scaled and shifted in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normula.spec.kinds import NORM_KINDS


class Norm(nn.Module):
    """A norm of one kind over the last axis; shapes (..., D) to (..., D).

    Args:
        kind: layernorm, rmsnorm, l2norm, dyt or derf.
        width: D.
        eps: epsilon under the root.
        variance: how LayerNorm finds it: two-pass or one-pass.
    """

    def __init__(self, kind: str, width: int, eps: float, variance: str = "two-pass") -> None:
        super().__init__()
        self.kind, self.width, self.eps = kind, width, eps
        for parameter in NORM_KINDS[kind].parameters:
            start = torch.full(parameter.shape(width), parameter.start)
            self.register_parameter(parameter.name, nn.Parameter(start))
        self._apply_norm = _one_pass if kind == "layernorm" and variance == "one-pass" else _FUNCTIONS[kind]

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype in (torch.float16, torch.bfloat16):
            return self._apply_norm(self, x.float()).to(x.dtype)
        return self._apply_norm(self, x)

    def extra_repr(self) -> str:
        eps = f", eps={self.eps:g}" if NORM_KINDS[self.kind].uses_eps else ""
        return f"{self.kind}, {self.width}{eps}"


def norm(kind: str, width: int, eps: float, variance: str = "two-pass") -> nn.Module:
    """The module for a kind of norm; `none` is the identity."""
    return nn.Identity() if kind == "none" else Norm(kind, width, eps, variance)


def _as(x: Tensor, parameter: Tensor | nn.Module) -> Tensor:
    """A parameter in the type that x is computed in."""
    assert isinstance(parameter, Tensor)
    return parameter.to(x.dtype)


def _layernorm(self: Norm, x: Tensor) -> Tensor:
    return F.layer_norm(x, (self.width,), _as(x, self.weight), _as(x, self.bias), self.eps)


def _one_pass(self: Norm, x: Tensor) -> Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x.square().mean(dim=-1, keepdim=True) - mean.square()).clamp(min=0)
    return (x - mean) * torch.rsqrt(variance + self.eps) * _as(x, self.weight) + _as(x, self.bias)


def _rmsnorm(self: Norm, x: Tensor) -> Tensor:
    return F.rms_norm(x, (self.width,), _as(x, self.weight), self.eps)


def _l2norm(self: Norm, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + self.eps)


def _dyt(self: Norm, x: Tensor) -> Tensor:
    return _as(x, self.weight) * torch.tanh(_as(x, self.alpha) * x) + _as(x, self.bias)


def _derf(self: Norm, x: Tensor) -> Tensor:
    return _as(x, self.weight) * torch.erf(_as(x, self.alpha) * x + _as(x, self.shift)) + _as(x, self.bias)


_FUNCTIONS: Mapping[str, Callable[[Norm, Tensor], Tensor]] = {
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "l2norm": _l2norm,
    "dyt": _dyt,
    "derf": _derf,
}
