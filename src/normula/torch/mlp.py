"""Here live the MLP in PyTorch, gated or not, and the mixture of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normula.spec import Spec
from normula.spec.parameters import norm_kind
from normula.torch.norms import norm


class MLP(nn.Module):
    """down(activation(up x)), or gated: down(activation(gate x) * up x); (B, T, D) to (B, T, D)."""

    def __init__(self, spec: Spec, inner: Mapping[str, str]) -> None:
        super().__init__()
        D, F_ = spec.width, spec.mlp_width
        self.up = nn.Linear(D, F_, bias=spec.bias)
        self.gate = nn.Linear(D, F_, bias=spec.bias) if spec.gated else None
        self.down = nn.Linear(F_, D, bias=spec.bias)
        self.norm_mid = norm(norm_kind(spec, inner["mid"]), F_, spec.eps, spec.variance) if inner else None
        self.activation = ACTIVATIONS[spec.activation]
        self.dropout = spec.dropout

    def forward(self, x: Float[Tensor, "*B T D"]) -> Float[Tensor, "*B T D"]:
        """The pass."""
        h = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        drop = self.dropout if self.training else 0.0
        if drop:
            h = F.dropout(h, drop)
        if self.norm_mid is not None:
            h = self.norm_mid(h)
        y: Tensor = self.down(h)
        return F.dropout(y, drop) if drop else y


class Experts(nn.Module):
    """A mixture of E experts of which each token uses the k with the highest router scores; (B, T, D) to (B, T, D).

    The shares are the softmax over the chosen scores alone: Jiang et al., Mixtral of Experts, 2024, section 2.1.
    Every expert is computed for every token and weighted, which is exact, compiles, and is simple; for large E a
    grouped product would be faster.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        assert spec.experts is not None
        E, D, F_ = spec.experts, spec.width, spec.mlp_width
        self.router = nn.Linear(D, E, bias=False)
        self.up, self.down = _Stacked(E, F_, D), _Stacked(E, D, F_)
        self.gate = _Stacked(E, F_, D) if spec.gated else None
        self.activation, self.used, self.dropout = ACTIVATIONS[spec.activation], spec.experts_used, spec.dropout

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The pass."""
        scores = self.router(x)
        top, chosen = scores.topk(self.used, dim=-1)
        shares = torch.zeros_like(scores).scatter(-1, chosen, top.softmax(dim=-1))
        h = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        drop = self.dropout if self.training else 0.0
        if drop:
            h = F.dropout(h, drop)
        y = torch.einsum("btef,edf->bted", h, self.down.weight)
        y = (shares[..., None] * y).sum(dim=-2)
        return F.dropout(y, drop) if drop else y


class _Stacked(nn.Module):
    """A matrix for each expert, (E, out, in); (B, T, in) to (B, T, E, out)."""

    def __init__(self, experts: int, out: int, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, out, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bti,eoi->bteo", x, self.weight)


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": F.silu,
}
