"""A Reading is measured: on every kind of model, in both frameworks, and against our own stacks."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen
from jax import Array
from torch import Tensor, nn

import normula as nm
from normula.flax.linen import Stack as LinenStack
from normula.flax.nnx import Stack as NnxStack
from normula.flow import flow_of
from normula.read.twin import read_source
from normula.record import Pass, from_json, to_json
from normula.record.reading import Reading
from normula.torch import sources
from tests.cases import small
from tests.flow.test_read_models import PASS_NUMBERS, X, assert_same_steps, homes, near

WIDTH = 16


def ids(tokens: int = 7) -> Tensor:
    return torch.randint(3, 90, (2, tokens), generator=torch.Generator().manual_seed(0))


def of_transformers(name: str) -> Callable[[], Reading]:
    def read() -> Reading:
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        sizes = {"num_hidden_layers": 3, "hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 32}
        if name == "gpt2":
            config = transformers.GPT2Config(n_layer=3, n_embd=WIDTH, n_head=2, vocab_size=100)
            return nm.read(transformers.GPT2Model(config), ids())
        if name == "bert":
            return nm.read(transformers.BertModel(transformers.BertConfig(vocab_size=100, **sizes)), ids())
        if name == "t5":
            config = transformers.T5Config(num_layers=3, d_model=WIDTH, num_heads=2, d_kv=8, d_ff=32, vocab_size=100)
            return nm.read(transformers.T5Model(config), input_ids=ids(), decoder_input_ids=ids(5))
        config = transformers.ViTConfig(image_size=32, patch_size=8, **sizes)
        return nm.read(transformers.ViTModel(config), torch.randn(2, 3, 32, 32))

    return read


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def of_x_transformers() -> Reading:
    found = pytest.importorskip("x_transformers")
    torch.manual_seed(0)
    return nm.read(found.Encoder(dim=WIDTH, depth=3, heads=2, attn_dim_head=8), torch.randn(2, 5, WIDTH))


class Block(linen.Module):
    @linen.compact
    def __call__(self, x: Array) -> Array:
        x = x + linen.MultiHeadDotProductAttention(2)(linen.LayerNorm()(x))
        return x + linen.Dense(WIDTH)(linen.relu(linen.Dense(32)(linen.RMSNorm()(x))))


class Stack(linen.Module):
    @linen.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(3):
            x = Block()(x)
        return linen.LayerNorm()(x)


def x_of_jax() -> Array:
    return jax.random.normal(jax.random.key(0), (2, 5, WIDTH))


def of_linen() -> Reading:
    x = x_of_jax()
    return nm.read(Stack(), Stack().init(jax.random.key(1), x), x)


def of_function() -> Reading:
    """A scan over layers, with weights that the function closes over."""
    up, down = (jax.random.normal(jax.random.key(seed), (3, WIDTH, WIDTH)) / 8 for seed in (1, 2))

    def layer(x: Array, weights: tuple[Array, Array]) -> tuple[Array, None]:
        n = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x + jax.nn.gelu(n @ weights[0]) @ weights[1], None

    return nm.read(lambda x: jax.lax.scan(layer, x, (up, down))[0], x_of_jax())


MODELS: dict[str, tuple[Callable[[], Reading], int]] = {
    "gpt2": (of_transformers("gpt2"), 6),
    "bert": (of_transformers("bert"), 6),
    "t5": (of_transformers("t5"), 9),
    "vit": (of_transformers("vit"), 6),
    "nn.TransformerEncoder": (lambda: nm.read(encoder(), X), 6),
    "home-made": (lambda: nm.read(homes(), X), 6),
    "x-transformers": (of_x_transformers, 6),
    "linen": (of_linen, 6),
    "function of jax": (of_function, 3),
}
"""How each is read, and how many steps its stream has."""


@pytest.mark.property
@pytest.mark.parametrize("name", MODELS)
def test_the_stream_after_is_a_times_the_stream_before_and_the_branch(name: str) -> None:
    read, steps = MODELS[name]

    found = read().flow(seeds=1)

    one = found.passes[0]
    assert len(one.steps) == steps
    assert found.identity < 1e-5
    assert not found.void
    for step in one.steps:
        assert all(math.isfinite(value) for value in (step.ratio, step.gradient, step.skip_gradient))
        assert step.gradient > 0
    assert any(weight.gradient > 0 for weight in one.weights)


# ---- JAX against our own stacks, whose measurements another code takes


def total(one: Pass, kind: str) -> float:
    return math.hypot(*(getattr(weight, kind) for weight in one.weights))


@pytest.mark.parametrize("name", ["pre", "post", "peri", "deepnorm"])
def test_a_stack_of_jax_that_is_read_flows_as_it_does_when_it_is_known(name: str) -> None:
    spec = small(name, layers=3)
    model = NnxStack(spec)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, spec.width)), jnp.float32)
    known = nm.flow(model, inputs=x, seeds=2)

    found = nm.flow(nm.read(model, x), seeds=2)

    assert found.identity < 1e-5
    for ours, theirs in zip(found.passes, known.passes, strict=True):
        assert_same_steps(ours, theirs)
        for number in PASS_NUMBERS:
            assert getattr(ours, number) == near(getattr(theirs, number)), number
        for kind in ("norm", "gradient"):  # one of them stacks the weights of its layers
            assert total(ours, kind) == near(total(theirs, kind))


def test_a_loss_in_jax_gives_the_gradients_of_jax_grad() -> None:
    x = x_of_jax()
    model, variables = Stack(), Stack().init(jax.random.key(1), x)

    def loss(output: Array) -> Array:
        return jnp.square(output - 1).mean()

    value, gradients = jax.value_and_grad(lambda v: loss(model.apply(v, x)))(variables)
    found = nm.read(model, variables, x).flow(loss=loss)

    assert found.passes[0].loss == near(float(value))
    expected = {
        "/".join(key.key for key in path[1:]): float(jnp.linalg.norm(one.ravel()))
        for path, one in jax.tree_util.tree_flatten_with_path(gradients)[0]
    }
    assert {weight.name: weight.gradient for weight in found.passes[0].weights} == pytest.approx(
        expected, rel=1e-4, abs=1e-6
    )


def test_a_linen_stack_with_a_scan_over_its_layers_is_measured_too() -> None:
    spec = small("pre", layers=3)
    stack = LinenStack(spec, unroll=False)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, spec.width)), jnp.float32)
    assert len(nm.read(stack, stack.start(), x).flow(seeds=1).passes[0].steps) == 6


@jax.custom_vjp
def backwards(x: Array) -> Array:
    return x


backwards.defvjp(lambda x: (x, None), lambda _, gradient: (-3 * gradient,))


@pytest.mark.negative
def test_rules_of_ones_own_for_gradients_are_told() -> None:
    def kinds(model: Callable[[Array], Array]) -> list[str]:
        return [finding.kind for finding in nm.read(model, x_of_jax()).flow(seeds=1).findings]

    weight = jax.random.normal(jax.random.key(1), (WIDTH, WIDTH))

    def layer(x: Array) -> Array:
        return x + jax.nn.relu(x @ weight) @ weight.T

    assert "own-gradient" in kinds(lambda x: layer(backwards(layer(x))))
    assert "own-gradient" not in kinds(lambda x: layer(layer(x)))


# ---- what a reading holds


def test_a_reading_is_measured_at_the_weights_and_on_the_inputs_that_are_asked_for() -> None:
    model = homes()
    reading = nm.read(model, X)
    before = reading.flow(seeds=1)
    assert before.passes == nm.flow(model, X, seeds=1).passes
    assert before.passes == nm.flow(reading, seeds=1).passes

    assert reading.flow(2 * X, seeds=1).passes == nm.flow(model, 2 * X, seeds=1).passes
    assert reading.flow(inputs={"x": 2 * X}, seeds=1).passes == reading.flow(2 * X, seeds=1).passes

    with torch.no_grad():
        model.last.weight.mul_(2)
    assert reading.flow(seeds=1).passes[0].input_gradient == near(2 * before.passes[0].input_gradient)


def test_a_reading_of_two_streams_measures_the_one_that_is_asked_for() -> None:
    torch.manual_seed(0)
    reading = nm.read(nn.Transformer(8, 2, 2, 3, 16, batch_first=True), X, X)
    assert len(reading.flow(seeds=1).passes[0].steps) == 9
    assert len(reading.flow(seeds=1, where="encoder").passes[0].steps) == 4


@pytest.mark.negative
def test_a_reading_from_a_file_or_another_process_says_that_it_has_no_model() -> None:
    reading = nm.read(encoder(), X)
    for copy in (from_json(Reading, to_json(reading)), pickle.loads(pickle.dumps(reading))):
        assert copy == reading
        assert repr(copy) == repr(reading)
        with pytest.raises(ValueError, match=r"Read the model again, or measure it: nm.flow\(model, x\)"):
            copy.flow()


@pytest.mark.negative
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 3}, "need a spec"),
        ({"framework": "torch"}, "leave out framework"),
        ({"probe": "loss"}, "give loss="),
        ({"where": "decoder"}, "layers.0"),
    ],
)
def test_what_a_reading_cannot_be_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nm.read(encoder(), X).flow(**options)


@pytest.mark.negative
def test_a_model_on_the_meta_device_is_read_and_not_measured() -> None:
    reading = nm.read(encoder().to("meta"), X)
    assert reading.stages[0].proof == "not replayed"
    with pytest.raises(ValueError, match="meta device"):
        reading.flow()


def test_arrays_of_jax_without_values_are_read_and_not_measured() -> None:
    x = x_of_jax()
    shapes = jax.eval_shape(Stack().init, jax.random.key(1), x)
    reading = nm.read(Stack(), shapes, jax.ShapeDtypeStruct(x.shape, x.dtype))
    assert reading.stages[0].layers == 3
    with pytest.raises(ValueError, match="shape only"):
        reading.flow()


def test_a_model_without_weights_is_measured_in_its_twin_and_says_so() -> None:
    pytest.importorskip("transformers")
    reading = read_source(sources.source("hf:gpt2"))
    assert reading.stages[0].layers == 12

    found = reading.flow(seeds=1)

    assert found.identity < 1e-5
    assert "twin" in [finding.kind for finding in found.findings]
    with pytest.raises(ValueError, match="inputs of its own"):
        reading.flow(ids())


def test_a_program_that_was_exported_is_measured() -> None:
    model = encoder().eval()
    program = torch.export.export(model, (X,))
    known = flow_of(model, (X,), {}, seeds=(0,))
    found = nm.read(program, X).flow(seeds=1)
    assert_same_steps(found.passes[0], known.passes[0])
