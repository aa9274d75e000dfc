"""From the same weights the same numbers: PyTorch, scan and loop, Linen and NNX, remat, jit and vmap."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx as flax_nnx

from normula import oracle
from normula.catalog import placements
from normula.flax import apply, linen, network, nnx, to_arrays, to_tree
from normula.formula import Placement
from normula.oracle.norms import Array
from normula.spec import Spec
from normula.torch import build
from tests.cases import OTHERS, PADDED, THREE_PARTS, as_small, random_inputs, random_weights, small, title
from tests.flax.models import arguments_of, assert_same, outcome, params_of
from tests.near import FLOAT32, assert_gradients_near, assert_near
from tests.torch.models import gradients

DEEP = 1e-5
"""Two float32 implementations of twelve layers: some hundred roundings of 2^-24, forward, and as many back."""

UNNORMED = ("res-post", "none", "t-fixup-encoder", "t-fixup-decoder")
"""Nothing normalises what enters their attention, and its logits are quadratic in a stream that grows. With Xavier
weights float32's gradients are up to 1e-5 (res-post) and 1e-2 (none, in PyTorch) from the truth; these get small ones.
"""

LANGUAGE: dict[str, Any] = dict(vocab=7, causal=True)
STACKS: dict[str, Spec] = {
    "pre": small("pre", layers=4, **LANGUAGE),
    "post": small("post", layers=4),
    "constants of the depth": small("lns", layers=4),
    "two streams": small(OTHERS[0], layers=4),
    "a training step": small("prores", layers=4),
    "three groups": small(THREE_PARTS, layers=8),
    "an operator": small("mhc", layers=2),
    "attention over depth": small("attention-residuals", layers=3),
    "a classifier of values": small("pre", layers=2, features=3, classes=4),
    "experts, gated, rotary": small(
        "peri", sublayers=("attn", "moe"), experts=3, gated=True, positions="rotary", activation="silu"
    ),
    "encoder and decoder": small("post", sublayers=("attn", "cross", "mlp"), encoder=small("pre", vocab=9), **LANGUAGE),
}


def near_start(spec: Spec) -> dict[str, Array]:
    """Matrices at their start, gains and biases random: twelve layers of larger ones multiply every rounding."""
    start, random = oracle.weights(spec), random_weights(spec)
    return {name: start[name] if start[name].ndim > 1 else random[name] for name in start}


@pytest.mark.oracle
@pytest.mark.parametrize("placement", placements(), ids=title)
def test_pytorch_at_depth_12(placement: Placement) -> None:
    init = "normal" if placement.name in UNNORMED else "xavier"
    spec = as_small(placement, layers=12, width=16, init=init, **LANGUAGE)
    arguments, direction = arguments_of(spec), np.random.default_rng(3).standard_normal((2, 5, 7))
    model = build(spec)
    model.load_state_dict({name: torch.tensor(array) for name, array in near_start(spec).items()})
    expected = model(**{name: torch.tensor(_float32(value)) for name, value in arguments.items()})
    torch.autograd.backward((expected * torch.tensor(direction, dtype=torch.float32)).sum())

    arrays = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    output, found, _ = outcome(spec, arrays, arguments, direction)

    assert_near(output, expected.detach().numpy(), DEEP, "output")
    assert_gradients_near(found, {name: gradient.numpy() for name, gradient in gradients(model).items()}, DEEP)


@pytest.mark.parametrize("placement", ["pre", "mix-ln", "mhc", "normformer"])
def test_weights_go_to_a_tree_and_back(placement: str) -> None:
    spec = small(placement, **LANGUAGE)
    arrays = {name: tensor.numpy() for name, tensor in build(spec).state_dict().items()}
    back = to_arrays(network(spec), to_tree(network(spec), arrays))
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def _float32(value: Any) -> Any:
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype == np.float64 else value


@pytest.mark.parametrize("stack", STACKS)
def test_one_layer_after_another_is_the_scan(stack: str) -> None:
    """To rounding: what a loop's body is fused to, and in which order gradients are added up, is the compiler's."""
    spec = STACKS[stack]
    arrays, arguments = random_weights(spec), arguments_of(spec)
    scanned, expected, _ = outcome(spec, arrays, arguments, training_step=1500)
    unrolled, found, _ = outcome(spec, arrays, arguments, training_step=1500, unroll=True)
    assert_near(unrolled, scanned, FLOAT32, "output")
    assert_gradients_near(found, expected, FLOAT32)


@pytest.mark.parametrize("stack", STACKS)
def test_one_layer_after_another_is_the_scan_in_float64(stack: str) -> None:
    spec = STACKS[stack]
    arrays, arguments = random_weights(spec), arguments_of(spec)
    with jax.enable_x64(True):
        scanned, expected, _ = outcome(spec, arrays, arguments, dtype=jnp.float64, training_step=1500)
        unrolled, found, _ = outcome(spec, arrays, arguments, dtype=jnp.float64, training_step=1500, unroll=True)
    assert_near(unrolled, scanned, 1e-13, "output")
    assert_gradients_near(found, expected, 1e-13)


@pytest.mark.parametrize("stack", STACKS)
def test_linen_is_nnx_bit_for_bit(stack: str) -> None:
    spec = STACKS[stack]
    params, arguments = params_of(spec), _typed(spec)
    other = nnx.Stack(spec)
    other.load(params)

    def loss(params: Any) -> jax.Array:
        return jnp.square(linen.Stack(spec).apply({"params": params}, **arguments)).sum()

    def loss_nnx(model: nnx.Stack) -> jax.Array:
        return jnp.square(model(**arguments)).sum()

    expected = jax.jit(jax.value_and_grad(loss))(params)
    value, gradient = flax_nnx.jit(flax_nnx.value_and_grad(loss_nnx))(other)
    assert_same(value, expected[0])
    own = flax_nnx.to_pure_dict(gradient)
    assert_same(own, expected[1])
    assert_same(other(**arguments), linen.Stack(spec).apply({"params": params}, **arguments))


def _typed(spec: Spec) -> dict[str, Any]:
    return {name: jnp.asarray(_float32(value)) for name, value in arguments_of(spec).items()}


@pytest.mark.parametrize("unroll", [False, True], ids=["scan", "unrolled"])
@pytest.mark.parametrize("remat", ["full", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"])
def test_computing_again_changes_no_gradient(remat: str, unroll: bool) -> None:
    """The same operations, fused in other ways."""
    spec = small("peri", layers=3, **LANGUAGE)
    arrays, arguments = random_weights(spec), arguments_of(spec)
    output, expected, _ = outcome(spec, arrays, arguments, unroll=unroll)
    again, found, _ = outcome(spec, arrays, arguments, unroll=unroll, remat=remat)
    assert_near(again, output, FLOAT32)
    assert_gradients_near(found, expected, FLOAT32)


def test_computing_again_drops_the_same() -> None:
    spec = small("pre", layers=3, dropout=0.3, **LANGUAGE)
    arrays, arguments = random_weights(spec), arguments_of(spec)
    settings = dict(deterministic=False, key=jax.random.key(0))
    output, expected, _ = outcome(spec, arrays, arguments, **settings)
    for other in ({"remat": "full"}, {"unroll": True}):
        again, found, _ = outcome(spec, arrays, arguments, **settings, **other)
        assert_near(again, output, FLOAT32)
        assert_gradients_near(found, expected, FLOAT32)


@pytest.mark.parametrize("placement", ["pre", "post", "mix-ln", "attention-residuals"])
def test_a_batch_of_parameters(placement: str) -> None:
    """Vectorised over three seeds, the gradient too."""
    spec = small(placement, **LANGUAGE)
    net, x = network(spec), jnp.asarray(random_inputs(spec))
    trees = [to_tree(net, {k: _float32(v) for k, v in random_weights(spec, seed).items()}) for seed in range(3)]

    def loss(params: Any) -> jax.Array:
        return jnp.square(apply(net, params, x, jnp.asarray(PADDED))).sum()

    one = jax.jit(jax.value_and_grad(loss))
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(loss)))(jax.tree.map(lambda *a: jnp.stack(a), *trees))
    for i, tree in enumerate(trees):
        value, gradient = one(tree)
        assert_near(values[i], value, FLOAT32)
        own = to_arrays(net, jax.tree.map(lambda a, i=i: a[i], gradients))
        assert_gradients_near(own, to_arrays(net, gradient), 10 * FLOAT32)  # sums in another order


def test_a_gradient_for_each_sample() -> None:
    spec = small("pre", **LANGUAGE)
    net, params, x = network(spec), params_of(spec), jnp.asarray(random_inputs(spec))

    def loss(params: Any, one: jax.Array) -> jax.Array:
        return jnp.square(apply(net, params, one[None])).sum()

    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, x)
    for sample, one in enumerate(x):
        own = to_arrays(net, jax.tree.map(lambda a, i=sample: a[i], each))
        assert_gradients_near(own, to_arrays(net, jax.jit(jax.grad(loss))(params, one)), 10 * FLOAT32)


def test_a_directional_derivative_and_a_second_one() -> None:
    """By forward mode and by reverse mode: (J t) d = t (J' d)."""
    spec = small("pre")
    net, params = network(spec), params_of(spec)
    x, along, direction = (jnp.asarray(_float32(random_inputs(spec, seed=seed))) for seed in (1, 2, 3))

    def f(x: jax.Array) -> jax.Array:
        return apply(net, params, x)

    _, forward = jax.jvp(f, (x,), (along,))
    _, pull = jax.vjp(f, x)
    products = forward * direction
    assert abs(products.sum() - (along * pull(direction)[0]).sum()) <= 1e-5 * np.abs(products).sum()

    def size(x: jax.Array) -> jax.Array:
        return jnp.square(jax.grad(lambda x: (f(x) * direction).sum())(x)).sum()

    second = jax.jit(jax.grad(size))(x)
    assert np.isfinite(second).all()
    assert np.any(second)
