"""Here live the sublayers in PyTorch: multi-head attention and the MLP, with the norms inside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normula.spec import Spec
from normula.spec.plan import norm_kind
from normula.torch.norms import norm


class Attention(nn.Module):
    """softmax(q k^T / sqrt(K)) v, then the output projection; (B, T, D) to (B, T, D).

    Vaswani et al., Attention Is All You Need, 2017, equation 1.

    Args:
        spec: sizes, epsilon, dropout, whether it is causal.
        inner: the word of a norm for each of q, k, v, heads that has one.
    """

    def __init__(self, spec: Spec, inner: Mapping[str, str]) -> None:
        super().__init__()
        D = spec.width
        self.heads, self.causal, self.dropout = spec.heads, spec.causal, spec.dropout
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=spec.bias) for _ in range(4))
        for part, word in inner.items():
            self.add_module(f"norm_{part}", norm(norm_kind(spec, word), D, spec.eps))
        self._inner = tuple(inner)

    def forward(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B _ _ T"] | None = None) -> Float[Tensor, "B T D"]:
        B, T, D = x.shape
        q, k, v = (self._normed(part, project(x)) for part, project in (("q", self.q), ("k", self.k), ("v", self.v)))
        q, k, v = (value.view(B, T, self.heads, D // self.heads).transpose(1, 2) for value in (q, k, v))
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=drop, is_causal=self.causal and mask is None
        )
        y = self.o(self._normed("heads", mixed.transpose(1, 2).reshape(B, T, D)))
        return F.dropout(y, drop) if drop else y

    def _normed(self, part: str, value: Tensor) -> Tensor:
        return self.get_submodule(f"norm_{part}")(value) if part in self._inner else value


class MLP(nn.Module):
    """down(activation(up(x))); (B, T, D) to (B, T, D)."""

    def __init__(self, spec: Spec, inner: Mapping[str, str]) -> None:
        super().__init__()
        self.up = nn.Linear(spec.width, spec.mlp_width, bias=spec.bias)
        self.down = nn.Linear(spec.mlp_width, spec.width, bias=spec.bias)
        self.norm_mid = norm(norm_kind(spec, inner["mid"]), spec.mlp_width, spec.eps) if inner else None
        self.activation = _ACTIVATIONS[spec.activation]
        self.dropout = spec.dropout

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        h = self.activation(self.up(x))
        drop = self.dropout if self.training else 0.0
        if drop:
            h = F.dropout(h, drop)
        if self.norm_mid is not None:
            h = self.norm_mid(h)
        y: Tensor = self.down(h)
        return F.dropout(y, drop) if drop else y


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": F.silu,
}
