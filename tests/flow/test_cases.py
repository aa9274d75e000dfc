"""Troubles that people had with signal and gradient, each as a tiny model: what flow says of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normula.flow import flow
from normula.flow.sizes import centred, swallowed, token_cosine
from normula.record import Flow, from_json, to_json
from normula.spec import Spec
from tests.read import models as m
from tests.read.test_findings import PLAIN, trimmed


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def kinds(found: Flow) -> set[str]:
    return {finding.kind for finding in found.findings}


def text(found: Flow, kind: str) -> str:
    (one,) = (finding.text for finding in found.findings if finding.kind == kind)
    return one


# ---- what enters a norm


@pytest.mark.parametrize("offset", [0.0, 50.0, 2000.0])
def test_the_mean_of_what_a_norm_reads_in_its_deviations(offset: float) -> None:
    x = m.stream() + offset
    found = flow(PLAIN(), x, seeds=1)
    tokens = x.double().flatten(0, 1)
    largest = (tokens.mean(-1).abs() / tokens.std(-1, correction=0)).max().item()
    assert found.norms[0].path == "layers.0.norm1"
    assert found.norms[0].offset == pytest.approx(largest)
    assert ("large-mean" in kinds(found)) == (offset == 2000)


@pytest.mark.parametrize(("eps", "amplification"), [(1e-5, "316"), (1e-12, "1e+06")])
def test_constant_tokens_are_counted_with_what_their_gradient_is_multiplied_by(eps: float, amplification: str) -> None:
    x = m.stream()
    x[0, :3], x[1, 2] = 7.0, 0.0
    found = flow(trimmed(m.pre, "norm1", "norm2", after=True, norm=lambda: nn.LayerNorm(m.WIDTH, eps)), x, seeds=1)
    first = found.norms[0]
    assert (first.constant, first.tokens) == (4, x.shape[0] * x.shape[1])
    assert first.amplification == pytest.approx(eps**-0.5)
    assert amplification in text(found, "constant-rows")
    assert not any(norm.constant for norm in found.norms[1:])


@pytest.mark.negative
@pytest.mark.parametrize(("value", "told"), [(1.0, False), (0.0, True)])
def test_an_rms_norm_has_nothing_to_divide_only_in_tokens_of_zeros(value: float, told: bool) -> None:
    x = m.stream()
    x[0, 0] = value
    model = trimmed(m.pre, "norm1", "norm2", after=True, norm=lambda: m.HandNorm(centred=False))
    assert ("constant-rows" in kinds(flow(model, x, seeds=1))) == told


@pytest.mark.negative
@pytest.mark.parametrize("framework", ["torch", "flax"])
@pytest.mark.parametrize(("norm", "collapsed"), [("layernorm", False), ("rmsnorm", True)])
def test_a_mean_is_a_likeness_of_tokens_only_where_the_last_norm_keeps_it(
    framework: str, norm: Any, collapsed: bool
) -> None:
    pytest.importorskip("jax" if framework == "flax" else "torch")
    spec = Spec(placement="pre", layers=2, width=16, heads=2, norm=norm)
    x = m.stream().numpy() + 2000
    found = flow(spec, inputs=x, seeds=1, framework=framework)
    last = found.passes[0].steps[-1]
    assert last.token_cosine > 1 - 1e-5
    assert last.centred_cosine < 0.9
    assert ("token-collapse" in kinds(found)) == collapsed


def test_the_centred_cosine_is_that_of_tokens_without_their_means() -> None:
    x = m.stream().double().numpy()
    assert token_cosine(centred(x + np.arange(6)[None, :, None])) == pytest.approx(token_cosine(centred(x)))
    found = flow(Spec(placement="none", layers=1, width=16, heads=2), seeds=1)
    assert found.passes[0].steps[0].centred_cosine == pytest.approx(found.passes[0].steps[0].token_cosine, abs=0.2)


# ---- how a stack starts


@pytest.mark.negative
@pytest.mark.parametrize("scaled", [True, False])
def test_writers_that_are_not_reduced_with_depth_are_named(scaled: bool) -> None:
    """The rule of GPT-2 compared names that never matched, and every weight had a deviation of 0.02."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=8, n_embd=32, n_head=2, vocab_size=50, n_positions=16)
    model = transformers.GPT2Model(config)
    named = dict(model.named_parameters())
    writers = [one for name, one in named.items() if name.endswith("c_proj.weight")]
    with torch.no_grad():
        for one in writers:
            one.normal_(0.0, 0.02 / 4 if scaled else 0.02)
    ids = {"input_ids": torch.arange(3, 11).view(1, 8)}
    found = flow(model, inputs=ids, seeds=1)
    assert ("writers-not-scaled" in kinds(found)) != scaled
    if not scaled:
        assert "1/sqrt(16) = 0.25" in text(found, "writers-not-scaled")
    with torch.no_grad():
        named["h.0.ln_1.weight"].add_(0.01)
    assert "writers-not-scaled" not in kinds(
        flow(model, inputs=ids, seeds=1)
    )  # it was trained, whatever it started with


# ---- numbers that a stream cannot hold


@pytest.mark.parametrize(("scale", "place"), [(2e4, None), (6e4, "layer 2, mlp")])
def test_in_half_precision_the_sum_that_overflows_is_named_not_the_norm_where_it_shows(
    scale: float, place: str | None
) -> None:
    layer = nn.TransformerEncoderLayer(m.WIDTH, 2, 32, batch_first=True, norm_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 3, nn.LayerNorm(m.WIDTH), enable_nested_tensor=False).half()
    with torch.no_grad():
        for one in model.layers:
            one.linear2.weight.mul_(scale)
    found = flow(model, m.stream().half(), seeds=1)
    assert ("not-finite" in kinds(found)) == (place is not None)
    if place is not None:
        assert place in text(found, "not-finite")
    else:
        assert f"{found.passes[0].steps[-1].largest / 65504:.0%}" in text(found, "half-precision")


class Adds(nn.Module):
    """A layer whose MLP adds one number to every feature."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.mlp = nn.Linear(m.WIDTH, m.WIDTH)
        nn.init.zeros_(self.mlp.weight)
        nn.init.constant_(self.mlp.bias, value)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(x)


@pytest.mark.parametrize(("value", "share"), [(0.2, 1.0), (0.3, 0.0)])
def test_at_100_a_stream_in_bfloat16_does_not_see_what_is_below_a_quarter(value: float, share: float) -> None:
    x = torch.full((2, m.TOKENS, m.WIDTH), 100.0)
    x[0] *= -1
    found = flow(m.Stack([Adds(value), Adds(value)]), x, seeds=1)
    assert [step.swallowed for step in found.passes[0].steps] == [share] * 2
    assert ("bfloat16-rounding" in kinds(found)) == (share == 1)


def test_what_is_swallowed_is_what_a_sum_in_bfloat16_leaves_as_it_was() -> None:
    """Apart from powers of two, one number in 128: below them the spacing is half of that above."""
    skip = torch.randn(100_000).bfloat16()
    branch = torch.randn(100_000) / 50
    branch[::10] = 0.0
    left = ((skip.float() + branch).bfloat16() == skip)[branch != 0]
    mine = swallowed(branch.double().numpy(), skip.double().numpy())
    assert mine == pytest.approx(left.float().mean().item(), abs=1 / 128)


@pytest.mark.parametrize("framework", ["torch", "flax"])
def test_a_layer_scale_that_starts_at_1e_5_is_rounded_away_in_bfloat16(framework: str) -> None:
    pytest.importorskip("jax" if framework == "flax" else "torch")
    tiny = Spec(placement="x + gain(1e-5, 'channel') * f(norm(x))", layers=2, width=16, heads=2)
    plain = Spec(placement="pre", layers=2, width=16, heads=2)
    assert "bfloat16-rounding" in kinds(flow(tiny, seeds=1, framework=framework))
    assert "bfloat16-rounding" not in kinds(flow(plain, seeds=1, framework=framework))


# ---- which parameters a training reaches


class Dropping(m.Stack):
    """Layers that a pass in training mode skips at random, half of the time."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.training or torch.rand(()) > 0.5:
                x = layer(x)
        return self.after(x) if self.after is not None else x


def dropping(*norms: str) -> nn.Module:
    model = trimmed(m.pre, *norms, after=True)
    return Dropping(list(model.layers), None, model.after)


def test_a_layer_that_is_skipped_at_random_is_told_from_a_norm_that_is_never_used() -> None:
    found = flow(dropping("norm1", "norm2", "norm3"), m.stream(), seeds=1, draws=8)
    assert "such as layers.0.scale" in text(found, "gradient-never")
    assert "in some of 8 passes in training mode" in text(found, "gradient-sometimes")
    assert "find_unused_parameters" in text(found, "gradient-sometimes")


@pytest.mark.negative
def test_of_a_model_that_uses_everything_in_every_pass_nothing_is_said() -> None:
    layer = nn.TransformerEncoderLayer(m.WIDTH, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert not kinds(flow(model, m.stream(), seeds=1, draws=4)) & {"gradient-never", "gradient-sometimes"}


def test_passes_in_training_mode_leave_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(m.TOKENS), dropping("norm1", "norm2")).eval()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    flow(model, m.stream(), seeds=1, draws=2)
    assert not any(module.training for module in model.modules())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(one.grad is None for one in model.parameters())


# ---- weight decay


class Renamed(nn.Module):
    """A norm of its own kind and another's name, a gate, and a matrix that is named for a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_f, self.normal_proj = m.HandNorm(centred=False), m.Mlp()
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * self.normal_proj(self.ln_f(x))


def test_decay_is_told_by_what_a_parameter_does_not_by_its_name() -> None:
    model = m.Stack([Renamed(), Renamed()], None, nn.LayerNorm(m.WIDTH))
    found = flow(model, m.stream(), seeds=1, optimizer=torch.optim.AdamW(model.parameters(), weight_decay=0.1))
    roles = {one.name: one.role for one in found.decays}
    assert roles == {
        "layers.0.ln_f.weight": "norm gain",
        "layers.0.gate": "residual scale",
        "layers.1.ln_f.weight": "norm gain",
        "layers.1.gate": "residual scale",
        "after.weight": "norm gain",
        "after.bias": "norm bias",
    }
    assert {one.decay for one in found.decays} == {0.1}
    assert "3 of the norm gain kind" in text(found, "norms-decayed")
    assert from_json(Flow, to_json(found)).decays == found.decays


@pytest.mark.negative
def test_norms_in_a_group_without_decay_are_not_blamed() -> None:
    model = m.Stack([Renamed(), Renamed()], None, nn.LayerNorm(m.WIDTH))
    groups = [
        {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
        {"params": [one for one in model.parameters() if one.dim() <= 1], "weight_decay": 0.0},
    ]
    found = flow(model, m.stream(), seeds=1, optimizer=torch.optim.AdamW(groups))
    assert len(found.decays) == 6
    assert "norms-decayed" not in kinds(found)


def test_the_rule_that_leaves_out_layernorm_by_name_decays_the_norms_of_opt() -> None:
    transformers = pytest.importorskip("transformers")
    sides = dict(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, ffn_dim=32, word_embed_proj_dim=16)
    model = transformers.OPTModel(transformers.OPTConfig(vocab_size=50, **sides))
    spared = [name for name, _ in model.named_parameters() if "bias" in name or "LayerNorm.weight" in name]
    named = dict(model.named_parameters())
    groups = [
        {"params": [named[name] for name in spared], "weight_decay": 0.0},
        {"params": [one for name, one in named.items() if name not in spared], "weight_decay": 0.01},
    ]
    ids = {"input_ids": torch.arange(3, 11).view(1, 8)}
    found = flow(model, inputs=ids, seeds=1, optimizer=torch.optim.AdamW(groups))
    assert [one.role for one in found.decays if one.decay] == ["norm gain"] * 3
    assert [one.role for one in found.decays if not one.decay] == ["norm bias"] * 3


# ---- instruments that see nothing


def test_it_ends_with_the_sites_that_were_expected_and_seen() -> None:
    found = flow(PLAIN(), m.stream(), seeds=1)
    assert found.findings[-1].text == "Seen: 5 of 5 norms and 4 of 4 sublayers."


@pytest.mark.negative
def test_a_norm_that_does_nothing_is_listed_as_not_seen() -> None:
    found = flow(trimmed(m.pre, "norm1", "norm2", "norm3", after=True), m.stream(), seeds=1)
    assert "coverage" not in kinds(found)
    assert "Seen: 5 of 7 norms" in text(found, "sites-not-seen")
    assert "layers.0.norm3, layers.1.norm3" in text(found, "sites-not-seen")


class Functional(nn.Module):
    """One gain and bias, used by a function at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(m.WIDTH)), nn.Parameter(torch.zeros(m.WIDTH))
        self.attn, self.mlp = m.Attention(), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.normed(x))
        return x + self.mlp(self.normed(x))

    def normed(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (m.WIDTH,), self.weight, self.bias)


def test_norms_without_a_module_and_shared_ones_are_seen() -> None:
    found = flow(m.Stack([Functional(), Functional()]), m.stream(), seeds=1)
    assert "Seen: 4 of 4 norms and 4 of 4 sublayers." in text(found, "coverage")


def test_a_residual_that_is_added_inside_the_sublayers_module_is_no_part_of_the_branch() -> None:
    inside = m.Stack([m.Residual(), m.Residual()])
    plain = trimmed(m.pre, "norm1", "norm2")
    plain.load_state_dict({**plain.state_dict(), **inside.state_dict()})
    found, same = flow(inside, m.stream(), seeds=1), flow(plain, m.stream(), seeds=1)
    assert found.identity < 1e-6
    for one, other in zip(found.passes[0].steps, same.passes[0].steps, strict=True):
        assert one.branch_rms == pytest.approx(other.branch_rms, rel=1e-5)


@pytest.fixture
def mesh() -> Iterator[Any]:
    distributed = pytest.importorskip("torch.distributed")
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_sharded_parameters_are_refused_by_name(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_module

    layer = nn.TransformerEncoderLayer(m.WIDTH, 2, 32, batch_first=True)
    model = distribute_module(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), mesh)
    assert Replicate() in next(model.parameters()).placements  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"layers\.0\.self_attn\.in_proj_weight is sharded"):
        flow(model, m.stream(), seeds=1)


# ---- what cannot be asked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(draws=2), "optimizer and draws belong to a model that was not built here"),
        (dict(optimizer=3), "optimizer and draws belong to a model that was not built here"),
    ],
)
def test_of_a_built_stack(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flow("pre", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(draws=-1), "draws are a whole number of at least 0, not -1"),
        (dict(optimizer=3), "An optimizer has param_groups"),
    ],
)
def test_of_a_model(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flow(PLAIN(), m.stream(), seeds=1, **options)


def test_of_a_model_of_jax() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match="optimizer and draws are of a PyTorch model"):
        flow(lambda w, x: x + jax.nn.relu(x @ w) @ w, jax.numpy.ones((4, 4)), jax.numpy.ones((2, 3, 4)), draws=1)


def test_numbers_of_no_norm_and_no_sum_are_told_from_zeros() -> None:
    found = flow(PLAIN(), m.stream(), seeds=1)
    assert all(not math.isnan(step.swallowed) and not math.isnan(step.centred_cosine) for step in found.passes[0].steps)
