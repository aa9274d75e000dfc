"""Small models for the tests of reading, each with one thing in it that is easy to misread."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, TOKENS = 16, 2, 6


class Attention(nn.Module):
    """Attention written by hand, with rotary positions."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        k, v = q if k is None else k, q if v is None else v
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        scores = self.rotated(q) @ self.rotated(k).transpose(-1, -2) / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores + torch.triu(torch.full(scores.shape[-2:], float("-inf")), 1)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def rotated(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.ones(x.shape[-1])
        left, right = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()


class Mlp(nn.Module):
    """An MLP with the tanh approximation of GELU written out."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        return self.down(0.5 * h * (1 + torch.tanh(0.7978845608 * (h + 0.044715 * h**3))))


class HandNorm(nn.Module):
    """LayerNorm, or RMSNorm with 1 + w, written out with an up-cast."""

    def __init__(self, width: int = WIDTH, eps: float = 1e-6, centred: bool = True) -> None:
        super().__init__()
        self.eps, self.centred = eps, centred
        self.weight = nn.Parameter(torch.ones(width) if centred else torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(width)) if centred else None

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.float64)
        if self.centred:
            y = y - y.mean(-1, keepdim=True)
            y = y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
            return self.weight * y.to(x.dtype) + self.bias
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * (1 + self.weight)


Step = Callable[["Block", Tensor], Tensor]


def layernorm() -> nn.Module:
    return nn.LayerNorm(WIDTH)


class Block(nn.Module):
    """A layer whose forward is a function: the modules are the same in all of them."""

    def __init__(self, forward: Step, norm: Callable[[], nn.Module] = layernorm) -> None:
        super().__init__()
        self.step = forward
        self.norm1, self.norm2, self.norm3, self.norm4 = norm(), norm(), norm(), norm()
        self.attn, self.mlp = Attention(), Mlp()
        self.scale = nn.Parameter(torch.zeros(()))
        self.gain1, self.gain2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(1e-5 * torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


class Stack(nn.Module):
    """Layers, with what comes before and after them."""

    def __init__(
        self, layers: list[nn.Module], before: nn.Module | None = None, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.before, self.layers, self.after = before, nn.ModuleList(layers), after

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x) if self.before is not None else x
        for layer in self.layers:
            x = layer(x)
        return self.after(x) if self.after is not None else x


def stack(step: Step, layers: int = 2, before: bool = False, after: bool = False, **options: object) -> Stack:
    """A stack of blocks with one step, perhaps with a norm before and one after."""
    blocks: list[nn.Module] = [Block(step, **options) for _ in range(layers)]  # type: ignore[arg-type]
    return Stack(blocks, nn.LayerNorm(WIDTH) if before else None, nn.LayerNorm(WIDTH) if after else None)


def stream() -> Tensor:
    return torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))


# ---- steps


def pre(b: Block, x: Tensor) -> Tensor:
    x = x + b.attn(b.norm1(x))
    return x + b.mlp(b.norm2(x))


def pre_in_place(b: Block, x: Tensor) -> Tensor:
    x = x.clone()
    x += b.attn(b.norm1(x))
    x.add_(b.mlp(b.norm2(x)))
    return x


def pre_by_views(b: Block, x: Tensor) -> Tensor:
    """The stream changes its layout, and its sum is made in place in a view."""
    flat = x.transpose(0, 1).reshape(-1, WIDTH).contiguous()
    flat[:] = flat + b.attn(b.norm1(flat).view(TOKENS, -1, WIDTH).transpose(0, 1)).transpose(0, 1).reshape(-1, WIDTH)
    x = flat.view(TOKENS, -1, WIDTH).transpose(0, 1)
    return b.mlp(b.norm2(x)) + x


def pre_by_chunks(b: Block, x: Tensor) -> Tensor:
    """The MLP runs over pieces of the sequence."""
    x = x + b.attn(b.norm1(x))
    return x + torch.cat([b.mlp(part) for part in b.norm2(x).chunk(2, 1)], 1)


def pre_in_windows(b: Block, x: Tensor) -> Tensor:
    """Attention inside windows of the sequence, which was rolled before."""
    n = b.norm1(x).roll(1, 1).view(-1, TOKENS // 2, WIDTH)
    x = x + b.attn(n).view(x.shape).roll(-1, 1)
    return x + b.mlp(b.norm2(x))


def post(b: Block, x: Tensor) -> Tensor:
    x = b.norm1(x + b.attn(x))
    return b.norm2(x + b.mlp(x))


def sandwich(b: Block, x: Tensor) -> Tensor:
    x = x + b.norm2(b.attn(b.norm1(x)))
    return x + b.norm4(b.mlp(b.norm3(x)))


def res_post(b: Block, x: Tensor) -> Tensor:
    x = x + b.norm1(b.attn(x))
    return x + b.norm2(b.mlp(x))


def parallel(b: Block, x: Tensor) -> Tensor:
    n = b.norm1(x)
    return x + b.attn(n) + b.mlp(n)


def parallel_two_norms(b: Block, x: Tensor) -> Tensor:
    return b.mlp(b.norm2(x)) + b.attn(b.norm1(x)) + x


def normed_skip(b: Block, x: Tensor) -> Tensor:
    h = b.norm1(x)
    x = h + b.attn(h)
    h = b.norm2(x)
    return h + b.mlp(h)


def shared_norm(b: Block, x: Tensor) -> Tensor:
    x = x + b.attn(b.norm1(x))
    return x + b.mlp(b.norm1(x))


def rezero(b: Block, x: Tensor) -> Tensor:
    x = x + b.scale * b.attn(x)
    return x + b.scale * b.mlp(x)


def layer_scale(b: Block, x: Tensor) -> Tensor:
    x = x + b.gain1 * b.attn(b.norm1(x))
    return torch.addcmul(x, b.gain2, b.mlp(b.norm2(x)))


def gain_on_skip(b: Block, x: Tensor) -> Tensor:
    x = b.gain1 * x + b.attn(b.norm1(x))
    return b.gain2 * x + b.mlp(b.norm2(x))


def deepnorm(b: Block, x: Tensor) -> Tensor:
    x = b.norm1(torch.add(b.attn(x), x, alpha=1.8612))
    return b.norm2(1.8612 * x + b.mlp(x))


def multiplied(b: Block, x: Tensor) -> Tensor:
    x = x + 0.22 * b.attn(b.norm1(x))
    return x + b.mlp(b.norm2(x)) / 4


def attn_only_normed(b: Block, x: Tensor) -> Tensor:
    x = x + b.attn(b.norm1(x))
    return x + b.mlp(x)


def query_only(b: Block, x: Tensor) -> Tensor:
    x = x + b.attn(b.norm1(x), x, x)
    return x + b.mlp(b.norm2(x))


def norm_not_used(b: Block, x: Tensor) -> Tensor:
    x = b.norm1(x)
    return x + b.mlp(b.attn(x))


class Residual(nn.Module):
    """The residual is added inside the sublayer's own module."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn, self.mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(), Inside()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return self.mlp(self.norm2(x), x)


class Inside(Mlp):
    """An MLP that is given the residual."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return super().forward(x) + residual


class Experts(nn.Module):
    """A mixture of experts that accumulates in a loop, with one that is shared."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(Mlp() for _ in range(3))
        self.shared = Mlp()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.router(flat).softmax(-1).topk(2)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            out.index_add_(0, token, expert(flat[token]) * weights[token, place, None])
        return out.view(x.shape) + self.shared(x)


class Functional(nn.Module):
    """Norms of the functional interface, parameters of a flat list, no module for a layer."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.norms = nn.ParameterList(torch.ones(WIDTH) for _ in range(2 * layers))
        self.attns = nn.ModuleList(Attention() for _ in range(layers))
        self.mlps = nn.ModuleList(Mlp() for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for i, (attn, mlp) in enumerate(zip(self.attns, self.mlps, strict=True)):
            x = x + attn(F.rms_norm(x, (WIDTH,), self.norms[2 * i], 1e-5))
            x = x + mlp(F.rms_norm(x, (WIDTH,), self.norms[2 * i + 1], 1e-5))
        return x
