"""Models of JAX are read from their jaxpr: every placement, every kind of module, every way of repeating a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax import Array

import normula as nm
from normula.flax import capture, values
from normula.flax.nnx import Stack as NnxStack
from normula.read import read
from normula.record.program import Program
from normula.record.reading import Reading

WIDTH, HEADS, HIDDEN, LAYERS = 8, 2, 12, 3

PRE = "x = x + attn(norm(x)); x = x + mlp(norm(x))"
POST = "x = norm(x + attn(x)); x = norm(x + mlp(x))"


def stream(tokens: int = 5, width: int = WIDTH, seed: int = 1) -> Array:
    return jax.random.normal(jax.random.key(seed), (2, tokens, width))


def blocks(reading: Reading) -> list[str]:
    """What each layer does, for layers that were all proved."""
    assert {stage.proof for stage in reading.stages} == {"replayed"}, [stage.seen for stage in reading.stages]
    return [stage.block for stage in reading.stages for _ in range(stage.layers)]


def norm_names(reading: Reading) -> list[str]:
    return [name for norm in reading.norms for name in norm.parameters]


# ---- our own stacks


def test_the_groups_of_a_stack_are_read_apart() -> None:
    spec = nm.Spec(placement="mix-ln", layers=4, width=WIDTH, heads=HEADS, hidden=HIDDEN)
    assert blocks(read(NnxStack(spec), stream())) == [POST, PRE, PRE, PRE]


@pytest.mark.parametrize(
    "settings",
    [
        {"vocab": 11, "causal": True, "positions": "rotary", "norm": "rmsnorm", "activation": "silu", "gated": True},
        {"vocab": 11, "positions": "relative", "kv_heads": 1},
        {"norm": "l2norm"},
        {"variance": "one-pass", "activation": "gelu_tanh"},
    ],
    ids=["llama", "relative", "l2norm", "one-pass"],
)
def test_settings_do_not_change_the_formula(settings: dict[str, Any]) -> None:
    spec = nm.Spec(placement="pre", layers=2, width=WIDTH, heads=HEADS, hidden=HIDDEN, **settings)
    ids = jnp.arange(10).reshape(2, 5)
    mask = jnp.arange(5) < jnp.array([[5], [3]])
    reading = read(NnxStack(spec), ids, mask) if spec.vocab else read(NnxStack(spec), stream())
    assert (blocks(reading), reading.final_norm) == ([PRE] * 2, True)


def test_an_encoder_and_a_decoder_are_two_streams() -> None:
    sizes: dict[str, Any] = {"layers": 2, "width": WIDTH, "heads": HEADS, "hidden": HIDDEN}
    spec = nm.Spec(
        placement="post", sublayers=("attn", "cross", "mlp"), encoder=nm.Spec(placement="pre", **sizes), **sizes
    )
    reading = read(NnxStack(spec), stream(), source=stream(seed=2, tokens=4))
    assert blocks(reading) == [PRE] * 2 + ["x = norm(x + attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x))"] * 2


# ---- Linen


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(HIDDEN)(x)))


class PreBlock(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x + nn.MultiHeadDotProductAttention(HEADS)(nn.LayerNorm()(x))
        return x + Mlp()(nn.RMSNorm()(x))


class PostBlock(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        mask = nn.make_causal_mask(x[..., 0])
        x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(HEADS)(x, mask=mask))
        return nn.LayerNorm()(x + nn.Dropout(0.1, deterministic=True)(Mlp()(x)))


class LinenModel(nn.Module):
    block: Callable[..., nn.Module]
    final: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(LAYERS):
            x = self.block()(x)
        return nn.LayerNorm()(x) if self.final else x


class Step(nn.Module):
    @nn.compact
    def __call__(self, x: Array, _: None) -> tuple[Array, None]:
        return PreBlock(name="inner")(x), None


class LinenScan(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        step = nn.scan(nn.remat(Step), variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS)
        return nn.LayerNorm()(step(name="layers")(x, None)[0])


def test_linen_is_read_bound_and_unbound() -> None:
    module = LinenModel(PreBlock, final=True)
    variables = module.init(jax.random.key(0), stream())
    reading = read(module, variables, stream())
    assert (blocks(reading), reading.final_norm) == ([PRE] * LAYERS, True)
    assert read(module.bind(variables), stream()) == reading
    assert blocks(read(module.apply, variables, stream())) == [PRE] * LAYERS


def test_linen_says_where() -> None:
    module = LinenModel(PostBlock)
    reading = read(module, module.init(jax.random.key(0), stream()), stream())
    assert blocks(reading) == [POST] * LAYERS
    assert reading.norms[0].path == "PostBlock_0.LayerNorm_0"
    assert reading.norms[0].parameters == ("PostBlock_0/LayerNorm_0/scale", "PostBlock_0/LayerNorm_0/bias")
    assert [one.path for one in reading.sublayers[:2]] == [
        "PostBlock_0.MultiHeadDotProductAttention_0",
        "PostBlock_0.Mlp_0",
    ]


def test_a_linen_scan_with_checkpoints_is_layers() -> None:
    module = LinenScan()
    reading = read(module, module.init(jax.random.key(0), stream()), stream())
    assert (blocks(reading), reading.final_norm) == ([PRE] * LAYERS, True)
    assert norm_names(reading)[:2] == ["layers/inner/LayerNorm_0/scale[0]", "layers/inner/LayerNorm_0/bias[0]"]


def test_a_linen_module_without_variables_is_refused() -> None:
    with pytest.raises(ValueError, match="with its variables"):
        read(LinenModel(PreBlock), stream())


def test_batch_norm_is_no_norm_of_a_token() -> None:
    class Residual(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            for _ in range(2):
                y = nn.relu(nn.BatchNorm(use_running_average=True)(x))
                y = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3))(y)))
                x = x + nn.Conv(8, (3, 3))(y)
            return x

    image = jax.random.normal(jax.random.key(0), (1, 6, 6, 8))
    reading = read(Residual(), Residual().init(jax.random.key(1), image), image)
    assert (blocks(reading), reading.inner) == (["x = x + conv(x)"] * 2, ("BatchNorm",))


# ---- NNX


class NnxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm1, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = x + self.dropout(self.attn(self.norm1(x)))
        return x + self.dropout(self.down(nnx.relu(self.up(self.norm2(x)))))


class NnxModel(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(LAYERS)])
        self.final = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.unused = nnx.LayerNorm(WIDTH, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for block in self.blocks:
            x = nnx.remat(lambda block, x: block(x))(block, x)
        return self.final(x)


class NnxScan(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        made = nnx.vmap(NnxBlock, in_axes=(0,), out_axes=0)
        self.blocks = nnx.split_rngs(splits=LAYERS)(made)(rngs)

    def __call__(self, x: Array) -> Array:
        step = nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        result: Array = step(x, self.blocks)
        return result


def test_nnx_is_read_and_nothing_changes() -> None:
    model = NnxModel(nnx.Rngs(0))
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.RngKey))))
    reading = read(model, stream())
    after = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.RngKey))))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert (blocks(reading), reading.final_norm) == ([PRE] * LAYERS, True)
    assert reading.norms[0].path == "blocks.0.norm1"
    assert not model.blocks[0].dropout.deterministic
    assert [one.code for one in reading.findings] == ["norm-unused"]


def test_an_nnx_scan_is_layers() -> None:
    reading = read(NnxScan(nnx.Rngs(0)), stream())
    assert blocks(reading) == [PRE] * LAYERS
    assert reading.norms[0].parameters == ("blocks/norm1/scale[0]", "blocks/norm1/bias[0]")


# ---- Equinox


def test_equinox_is_read() -> None:
    eqx = pytest.importorskip("equinox")

    class Block(eqx.Module):  # type: ignore[misc, name-defined]
        norm1: Any
        norm2: Any
        attn: Any
        up: Any
        down: Any
        dropout: Any

        def __init__(self, key: Array) -> None:
            self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.RMSNorm(WIDTH)
            self.attn = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=key)
            self.up, self.down = eqx.nn.Linear(WIDTH, HIDDEN, key=key), eqx.nn.Linear(HIDDEN, WIDTH, key=key)
            self.dropout = eqx.nn.Dropout(0.5)

        def __call__(self, x: Array) -> Array:
            h = jax.vmap(self.norm1)(x)
            x = x + self.dropout(self.attn(h, h, h))
            return x + jax.vmap(lambda one: self.down(jax.nn.gelu(self.up(self.norm2(one)))))(x)

    class Model(eqx.Module):  # type: ignore[misc, name-defined]
        blocks: list[Any]
        final: Any

        def __init__(self, key: Array) -> None:
            self.blocks = [Block(one) for one in jax.random.split(key, LAYERS)]
            self.final = eqx.nn.LayerNorm(WIDTH)

        def __call__(self, x: Array) -> Array:
            for block in self.blocks:
                x = block(x)
            return jax.vmap(self.final)(x)

    model = Model(jax.random.key(0))
    reading = read(model, stream()[0])
    assert (blocks(reading), reading.final_norm) == ([PRE] * LAYERS, True)
    assert (reading.norms[0].path, reading.norms[0].parameters[0]) == ("blocks.0.norm1", "blocks/0/norm1/weight")
    assert model.blocks[0].dropout.inference is False
    assert blocks(read(jax.vmap(eqx.nn.inference_mode(model)), stream())) == [PRE] * LAYERS


# ---- functions

Params = dict[str, Any]


def params(seed: int = 0) -> Params:
    keys = iter(jax.random.split(jax.random.key(seed), 6))

    def matrix(*shape: int) -> Array:
        return jax.random.normal(next(keys), shape) / 3

    norm = {"gain": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}
    attn = {name: matrix(WIDTH, WIDTH) for name in "qkvo"}
    return {"norm1": norm, "norm2": norm, "attn": attn, "up": matrix(WIDTH, HIDDEN), "down": matrix(HIDDEN, WIDTH)}


def layernorm(p: Params, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["gain"] + p["bias"]


def turned(x: Array) -> Array:
    """Rotary positions."""
    angle = jnp.arange(x.shape[1])[:, None, None] * jnp.ones(x.shape[-1])
    first, second = jnp.split(x, 2, axis=-1)
    return x * jnp.cos(angle) + jnp.concatenate([-second, first], -1) * jnp.sin(angle)


def attention(p: Params, x: Array) -> Array:
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name].reshape(WIDTH, HEADS, -1)) for name in "qkv")
    scores = jnp.einsum("bthk,bshk->bhts", turned(q), turned(k))
    seen = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    return jnp.einsum("bhts,bshk->bthk", shares, v).reshape(x.shape) @ p["o"]


def mlp(p: Params, x: Array) -> Array:
    h = x @ p["up"]
    return 0.5 * h * (1 + jnp.tanh(0.7978845608 * (h + 0.044715 * h**3))) @ p["down"]


def post(p: Params, x: Array) -> Array:
    x = layernorm(p["norm1"], x + attention(p["attn"], x))
    return layernorm(p["norm2"], x + mlp(p, x))


def model(ps: list[Params], x: Array) -> Array:
    for p in ps:
        x = post(p, x)
    return x


EACH = [params(seed) for seed in range(LAYERS)]
STACKED = {"layers": jax.tree.map(lambda *arrays: jnp.stack(arrays), *EACH)}


def layer(ps: Params, index: Any) -> Params:
    found: Params = jax.tree.map(lambda array: array[index], ps["layers"])
    return found


def scanned(ps: Params, x: Array) -> Array:
    return jax.lax.scan(jax.checkpoint(lambda x, p: (post(p, x), None)), x, ps["layers"])[0]


def reversed_scan(ps: Params, x: Array) -> Array:
    return jax.lax.scan(lambda x, p: (post(p, x), x), x, ps["layers"], reverse=True)[0]


def looped(ps: Params, x: Array) -> Array:
    return jax.lax.fori_loop(0, LAYERS, lambda index, x: post(layer(ps, index), x), x)


def conditional(ps: Params, x: Array) -> Array:
    return jax.lax.while_loop(
        lambda state: state[0] < LAYERS,
        lambda state: (
            state[0] + 1,
            jax.lax.cond(state[1].sum() > -1e9, post, lambda p, x: x, layer(ps, state[0]), state[1]),
        ),
        (0, x),
    )[1]


def indexed(ps: Params, x: Array) -> Array:
    return model([layer(ps, index) for index in range(LAYERS)], x)


def half(ps: Params, x: Array) -> Array:
    """Layers whose weights are cast before they are scanned over."""
    return scanned(jax.tree.map(lambda array: array.astype(jnp.bfloat16).astype(jnp.float32), ps), x)


@pytest.mark.parametrize("function", [model, jax.jit(model)], ids=["plain", "jit"])
def test_a_function_of_a_list_is_read(function: Callable[..., Array]) -> None:
    reading = read(function, EACH, stream())
    assert blocks(reading) == [POST] * LAYERS
    assert reading.norms[0].parameters == ("0/norm1/gain", "0/norm1/bias")
    assert [stage.names for stage in reading.stages] == [("post",)]


@pytest.mark.parametrize("function", [scanned, reversed_scan, looped, conditional, indexed, half])
def test_a_function_of_stacked_layers_is_read(function: Callable[..., Array]) -> None:
    reading = read(function, STACKED, stream())
    assert blocks(reading) == [POST] * LAYERS
    assert {name.split("[")[0] for name in norm_names(reading)} == {
        f"layers/{norm}/{part}" for norm in ("norm1", "norm2") for part in ("gain", "bias")
    }
    assert {norm.path.split(".")[1] for norm in reading.norms} == {"0", "1", "2"}


def test_weights_that_a_function_closes_over_are_weights() -> None:
    assert blocks(read(lambda x: model(EACH, x), stream())) == [POST] * LAYERS
    assert blocks(read(jax.tree_util.Partial(model, EACH), stream())) == [POST] * LAYERS


def test_shapes_alone_are_read_without_a_proof() -> None:
    shapes = jax.eval_shape(lambda: EACH)
    reading = read(model, shapes, jax.ShapeDtypeStruct((2, 5, WIDTH), jnp.float32))
    assert [(stage.layers, stage.block, stage.proof) for stage in reading.stages] == [(LAYERS, POST, "not replayed")]


def pre_of(mixer: Callable[[Params, Array], Array]) -> Callable[[list[Params], Array], Array]:
    """Pre-LN layers with a mixer of tokens."""

    def run(ps: list[Params], x: Array) -> Array:
        for p in ps:
            x = x + mixer(p["attn"], layernorm(p["norm1"], x))
            x = x + mlp(p, layernorm(p["norm2"], x))
        return x

    return run


def by_logarithms(p: Params, x: Array) -> Array:
    """Each sequence by itself, the softmax by way of its logarithm."""

    def one(x: Array) -> Array:
        q, k, v = (x @ p[name] for name in "qkv")
        scores = q @ k.T
        return jnp.exp(scores - jax.nn.logsumexp(scores, axis=-1, keepdims=True)) @ v @ p["o"]

    return jax.vmap(one)(x)


def recurrent(p: Params, x: Array) -> Array:
    def step(state: Array, u: Array) -> tuple[Array, Array]:
        state = 0.9 * state + u
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(x[:, 0]), (x @ p["q"]).swapaxes(0, 1))[1].swapaxes(0, 1) @ p["o"]


def gated(p: Params, x: Array) -> Array:
    def joined(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        return left[0] * right[0], right[0] * left[1] + right[1]

    decay, u = jax.nn.sigmoid(x @ p["k"]), x @ p["q"]
    return jax.lax.associative_scan(joined, (decay, u), axis=1)[1] @ p["o"]


def in_blocks(p: Params, x: Array) -> Array:
    """Attention, key by key, below a running maximum."""
    q, k, v = (x @ p[name] for name in "qkv")

    def step(state: tuple[Array, Array, Array], one: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        highest, total, mixed = state
        scores = jnp.einsum("btd,bd->bt", q, one[0])
        above = jnp.maximum(highest, scores)
        before, now = jnp.exp(highest - above), jnp.exp(scores - above)
        return (above, total * before + now, mixed * before[..., None] + now[..., None] * one[1][:, None]), None

    start = jnp.full(x.shape[:2], -1e9), jnp.zeros(x.shape[:2]), jnp.zeros_like(x)
    (_, total, mixed), _ = jax.lax.scan(step, start, (k.swapaxes(0, 1), v.swapaxes(0, 1)))
    return mixed / total[..., None] @ p["o"]


@pytest.mark.parametrize(
    ("mixer", "word"),
    [(attention, "attn"), (by_logarithms, "attn"), (in_blocks, "attn"), (recurrent, "ssm"), (gated, "ssm")],
)
def test_mixers_are_told_apart(mixer: Callable[[Params, Array], Array], word: str) -> None:
    reading = read(pre_of(mixer), EACH[:2], stream())
    assert blocks(reading) == [PRE.replace("attn", word)] * 2


@jax.custom_vjp
def rms(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


rms.defvjp(lambda x: (rms(x), None), lambda _, gradient: (gradient,))


@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        (rms, "RMSNorm"),
        (jax.nn.standardize, "LayerNorm"),
        (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5), "LayerNorm"),
        (lambda x: x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6), "L2Norm"),
    ],
    ids=["custom_vjp", "standardize", "var", "linalg"],
)
def test_norms_written_by_hand_are_norms(norm: Callable[[Array], Array], kind: str) -> None:
    def run(ps: list[Params], x: Array) -> Array:
        for p in ps:
            x = x + attention(p["attn"], norm(x) * (1 + p["norm1"]["gain"]))
            x = x + mlp(p, norm(x) * (1 + p["norm2"]["gain"]))
        return x

    reading = read(run, EACH[:2], stream())
    assert (blocks(reading), reading.norm, len(reading.norms)) == ([PRE] * 2, kind, 4)


def test_a_norm_that_is_written_three_times_is_one() -> None:
    """Queries, keys and values each norm the same value with the same parameters."""

    def mixer(p: Params, x: Array) -> Array:
        q, k, v = (layernorm(p["norm"], x) @ p[name] for name in "qkv")
        return jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v @ p["o"]

    def run(ps: list[Params], x: Array) -> Array:
        for p in ps:
            x = x + mixer({**p["attn"], "norm": p["norm1"]}, x)
            x = x + mlp(p, layernorm(p["norm2"], x))
        return x

    assert blocks(read(run, EACH, stream())) == [PRE] * LAYERS


# ---- the contract of a room


def program(function: Callable[..., Array], *args: Any) -> Program:
    return capture(function, args, {})


def test_values_are_those_that_the_function_computes() -> None:
    """With parameters drawn, in copies."""
    found = program(model, EACH, stream())
    names = {node.attrs["names"][0]: number for number, node in enumerate(found.nodes) if node.kind == "parameter"}
    inputs = [number for number, node in enumerate(found.nodes) if node.kind == "input"]
    keep = frozenset((*names.values(), *inputs, *found.outputs))
    held = values(found, model, (EACH, stream()), {}, keep)
    assert held is not None
    leaves = jax.tree_util.tree_leaves_with_path(EACH)
    drawn = [held[names[jax.tree_util.keystr(path, simple=True, separator="/")]] for path, _ in leaves]
    again = model(
        jax.tree.unflatten(jax.tree.structure(EACH), [jnp.asarray(one, jnp.float32) for one in drawn]), stream()
    )
    np.testing.assert_allclose(held[found.outputs[0]], again, rtol=1e-5, atol=1e-5)
    assert not (held[names["0/norm1/gain"]] == 1).any()
    np.testing.assert_array_equal(held[names["0/attn/q"]], EACH[0]["attn"]["q"])
    np.testing.assert_array_equal(held[inputs[0]], stream())
    assert (EACH[0]["norm1"]["gain"] == 1).all()


def test_shapes_have_no_values() -> None:
    args = (jax.eval_shape(lambda: EACH), stream())
    with pytest.raises(ValueError, match="shape only"):
        values(capture(model, args, {}), model, args, {}, frozenset())


def test_a_branch_that_depends_on_values_needs_them() -> None:
    args = (jax.eval_shape(lambda: STACKED), jax.ShapeDtypeStruct((2, 5, WIDTH), jnp.float32))
    with pytest.raises(ValueError, match="Pass arrays with values"):
        capture(conditional, args, {})


def test_equal_passes_are_equal_programs() -> None:
    assert program(scanned, STACKED, stream()) == program(scanned, STACKED, stream())


@pytest.mark.parametrize("thing", [3, "model", object()])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(ValueError, match="can be read"):
        read(thing, stream())
