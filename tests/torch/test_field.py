"""Trouble that people met when they built stacks by hand, each held against ours."""

import math

import pytest
import torch
from torch import Tensor, nn

import normula as nm
from normula.explain import explain
from normula.formula import InitialWeights, Placement


def ln(x: Tensor) -> Tensor:
    return nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)


class Fixed(nn.Module):
    """A sublayer that is known: nothing, its input, or a constant vector."""

    def __init__(self, what: str, width: int = 16) -> None:
        super().__init__()
        self.what, self.c = what, torch.linspace(-1, 1, width)

    def forward(self, x: Tensor) -> Tensor:
        return {"zero": torch.zeros_like(x), "same": x, "constant": self.c.expand_as(x)}[self.what]


def x_of(shape: tuple[int, ...] = (2, 5, 16)) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.negative
@pytest.mark.parametrize("name", [None, "", "pre_ln ", "postt"])
def test_a_placement_is_never_guessed(name: str | None) -> None:
    with pytest.raises(ValueError, match="placement"):
        nm.Spec(placement=name)


@pytest.mark.parametrize("final", [None, "x"])
def test_pre_ln_closes_with_a_norm_and_hidden_states_are_depth_plus_one_either_way(final: str | None) -> None:
    model = nm.build(nm.Spec(placement="pre", layers=5, width=16, final=final))
    states = model.states(x_of())
    assert len(states.stream) == 6
    assert torch.equal(states.closed, states.stream[-1]) == (final == "x")
    torch.testing.assert_close(model(x_of()), states.output)


def test_pre_ln_without_its_closing_norm_is_warned_of() -> None:
    assert any("no norm closes the stack" in caution for caution in explain("pre-no-final").cautions)
    assert not explain("pre").cautions


def test_the_stream_of_pre_ln_grows_and_that_of_post_ln_does_not() -> None:
    def last(placement: str, layers: int, init: str = "xavier") -> float:
        flow = nm.flow(nm.Spec(placement=placement, layers=layers, width=32, init=init), seeds=1)
        return flow.passes[0].steps[-1].rms_after

    sizes = [last("pre", layers) for layers in (2, 12, 48)]
    assert sizes[0] < 2 < sizes[1] < sizes[2]
    assert sizes[2] > 4
    assert last("pre", 48, "scaled") < 1.1  # small branches, divided by sqrt(2L)
    assert all(abs(last("post", layers, init) - 1) < 0.01 for layers in (2, 48) for init in ("xavier", "scaled"))


@pytest.mark.parametrize(("layers", "alpha", "beta"), [(6, 1.861, 0.380), (24, 2.632, 0.269), (100, 3.761, 0.188)])
def test_deepnorms_constants(layers: int, alpha: float, beta: float) -> None:
    spec = nm.Spec(placement="deepnorm", layers=layers, width=16, init="paper")
    plain = nm.Spec(placement="deepnorm", layers=layers, width=16, init="xavier")
    scaled, xavier = (nm.build(one).state_dict() for one in (spec, plain))
    for matrix in ("attn.f.v", "attn.f.o", "mlp.f.up", "mlp.f.down"):
        ratio = scaled[f"layers.0.{matrix}.weight"] / xavier[f"layers.0.{matrix}.weight"]
        torch.testing.assert_close(ratio, torch.full_like(ratio, beta), rtol=2e-3, atol=0)
    assert torch.equal(scaled["layers.0.attn.f.q.weight"], xavier["layers.0.attn.f.q.weight"])
    assert f"{(2 * layers) ** 0.25:.3f}" == f"{alpha:.3f}"


@pytest.mark.parametrize("what", ["zero", "same", "constant"])
def test_deepnorm_scales_the_skip_and_norms_the_sum(what: str) -> None:
    spec = nm.Spec(placement="deepnorm", layers=24, width=16, sublayers=("mlp",), heads=1)
    model = nm.build(spec, modules={"mlp": lambda layer: Fixed(what)})
    x, alpha = x_of(), 48**0.25
    expected = {"zero": ln(alpha * x), "same": ln((alpha + 1) * x), "constant": ln(alpha * x + Fixed(what).c)}[what]
    torch.testing.assert_close(model.states(x).stream[1], expected, rtol=0, atol=1e-6)


def test_every_matrix_that_writes_to_the_stream_is_scaled() -> None:
    layers = 8
    state = nm.build(nm.Spec(placement="pre", layers=layers, width=64, init="scaled")).state_dict()
    writers = [name for name in state if name.endswith((".o.weight", ".down.weight"))]
    assert len(writers) == 2 * layers
    target = 0.02 / math.sqrt(2 * layers)  # 0.005
    for name in writers:
        assert state[name].std().item() == pytest.approx(target, rel=0.05), name  # 4096 or more draws each
    others = [name for name in state if name.endswith((".q.weight", ".k.weight", ".v.weight", ".up.weight"))]
    assert all(state[name].std().item() == pytest.approx(0.02, rel=0.05) for name in others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rezero_at_zero_is_the_identity_and_the_gate_is_on_the_branch(dtype: torch.dtype) -> None:
    model = nm.build(nm.Spec(placement="rezero", layers=3, width=16)).to(dtype)
    x = x_of().to(dtype)
    assert torch.equal(model.states(x).stream[-1], x)


def test_cross_attention_in_a_pre_ln_decoder_norms_its_queries_and_not_the_memory() -> None:
    encoder = nm.Spec(placement="pre", layers=2, width=16)
    spec = nm.Spec(placement="pre", layers=1, width=16, sublayers=("attn", "cross", "mlp"), encoder=encoder)
    model = nm.build(spec)
    names = set(model.state_dict())
    assert {f"layers.0.{word}.norm_in.weight" for word in ("attn", "cross", "mlp")} <= names
    assert "encoder.final.norm.weight" in names
    seen: list[Tensor] = []
    model.get_submodule("layers.0.cross.f.k").register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    source = x_of((2, 7, 16))
    model(x_of(), source=source)
    torch.testing.assert_close(seen[0], model.encoder(source))


def test_no_two_layers_start_alike() -> None:
    state = nm.build(nm.Spec(placement="post", layers=3, width=16)).state_dict()
    matrices = [tensor for name, tensor in state.items() if tensor.ndim == 2]
    for i, first in enumerate(matrices):
        assert not any(first.shape == other.shape and torch.equal(first, other) for other in matrices[i + 1 :])


@pytest.mark.parametrize(("gain", "ratio"), [("1", 1.0), ("1e-5", 1e-5), ("0", 0.0)])
def test_the_branch_of_an_output_norm_is_as_large_as_its_gain(gain: str, ratio: float) -> None:
    flow = nm.flow(nm.Spec(placement=f"x + norm(f(x), gain={gain})", layers=2, width=32), seeds=1)
    step = flow.passes[0].steps[0]
    assert step.branch_rms == pytest.approx(ratio, rel=1e-3, abs=1e-12)
    assert (step.branch_rms == 0) == (gain == "0")


@pytest.mark.contract
def test_a_constant_row_and_a_row_of_zeros_give_the_bias_and_finite_gradients() -> None:
    model = nm.build(nm.Spec(placement="norm(x + f(x))", layers=2, width=8, heads=2))
    x = torch.zeros(1, 3, 8)
    x[0, 1] = 1.0
    x.requires_grad_()
    out = model(x)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.negative
def test_a_branch_that_is_dead_for_good_is_refused() -> None:
    initial = InitialWeights(rule="xavier", factor="0", on=("o", "down"))
    placement = Placement(name="dead", formula="x + gain(0) * f(x)", initial=initial)
    with pytest.raises(ValueError, match="dead for good"):
        nm.build(nm.Spec(placement=placement, layers=1, width=8, init="paper"))


@pytest.mark.negative
def test_weights_of_another_placement_are_refused_by_site() -> None:
    pre, post = (nm.build(nm.Spec(placement=name, layers=2, width=8)) for name in ("pre", "post"))
    with pytest.raises(ValueError, match=r"norm_sum\.weight \(2 times\)") as caught:
        pre.load_state_dict(post.state_dict())
    assert isinstance(caught.value, RuntimeError)  # what torch raises
