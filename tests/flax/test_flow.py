"""What is measured in JAX is what is measured in PyTorch, number by number."""

import math

import numpy as np
import pytest

import normula as nm
from normula.compare import compare
from normula.data import task
from normula.flax import build, linen, nnx
from normula.flow import flow, popular
from normula.record import Flow, Pass
from normula.spec import Recipe, Spec
from tests.cases import BLOCKS

pytestmark = pytest.mark.contract

RELATIVE = 1e-4
"""Two float32 programs, forward and back, of a dozen layers."""

PLACED = {
    "pre": {},
    "post": {},
    "deepnorm": {"init": "paper"},
    "peri": {"norm": "rmsnorm"},
    "residual": {},
    "mix-ln": {"layers": 8},
    "gpas": {},
    "ngpt": {},
    "prores": {},
    "parallel": {"causal": True},
    BLOCKS[0]: {},
}


def alike(one: float, other: float, size: float = 0.0) -> bool:
    return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= RELATIVE * max(abs(other), size) + 1e-12


def assert_alike(jax: Pass, torch: Pass) -> None:
    for name in ("loss", "input_gradient", "skip_gradient", "output_gradient"):
        assert alike(getattr(jax, name), getattr(torch, name)), name
    assert alike(jax.norm_passes, torch.norm_passes, size=1e-2)
    for one, other in zip(jax.steps, torch.steps, strict=True):
        assert (one.layer, one.name) == (other.layer, other.name)
        for name in ("rms_before", "rms_after", "branch_rms", "skip_rms", "gradient", "skip_gradient", "largest"):
            assert alike(getattr(one, name), getattr(other, name)), (one.layer, one.name, name)
        for name in ("token_cosine", "step_cosine"):
            assert alike(getattr(one, name), getattr(other, name), size=1.0), (one.layer, one.name, name)
    largest = max(weight.gradient for weight in torch.weights)
    found = {weight.name: weight for weight in torch.weights}
    assert found.keys() == {weight.name for weight in jax.weights}
    for weight in jax.weights:
        assert alike(weight.norm, found[weight.name].norm), weight.name
        assert alike(weight.gradient, found[weight.name].gradient, size=largest), weight.name


@pytest.mark.parametrize("name", PLACED)
def test_a_flow_is_the_same_in_both_frameworks(name: str) -> None:
    fields = {"layers": 3, "width": 16, "heads": 2} | PLACED[name]
    one, other = (
        flow(Spec(placement=name, **fields), seeds=[4, 5], tokens=6, framework=framework)
        for framework in ("flax", "torch")
    )
    for jax, torch in zip(one.passes, other.passes, strict=True):
        assert_alike(jax, torch)
    assert [f.kind for f in one.findings] == [f.kind for f in other.findings]
    assert set(one.environment.versions) == {"normula", "numpy", "jax", "flax"}


@pytest.mark.parametrize(("probe", "fields"), [("sum", {}), ("random", {"classes": 3}), ("loss", {})])
def test_every_probe_and_head(probe: str, fields: dict[str, int]) -> None:
    data = {} if probe != "loss" else {"task": "copy"}
    spec = Spec(placement="pre", layers=2, width=16, heads=2, **fields)
    one, other = (
        flow(spec, seeds=1, tokens=6, probe=probe, framework=framework, **data) for framework in ("flax", "torch")
    )
    if probe == "sum":  # rounding errors are no measurement
        assert one.void
        assert other.void
        return
    assert_alike(one.passes[0], other.passes[0])


def test_many_seeds_side_by_side_are_the_seeds_one_by_one() -> None:
    spec = Spec(placement="post", layers=2, width=16, heads=2)
    together = flow(spec, seeds=4, framework="flax").passes
    for seed in range(4):
        assert_alike(together[seed], flow(spec, seeds=[seed], framework="flax").passes[0])


def test_depths_of_the_same_kind_share_one_program() -> None:
    from normula.flax.measure import _quick

    spec = {"placement": "x + 0.5 * f(norm(x))", "width": 16, "heads": 2}
    flow(Spec(layers=2, **spec), seeds=2, framework="flax")
    before = _quick._cache_size()
    for layers in (1, 5, 16):
        flow(Spec(layers=layers, **spec), seeds=2, framework="flax")
    assert _quick._cache_size() == before


@pytest.mark.parametrize("flavour", ["linen", "nnx"])
def test_a_module_is_measured_with_the_weights_that_it_has(flavour: str) -> None:
    spec = Spec(placement="pre", layers=2, width=16, heads=2, seed=3)
    module = nnx.Stack(spec) if flavour == "nnx" else build(spec).bind(build(spec).start())
    found = nm.flow(module, seeds=[3])
    assert_alike(found.passes[0], nm.flow(spec, seeds=[3]).passes[0])


@pytest.mark.negative
def test_a_linen_module_without_its_variables_is_refused() -> None:
    with pytest.raises(ValueError, match=r"module.bind\(variables\)"):
        flow(linen.Stack(Spec(layers=2, width=16)))


def test_training_is_pytorchs_step_by_step() -> None:
    from normula.framework import room

    spec = Spec(placement="pre", layers=2, width=16, heads=2, vocab=256, context=16, causal=True)
    data = task("text", None, 16)
    recipe = Recipe(steps=8, lr=1e-2, warmup=3, batch=4, seed=1)
    one, other = (room(framework).train(spec, data, recipe) for framework in ("flax", "torch"))
    np.testing.assert_allclose(one.curve, other.curve, rtol=1e-4)
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-4)


def test_a_run_that_diverges_ends_with_what_the_loss_became() -> None:
    from normula.framework import room

    spec = Spec(placement="none", layers=6, width=16, heads=2, vocab=256, context=16, causal=True)
    recipe = Recipe(steps=30, lr=1e9, batch=4, optimiser="sgd")
    found = room("flax").train(spec, task("text", None, 16), recipe)
    assert len(found.curve) < 30
    assert not math.isfinite(found.curve[-1])
    assert math.isnan(found.loss)


def test_the_flow_over_training_steps() -> None:
    spec = Spec(placement="post", layers=2, width=16, heads=2)
    one, other = (
        flow(spec, seeds=1, probe="loss", task="copy", steps=[0, 2], framework=framework)
        for framework in ("flax", "torch")
    )
    assert [p.training_step for p in one.passes] == [0, 2]
    assert_alike(one.passes[0], other.passes[0])
    assert one.passes[1].loss == pytest.approx(other.passes[1].loss, rel=1e-3)


def test_the_popular_figure_comes_out_to_the_digit_without_pytorchs_generator() -> None:
    (pre,) = [one for one in popular(nm.placement("pre"), [20], framework="flax") if one.probe == "sum"]
    (post,) = [one for one in popular(nm.placement("post"), [20], framework="flax") if one.probe == "sum"]
    assert f"{pre.input_gradient:.4f}" == "35.7888"
    assert f"{post.input_gradient:.4f}" == "0.0000"
    assert post.norm_passes < 1e-5


def test_the_main_job_in_jax() -> None:
    sizes = dict(layers=2, width=16, heads=2, context=16, batch=4, steps=3, warmup=(0,), lr=(1e-3,), init=("xavier",))
    one, other = (
        compare(("pre",), **sizes, seeds=1, depths=(2,), flow_width=16, flow_steps=1, framework=framework)
        for framework in ("flax", "torch")
    )
    for jax, torch in zip(one.trials, other.trials, strict=True):
        assert jax.curve == pytest.approx(torch.curve, rel=1e-4)
    for a, b in zip(one.depths, other.depths, strict=True):
        assert a.input_gradient == pytest.approx(b.input_gradient, rel=1e-4)
    assert one.settings["framework"] == "flax"
    assert isinstance(one.flows[0], Flow)


@pytest.mark.parametrize("name", ["pre-direct-path", "post-skip-modulated"])
def test_claims_in_jax(name: str) -> None:
    (found,) = nm.claims([name], framework="flax")
    assert not found.changed
