"""A model that somebody else wrote is read, and its stream is measured: against our own stacks, and closed forms."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normula.data import random_direction
from normula.flow import flow, flow_of
from normula.read import read
from normula.record import Flow, Pass, from_json, to_json
from normula.torch import build
from tests.cases import PLACEMENTS, needs_both_sides, random_inputs, random_weights, small

HARD = {"gpas", "nanochat", "ngpt", "prores", "scaled without gradient", "on the sphere"}
"""Placements with `stop`, with the embedding in every layer, or with a constant that training moves: whether they are
read is not said here, only that what is not read is not measured."""

ONE_STACK = [
    name
    for name, placement in PLACEMENTS.items()
    if placement.operator is None and not placement.streams and not needs_both_sides(placement)
]
STEP_NUMBERS = (
    "rms_before",
    "rms_after",
    "branch_rms",
    "skip_rms",
    "gradient",
    "skip_gradient",
    "token_cosine",
    "step_cosine",
    "largest",
)
PASS_NUMBERS = ("input_gradient", "skip_gradient", "output_gradient", "norm_passes")


def near(value: float, rel: float = 1e-4) -> object:
    """Single precision through three layers and their backward pass."""
    return pytest.approx(value, rel=rel, abs=1e-7, nan_ok=True)


def assert_same_steps(ours: Pass, theirs: Pass) -> None:
    assert len(ours.steps) == len(theirs.steps)
    for one, other in zip(ours.steps, theirs.steps, strict=True):
        assert one.layer == other.layer
        for number in STEP_NUMBERS:
            assert getattr(one, number) == near(getattr(other, number)), f"{one.layer} {one.name}: {number}"


def kinds(found: Flow) -> list[str]:
    return [finding.kind for finding in found.findings]


# ---- our own stacks


@pytest.mark.parametrize("name", ONE_STACK)
def test_a_built_stack_that_is_read_flows_as_it_does_when_it_is_known(name: str) -> None:
    spec = small(PLACEMENTS[name], layers=3)
    model = build(spec)
    model.load_state_dict({n: torch.tensor(a, dtype=torch.float32) for n, a in random_weights(spec).items()})
    x = torch.tensor(random_inputs(spec), dtype=torch.float32)
    known = flow(model, inputs=x, seeds=1).passes[0]

    found = flow_of(model, (x,), {}, seeds=(0,))

    if name in HARD and set(kinds(found)) & {"no-stream", "not-understood"}:
        assert math.isnan(found.passes[0].skip_gradient)
        return
    numbers = PASS_NUMBERS
    if name == "shared gain":  # built as one statement a layer, and read as two residual sums; half of a norm ends it
        assert len(found.passes[0].steps) == 2 * len(known.steps)
        numbers = ("input_gradient", "skip_gradient", "output_gradient")
    else:
        assert_same_steps(found.passes[0], known)
    for number in numbers:
        assert getattr(found.passes[0], number) == near(getattr(known, number)), number
    largest = max(weight.gradient for weight in known.weights)
    for one, other in zip(found.passes[0].weights, known.weights, strict=True):
        assert (one.name, one.norm) == (other.name, near(other.norm))
        assert abs(one.gradient - other.gradient) <= 1e-4 * largest, one.name
    assert found.identity < 1e-5


@pytest.mark.parametrize("fields", [{"vocab": 7, "causal": True}, {"classes": 3}], ids=["ids", "classes"])
@pytest.mark.parametrize("name", ["pre", "post"])
def test_also_from_ids_and_to_classes(name: str, fields: dict[str, Any]) -> None:
    spec = small(name, layers=3, **fields)
    model, x = build(spec), torch.tensor(random_inputs(spec))
    x = x if "vocab" in fields else x.float()

    found = flow_of(model, (x,), {}, seeds=(0, 1))

    for one, other in zip(found.passes, flow(model, inputs=x, seeds=2).passes, strict=True):
        assert_same_steps(one, other)
        assert one.input_gradient == near(other.input_gradient)
        assert one.output_gradient == near(1.0)


@pytest.mark.parametrize("name", ["residual", "siamese"])
def test_several_streams_that_lean_on_each_other_are_not_measured_unless_they_are_read(name: str) -> None:
    spec = small(PLACEMENTS[name], layers=3)
    model, x = build(spec), torch.tensor(random_inputs(spec), dtype=torch.float32)
    known = all(stage.known for stage in read(model, x).stages)
    found = flow_of(model, (x,), {}, seeds=(0,))
    assert known or set(kinds(found)) & {"no-stream", "not-understood"}


# ---- a model written at home, four ways


class Home(nn.Module):
    """Pre-LN with attention and an MLP; `step` adds a branch, `inside` lays out what runs between input and output."""

    def __init__(self, way: str = "plain", layers: int = 3, width: int = 8) -> None:
        super().__init__()
        self.way = way
        make = lambda kind, *sizes: nn.ModuleList(kind(*sizes) for _ in range(layers))  # noqa: E731
        self.one, self.two = make(nn.LayerNorm, width), make(nn.LayerNorm, width)
        self.qkv, self.out = make(nn.Linear, width, 3 * width), make(nn.Linear, width, width)
        self.up, self.down = make(nn.Linear, width, 12), make(nn.Linear, 12, width)
        self.last = nn.LayerNorm(width)

    def attention(self, n: Tensor, layer: int) -> Tensor:
        q, k, v = self.qkv[layer](n).chunk(3, dim=-1)
        y: Tensor = self.out[layer](torch.softmax(q @ k.transpose(-1, -2) / 3, dim=-1) @ v)
        return y

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        if self.way == "tokens first":
            x = x.transpose(0, 1).contiguous()
        if self.way == "rows":
            x = x.reshape(B * T, D)
        x = x * 1.0
        for layer in range(len(self.one)):
            n = self.one[layer](x)
            if self.way == "tokens first":
                y = self.attention(n.transpose(0, 1), layer).transpose(0, 1)
            else:
                y = self.attention(n.view(B, T, D), layer).reshape(x.shape)
            x = x.add_(y) if self.way == "in place" else x + y
            h = torch.relu(self.up[layer](self.two[layer](x)))
            if self.way == "fused":
                rows = torch.addmm(x.view(B * T, D), h.view(B * T, -1), self.down[layer].weight.T)
                x = rows.view(B, T, D) + self.down[layer].bias
                continue
            z = self.down[layer](h)
            if self.way == "in place":
                x += z
            else:
                x = x + z
        x = self.last(x)
        return x.transpose(0, 1) if self.way == "tokens first" else x.reshape(B, T, D)


def homes(way: str = "plain") -> Home:
    """The same weights whatever the way; gains and biases are not 1 and 0."""
    torch.manual_seed(0)
    model = Home(way)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(2)
    return model


X = torch.tensor(0.4 + 1.3 * np.random.default_rng(1).standard_normal((2, 5, 8)), dtype=torch.float32)


@pytest.mark.parametrize("way", ["in place", "rows", "tokens first", "fused"])
def test_layout_and_additions_in_place_change_no_number(way: str) -> None:
    plain = flow_of(homes(), (X,), {}, seeds=(0,))
    found = flow_of(homes(way), (X,), {}, seeds=(0,))
    assert_same_steps(found.passes[0], plain.passes[0])
    assert found.passes[0].input_gradient == near(plain.passes[0].input_gradient)
    assert found.identity < 1e-5


def test_sizes_and_gradients_are_those_of_the_stream_computed_by_hand() -> None:
    model = homes()
    stream, branches = [X.clone().requires_grad_()], []
    for layer in range(3):
        for branch in (
            lambda x, at=layer: model.attention(model.one[at](x), at),
            lambda x, at=layer: model.down[at](torch.relu(model.up[at](model.two[at](x)))),
        ):
            branches.append(branch(stream[-1]))
            stream.append(stream[-1] + branches[-1])
    direction = torch.tensor(random_direction((2, 5, 8), 3), dtype=torch.float32)
    gradients = torch.autograd.grad((model.last(stream[-1]) * direction).sum(), stream)

    one = flow_of(model, (X,), {}, seeds=(3,)).passes[0]

    rms = lambda x: x.detach().double().square().mean().sqrt().item()  # noqa: E731
    assert [(step.layer, step.name) for step in one.steps] == [(l, w) for l in (1, 2, 3) for w in ("attn", "mlp")]
    for place, step in enumerate(one.steps):
        assert step.rms_before == near(rms(stream[place]))
        assert step.rms_after == near(rms(stream[place + 1]))
        assert step.branch_rms == near(rms(branches[place]))
        assert step.skip_rms == near(rms(stream[place]))
        assert step.gradient == near(gradients[place].norm().item())
    assert one.input_gradient == near(gradients[0].norm().item())


def test_the_skip_path_of_pre_ln_carries_what_the_last_norm_lets_through() -> None:
    """J^T d = (1/size) P (gain * d), with the projection P away from the mean and the centred x."""
    model = homes()
    seen: list[Tensor] = []
    model.last.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().double()))
    model(X)
    x = seen[0]
    centred = x - x.mean(-1, keepdim=True)
    size = (centred.square().mean(-1, keepdim=True) + model.last.eps).sqrt()
    n = centred / size
    arriving = torch.tensor(random_direction((2, 5, 8), 0)) * model.last.weight.detach().double()
    through = arriving - arriving.mean(-1, keepdim=True) - n * (arriving * n).mean(-1, keepdim=True)
    expected = (through / size).norm().item()

    one = flow_of(model, (X,), {}, seeds=(0,)).passes[0]

    assert [step.skip_gradient for step in one.steps] == [near(expected)] * 6
    assert one.skip_gradient == near(expected)
    assert one.norm_passes == near((through.norm() / arriving.norm()).item(), 1e-3)  # epsilon is in size alone


def test_a_loss_of_ones_own_gives_its_value_and_the_gradients_of_its_backward_pass() -> None:
    model = homes()
    target = torch.zeros(2, 5, 8)
    loss: Callable[[Tensor], Tensor] = lambda output: (output - target).square().mean()  # noqa: E731
    other = copy.deepcopy(model)
    value = loss(other(X))
    value.backward()

    found = flow(model, X, loss=loss)

    assert (found.probe, len(found.passes)) == ("loss", 1)
    assert found.passes[0].loss == near(value.item())
    for weight, parameter in zip(found.passes[0].weights, other.parameters(), strict=True):
        assert weight.gradient == pytest.approx(parameter.grad.norm().item(), rel=1e-4, abs=1e-6)
    assert found.passes[0].output_gradient == near((2 * other(X) / X.numel()).norm().item())


# ---- models from elsewhere


@pytest.fixture
def transformers() -> Any:
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    torch.manual_seed(0)
    return found


def tiny_llama(transformers: Any) -> Any:
    config = transformers.LlamaConfig(
        num_hidden_layers=3,
        hidden_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        vocab_size=100,
    )
    return transformers.LlamaModel(config)


def ids() -> Tensor:
    return torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))


def test_gpt2_grows_and_its_skip_path_is_what_the_final_norm_lets_through(transformers: Any) -> None:
    config = transformers.GPT2Config(n_layer=6, n_embd=16, n_head=2, vocab_size=100, initializer_range=0.3)
    model = transformers.GPT2Model(config).eval()
    seen: list[Tensor] = []
    model.ln_f.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].detach()))
    with torch.no_grad():
        model(ids())
    last = seen[0].requires_grad_()
    direction = torch.tensor(random_direction((2, 7, 16), 0), dtype=torch.float32)
    (expected,) = torch.autograd.grad((model.ln_f(last) * direction).sum(), last)

    found = flow(model, ids(), seeds=1)

    sizes = [step.rms_after for step in found.passes[0].steps]
    assert len(sizes) == 12
    assert all(after > before for before, after in pairwise(sizes[1::2]))
    assert [step.skip_gradient for step in found.passes[0].steps] == [near(expected.norm().item())] * 12
    assert found.growth is not None
    assert found.identity < 1e-5
    assert found.paths == tuple(f"h.{layer}" for layer in range(6))
    assert "void-probe" not in kinds(found)


def test_llama_has_the_gradients_that_hooks_on_its_layers_see(transformers: Any) -> None:
    model = tiny_llama(transformers).eval()
    inputs: list[Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda module, args: (args[0].retain_grad(), inputs.append(args[0]), None)[2])
        for layer in model.layers
    ]
    output = model(ids()).last_hidden_state
    (output * torch.tensor(random_direction(tuple(output.shape), 0), dtype=torch.float32)).sum().backward()
    for hook in hooks:
        hook.remove()

    one = flow(model, inputs={"input_ids": ids()}, seeds=1).passes[0]

    for step, x in zip(one.steps[::2], inputs, strict=True):
        assert step.gradient == near(x.grad.norm().item())
        assert step.rms_before == near(x.detach().double().square().mean().sqrt().item())


class Batchwise(nn.Module):
    """Sublayers that end in a norm over the batch: one operator of autograd, and several below it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))
        self.norm = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for attention, norm in zip(self.attention, self.norm, strict=True):
            y = attention(x, x, x, need_weights=False)[0]
            x = x + norm(y.flatten(0, 1)).view(x.shape)
        return x


def test_a_sublayer_that_ends_in_several_operators_is_held_too() -> None:
    torch.manual_seed(0)
    found = flow(Batchwise(), X, seeds=1)
    assert len(found.passes[0].steps) == 3
    assert [step.skip_gradient for step in found.passes[0].steps] == [near(1.0)] * 3
    assert all(step.gradient != near(1.0) for step in found.passes[0].steps)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_the_stream_is_what_it_was_and_the_branch(transformers: Any, name: str) -> None:
    if name == "bert":
        config = transformers.BertConfig(
            num_hidden_layers=3, hidden_size=16, num_attention_heads=2, intermediate_size=32, vocab_size=100
        )
        found = flow(transformers.BertModel(config), ids(), seeds=1)
    else:
        config = transformers.T5Config(num_layers=3, d_model=16, num_heads=2, d_kv=8, d_ff=32, vocab_size=100)
        found = flow(transformers.T5EncoderModel(config), ids(), seeds=1)
    assert [step.name for step in found.passes[0].steps] == ["attn", "mlp"] * 3
    assert found.identity < 1e-5
    assert all(math.isfinite(getattr(step, n)) for step in found.passes[0].steps for n in STEP_NUMBERS)


def test_windows_and_a_token_that_is_joined(transformers: Any) -> None:
    picture = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    swin = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4
    )
    vit = transformers.ViTConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    for model in (transformers.SwinModel(swin), transformers.ViTModel(vit)):
        found = flow(model, picture, seeds=1)
        assert len(found.passes[0].steps) == 4
        assert found.identity < 1e-5
        assert not math.isnan(found.passes[0].steps[0].token_cosine)


def encoder(norm_first: bool = False, batch_first: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def test_the_sum_is_a_void_probe_behind_a_norm_of_post_ln() -> None:
    assert kinds(flow(encoder(), X, probe="sum", seeds=1))[0] == "void-probe"
    assert "void-probe" not in kinds(flow(encoder(), X, seeds=1))
    assert "void-probe" not in kinds(flow(encoder(norm_first=True), X, probe="sum", seeds=1))


def test_tokens_first_and_batch_first_have_the_same_cosines() -> None:
    first = flow(encoder(batch_first=False), X.transpose(0, 1), seeds=1).passes[0]
    plain = flow(encoder(), X, seeds=1).passes[0]
    for one, other in zip(first.steps, plain.steps, strict=True):
        assert one.token_cosine == near(other.token_cosine)


def test_of_two_streams_one_is_measured_and_the_other_named() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 2, 3, 16, batch_first=True)
    decoder = flow(model, X, X, seeds=1)
    assert [step.name for step in decoder.passes[0].steps] == ["attn", "cross", "mlp"] * 3
    assert next(f.text for f in decoder.findings if f.kind == "other-streams").count("encoder.layers.0") == 1

    other = flow(model, X, X, seeds=1, where="encoder").passes[0]

    assert len(other.steps) == 4
    assert other.steps[0].gradient > 0
    assert other.steps[0].skip_gradient == 0.0  # it only reaches the decoder through attention


# ---- what cannot be measured


class Odd(nn.Module):
    """A layer that is no residual step that anybody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0] + torch.relu(x)


def layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)


def test_below_a_layer_that_is_not_understood_the_skip_path_is_not_known() -> None:
    torch.manual_seed(0)
    found = flow(nn.Sequential(layer(), layer(), Odd()), X, seeds=1)
    assert "not-understood" in kinds(found)
    assert found.growth is None
    assert [step.layer for step in found.passes[0].steps][:2] == [1, 1]
    assert all(math.isnan(step.skip_gradient) for step in found.passes[0].steps)
    assert all(step.gradient > 0 for step in found.passes[0].steps)
    assert math.isnan(found.passes[0].skip_gradient)
    assert from_json(Flow, to_json(found)).findings == found.findings


def test_a_model_without_a_stream_says_so() -> None:
    found = flow(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X, seeds=1)
    assert kinds(found) == ["no-stream"]
    assert found.void
    assert found.passes[0].steps == ()


class Mutes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = layer()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Any:
        return self.inside(x)


def test_a_forward_without_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="no_grad"):
        flow(Mutes(), X, seeds=1)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no inputs": ({}, "needs inputs"),
    "a batch": ({"inputs": X, "batch": 2}, "leave out batch"),
    "a task": ({"inputs": X, "task": "copy"}, "need a spec"),
    "training steps": ({"inputs": X, "steps": 3}, "need a spec"),
    "an unknown probe": ({"inputs": X, "probe": "random "}, "a probe is one of"),
    "a loss by name": ({"inputs": X, "probe": "loss"}, "give loss="),
    "a loss and the sum": ({"inputs": X, "probe": "sum", "loss": torch.mean}, "leave out one"),
    "a loss of many numbers": ({"inputs": X, "loss": lambda y: y}, "one number"),
    "another framework": ({"inputs": X, "framework": "flax"}, "has a framework already"),
    "a stream that is not there": ({"inputs": X, "where": "decoder"}, "layers.0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_be_are_refused(case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        flow(encoder(), **options)


def test_what_belongs_to_other_models_is_refused_for_a_built_stack() -> None:
    with pytest.raises(ValueError, match="by name"):
        flow(build(small("pre")), X)
    with pytest.raises(ValueError, match="not built here"):
        flow(build(small("pre")), loss=torch.mean)


# ---- everything stays as it was


class Touchy(nn.Module):
    """Remembers what it saw, counts in a buffer, draws at random, and runs hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = encoder()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.seen = x
        return self.inside(x + 0.01 * torch.randn_like(x))


@pytest.mark.parametrize("fails", [False, True])
def test_model_inputs_and_random_state_stay_as_they_were(fails: bool) -> None:
    model, x = Touchy(), X.clone().requires_grad_()
    model.train()
    model.inside.layers[1].eval()
    model.inside.layers[0].requires_grad_(False)
    model(x).square().sum().backward()
    x.grad = None
    hooks: list[str] = []
    model.register_forward_hook(lambda *_: hooks.append("called"))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    modes = [(module.training, len(module._forward_hooks)) for module in model.modules()]
    wants = [parameter.requires_grad for parameter in model.parameters()]
    seen, random = model.seen, torch.get_rng_state()

    if fails:
        with pytest.raises(ZeroDivisionError):
            flow(model, x, loss=lambda output: output.sum() / (1 // 0))
    else:
        found = flow(model, x, seeds=1)
        assert repr(flow(model, x, seeds=1).passes) == repr(found.passes)
        frozen = [w for w in found.passes[0].weights if w.name.startswith("inside.layers.0")]
        assert {w.gradient for w in frozen} == {0.0}

    assert hooks
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    for name, parameter in model.named_parameters():
        before = gradients[name]
        assert parameter.grad is None if before is None else torch.equal(parameter.grad, before)
    assert [(module.training, len(module._forward_hooks)) for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == wants
    assert model.seen is seen
    assert torch.equal(torch.get_rng_state(), random)
    assert x.grad is None
    assert torch.backends.mha.get_fastpath_enabled()


def test_also_without_gradients_and_in_inference_mode() -> None:
    plain = repr(flow(encoder(), X, seeds=1).passes)
    with torch.no_grad():
        assert repr(flow(encoder(), X, seeds=1).passes) == plain
    model = encoder()
    with torch.inference_mode():
        assert repr(flow(model, X, seeds=1).passes) == plain


def test_a_record_of_a_read_model_travels_as_json() -> None:
    found = flow(encoder(), X, seeds=1)
    again = from_json(Flow, to_json(found))
    assert repr(again) == repr(found)
    assert again.reading["stages"][0]["block"] == "x = norm(x + attn(x)); x = norm(x + mlp(x))"
