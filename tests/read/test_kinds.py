"""Kinds of models: several towers, layers that begin without a skip, one token that asks all; and what is unknown."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normula.read import read
from tests.read import models as m

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
POST = "x = norm(x + attn(x)); x = norm(x + mlp(x))"


D = m.WIDTH


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


Way = Callable[[Tensor, Tensor], Tensor]

WRITTEN: dict[str, Way] = {
    "std + eps, unbiased": lambda x, g: g * (x - mean(x)) / (x.std(-1, keepdim=True) + 1e-6),
    "var, unbiased": lambda x, g: (x - mean(x)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-6) * g,
    "gain first": lambda x, g: g * x / (mean(x**2) + 1e-6).sqrt(),
    "rms + eps": lambda x, g: x / (mean(x**2).sqrt() + 1e-6) * g,
    "length, scaled": lambda x, g: x / (x.norm(dim=-1, keepdim=True) * D**-0.5).clamp(min=1e-8) * g,
    "length over root": lambda x, g: g * x / (x.norm(dim=-1, keepdim=True) / D**0.5 + 1e-8),
    "clamped": lambda x, g: g * x / mean(x**2).clamp(min=1e-6).sqrt(),
    "axis put back": lambda x, g: g * x * torch.rsqrt(x.pow(2).mean(-1) + 1e-6).unsqueeze(-1),
    "difference of means": lambda x, g: g * (x - mean(x)) * torch.rsqrt(mean(x * x) - mean(x) ** 2 + 1e-5),
    "sum over width": lambda x, g: g * x * torch.rsqrt((x * x).sum(-1, keepdim=True) / D + 1e-6),
}
"""Norms as people write them."""

STRANGE: dict[str, Way] = {
    "largest": lambda x, g: g * x / x.abs().amax(-1, keepdim=True),
    "mean size": lambda x, g: g * x / (mean(x.abs()) + 1e-6),
    "part": lambda x, g: g * x / (mean(x[..., :8] ** 2) + 1e-6).sqrt(),
    "softmax": lambda x, g: g * x.softmax(-1),
}
"""What divides by a statistic that is no norm's."""


class Written(nn.Module):
    """A norm with a gain, written by hand."""

    def __init__(self, how: Way) -> None:
        super().__init__()
        self.how, self.gain = how, nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return self.how(x, self.gain)


class Layer(nn.Module):
    """A layer with such norms, before its sublayers or after its sums."""

    def __init__(self, how: Way, post: bool) -> None:
        super().__init__()
        self.post, self.norm1, self.norm2 = post, Written(how), Written(how)
        self.attention, self.mlp = m.Attention(), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("how", WRITTEN)
def test_norms_as_people_write_them(how: str, post: bool) -> None:
    model = nn.Sequential(*(Layer(WRITTEN[how], post) for _ in range(3)))
    (stage,) = read(model, m.stream()).stages
    assert (stage.block, stage.proof) == (POST if post else PRE, "replayed")


@pytest.mark.negative
@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("how", STRANGE)
def test_other_statistics_are_unknown(how: str, post: bool) -> None:
    model = nn.Sequential(*(Layer(STRANGE[how], post) for _ in range(3)))
    assert {stage.block for stage in read(model, m.stream()).stages} == {"unknown"}


class Halved(nn.Module):
    """A layer that halves each of its sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention, self.mlp = m.Attention(), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = 0.5 * (x + self.attention(self.norm1(x)))
        return 0.5 * (x + self.mlp(self.norm2(x)))


@pytest.mark.parametrize("closed", [False, True])
def test_a_number_after_the_last_sum_is_of_the_last_layer(closed: bool) -> None:
    reading = read(nn.Sequential(*(Halved() for _ in range(3)), *([nn.LayerNorm(D)] if closed else [])), m.stream())
    (stage,) = reading.stages
    assert stage.block == "x = 0.5 * x + 0.5 * attn(norm(x)); x = 0.5 * x + 0.5 * mlp(norm(x))"
    assert (stage.layers, stage.proof, reading.final_norm) == (3, "replayed", closed)


def test_weights_that_are_not_finite_are_named() -> None:
    model = nn.Sequential(*(Halved() for _ in range(2)))
    nn.init.constant_(model[1].mlp.up.weight, float("nan"))
    reading = read(model, m.stream())
    assert reading.stages[-1].block == "unknown"
    assert "not finite" in reading.stages[-1].seen
    assert reading.findings[0].code == "weights-not-finite"
    assert "1.mlp.up.weight" in reading.findings[0].evidence


class Bottleneck(nn.Module):
    """Convolutions at half the places, or at all of them with a skip."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.up, self.mix = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, stride, 1, groups=16)
        self.down = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(torch.relu(self.mix(torch.relu(self.up(x)))))
        return y if self.stride > 1 else x + y


class Opening(nn.Module):
    """A layer whose stream goes through a convolution before its first skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(m.WIDTH, m.WIDTH, 3, padding=1, groups=m.WIDTH)
        self.norm, self.mlp = nn.LayerNorm(m.WIDTH), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return x + self.mlp(self.norm(x))


class Asking(nn.Module):
    """One token that attends to all; only it is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(m.WIDTH), nn.LayerNorm(m.WIDTH)
        self.attention, self.mlp = m.Attention(), m.Mlp()

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        every = self.norm1(torch.cat([x, tokens], 1))
        x = x + self.attention(every[:, :1], every, every)
        return x + self.mlp(self.norm2(x))


class Asked(nn.Module):
    """Layers for all tokens, then layers for one of its own, then a norm of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = m.stack(m.pre)
        self.token = nn.Parameter(torch.randn(1, 1, m.WIDTH))
        self.asking = nn.ModuleList([Asking(), Asking()])
        self.norm = nn.LayerNorm(m.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        token = self.token.expand(x.shape[0], -1, -1)
        for layer in self.asking:
            token = layer(token, x)
        return self.norm(torch.cat([token, x], 1))


class Towers(nn.Module):
    """What one tower gives is projected and written among the embeddings of another."""

    def __init__(self) -> None:
        super().__init__()
        self.sight, self.language = m.stack(m.pre), m.stack(m.post)
        self.projector = m.Mlp()
        self.embedding = nn.Embedding(10, m.WIDTH)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        words = self.embedding(ids)
        seen = self.projector(self.sight(x))
        place = (torch.arange(ids.shape[1]) < seen.shape[1])[None, :, None].expand_as(words)
        return self.language(words.masked_scatter(place, seen))


class Pooled(nn.Module):
    """A tower whose tokens a learned question pools, before another tower runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = m.stack(m.pre), m.stack(m.post)
        self.probe, self.attention = nn.Parameter(torch.randn(1, 1, m.WIDTH)), m.Attention()

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(x)
        pooled = self.attention(self.probe.expand(x.shape[0], -1, -1), x, x)
        return pooled, self.second(y)


class Lists(nn.Module):
    """Two lists of layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.space, self.time = m.stack(m.pre).layers, m.stack(m.pre).layers
        self.norm = nn.LayerNorm(m.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.space:
            x = layer(x)
        x = self.norm(x).transpose(0, 1)
        for layer in self.time:
            x = layer(x)
        return x


def test_a_block_without_a_skip_in_a_list_of_blocks_is_a_layer() -> None:
    model = nn.Sequential(Bottleneck(1), Bottleneck(1), Bottleneck(2), Bottleneck(1))
    found = [(stage.layers, stage.block) for stage in read(model, torch.randn(1, 8, 16, 16)).stages]
    assert found == [(2, "x = x + conv(x)"), (1, "x = conv(x)"), (1, "x = x + conv(x)")]


def test_convolutions_that_lead_to_fewer_places_in_no_list_are_no_layer() -> None:
    class Stages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Sequential(Bottleneck(1), Bottleneck(1)) for _ in range(2))
            self.merging = Bottleneck(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.merging(self.first(x)))

    stages = read(Stages(), torch.randn(1, 8, 16, 16)).stages
    assert [(stage.layers, stage.block) for stage in stages] == [(2, "x = x + conv(x)")] * 2


def test_a_layer_may_begin_without_a_skip() -> None:
    model = nn.Sequential(m.stack(m.pre), nn.Sequential(Opening(), Opening()))
    stages = read(model, m.stream()).stages
    assert [(stage.layers, stage.block, stage.proof) for stage in stages] == [
        (2, PRE, "replayed"),
        (2, "x = conv(x); x = x + mlp(norm(x))", "replayed"),
    ]


def test_one_token_that_asks_all_is_a_stream_of_its_own() -> None:
    reading = read(Asked(), m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(2, PRE), (2, PRE)]
    assert reading.final_norms == (False, True)


def test_what_is_written_among_embeddings_begins_no_layer() -> None:
    ids = torch.randint(0, 10, (2, m.TOKENS + 3))
    stages = read(Towers(), m.stream(), ids).stages
    assert [stage.block for stage in stages] == [PRE, "x = norm(x + attn(x)); x = norm(x + mlp(x))"]


def test_a_question_of_the_models_own_is_a_head_though_another_tower_follows() -> None:
    stages = read(Pooled(), m.stream(), m.stream()).stages
    assert [stage.block for stage in stages] == [PRE, "x = norm(x + attn(x)); x = norm(x + mlp(x))"]


def test_a_norm_between_two_lists_is_in_no_layer() -> None:
    reading = read(Lists(), m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(2, PRE), (2, PRE)]
    assert reading.final_norms == (True, False)


class Copies(nn.Module):
    """Hyper-connections: branches read a mixture of copies of the stream and write to each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Linear(m.WIDTH, 1), nn.Linear(m.WIDTH, 1)
        self.norm, self.attention = nn.LayerNorm(m.WIDTH), m.Attention()

    def forward(self, x: Tensor) -> Tensor:
        mixed = (self.read(x).sigmoid() * x).sum(-2)
        return x + self.write(x).sigmoid() * self.attention(self.norm(mixed)).unsqueeze(-2)


class Gate(nn.Module):
    """A highway: the skip is gated by what is computed from the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.mlp, self.norm = nn.Linear(m.WIDTH, m.WIDTH), m.Mlp(), nn.LayerNorm(m.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mlp(self.norm(x))
        gate = self.gate(x).sigmoid()
        return gate * x + (1 - gate) * self.mlp(x)


class Deep(nn.Module):
    """Attention over depth: each layer reads a mixture of what all layers before it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([m.Mlp() for _ in range(3)])
        self.score, self.norm = nn.Linear(m.WIDTH, 1), nn.LayerNorm(m.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for layer in self.layers:
            every = torch.stack(values, 2)
            x = x + layer(self.norm((self.score(every).softmax(2) * every).sum(2)))
            values.append(x)
        return x


@pytest.mark.parametrize(
    ("model", "copies"), [(nn.Sequential(Copies(), Copies()), 3), (nn.Sequential(Gate(), Gate()), 0), (Deep(), 0)]
)
def test_what_the_notation_cannot_say_is_unknown(model: nn.Module, copies: int) -> None:
    x = m.stream()[:, :, None].repeat(1, 1, copies, 1) if copies else m.stream()
    stages = read(model, x).stages
    assert stages
    assert all(stage.block == "unknown" for stage in stages)
