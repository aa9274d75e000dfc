"""Home-made models: what is written in an unusual way is read as what it is."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import normula as nm
from normula.formula import Formula
from normula.read import read
from tests.read import models as m

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
POST = "x = norm(x + attn(x)); x = norm(x + mlp(x))"

STEPS = {
    m.pre: PRE,
    m.pre_in_place: PRE,
    m.pre_by_views: PRE,
    m.pre_by_chunks: PRE,
    m.pre_in_windows: PRE,
    m.post: POST,
    m.sandwich: "x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))",
    m.res_post: "x = x + norm(attn(x)); x = x + norm(mlp(x))",
    m.parallel: "n = norm(x); x = x + attn(n) + mlp(n)",
    m.parallel_two_norms: "x = x + attn(norm(x)) + mlp(norm(x))",
    m.normed_skip: "n = norm(x); x = n + attn(n); n = norm(x); x = n + mlp(n)",
    m.shared_norm: PRE,
    m.rezero: "x = x + gain * attn(x); x = x + gain * mlp(x)",
    m.layer_scale: "x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x))",
    m.gain_on_skip: "x = gain * x + attn(norm(x)); x = gain * x + mlp(norm(x))",
    m.deepnorm: "x = norm(1.8612 * x + attn(x)); x = norm(1.8612 * x + mlp(x))",
    m.multiplied: "x = x + 0.22 * attn(norm(x)); x = x + 0.25 * mlp(norm(x))",
    m.attn_only_normed: "x = x + attn(norm(x)); x = x + mlp(x)",
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_step_is_read_and_replayed(step: m.Step) -> None:
    (stage,) = read(m.stack(step), m.stream()).stages
    assert (stage.block, stage.layers, stage.proof) == (str(Formula(STEPS[step])), 2, "replayed")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [m.pre, m.post, m.normed_skip], ids=lambda step: step.__name__)
def test_norms_around_the_stack_are_told_from_those_of_its_layers(step: m.Step, before: bool, after: bool) -> None:
    reading = read(m.stack(step, before=before, after=after), m.stream())
    assert [stage.block for stage in reading.stages] == [str(Formula(STEPS[step]))]
    assert (reading.embed_norm, reading.final_norm) == (before, after)


@pytest.mark.parametrize(("centred", "kind"), [(True, "LayerNorm"), (False, "RMSNorm")])
def test_a_norm_that_is_written_out(centred: bool, kind: str) -> None:
    reading = read(m.stack(m.pre, norm=lambda: m.HandNorm(eps=1e-6, centred=centred)), m.stream())
    assert (reading.norm, reading.eps, reading.stages[0].block) == (kind, 1e-6, PRE)
    first = reading.norms[0]
    assert (first.path, first.site, first.axes, first.width) == ("layers.0.norm1", "attn.norm_in", (-1,), m.WIDTH)
    assert first.parameters[0] == "layers.0.norm1.weight"


def test_an_affine_map_without_statistics_is_no_norm() -> None:
    class Affine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(m.WIDTH)), nn.Parameter(torch.zeros(m.WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + self.bias

    reading = read(m.stack(m.post, norm=Affine), m.stream())
    assert reading.stages[0].block == "x = gain * (x + attn(x)); x = gain * (x + mlp(x))"
    assert reading.norm == "none"


def test_a_residual_that_is_added_inside_a_sublayer() -> None:
    reading = read(m.Stack([m.Residual(), m.Residual()]), m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(2, PRE)]


def test_experts_that_accumulate_are_one_sublayer() -> None:
    model = m.stack(m.pre)
    for block in model.layers:
        block.mlp = m.Experts()
    assert [stage.block for stage in read(model, m.stream()).stages] == ["x = x + attn(norm(x)); x = x + moe(norm(x))"]


def test_layers_without_modules_are_told_by_their_index() -> None:
    reading = read(m.Functional(), m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(3, PRE)]
    assert (reading.norm, reading.eps) == ("RMSNorm", 1e-5)


def test_layers_that_differ_are_stages_of_their_own() -> None:
    layers: list[nn.Module] = [m.Block(step) for step in (m.post, m.pre, m.pre)]
    assert [(stage.layers, stage.block) for stage in read(m.Stack(layers), m.stream()).stages] == [(1, POST), (2, PRE)]


def test_one_layer_that_runs_three_times() -> None:
    layer = m.Block(m.pre)
    reading = read(m.Stack([layer, layer, layer]), m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(3, PRE)]
    assert "layer-reused" in {finding.code for finding in reading.findings}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_torch_encoder_in_any_mode(norm_first: bool, train: bool) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).train(train)
    reading = read(model, m.stream())
    assert [(stage.layers, stage.block) for stage in reading.stages] == [(3, PRE if norm_first else POST)]
    assert reading.fused == (not train)


def test_torch_transformer_has_two_streams() -> None:
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    reading = read(model, m.stream(), m.stream())
    assert [(stage.where, stage.block) for stage in reading.stages] == [
        ("encoder.layers", POST),
        ("decoder.layers", "x = norm(x + attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x))"),
    ]
    assert reading.final_norms == (True, True)


@pytest.mark.parametrize("width", [1, 2])
def test_tiny_widths_are_read(width: int) -> None:
    layer = nn.TransformerEncoderLayer(width, 1, 4, batch_first=True, norm_first=True)
    reading = read(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 3, width))
    assert [stage.block for stage in reading.stages] == [PRE]


def test_a_network_without_a_stream_says_so() -> None:
    reading = read(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(2, 4))
    assert reading.stages == ()
    assert reading.to_dict()["embed_norm"] is False


def test_in_inference_mode_and_compiled() -> None:
    with torch.inference_mode():
        assert [stage.block for stage in read(m.stack(m.pre), m.stream()).stages] == [PRE]
    assert [stage.block for stage in read(torch.compile(m.stack(m.pre)), m.stream()).stages] == [PRE]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions_are_replayed(dtype: torch.dtype) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(dtype)
    (stage,) = read(model, m.stream().to(dtype)).stages
    assert (stage.block, stage.proof) == (POST, "replayed")


X_TRANSFORMERS = {
    PRE: {},
    POST: {"pre_norm": False},
    "x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))": {"sandwich_norm": True},
    "x = gain * x + attn(norm(x)); x = gain * x + mlp(norm(x))": {"scale_residual": True},
    "x = x + 0.5 * mlp(norm(x)); x = x + attn(norm(x)); x = x + 0.5 * mlp(norm(x))": {"macaron": True},
    "x = x + attn(dyt(x)); x = x + mlp(dyt(x))": {"use_dynamic_tanh": True},
}


@pytest.mark.parametrize("block", X_TRANSFORMERS)
def test_x_transformers(block: str) -> None:
    """Each sublayer is in a list of its own there, and a norm's gain is a separate product."""
    library = pytest.importorskip("x_transformers")
    model = library.Encoder(dim=32, depth=3, heads=2, attn_dim_head=16, **X_TRANSFORMERS[block])
    reading = read(model, torch.randn(2, 6, 32))
    assert [(stage.layers, stage.block, stage.proof) for stage in reading.stages] == [(3, block, "replayed")]


def test_a_module_is_given_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="A model that can be read"):
        read("gpt2", 1)


def test_a_width_of_thousands_on_the_meta_device_is_read_and_not_replayed() -> None:
    with torch.device("meta"):
        layer: Callable[[], nn.Module] = lambda: nn.TransformerEncoderLayer(8192, 64, 32768, norm_first=True)  # noqa: E731
        model = m.Stack([layer() for _ in range(8)])
    (stage,) = read(model, torch.empty(4, 2, 8192)).stages
    assert (stage.layers, stage.block, stage.proof) == (8, PRE, "not replayed")


def test_a_stack_in_bfloat16_with_statistics_in_float32_is_read() -> None:
    model = nm.build(nm.Spec(placement="post", layers=3, width=16, heads=2)).bfloat16()
    stage = read(model, torch.randn(2, 5, 16).bfloat16()).stages[0]
    assert (stage.layers, stage.block, stage.proof) == (3, "x = norm(x + attn(x)); x = norm(x + mlp(x))", "replayed")


@pytest.mark.parametrize("over", ["width", "head"])
def test_queries_normed_in_cross_attention_are_inside_it(over: str) -> None:
    block = "x = x + attn(norm(x)); x = x + cross(norm(x), qk=norm); x = x + mlp(norm(x))"
    sides = dict(layers=2, width=16, heads=2)
    model = nm.build(nm.Spec(placement=block, encoder=nm.Spec(**sides), qk_norm=over, **sides))
    reading = read(model, torch.randn(2, 5, 16), source=torch.randn(2, 4, 16))
    assert reading.stages[1].block == "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))"
    assert reading.inner == ("qk",)


def test_an_input_without_a_batch_is_read_as_with_one() -> None:
    """PyTorch's attention then lays out queries, keys and values each by itself."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    (stage,) = read(model, torch.randn(3, 8)).stages
    assert stage.block == "x = norm(x + attn(x)); x = norm(x + mlp(x))"


class Rounded(nn.Module):
    """An RMSNorm as Llama's: in single precision whatever the stream is in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_statistics_in_single_precision_are_told_and_do_not_spoil_the_proof(dtype: torch.dtype) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = Rounded(), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(self.up(self.norm(x)).relu())

    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(6))).to(dtype)
    reading = read(model, torch.randn(2, 5, 16, dtype=dtype))
    assert [(stage.layers, stage.proof, stage.block) for stage in reading.stages] == [
        (6, "replayed", "x = x + mlp(norm(x))")
    ]
    assert {norm.dtype for norm in reading.norms} == {"float32"}
