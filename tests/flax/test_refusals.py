"""What cannot be is refused, each with a message that says what must hold and what came."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx as flax_nnx
from jax import Array

from normula.catalog import entries
from normula.flax import apply, linen, network, nnx
from normula.flax.check import TreeError
from normula.spec import Spec
from normula.spec.stamp import stamp
from tests.cases import PADDED, small
from tests.flax.models import params_of, x_of

pytestmark = pytest.mark.negative

LANGUAGE: dict[str, Any] = dict(vocab=7, causal=True)
BOTH: dict[str, Any] = dict(sublayers=("attn", "cross", "mlp"), encoder=small("post", vocab=7))
KEY = jax.random.key(0)


def run(spec: Spec, inputs: Any, *args: Any, **others: Any) -> Array:
    return apply(network(spec), params_of(spec), inputs, *args, **others)


class TestInput:
    @pytest.mark.parametrize("shape", [(2, 5), (2, 5, 8), (1, 2, 5, 3), (2, 7, 3)])
    def test_anything_but_values_of_the_features(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"shape \(B, T, 3\)|reach 6 tokens, the input has 7"):
            run(small(features=3), jnp.zeros(shape))

    @pytest.mark.parametrize("shape", [(2, 5), (2, 5, 7), (8,), (1, 2, 5, 8)])
    def test_anything_but_vectors_of_the_width(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"the input has the shape \(B, T, 8\), this one has \("):
            run(small(), jnp.zeros(shape))

    @pytest.mark.parametrize("shape", [(2, 5, 7), ()])
    def test_without_attention_any_number_of_axes_of_the_width(self, shape: tuple[int, ...]) -> None:
        spec = small(sublayers=("mlp",))
        for fits in ((8,), (5, 8), (1, 2, 5, 8)):
            assert run(spec, jnp.zeros(fits)).shape == fits
        with pytest.raises(ValueError, match=r"the input has the shape \(\.\.\., 8\)"):
            run(spec, jnp.zeros(shape))

    @pytest.mark.parametrize("dtype", [jnp.int32, bool, jnp.complex64])
    def test_integers_where_vectors_go(self, dtype: Any) -> None:
        with pytest.raises(ValueError, match=r"floating-point vectors, this one has .*give the spec a vocab"):
            run(small(), jnp.zeros((2, 5, 8), dtype))

    @pytest.mark.parametrize("inputs", [jnp.zeros((2, 5)), jnp.zeros((2, 5, 8)), jnp.zeros(5, jnp.int32)])
    def test_anything_but_ids(self, inputs: Array) -> None:
        with pytest.raises(ValueError, match=r"the input is a \(B, T\) array of ids, this one has"):
            run(small(**LANGUAGE), inputs)

    def test_more_tokens_than_positions(self) -> None:
        with pytest.raises(ValueError, match="reach 6 tokens, the input has 7"):
            run(small(**LANGUAGE), jnp.zeros((2, 7), jnp.int32))

    @pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 1, 1, 5)])
    def test_a_mask_of_another_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"a mask has the shape \(B, T\) = \(2, 5\), this one has \("):
            run(small(), x_of(small()), jnp.ones(shape, bool))

    def test_a_source_without_an_encoder_and_the_other_way_round(self) -> None:
        x = x_of(small())
        with pytest.raises(ValueError, match="a source goes with an encoder"):
            run(small(), x, source=x)
        with pytest.raises(ValueError, match="a source goes with an encoder"):
            run(small(**BOTH), x)

    def test_a_source_that_does_not_fit(self) -> None:
        x, ids = x_of(small()), jnp.zeros((2, 4), jnp.int32)
        with pytest.raises(ValueError, match=r"array of ids"):
            run(small(**BOTH), x, source=x)
        with pytest.raises(ValueError, match=r"source_mask says which tokens \(B, S\)"):
            run(small(**BOTH), x, source=ids, source_mask=jnp.asarray(PADDED))
        with pytest.raises(ValueError, match=r"source_mask says which tokens \(B, S\)"):
            run(small(), x, source_mask=jnp.asarray(PADDED))

    @pytest.mark.parametrize("kind", ["layernorm", "rmsnorm", "l2norm", "dyt", "derf"])
    @pytest.mark.parametrize("placement", ["pre", "post", "peri"])
    def test_what_is_not_a_number_is_a_result(self, placement: str, kind: str) -> None:
        """It goes through, and stays in its sequence; without attention in its token."""
        for sublayers in (("attn", "mlp"), ("mlp",)):
            spec = small(placement, norm=kind, sublayers=sublayers)
            x = x_of(spec)
            clean, output = run(spec, x), run(spec, x.at[0, 2, 3].set(jnp.nan))
            touched = np.isnan(output).any(axis=-1)
            assert touched[0, 2]
            assert np.array_equal(output[1], clean[1])
            if sublayers == ("mlp",):
                assert np.argwhere(touched).tolist() == [[0, 2]]

    def test_under_jit_too(self) -> None:
        stack = linen.Stack(small())
        with pytest.raises(ValueError, match="the input has the shape"):
            jax.jit(stack.apply)(stack.start(), jnp.zeros((2, 5, 7)))


class TestParameters:
    def test_of_another_formula_with_the_same_shapes(self) -> None:
        pre, post = (linen.Stack(small(name, final="norm(x)")) for name in ("pre", "post"))
        x = x_of(pre.spec)
        variables = pre.init(KEY, x)
        with pytest.raises(TreeError) as error:
            post.apply(variables, x)
        assert "x + f(norm(x))" in str(error.value)
        assert "norm(x + f(x))" in str(error.value)
        assert "the shapes fit" in str(error.value)
        # asked for, they move
        assert post.apply({"params": variables["params"]}, x).shape == x.shape

    def test_under_jit_too(self) -> None:
        pre, post = (linen.Stack(small(name, final="norm(x)")) for name in ("pre", "post"))
        with pytest.raises(TreeError, match=r"are of x \+ f\(norm\(x\)\); final norm\(x\) and this model is norm"):
            jax.jit(post.apply)(pre.start(), x_of(pre.spec))

    def test_of_another_formula_in_nnx(self) -> None:
        pre, post = (nnx.Stack(small(name, final="norm(x)")) for name in ("pre", "post"))
        with pytest.raises(TreeError, match=r"are of x \+ f\(norm\(x\)\); final norm\(x\) and this model is norm"):
            post.load(pre.params(), formula=stamp(pre.spec))
        post.load(pre.params())

    @pytest.mark.parametrize(("placement", "other"), [("pre", "peri"), ("post", "pre"), ("normformer", "sub-ln")])
    def test_of_another_formula_with_other_shapes(self, placement: str, other: str) -> None:
        spec, theirs = small(placement, **LANGUAGE), small(other, **LANGUAGE)
        for refused in (
            lambda: apply(network(spec), params_of(theirs), x_of(spec)),
            lambda: linen.Stack(spec).apply({"params": params_of(theirs)}, x_of(spec)),
            lambda: nnx.Stack(spec).load(params_of(theirs)),
        ):
            with pytest.raises(TreeError) as error:
                refused()
            assert str(spec.placed.formula) in str(error.value)
            alike = [str(entry.placement.formula) for entry in entries() if f"({entry.title})" in str(error.value)]
            assert alike, "the formula that they fit is named"
            assert str(theirs.placed.formula) in str(error.value) or alike[0] in str(error.value)

    def test_of_another_width_or_depth(self) -> None:
        for fields in ({"width": 12}, {"layers": 3}, {"hidden": 16}):
            with pytest.raises(TreeError, match=r"layers/.* has the shape \(.*\), here it is \("):
                apply(network(small()), params_of(small(**fields)), x_of(small()))

    def test_with_something_missing_or_too_much(self) -> None:
        params = params_of(small())
        with pytest.raises(TreeError, match="missing: final/norm/bias"):
            apply(network(small()), {**params, "final": {"norm": {"scale": jnp.ones(8)}}}, x_of(small()))
        with pytest.raises(TreeError, match="not of this model: extra"):
            apply(network(small()), {**params, "extra": jnp.ones(8)}, x_of(small()))
        with pytest.raises(TreeError, match="missing: final/norm/bias, final/norm/scale, layers/"):
            linen.Stack(small()).apply({"params": {}}, x_of(small()))

    def test_of_several_types(self) -> None:
        params = params_of(small())
        params["final"]["norm"]["scale"] = params["final"]["norm"]["scale"].astype(jnp.bfloat16)
        with pytest.raises(ValueError, match=r"several types, .*bfloat16 \(final/norm/scale\).*; cast them all to one"):
            apply(network(small()), params, x_of(small()))

    def test_of_another_type_than_the_input(self) -> None:
        x = x_of(small()).astype(jnp.bfloat16)
        with pytest.raises(ValueError, match="the input is bfloat16 and the parameters are float32; cast one of them"):
            apply(network(small()), params_of(small()), x)
        assert apply(network(small()), params_of(small()), x, dtype=jnp.bfloat16).dtype == jnp.bfloat16


class TestDropout:
    SPEC = small("pre", dropout=0.1)

    def test_without_saying_whether(self) -> None:
        stack, x = linen.Stack(self.SPEC), x_of(self.SPEC)
        with pytest.raises(ValueError, match=r"dropout 0\.1: say deterministic=True"):
            stack.apply(stack.start(), x)
        with pytest.raises(ValueError, match=r"dropout 0\.1: say deterministic=True"):
            nnx.Stack(self.SPEC)(x)
        assert stack.init(KEY, x)["params"], "init drops nothing"

    def test_without_a_key(self) -> None:
        stack, x = linen.Stack(self.SPEC), x_of(self.SPEC)
        for refused in (
            lambda: stack.apply(stack.start(), x, deterministic=False),
            lambda: nnx.Stack(self.SPEC)(x, deterministic=False),
            lambda: apply(network(self.SPEC), params_of(self.SPEC), x, deterministic=False),
        ):
            with pytest.raises(ValueError, match="dropout needs a key"):
                refused()


class TestBuilding:
    @pytest.mark.parametrize("kind", [linen.Stack, nnx.Stack], ids=["linen", "nnx"])
    def test_a_word_without_a_module(self, kind: Any) -> None:
        with pytest.raises(ValueError, match="give a module for it"):
            kind(small("x + conv(norm(x))"))

    def test_an_unknown_policy(self) -> None:
        stack = linen.Stack(small(), remat="everything")
        with pytest.raises(ValueError, match=r"remat is full or one of .*dots_saveable.*not 'everything'"):
            stack.apply(stack.start(), x_of(small()))

    def test_a_function_that_takes_an_argument_is_no_policy(self) -> None:
        """`jax.checkpoint_policies` also has functions that make policies."""
        stack = linen.Stack(small(), remat="save_only_these_names")
        with pytest.raises(ValueError, match="remat is full or one of"):
            stack.apply(stack.start(), x_of(small()))


@pytest.mark.parametrize("framework", ["linen", "nnx"])
@pytest.mark.parametrize("missing", ["jax", "flax"])
def test_a_missing_extra(missing: str, framework: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import normula as nm\n"
        "try:\n"
        f"    nm.build(nm.Spec(layers=1), framework={framework!r})\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert missing in done.stdout
    assert "pip install 'normula[flax]'" in done.stdout


def test_an_nnx_state_of_another_stack() -> None:
    """`nnx.update` puts in what it is given; the next call refuses it."""
    pre, peri = nnx.Stack(small("pre")), nnx.Stack(small("peri"))
    flax_nnx.update(pre, flax_nnx.state(peri))
    with pytest.raises(TreeError, match="not of this model: layers/attn/norm_in"):
        pre(x_of(small()))
