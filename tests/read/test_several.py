"""Layers that carry several streams, written by hand: each is read as the tuple that goes from layer to layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normula.formula import Formula
from normula.read import read
from tests.read import models as m

RESIDUAL = "b = attn(x); n = norm(x + b); b2 = mlp(n); d = d + b + b2; x = norm(n + b2)"
NANOCHAT = "h = gain * x + gain * y; h = h + attn(norm(h)); x = h + mlp(norm(h))"


class DualBlock(nn.Module):
    """Post-LN, and all that its sublayers say added up beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = m.Attention(), m.Mlp()
        self.norm1, self.norm2 = m.layernorm(), m.layernorm()

    def forward(self, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        b = self.attn(x)
        d, x = d + b, self.norm1(x + b)
        b = self.mlp(x)
        return self.norm2(x + b), d + b


class Dual(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DualBlock() for _ in range(layers))
        self.norm = m.layernorm()

    def forward(self, x: Tensor) -> Tensor:
        d = x
        for layer in self.layers:
            x, d = layer(x, d)
        return x + self.norm(d)


class DualInTheOpen(Dual):
    """The sums stand between the modules, in the forward of the whole model."""

    def forward(self, x: Tensor) -> Tensor:
        d = x
        for layer in self.layers:
            for act, norm in ((layer.attn, layer.norm1), (layer.mlp, layer.norm2)):
                b = act(x)
                d = d + b
                x = norm(x + b)
        return x + self.norm(d)


class DualWithAHead(Dual):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(m.WIDTH, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(super().forward(x))


class Remixed(nn.Module):
    """The normed embedding is mixed in again before every layer, with learned numbers of the whole model."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, m.WIDTH)
        self.layers = nn.ModuleList(m.Block(m.pre) for _ in range(layers))
        self.mix = nn.Parameter(torch.ones(layers))
        self.mix0 = nn.Parameter(torch.full((layers,), 0.1))
        self.head = nn.Linear(m.WIDTH, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = x0 = nn.functional.rms_norm(self.embedding(ids), (m.WIDTH,))
        for number, layer in enumerate(self.layers):
            x = layer(self.mix[number] * x + self.mix0[number] * x0)
        return self.head(nn.functional.rms_norm(x, (m.WIDTH,)))


class RemixedWithValues(Remixed):
    """Embeddings of the tokens are added to the values of every attention too: inside it, so no stream."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Embedding(11, m.WIDTH)
        self.gate = nn.Parameter(torch.full((3,), 0.1))

    def forward(self, ids: Tensor) -> Tensor:
        x = x0 = nn.functional.rms_norm(self.embedding(ids), (m.WIDTH,))
        for number, layer in enumerate(self.layers):
            x = self.mix[number] * x + self.mix0[number] * x0
            n, attn = layer.norm1(x), layer.attn
            values = attn.v(n) + self.gate[number] * self.values(ids)
            q, k, v = map(attn.split, (attn.q(n), attn.k(n), values))
            mixed = nn.functional.scaled_dot_product_attention(attn.rotated(q), attn.rotated(k), v)
            x = x + attn.o(mixed.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.norm2(x))
        return self.head(nn.functional.rms_norm(x, (m.WIDTH,)))


class Stopped(nn.Module):
    """A fixed part of the stream is taken away, without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(m.Block(self.step) for _ in range(3))

    @staticmethod
    def step(block: m.Block, x: Tensor) -> Tensor:
        x = x + block.attn(block.norm1(x))
        return x - block.scale * x.detach()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("model", [Dual, DualInTheOpen, DualWithAHead], ids=lambda model: model.__name__)
def test_a_second_stream_that_gathers_what_the_sublayers_say(model: type[Dual]) -> None:
    (stage,) = read(model(), m.stream()).stages
    assert (stage.block, stage.layers, stage.proof) == (str(Formula(RESIDUAL)), 3, "replayed")
    assert (stage.streams, stage.closing, stage.names) == (("d = x",), "x + norm(d)", ("residual",))


@pytest.mark.parametrize("model", [Remixed, RemixedWithValues], ids=lambda model: model.__name__)
def test_the_embedding_that_is_mixed_in_again(model: type[Remixed]) -> None:
    reading = read(model(), torch.arange(10).reshape(2, 5))
    (stage,) = reading.stages
    assert (stage.block, stage.layers, stage.proof) == (str(Formula(NANOCHAT)), 3, "replayed")
    assert (stage.streams, stage.closing, stage.names) == (("y = x",), "norm(x)", ("nanochat",))
    assert (reading.embed_norm, reading.final_norm) == (True, True)


def test_a_value_without_its_gradient() -> None:
    (stage,) = read(Stopped(), m.stream()).stages
    wanted = Formula("h = x + attn(norm(x)); x = h - gain * stop(h)")
    assert (stage.block, stage.layers, stage.proof) == (str(wanted), 3, "replayed")


def test_a_value_that_is_detached_and_then_not_used_is_the_stream_itself() -> None:
    def step(block: m.Block, x: Tensor) -> Tensor:
        x.detach()
        x = x + block.attn(block.norm1(x))
        return x + block.mlp(block.norm2(x))

    assert [stage.block for stage in read(m.stack(step), m.stream()).stages] == [
        "x = x + attn(norm(x)); x = x + mlp(norm(x))"
    ]


class Joint(nn.Module):
    """Attention over two streams together: neither has a formula of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(m.Block(m.pre) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        for layer in self.layers:
            left, right = layer.attn(torch.cat([layer.norm1(x), layer.norm2(y)], 1)).chunk(2, 1)
            x, y = x + left, y + right
        return x + y


class Gated(nn.Module):
    """What one stream says goes through a gate that another opens."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(m.Block(m.pre) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.layers:
            b = layer.mlp(layer.norm1(x) * torch.sigmoid(y))
            x, y = x + b, y + layer.attn(layer.norm2(y))
        return x + y


@pytest.mark.negative
@pytest.mark.parametrize("model", [Joint, Gated], ids=lambda model: model.__name__)
def test_a_sublayer_that_reads_two_streams_is_not_understood(model: type[nn.Module]) -> None:
    stages = read(model(), m.stream()).stages
    assert "unknown" in {stage.block for stage in stages}
    assert not any("mlp" in stage.block or stage.streams for stage in stages)


@pytest.mark.negative
def test_the_same_streams_closed_otherwise_have_no_known_name() -> None:
    class Other(Dual):
        def forward(self, x: Tensor) -> Tensor:
            d = x
            for layer in self.layers:
                x, d = layer(x, d)
            return x + d

    (stage,) = read(Other(), m.stream()).stages
    assert (stage.block, stage.closing, stage.names) == (str(Formula(RESIDUAL)), "x + d", ())
