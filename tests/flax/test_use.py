"""A stack is an ordinary Linen or NNX module: built, initialised, traced, trained, a part of a larger one."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx as flax_nnx
from jax import Array

import normula as nm
from normula import oracle
from normula.flax import build, core, linen, network, nnx, states, to_arrays
from normula.spec import plan
from tests.cases import PADDED, as_small, random_inputs, random_weights, small
from tests.flax.models import arguments_of, assert_same, params_of, x_of
from tests.near import FLOAT32, assert_near, distance

LANGUAGE: dict[str, Any] = dict(vocab=7, causal=True)
KEY = jax.random.key(0)


def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {jax.tree_util.keystr(path): array.shape for path, array in jax.tree.leaves_with_path(tree)}


class TestBuilt:
    """Construction, and the first numbers."""

    @pytest.mark.parametrize(("framework", "kind"), [("linen", linen.Stack), ("flax", linen.Stack), ("nnx", nnx.Stack)])
    def test_by_name(self, framework: str, kind: type) -> None:
        assert isinstance(nm.build(small(), framework), kind)

    @pytest.mark.parametrize("placement", ["pre", "mix-ln", "rezero", "mhc"])
    def test_the_first_numbers_are_every_frameworks(self, placement: str) -> None:
        spec = small(placement, seed=3, **LANGUAGE)
        for tree in (linen.Stack(spec).start()["params"], nnx.Stack(spec).params()):
            found = to_arrays(network(spec), tree)
            for name, array in oracle.weights(spec).items():
                np.testing.assert_array_equal(found[name], array.astype(np.float32), err_msg=name)

    @pytest.mark.parametrize("init", ["xavier", "normal", "torch", "scaled"])
    def test_numbers_from_a_key_follow_the_same_laws(self, init: str) -> None:
        spec = small("pre", init=init, layers=2, width=32, hidden=64, **LANGUAGE)
        drawn = to_arrays(network(spec), linen.Stack(spec).init(KEY, x_of(spec))["params"])
        other = to_arrays(network(spec), nnx.Stack(spec, rngs=flax_nnx.Rngs(0)).params())
        for name, start in oracle.weights(spec).items():
            for found in (drawn[name], other[name]):
                if start.ndim == 1 and init != "torch":
                    np.testing.assert_array_equal(found, start.astype(np.float32), err_msg=name)
                elif start.size > 500:  # the deviation of a deviation from n draws is 1/sqrt(2n)
                    assert np.std(found) == pytest.approx(np.std(start), rel=0.15), name
                    assert not np.allclose(found, start), name

    def test_no_two_arrays_from_a_key_are_the_same(self) -> None:
        spec = small("pre", layers=3, hidden=8, **LANGUAGE)
        found = to_arrays(network(spec), core.init(network(spec), key=KEY))
        matrices = [np.asarray(array).ravel()[:20] for array in found.values() if array.ndim == 2]
        assert len({array.tobytes() for array in matrices}) == len(matrices)

    def test_the_same_key_gives_the_same_and_another_others(self) -> None:
        stack = linen.Stack(small(**LANGUAGE))
        x = x_of(stack.spec)
        one, same, other = (stack.init(jax.random.key(key), x)["params"] for key in (0, 0, 1))
        assert_same(one, same)
        matrices = [params["layers"]["mlp"]["f"]["up"]["kernel"] for params in (one, other)]
        assert not np.array_equal(*matrices)

    @pytest.mark.parametrize("placement", ["pre", "hyper-connections", "mix-ln", "t-fixup-decoder"])
    def test_inside_jit_and_as_shapes_alone(self, placement: str) -> None:
        spec = as_small(nm.placement(placement), vocab=7, causal=True)
        stack, given = linen.Stack(spec), {name: jnp.asarray(v) for name, v in arguments_of(spec).items()}
        start = stack.init(KEY, **given)
        assert_same(jax.tree.map(jnp.shape, jax.jit(stack.init)(KEY, **given)), jax.tree.map(jnp.shape, start))
        assert shapes(jax.eval_shape(stack.init, KEY, **given)) == shapes(start) == shapes(stack.start())

    def test_rngs_by_name(self) -> None:
        stack = linen.Stack(small(dropout=0.5))
        x = x_of(stack.spec)
        variables = stack.init({"params": KEY, "dropout": jax.random.key(1)}, x)
        y = stack.apply(variables, x, deterministic=False, rngs={"dropout": KEY})
        assert y.shape == x.shape

    def test_every_number_is_in_the_plan(self) -> None:
        for placement in ("pre", "normformer", "mhc", "mix-ln"):
            spec = small(placement, **LANGUAGE)
            sizes = {name: one.shape for name, one in plan(spec).parameters.items()}
            found = to_arrays(network(spec), linen.Stack(spec).start()["params"])
            assert {name: array.shape for name, array in found.items()} == sizes

    def test_parameters_in_another_type(self) -> None:
        for stack in (linen.Stack(small(), param_dtype=jnp.bfloat16), build(small("rezero"))):
            want = stack.param_dtype
            assert {array.dtype for array in jax.tree.leaves(stack.start()["params"])} == {jnp.dtype(want)}
            drawn = stack.init(KEY, x_of(stack.spec).astype(want))["params"]
            assert {array.dtype for array in jax.tree.leaves(drawn)} == {jnp.dtype(want)}

    def test_it_prints_a_table(self) -> None:
        stack = linen.Stack(small(**LANGUAGE))
        text = nn.tabulate(stack, KEY, console_kwargs={"width": 300})(x_of(stack.spec))
        count = sum(array.size for array in jax.tree.leaves(stack.start()["params"]))
        assert "Stack" in text
        assert f"{count:,}" in text
        assert "Stack" in flax_nnx.tabulate(nnx.Stack(small()), x_of(small()))


class TestPartitioned:
    """Names of axes on the parameters."""

    NAMES: ClassVar = {
        "q": ("layers", "embed", "heads"),
        "o": ("layers", "heads", "embed"),
        "up": ("layers", "embed", "mlp"),
        "down": ("layers", "mlp", "embed"),
    }

    def test_linen(self) -> None:
        stack = linen.Stack(small(**LANGUAGE), partitioned=True)
        for variables in (stack.init(KEY, x_of(stack.spec)), stack.start()):
            specs = nn.get_partition_spec(variables)["params"]
            self.check(specs)
        plain = linen.Stack(small(**LANGUAGE))
        x = x_of(stack.spec)
        assert_same(stack.apply(stack.start(), x), plain.apply(plain.start(), x))

    def test_nnx(self) -> None:
        stack = nnx.Stack(small(**LANGUAGE), partitioned=True)
        specs = flax_nnx.to_pure_dict(flax_nnx.get_partition_spec(flax_nnx.state(stack, flax_nnx.Param)))
        self.check(specs)

    def check(self, specs: Any) -> None:
        layers = specs["layers"]
        for name, axes in self.NAMES.items():
            owner = layers["mlp" if name in ("up", "down") else "attn"]["f"]
            assert tuple(owner[name]["kernel"]) == axes, name
        assert tuple(layers["attn"]["norm"]["scale"]) == ("layers", "embed")
        assert tuple(specs["embed"]["tokens"]["embedding"]) == ("vocab", "embed")
        assert tuple(specs["head"]["kernel"]) == ("embed", "vocab")
        assert tuple(specs["final"]["norm"]["scale"]) == ("embed",)


class TestDropout:
    """What is dropped, and when."""

    def linen(self, **fields: Any) -> tuple[linen.Stack, Any, Array]:
        stack = linen.Stack(small("pre", dropout=0.5, **(LANGUAGE | fields)))
        return stack, {"params": params_of(stack.spec)}, x_of(stack.spec)

    @pytest.mark.parametrize("fields", [{}, {"sublayers": ("attn", "moe"), "experts": 3}], ids=["mlp", "moe"])
    def test_only_in_training(self, fields: dict[str, Any]) -> None:
        stack, variables, x = self.linen(**fields)
        whole = linen.Stack(small("pre", **LANGUAGE, **fields)).apply(variables, x)
        one, same, other = (
            stack.apply(variables, x, deterministic=False, rngs={"dropout": jax.random.key(key)}) for key in (0, 0, 1)
        )
        assert_same(stack.apply(variables, x, deterministic=True), whole)
        assert_same(one, same)
        assert not np.allclose(one, other)
        assert not np.allclose(one, whole)

    def test_every_layer_and_sublayer_drops_its_own(self) -> None:
        """A stack of equal layers on equal tokens: equal masks would keep equal values."""
        spec = small("x = mlp(x)", layers=2, final="x", dropout=0.5, bias=False, activation="relu", hidden=8)
        eye = {"kernel": jnp.broadcast_to(jnp.eye(8), (2, 8, 8))}
        params = {"layers": {"mlp": {"f": {"up": eye, "down": eye}}}}
        y = core.apply(network(spec), params, jnp.ones((50, 1, 8)), deterministic=False, key=KEY)
        # four independent masks keep a value with chance 1/16, two equal pairs with 1/4; 400 draws, deviation 0.012
        assert np.mean(np.asarray(y) > 0) == pytest.approx(1 / 16, abs=0.05)

    def test_in_the_attribute_or_in_the_call(self) -> None:
        stack, variables, x = self.linen()
        rngs = {"dropout": KEY}
        expected = stack.apply(variables, x, deterministic=False, rngs=rngs)
        assert_same(stack.clone(deterministic=False).apply(variables, x, rngs=rngs), expected)
        evaluated = stack.apply(variables, x, deterministic=True)
        assert_same(stack.clone(deterministic=False).apply(variables, x, deterministic=True), evaluated)

    def test_nnx_train_and_eval(self) -> None:
        stack = nnx.Stack(small("pre", dropout=0.5, **LANGUAGE), rngs=flax_nnx.Rngs(0, dropout=1))
        x = x_of(stack.spec)
        stack.train()
        assert not np.allclose(stack(x), stack(x)), "the next key"
        stack.eval()
        whole = nnx.Stack(small("pre", **LANGUAGE))
        whole.load(stack.params())
        assert_same(stack(x), whole(x))
        assert_same(stack(x, deterministic=True), whole(x))

    def test_a_share_is_zero_and_the_mean_stays(self) -> None:
        """For 4000 values a share has a deviation of 0.008."""
        stack = linen.Stack(small("x = mlp(x)", layers=1, final="x", activation="relu", dropout=0.3, bias=False))
        x = jnp.broadcast_to(x_of(stack.spec)[:1, :1], (4000, 1, 8))
        variables = {"params": params_of(stack.spec)}
        y = stack.apply(variables, x, deterministic=False, rngs={"dropout": KEY})
        assert np.mean(np.asarray(y) == 0) == pytest.approx(0.3, abs=0.03)
        whole = stack.apply(variables, x[:1], deterministic=True)
        assert_near(np.asarray(y).mean(axis=0), np.asarray(whole)[0], 0.1)

    def test_a_share_of_the_embedding_is_zero(self) -> None:
        spec = small("pre", dropout=0.3, **LANGUAGE)
        x = jnp.asarray(random_inputs(spec, batch=200))
        stream = states(network(spec), params_of(spec), x, deterministic=False, key=KEY).stream
        assert np.mean(np.asarray(stream[0]) == 0) == pytest.approx(0.3, abs=0.03)

    def test_an_encoder_drops_too(self) -> None:
        encoder = small("pre", dropout=0.5)
        spec = small("pre", sublayers=("attn", "cross", "mlp"), encoder=encoder, dropout=1e-9)
        given = {"inputs": x_of(spec), "source": x_of(encoder, seed=2)}
        one, other = (
            core.apply(network(spec), params_of(spec), **given, deterministic=False, key=jax.random.key(key))
            for key in (0, 1)
        )
        assert not np.allclose(one, other)


class TestHalfPrecision:
    """bfloat16 values, float32 parameters and statistics."""

    @pytest.mark.parametrize("placement", ["pre", "post", "peri", "ngpt", "mhc", "gpas"])
    def test_values_in_bfloat16(self, placement: str) -> None:
        spec = small(placement, **LANGUAGE)
        stack, exact = linen.Stack(spec, dtype=jnp.bfloat16), linen.Stack(spec)
        x, variables = x_of(spec), linen.Stack(spec).start()
        y = stack.apply(variables, x)
        assert y.dtype == jnp.bfloat16
        # a dozen roundings of 2^-8 one after another
        assert distance(y, exact.apply(variables, x)) <= 0.08
        gradient = jax.grad(lambda v: stack.apply({**variables, "params": v}, x).astype(jnp.float32).sum())(
            variables["params"]
        )
        assert {array.dtype for array in jax.tree.leaves(gradient)} == {jnp.dtype(jnp.float32)}
        assert all(np.isfinite(array).all() for array in jax.tree.leaves(gradient))

    @pytest.mark.parametrize("kind", ["layernorm", "rmsnorm", "l2norm"])
    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
    def test_statistics_are_in_float32(self, kind: str, dtype: Any) -> None:
        """The square of 300 overflows float16; a sum of 2000 equal terms stands still in bfloat16 at 256 of them."""
        signs = np.random.default_rng(1).choice([-1.0, 1.0], (4, 2000))
        x = jnp.asarray(300 * signs, dtype)
        norm = linen.Norm(kind)
        y = norm.apply(norm.init(KEY, x), x)
        assert y.dtype == dtype
        centred = signs - (signs.mean(axis=-1, keepdims=True) if kind == "layernorm" else 0)
        assert distance(np.asarray(y, np.float32), centred * (2000**-0.5 if kind == "l2norm" else 1.0)) <= 1e-2

    def test_a_stack_whose_gains_are_zero_is_the_identity(self) -> None:
        for dtype in (jnp.float32, jnp.bfloat16):
            stack = linen.Stack(small("rezero", layers=6, final="x"), dtype=dtype)
            x = x_of(stack.spec).astype(dtype)
            assert_same(stack.apply(stack.start(), x), x)


class TestAPart:
    """A stack inside a larger module."""

    def test_of_linen(self) -> None:
        class Classifier(nn.Module):
            @nn.compact
            def __call__(self, x: Array, *, deterministic: bool | None = None) -> Array:
                x = nn.Dense(8)(x)
                x = linen.Stack(small("pre", dropout=0.1), name="stack")(x, deterministic=deterministic)
                return nn.Dense(3)(x.mean(axis=1))

        x = jnp.ones((2, 5, 4))
        variables = Classifier().init(KEY, x)
        assert set(variables) == {"params", "formula"}
        assert set(variables["params"]) == {"Dense_0", "stack", "Dense_1"}
        assert Classifier().apply(variables, x, deterministic=True).shape == (2, 3)
        dropping = Classifier().apply(variables, x, deterministic=False, rngs={"dropout": KEY})
        assert not np.allclose(dropping, Classifier().apply(variables, x, deterministic=True))
        # parameters alone are enough
        assert Classifier().apply({"params": variables["params"]}, x, deterministic=True).shape == (2, 3)

    def test_of_linen_in_setup_twice(self) -> None:
        class Two(nn.Module):
            def setup(self) -> None:
                self.first, self.second = linen.Stack(small("pre")), linen.Stack(small("post"))

            def __call__(self, x: Array) -> Array:
                return self.second(self.first(x))

        x = x_of(small())
        variables = Two().init(KEY, x)
        first, second = variables["params"]["first"], variables["params"]["second"]
        expected = linen.Stack(small("post")).apply(
            {"params": second}, linen.Stack(small("pre")).apply({"params": first}, x)
        )
        assert_near(Two().apply(variables, x), expected, FLOAT32)
        assert not np.array_equal(
            first["layers"]["mlp"]["f"]["up"]["kernel"], second["layers"]["mlp"]["f"]["up"]["kernel"]
        )

    def test_of_nnx(self) -> None:
        class Classifier(flax_nnx.Module):
            def __init__(self, rngs: flax_nnx.Rngs) -> None:
                self.first = flax_nnx.Linear(4, 8, rngs=rngs)
                self.stack = nnx.Stack(small("pre", dropout=0.1), rngs=rngs)
                self.last = flax_nnx.Linear(8, 3, rngs=rngs)

            def __call__(self, x: Array) -> Array:
                return self.last(self.stack(self.first(x)).mean(axis=1))

        model = Classifier(flax_nnx.Rngs(0))
        x = jnp.ones((2, 5, 4))
        model.eval()
        evaluated = model(x)
        assert evaluated.shape == (2, 3)
        model.train()
        assert not np.allclose(model(x), evaluated)

    def test_nnx_cloned_split_and_merged(self) -> None:
        stack = nnx.Stack(small("pre", **LANGUAGE))
        x = x_of(stack.spec)
        assert_same(flax_nnx.clone(stack)(x), stack(x))
        graph, state = flax_nnx.split(stack)
        assert_same(flax_nnx.merge(graph, state)(x), stack(x))
        assert_same(jax.jit(lambda state: flax_nnx.merge(graph, state)(x))(state), jax.jit(stack.__call__)(x))


class TestTrained:
    """Some steps of optax."""

    def batch(self) -> tuple[Array, Array]:
        spec = small("pre", **LANGUAGE)
        x = jnp.asarray(random_inputs(spec, batch=4, tokens=6))
        return x, (x + 1) % 7

    @pytest.mark.parametrize("dropout", [0.0, 0.1])
    def test_linen(self, dropout: float) -> None:
        model = linen.Stack(small("pre", dropout=dropout, **LANGUAGE))
        x, y = self.batch()
        variables, optimiser = model.start(), optax.adam(1e-2)
        params = variables["params"]
        state = optimiser.init(params)

        @jax.jit
        def step(params: Any, state: Any, key: Array) -> tuple[Any, Any, Array]:
            def loss(params: Any) -> Array:
                logits = model.apply({"params": params}, x, deterministic=False, rngs={"dropout": key})
                return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

            value, gradient = jax.value_and_grad(loss)(params)
            updates, state = optimiser.update(gradient, state)
            return optax.apply_updates(params, updates), state, value

        losses = []
        for key in jax.random.split(KEY, 40):
            params, state, loss = step(params, state, key)
            losses.append(float(loss))
        assert losses[-1] < 0.5 * losses[0]

    @pytest.mark.parametrize("dropout", [0.0, 0.1])
    def test_nnx(self, dropout: float) -> None:
        model = nnx.Stack(small("pre", dropout=dropout, **LANGUAGE), rngs=flax_nnx.Rngs(0))
        model.train()
        x, y = self.batch()
        optimiser = flax_nnx.Optimizer(model, optax.adam(1e-2), wrt=flax_nnx.Param)

        @flax_nnx.jit
        def step(model: nnx.Stack, optimiser: flax_nnx.Optimizer) -> Array:
            def loss(model: nnx.Stack) -> Array:
                return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

            value, gradient = flax_nnx.value_and_grad(loss)(model)
            optimiser.update(model, gradient)
            return value

        losses = [float(step(model, optimiser)) for _ in range(40)]
        assert losses[-1] < 0.5 * losses[0]

    def test_the_two_take_the_same_steps(self) -> None:
        spec = small("post", **LANGUAGE)
        x, y = self.batch()
        model, other = linen.Stack(spec), nnx.Stack(spec)
        optimiser = optax.sgd(0.1)
        params = model.start()["params"]
        theirs = flax_nnx.Optimizer(other, optimiser, wrt=flax_nnx.Param)

        def loss(logits: Array) -> Array:
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        gradient = jax.jit(jax.grad(lambda p: loss(model.apply({"params": p}, x))))
        own = flax_nnx.jit(flax_nnx.grad(lambda m: loss(m(x))))
        state = optimiser.init(params)
        for _ in range(3):
            updates, state = optimiser.update(gradient(params), state)
            params = optax.apply_updates(params, updates)
            theirs.update(other, own(other))
        for path, array in shapes(params).items():
            assert array == shapes(other.params())[path]
        assert_near(
            np.concatenate([np.ravel(a) for a in jax.tree.leaves(other.params())]),
            np.concatenate([np.ravel(a) for a in jax.tree.leaves(params)]),
            FLOAT32,
        )


class Dropping(nn.Module):
    """A Linen sublayer with a dropout of its own."""

    share: float = 0.5

    @nn.compact
    def __call__(self, x: Array, deterministic: bool) -> Array:
        return nn.Dropout(self.share)(nn.Dense(8)(x), deterministic=deterministic)


class NNXDropping(flax_nnx.Module):
    """The same in NNX."""

    def __init__(self, rngs: flax_nnx.Rngs) -> None:
        self.linear, self.dropout = flax_nnx.Linear(8, 8, rngs=rngs), flax_nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return self.dropout(self.linear(x))


class TestOwnSublayers:
    """Modules of the user's own."""

    MAKERS: ClassVar = {
        "linen": lambda layer: nn.Dense(8),
        "nnx": lambda layer: flax_nnx.Linear(8, 8, rngs=flax_nnx.Rngs(layer)),
    }

    @pytest.mark.parametrize("maker", MAKERS)
    @pytest.mark.parametrize("kind", [linen.Stack, nnx.Stack], ids=["in linen", "in nnx"])
    def test_one_for_the_mlp(self, kind: Any, maker: str) -> None:
        spec = small("pre", sublayers=("mlp",), layers=3)
        stack, x = kind(spec, {"mlp": self.MAKERS[maker]}), x_of(spec)
        if kind is linen.Stack:
            params = stack.init(KEY, x)["params"]
            y, unrolled = (stack.clone(unroll=u).apply({"params": params}, x) for u in (False, True))
        else:
            params, y = stack.params(), stack(x)
            stack.unroll = True
            unrolled = stack(x)
        own = params["layers"]["mlp"]
        assert own["f"]["kernel"].shape == (3, 8, 8)
        h = x
        for l in range(3):
            normed = linen.Norm(eps=spec.eps).apply({"params": jax.tree.map(lambda a, l=l: a[l], own["norm"])}, h)
            h = h + normed @ own["f"]["kernel"][l] + own["f"]["bias"][l]
        expected = linen.Norm(eps=spec.eps).apply({"params": params["final"]["norm"]}, h)
        assert_near(y, expected, FLOAT32)
        assert_near(unrolled, y, FLOAT32)
        assert not np.array_equal(own["f"]["kernel"][0], own["f"]["kernel"][1])

    @pytest.mark.parametrize("kind", [linen.Stack, nnx.Stack], ids=["in linen", "in nnx"])
    def test_a_function(self, kind: Any) -> None:
        spec = small("x = x + 0.5 * pool(x)", final="x")
        stack, x = kind(spec, {"pool": lambda layer: lambda z: z}), x_of(spec)
        y = stack.apply(stack.start(), x) if kind is linen.Stack else stack(x)
        assert_near(y, 2.25 * x, FLOAT32)

    def test_functions_that_differ_by_layer(self) -> None:
        spec = small("x = x + pool(x)", final="x", layers=3)
        stack, x = linen.Stack(spec, {"pool": lambda layer: lambda z: layer * z}), x_of(spec)
        assert_near(stack.apply(stack.start(), x), 6 * x, FLOAT32)  # (1 + 0) (1 + 1) (1 + 2)

    def test_modules_that_differ_by_layer(self) -> None:
        class Wide(nn.Module):
            hidden: int

            @nn.compact
            def __call__(self, x: Array) -> Array:
                return nn.Dense(8)(nn.relu(nn.Dense(self.hidden)(x)))

        stack = linen.Stack(small("post"), {"mlp": lambda layer: Wide(4 + 4 * layer)})
        variables = stack.init(KEY, x_of(stack.spec))
        assert variables["params"]["layers_1"]["mlp"]["f"]["Dense_0"]["kernel"].shape == (1, 8, 8)
        assert stack.apply(variables, x_of(stack.spec)).shape == (2, 5, 8)

    @pytest.mark.parametrize("maker", [lambda l: Dropping(), lambda l: NNXDropping(flax_nnx.Rngs(l))])
    def test_their_own_dropout(self, maker: Any) -> None:
        spec = small("x = x + mlp(x)", dropout=0.5, final="x", layers=3)
        for stack in (linen.Stack(spec, {"mlp": maker}), nnx.Stack(spec, {"mlp": maker}, rngs=flax_nnx.Rngs(0))):
            x = x_of(spec)
            if isinstance(stack, linen.Stack):
                variables = stack.init(KEY, x)
                one, same, other = (
                    stack.apply(variables, x, deterministic=False, rngs={"dropout": jax.random.key(key)})
                    for key in (0, 0, 1)
                )
                assert_same(one, same)
                whole = stack.apply(variables, x, deterministic=True)
            else:
                one, other = (stack(x, deterministic=False) for _ in range(2))
                whole = stack(x, deterministic=True)
                assert_same(stack(x, deterministic=True), whole)
            assert not np.allclose(one, other)
            assert not np.allclose(one, whole)

    def test_a_gradient_reaches_them(self) -> None:
        stack = linen.Stack(small("pre"), {"mlp": lambda layer: nn.Dense(8)})
        x = x_of(stack.spec)
        params = stack.init(KEY, x)["params"]
        direction = jax.random.normal(KEY, x.shape)
        gradient = jax.grad(lambda p: (stack.apply({"params": p}, x) * direction).sum())(params)
        assert all(np.asarray(layer).any() for layer in gradient["layers"]["mlp"]["f"]["kernel"])

    @pytest.mark.negative
    @pytest.mark.parametrize(
        ("modules", "message"),
        [
            ({"mlp": nn.Dense(8)}, "every layer needs its own"),
            ({"conv": lambda layer: nn.Dense(8)}, "no layer has a sublayer conv"),
            ({"mlp": lambda layer: 3}, "returns a module or a function for each layer, not int"),
        ],
        ids=["one module", "unused", "no module"],
    )
    @pytest.mark.parametrize("kind", [linen.Stack, nnx.Stack], ids=["linen", "nnx"])
    def test_what_is_refused(self, kind: Any, modules: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            kind(small("pre"), modules)

    @pytest.mark.negative
    def test_a_module_that_keeps_a_state(self) -> None:
        with pytest.raises(ValueError, match="a sublayer has parameters only"):
            nnx.Stack(small("pre"), {"mlp": lambda layer: flax_nnx.BatchNorm(8, rngs=flax_nnx.Rngs(0))})
        stack = linen.Stack(small("pre"), {"mlp": lambda layer: nn.BatchNorm(use_running_average=True)})
        with pytest.raises(ValueError, match="has the collections batch_stats"):
            stack.init(KEY, x_of(stack.spec))

    @pytest.mark.negative
    def test_a_module_that_changes_the_width(self) -> None:
        stack = linen.Stack(small("pre"), {"mlp": lambda layer: nn.Dense(9)})
        with pytest.raises(ValueError, match=r"makes \(2, 5, 9\) of \(2, 5, 8\); a sublayer keeps the shape"):
            stack.init(KEY, x_of(stack.spec))


class TestResidual:
    """A formula around modules of one's own."""

    def test_a_layer_of_several_modules(self) -> None:
        formula = "x = x + attn(norm(x)); x = x + gain(0.5, 'channel') * mlp(norm(x))"
        block = linen.Residual(formula, {"attn": nn.Dense(8), "mlp": nn.Dense(8)})
        x = x_of(small())
        params = block.init(KEY, x)["params"]
        assert len(jax.tree.leaves(params)) == 9
        other = nnx.Residual(formula, {word: lambda z: 2 * z for word in ("attn", "mlp")}, width=8)
        h = x + 2 * linen.Norm().apply(linen.Norm().init(KEY, x), x)
        h = h + linen.Norm().apply(linen.Norm().init(KEY, x), h)
        assert_near(other(x), h, FLOAT32)

    def test_by_the_name_of_a_placement(self) -> None:
        x = x_of(small())
        by_name, by_formula = (linen.Residual(what, nn.tanh) for what in ("post", "norm(x + f(x))"))
        assert_same(by_name.apply(by_name.init(KEY, x), x), by_formula.apply(by_formula.init(KEY, x), x))

    @pytest.mark.negative
    @pytest.mark.parametrize(
        ("formula", "message"),
        [
            ("norm((2*L)**(1/4) * x + f(x))", "has L, which only a stack knows"),
            ("x = x + attn(norm(x)); x = x + mlp(norm(x))", "give one for each"),
            ("x + f(norm(x), qk=norm)", "a norm inside a sublayer"),
            ("x + gain * f(norm(x))", "what its gain starts at"),
            ("d = d + f(x); x = norm(d)", "d"),
        ],
    )
    def test_what_is_refused(self, formula: str, message: str) -> None:
        block = linen.Residual(formula, nn.Dense(8))
        with pytest.raises(ValueError, match=message):
            block.init(KEY, x_of(small()))


class TestCompiled:
    """How much there is to compile."""

    def size(self, layers: int, **settings: Any) -> int:
        stack = linen.Stack(small("pre", layers=layers, **LANGUAGE), **settings)
        variables, x = jax.eval_shape(stack.init, KEY, x_of(stack.spec)), x_of(stack.spec)

        def loss(variables: Any) -> Array:
            return stack.apply(variables, x).sum()

        return str(jax.make_jaxpr(jax.grad(loss))(variables)).count(" = ")

    @pytest.mark.parametrize("remat", [None, "full"])
    def test_it_does_not_grow_with_depth(self, remat: str | None) -> None:
        assert self.size(4, remat=remat) == self.size(40, remat=remat)

    def test_unrolled_it_does(self) -> None:
        assert self.size(8, unroll=True) > 1.5 * self.size(4, unroll=True)

    def test_the_same_spec_is_compiled_once(self) -> None:
        from normula.flax.core import _compiled

        x = x_of(small("pre", width=24, heads=3))
        stacks = [linen.Stack(small("pre", width=24, heads=3)) for _ in range(3)]
        variables = stacks[0].start()
        stacks[0].apply(variables, x)
        before = _compiled._cache_size()
        for stack in stacks:
            stack.apply(variables, x)
        assert _compiled._cache_size() == before


class TestStates:
    """The stream, layer by layer."""

    @pytest.mark.parametrize("placement", ["pre", "post", "mix-ln", "mhc"])
    def test_of_a_pass(self, placement: str) -> None:
        spec = small(placement, layers=4, **LANGUAGE)
        net, params, x, mask = network(spec), params_of(spec), x_of(spec), jnp.asarray(PADDED)
        found = states(net, params, x, mask)
        embed = params["embed"]
        start = embed["tokens"]["embedding"][x] + embed["positions"]["embedding"][: x.shape[1]]
        assert found.stream.shape[0] == 5
        if spec.placed.operator is None:
            assert_near(found.stream[0], start, FLOAT32)
        assert_near(found.output, found.closed @ params["head"]["kernel"], FLOAT32)
        assert_near(found.output, core.apply(net, params, x, mask), FLOAT32)

    def test_against_the_oracle(self) -> None:
        spec = small("peri", layers=3)
        truth = oracle.run(spec, random_weights(spec), random_inputs(spec)).stream
        found = states(network(spec), params_of(spec), x_of(spec)).stream
        for l, value in enumerate(found):
            assert_near(value, truth[2 * l], 1e-5)
