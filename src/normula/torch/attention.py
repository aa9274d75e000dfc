"""Here lives multi-head attention in PyTorch: of a sequence to itself, or to an encoder's memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normula.spec import Spec
from normula.spec.parameters import inner_width, norm_kind
from normula.torch.context import Context
from normula.torch.norms import norm


class Attention(nn.Module):
    """softmax(scale q k^T) v, then the output projection; (B, T, D) to (B, T, D).

    Vaswani et al., Attention Is All You Need, 2017, equation 1.

    Args:
        spec: sizes, heads, epsilon, dropout, whether it is causal.
        inner: the word of a norm for each of q, k, v, heads that has one.
        place: its path, under which the cache keeps its keys and values.
        crosses: whether keys and values come from the memory.
    """

    def __init__(self, spec: Spec, inner: Mapping[str, str], place: str, *, crosses: bool = False) -> None:
        super().__init__()
        D, K, G = spec.width, spec.head_width, spec.key_heads
        source = spec.encoder.width if crosses and spec.encoder is not None else D
        self.heads, self.key_heads, self.head_width = spec.heads, G, K
        self.q = nn.Linear(D, D, bias=spec.bias)
        self.k = nn.Linear(source, G * K, bias=spec.bias)
        self.v = nn.Linear(source, G * K, bias=spec.bias)
        self.o = nn.Linear(D, D, bias=spec.bias)
        for part, word in inner.items():
            kind, width = norm_kind(spec, word), inner_width(spec, part)
            self.add_module(f"norm_{part}", norm(kind, width, spec.eps, spec.variance))
        self._inner = frozenset(inner)
        self._over_heads = spec.qk_norm == "head"
        self.place, self.crosses, self.scale, self.dropout = place, crosses, spec.scale, spec.dropout
        self.causal = spec.causal and not crosses

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """The pass; what else attention reads is in the context."""
        B, T, D = x.shape
        q = self._projected("q", self.q(x), self.heads)
        k, v = self._keys_and_values(x, context)
        if context.turns is not None and not self.crosses:
            q = turned(q, *context.turns)
        visible = context.memory_visible if self.crosses else context.visible
        # after others in a cache, the one new token sees all that is there
        causal = self.causal and visible is None and (context.cache is None or context.cache.length == 0)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q, k, v, visible, drop, is_causal=causal, scale=self.scale, enable_gqa=self.key_heads != self.heads
        )
        y = self.o(self._normed("heads", mixed.transpose(1, 2).reshape(B, T, D)))
        return F.dropout(y, drop) if drop else y

    def _keys_and_values(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        cache = context.cache
        if self.crosses:
            if cache is not None and self.place in cache.keys:
                return cache.keys[self.place], cache.values[self.place]
            assert context.memory is not None
            x = context.memory
        k, v = self._projected("k", self.k(x), self.key_heads), self._projected("v", self.v(x), self.key_heads)
        if context.turns is not None and not self.crosses:
            k = turned(k, *context.turns)
        return (k, v) if cache is None else cache.extended(self.place, k, v)

    def _projected(self, part: str, value: Tensor, heads: int) -> Tensor:
        """(B, T, H K) to (B, H, T, K), normed on the way where there is a norm."""
        if not self._over_heads:
            value = self._normed(part, value)
        value = value.view(*value.shape[:-1], heads, self.head_width)
        if self._over_heads:
            value = self._normed(part, value)
        return value.transpose(1, 2)

    def _normed(self, part: str, value: Tensor) -> Tensor:
        return self.get_submodule(f"norm_{part}")(value) if part in self._inner else value


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of features turned by the angle of their token: feature i of a head's first half with i of its second.

    Su et al., RoFormer, 2021. Differs: the paper pairs neighbours; the halves are Llama's and GPT-NeoX's order.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
