"""The exercise of every JAX course: a block of two Dense layers, Pre-LN and Post-LN, by formula and by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx as flax_nnx
from jax import Array

import normula as nm
from normula.flax import difference, linen, nnx
from normula.flax.check import TreeError
from normula.oracle.norms import normalise
from normula.spec import Spec
from tests.near import FLOAT32, distance

T, D, HIDDEN = 7, 16, 64
PRE, POST, RES_POST = "x + f(norm(x))", "norm(x + f(x))", "x + norm(f(x))"


class FFN(nn.Module):
    """Dense(D)(relu(Dense(d_ff)(z)))."""

    width: int = D
    hidden: int = HIDDEN

    @nn.compact
    def __call__(self, z: Array) -> Array:
        return nn.Dense(self.width)(nn.relu(nn.Dense(self.hidden)(z)))


class ByHand(nn.Module):
    """The block as a course has it."""

    formula: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        ffn, norm = FFN(name="f"), nn.LayerNorm(epsilon=1e-6, name="norm")
        match self.formula:
            case "x + f(norm(x))":
                return x + ffn(norm(x))
            case "norm(x + f(x))":
                return norm(x + ffn(x))
        return x + norm(ffn(x))


class NNXFFN(flax_nnx.Module):
    """The same in NNX."""

    def __init__(self, rngs: flax_nnx.Rngs) -> None:
        self.up, self.down = flax_nnx.Linear(D, HIDDEN, rngs=rngs), flax_nnx.Linear(HIDDEN, D, rngs=rngs)

    def __call__(self, z: Array) -> Array:
        return self.down(flax_nnx.relu(self.up(z)))


def x_of(shape: tuple[int, ...] = (T, D)) -> Array:
    return 0.4 + 1.3 * jax.random.normal(jax.random.key(1), shape)


def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {jax.tree_util.keystr(path): array.shape for path, array in jax.tree.leaves_with_path(tree)}


def count(tree: Any) -> int:
    return sum(array.size for array in jax.tree.leaves(tree))


def away_from_start(params: Any) -> Any:
    """Scales and offsets too: at 1 and 0 more than one placement agrees."""
    keys = iter(jax.random.split(jax.random.key(2), 20))
    return jax.tree.map(lambda array: array + 0.3 * jax.random.normal(next(keys), array.shape), params)


class TestLinen:
    """Residual around a Linen module."""

    def blocks(self) -> tuple[linen.Residual, linen.Residual]:
        return linen.Residual(PRE, FFN()), linen.Residual(POST, FFN())

    def test_the_two_have_the_same_parameters(self) -> None:
        pre, post = (block.init(jax.random.key(0), x_of())["params"] for block in self.blocks())
        assert shapes(pre) == shapes(post)
        assert jax.tree.structure(pre) == jax.tree.structure(post)
        assert count(pre) == count(post) == 2 * D * HIDDEN + HIDDEN + D + 2 * D

    def test_the_norm_starts_at_scale_1_and_offset_0(self) -> None:
        for block in self.blocks():
            params = block.init(jax.random.key(0), x_of())["params"]
            found = [path for path in shapes(params) if "norm" in path]
            assert len(found) == 2
            assert np.array_equal(params["norm"]["scale"], np.ones(D))
            assert np.array_equal(params["norm"]["bias"], np.zeros(D))

    def test_each_loads_into_the_other_and_is_another_function(self) -> None:
        pre, post = self.blocks()
        params = away_from_start(pre.init(jax.random.key(0), x_of())["params"])
        outputs = [np.asarray(block.apply({"params": params}, x_of())) for block in (pre, post)]
        found = difference(pre, post, x_of(), params=params)
        assert found.relative == pytest.approx(
            np.linalg.norm(outputs[1] - outputs[0]) / np.linalg.norm(outputs[0]), rel=1e-5
        )
        assert found.relative > 0.1
        assert (found.first, found.second) == (PRE, POST)
        assert "another function" in str(found)
        assert f"{found.relative:.2g}" in str(found)

    @pytest.mark.parametrize("formula", [PRE, POST, RES_POST])
    def test_a_block_written_by_hand(self, formula: str) -> None:
        ours, theirs = linen.Residual(formula, FFN()), ByHand(formula)
        start = ours.init(jax.random.key(0), x_of())["params"]
        by_hand = theirs.init(jax.random.key(0), x_of())["params"]
        assert sorted(a.shape for a in jax.tree.leaves(start)) == sorted(a.shape for a in jax.tree.leaves(by_hand))
        (sublayer,) = set(start) - {"norm"}
        params = away_from_start(start)
        moved = {"f": params[sublayer], "norm": params["norm"]}
        expected = theirs.apply({"params": moved}, x_of())
        assert np.abs(ours.apply({"params": params}, x_of()) - expected).max() <= 1e-6 * np.abs(expected).max()

    @pytest.mark.negative
    def test_post_ln_is_not_a_norm_on_the_branch(self) -> None:
        post, branch = linen.Residual(POST, FFN()), linen.Residual(RES_POST, FFN())
        params = post.init(jax.random.key(0), x_of())["params"]
        assert difference(post, branch, x_of(), params=params).relative > 0.1

    def test_two_features(self) -> None:
        x = jnp.array([[1.0, 3.0]])
        for formula, expected in ((PRE, [-1, 5]), (POST, [-1, 1])):
            block = linen.Residual(formula, lambda z: 2 * z)
            y = block.apply(block.init(jax.random.key(0), x), x)
            np.testing.assert_allclose(y, [expected], rtol=0, atol=2e-6)

    @pytest.mark.negative
    def test_two_norms_do_not_load_into_one(self) -> None:
        pre, peri = linen.Residual(PRE, FFN()), linen.Residual("x + norm(f(norm(x)))", FFN())
        params = pre.init(jax.random.key(0), x_of())["params"]
        with pytest.raises(Exception, match="norm"):
            difference(pre, peri, x_of(), params=params)


class TestNNX:
    """Residual around an NNX module."""

    def blocks(self) -> tuple[nnx.Residual, nnx.Residual]:
        rngs = flax_nnx.Rngs(0)
        return nnx.Residual(PRE, NNXFFN(rngs), width=D), nnx.Residual(POST, NNXFFN(rngs), width=D)

    def test_the_two_have_the_same_parameters(self) -> None:
        pre, post = (flax_nnx.to_pure_dict(flax_nnx.state(block, flax_nnx.Param)) for block in self.blocks())
        assert shapes(pre) == shapes(post)
        assert count(pre) == count(post) == 2 * D * HIDDEN + HIDDEN + D + 2 * D

    def test_each_loads_into_the_other_and_is_another_function(self) -> None:
        pre, post = self.blocks()
        before = flax_nnx.state(post, flax_nnx.Param)
        found = difference(pre, post, x_of())
        assert found.relative > 0.1
        assert (found.first, found.second) == (PRE, POST)
        assert all(map(np.array_equal, jax.tree.leaves(before), jax.tree.leaves(flax_nnx.state(post, flax_nnx.Param))))

        flax_nnx.update(post, flax_nnx.state(pre, flax_nnx.Param))
        relative = jnp.linalg.norm(post(x_of()) - pre(x_of())) / jnp.linalg.norm(pre(x_of()))
        assert found.relative == pytest.approx(float(relative), rel=1e-5)

    @pytest.mark.parametrize("formula", [PRE, POST, RES_POST])
    def test_a_block_written_by_hand(self, formula: str) -> None:
        block = nnx.Residual(formula, NNXFFN(flax_nnx.Rngs(0)), width=D)
        flax_nnx.update(block, away_from_start(flax_nnx.state(block, flax_nnx.Param)))
        norm = flax_nnx.LayerNorm(D, epsilon=1e-6, rngs=flax_nnx.Rngs(0))
        flax_nnx.update(norm, flax_nnx.state(block.norm, flax_nnx.Param))
        x, f = x_of(), block.sublayers["f"]
        expected = {PRE: lambda: x + f(norm(x)), POST: lambda: norm(x + f(x)), RES_POST: lambda: x + norm(f(x))}
        y = expected[formula]()
        assert np.abs(block(x) - y).max() <= 1e-6 * np.abs(y).max()

    def test_two_features(self) -> None:
        x = jnp.array([[1.0, 3.0]])
        for formula, expected in ((PRE, [-1, 5]), (POST, [-1, 1])):
            y = nnx.Residual(formula, lambda z: 2 * z, width=2)(x)
            np.testing.assert_allclose(y, [expected], rtol=0, atol=2e-6)

    @pytest.mark.negative
    def test_two_norms_do_not_load_into_one(self) -> None:
        pre, peri = (nnx.Residual(f, NNXFFN(flax_nnx.Rngs(0)), width=D) for f in (PRE, "x + norm(f(norm(x)))"))
        with pytest.raises(TreeError, match=r"x \+ f\(norm\(x\)\) do not fit x \+ norm\(f\(norm\(x\)\)\)"):
            difference(pre, peri, x_of())


class TestStack:
    """The same block as a stack of one layer, its sublayer a module."""

    def stack(self, placement: str, modules: Any, kind: Any = linen.Stack) -> Any:
        spec = Spec(placement=placement, layers=1, width=D, sublayers=("mlp",), final="x", eps=1e-6)
        return kind(spec, modules)

    def test_the_two_have_the_same_parameters_and_differ(self) -> None:
        modules = {"mlp": lambda layer: FFN()}
        pre, post = (self.stack(formula, modules) for formula in (PRE, POST))
        params, other = (one.init(jax.random.key(0), x_of())["params"] for one in (pre, post))
        assert shapes(params) == shapes(other)
        assert count(params) == 2 * D * HIDDEN + HIDDEN + D + 2 * D
        found = difference(pre, post, x_of(), params=params)
        assert found.relative > 0.1
        assert "another function" in str(found)

    @pytest.mark.parametrize("formula", [PRE, POST, RES_POST])
    def test_a_block_written_by_hand(self, formula: str) -> None:
        stack = self.stack(formula, {"mlp": lambda layer: FFN()})
        params = away_from_start(stack.init(jax.random.key(0), x_of())["params"])
        own = jax.tree.map(lambda array: array[0], params["layers"]["mlp"])
        expected = ByHand(formula).apply({"params": own}, x_of())
        assert distance(stack.apply({"params": params}, x_of()), expected) <= 1e-6

    def test_in_nnx(self) -> None:
        pre, post = (
            self.stack(formula, {"mlp": lambda layer: NNXFFN(flax_nnx.Rngs(layer))}, nnx.Stack)
            for formula in (PRE, POST)
        )
        assert shapes(pre.params()) == shapes(post.params())
        assert count(pre.params()) == 2 * D * HIDDEN + HIDDEN + D + 2 * D
        found = difference(pre, post, x_of())
        assert found.relative > 0.1
        post.load(pre.params())
        assert found.relative == pytest.approx(
            float(jnp.linalg.norm(post(x_of()) - pre(x_of())) / jnp.linalg.norm(pre(x_of()))), rel=1e-5
        )

    @pytest.mark.parametrize("kind", [linen.Stack, nnx.Stack], ids=["linen", "nnx"])
    @pytest.mark.filterwarnings("ignore:a norm over 2 features")
    def test_two_features(self, kind: Any) -> None:
        x = jnp.array([[1.0, 3.0]])
        for formula, expected in ((PRE, [-1, 5]), (POST, [-1, 1])):
            spec = Spec(placement=formula, layers=1, width=2, sublayers=("mlp",), final="x", eps=1e-6)
            stack = kind(spec, {"mlp": lambda layer: lambda z: 2 * z})
            y = stack.apply(stack.init(jax.random.key(0), x), x) if kind is linen.Stack else stack(x)
            np.testing.assert_allclose(y, [expected], rtol=0, atol=2e-6)


class TestVariance:
    """A row of mean 1e4 and spread 1: float32 has seven digits, and its square takes eight."""

    ROW = (1e4 + np.random.default_rng(0).standard_normal((1, 64))).astype(np.float32)

    def row(self) -> Array:
        return jnp.asarray(self.ROW)

    def truth(self) -> Any:
        arrays = {"weight": np.ones(64), "bias": np.zeros(64)}
        return normalise("layernorm", self.ROW.astype(np.float64), arrays, eps=1e-6)[0]

    def linen(self, module: nn.Module) -> Array:
        return module.apply(module.init(jax.random.key(0), self.row()), self.row())

    @pytest.mark.negative
    def test_flax_by_default_loses_it(self) -> None:
        for y in (
            self.linen(nn.LayerNorm()),
            flax_nnx.LayerNorm(64, rngs=flax_nnx.Rngs(0))(self.row()),
        ):
            assert distance(y, self.truth()) > 0.1

    def test_ours_does_not(self) -> None:
        for y in (self.linen(linen.Norm()), nnx.Norm(64)(self.row())):
            assert distance(y, self.truth()) <= 1e-3  # the mean itself is rounded to 2^-11

    def test_flax_when_asked_does_not(self) -> None:
        assert distance(self.linen(nn.LayerNorm(use_fast_variance=False)), self.truth()) <= 1e-3

    def test_one_pass_is_flax_own(self) -> None:
        x = jax.random.normal(jax.random.key(0), (50, 64)) * 2 + 3
        norm, theirs = linen.Norm(variance="one-pass"), nn.LayerNorm()
        params = away_from_start(norm.init(jax.random.key(0), x))
        assert distance(norm.apply(params, x), theirs.apply(params, x)) <= FLOAT32
        ours = self.linen(norm)
        assert distance(ours, self.linen(theirs)) <= FLOAT32
        assert distance(nnx.Norm(64, variance="one-pass")(self.row()), ours) <= FLOAT32

    @pytest.mark.parametrize("variance", ["two-pass", "one-pass"])
    def test_a_stack_does_as_its_spec_says(self, variance: str) -> None:
        sizes: dict[str, Any] = dict(layers=1, width=64, sublayers=("mlp",), final="x", eps=1e-6)
        stack = linen.Stack(Spec(placement="f(norm(x))", variance=variance, **sizes), {"mlp": lambda l: lambda z: z})
        y = stack.apply(stack.start(), self.row())
        assert (distance(y, self.truth()) <= 1e-3) == (variance == "two-pass")

    def test_explain_says_which(self) -> None:
        for module in (nn.LayerNorm(), flax_nnx.LayerNorm(4, rngs=flax_nnx.Rngs(0)), linen.Norm(variance="one-pass")):
            found = nm.explain(module)
            assert (found.variance, found.eps) == ("one-pass", 1e-6)
            assert "one pass" in str(found)
            assert "the variance is lost" in " ".join(str(found).split())
        for module in (nn.LayerNorm(use_fast_variance=False), linen.Norm(), nnx.Norm(4)):
            assert nm.explain(module).to_dict()["variance"] == "two-pass"
            assert "lost" not in str(nm.explain(module))
        for module in (nn.RMSNorm(), linen.Norm("rmsnorm")):
            assert nm.explain(module).variance is None

    def test_explain_of_a_stack_is_that_of_its_placement(self) -> None:
        stack = linen.Stack(Spec(placement="post", layers=1))
        assert nm.explain(stack).entry == nm.explain("post").entry
