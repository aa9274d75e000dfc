"""Whole stacks of the oracle: against differences, closed forms and identities between placements."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from normula.formula import Placement
from normula.oracle import run
from normula.oracle.differences import STEP
from normula.oracle.norms import Array
from normula.spec import NormulaWarning, Spec, plan
from tests.cases import PLACEMENTS, random_inputs, random_weights, small
from tests.near import DIFFERENCES, FLOAT64, SAME_PROGRAM, assert_gradients_near, assert_near

pytestmark = pytest.mark.oracle

TINY: dict[str, Any] = dict(width=4, heads=2, hidden=6, layers=2, eps=0.1)
PADDED = np.array([[True, True, True], [True, False, False]])


def error_against_differences(spec: Spec, inputs: Array | NDArray[np.int64], **others: Any) -> float:
    """The worst over the input and every weight, each moved alone along one random direction.

    Relative to the derivative, or to 1e-3 of ||dy|| ||f|| where that is larger, as in `check_pullback`.
    """
    random = np.random.default_rng(5)
    # smaller than elsewhere: what a large argument makes of a third derivative is in the error of the differences
    arrays = {name: np.asarray(0.4 * array) for name, array in random_weights(spec).items()}
    found = run(spec, arrays, inputs, **others)
    dy = random.standard_normal(found.output.shape)
    input_gradient, gradients = found.pullback(dy)

    def moved(name: str | None, step: Array) -> Array:
        if name is None:
            return run(spec, arrays, inputs + step, **others).output
        return run(spec, {**arrays, name: np.asarray(arrays[name] + step)}, inputs, **others).output

    moves = {**gradients, **({None: input_gradient} if spec.vocab is None else {})}
    worst, floor = 0.0, 1e-3 * np.linalg.norm(dy) * np.linalg.norm(found.output)
    for name, gradient in moves.items():
        u = random.standard_normal(gradient.shape)
        measured = np.sum(dy * (moved(name, STEP * u) - moved(name, -STEP * u))) / (2 * STEP)
        claimed = np.sum(gradient * u)
        worst = max(worst, abs(measured - claimed) / max(abs(measured), abs(claimed), floor))
    return float(worst)


def stops(placement: Placement) -> bool:
    """Whether it holds a value without its gradient, which differs from differences on purpose."""
    return any("stop(" in str(formula) for formula in placement.formulas)


@pytest.mark.parametrize("name", [name for name, placement in PLACEMENTS.items() if not stops(placement)])
def test_the_gradients_of_a_stack_agree_with_differences(name: str) -> None:
    spec = small(PLACEMENTS[name], **TINY)
    source = None if spec.encoder is None else random_inputs(spec.encoder, seed=2, tokens=3)
    assert error_against_differences(spec, random_inputs(spec, tokens=3), source=source) < DIFFERENCES


@pytest.mark.parametrize(
    "fields",
    [
        {"causal": True},
        {"classes": 3},
        {"vocab": 5},
        {"vocab": 5, "classes": 3},
        {"features": 3},
        {"norm": "rmsnorm"},
        {"norm": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("mask", [None, PADDED], ids=["whole", "padded"])
def test_the_gradients_of_every_kind_of_stack_agree_with_differences(
    fields: dict[str, Any], mask: NDArray[np.bool_] | None
) -> None:
    spec = small("pre", **TINY, **fields)
    assert error_against_differences(spec, random_inputs(spec, tokens=3), mask=mask) < DIFFERENCES


def test_a_value_without_its_gradient_passes_nothing_back() -> None:
    """GPAS: x - silu(g) stop(x) is (1 - silu(g)) x, and has the gradient of x."""
    spec = small("x = x + mlp(x); x - silu(gain(0.3)) * stop(x)", final="x", layers=1)
    plain = small("x = x + mlp(x); x - gain(0) * x", final="x", layers=1)
    arrays, x, dy = random_weights(spec), random_inputs(spec), random_inputs(spec, seed=4)
    (gain,), (plain_gain,) = ([n for n in plan(s).parameters if "gain" in n] for s in (spec, plain))
    silu = arrays[gain] / (1 + np.exp(-arrays[gain]))

    stopped = run(spec, arrays, x)
    same_value = run(plain, {**arrays, plain_gain: silu}, x)
    without = run(plain, {**arrays, plain_gain: 0 * silu}, x)

    assert_near(stopped.output, same_value.output, SAME_PROGRAM)
    assert_near(stopped.pullback(dy)[0], without.pullback(dy)[0], SAME_PROGRAM)


# --- closed forms


@pytest.mark.parametrize(
    ("formula", "expected"),
    [("norm(x + f(x))", [-1, 1]), ("x + f(norm(x))", [-1, 5]), ("x + norm(f(norm(x)))", [0, 4]), ("x + f(x)", [3, 9])],
)
def test_the_example_with_two_features(formula: str, expected: list[float]) -> None:
    """On x = [1, 3] with f(z) = 2z: an MLP that is twice the identity."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NormulaWarning)  # of a norm over two features
        spec = small(formula, layers=1, width=2, hidden=4, eps=1e-5, sublayers=("mlp",), activation="relu", final="x")
    eye = np.eye(2)
    arrays = {name: np.ones(p.shape) * (p.role.start or 0.0) for name, p in plan(spec).parameters.items()}
    arrays |= {
        "layers.0.mlp.f.up.weight": np.concatenate([eye, -eye]),
        "layers.0.mlp.f.down.weight": 2 * np.concatenate([eye, -eye], axis=1),
    }
    # eps = 1e-5 beside a variance of 1 takes 5e-6 off a normalised value, twice at most, and f doubles it
    np.testing.assert_allclose(run(spec, arrays, np.array([[[1.0, 3.0]]])).output[0, 0], expected, rtol=0, atol=3e-5)


def test_the_stream_is_shown_at_every_step() -> None:
    spec = small("pre", layers=3, final="x")
    x = random_inputs(spec)
    found = run(spec, random_weights(spec), x)
    assert len(found.stream) == 1 + 3 * 2
    np.testing.assert_array_equal(found.stream[0], x)
    np.testing.assert_array_equal(found.stream[-1], found.output)


def test_a_sequence_of_padding_alone_gives_a_classifier_nothing() -> None:
    spec = small("pre", classes=3)
    mask = np.array([[False] * 5, [True] * 5])
    found = run(spec, random_weights(spec), random_inputs(spec), mask)
    np.testing.assert_array_equal(found.output[0], 0)
    assert np.isfinite(found.pullback(np.ones_like(found.output))[0]).all()


# --- identities between placements: the survey's section A.3


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize(
    ("formula", "alpha", "branch"),
    [
        ("norm(x + f(x))", 1.0, "f(norm(x))"),
        ("norm((2*L)**(1/4) * x + f(x))", 6**0.25, "f(norm(x))"),
        ("norm(S * x + f(norm(x)))", 6.0, "f(norm(norm(x)))"),
    ],
    ids=["post", "deepnorm", "keel"],
)
def test_post_ln_is_pre_ln_whose_branch_is_scaled_by_the_size_of_the_stream(
    norm: str, formula: str, alpha: float, branch: str
) -> None:
    """With q' = q + size(q) f(norm(q)) / alpha the state of a Post-LN stack is norm(q), for eps = 0 and no affine."""
    spec = small(formula, norm=norm, layers=3, eps=0.0, final="x")
    arrays = without_affine(random_weights(spec))
    q = normalised(random_inputs(spec), norm)  # a state of such a stack is a norm's output

    state = run(spec, arrays, q).output

    for layer in range(3):
        for word in ("attn", "mlp"):
            alone = replace(spec, placement=branch, layers=1, sublayers=(word,))
            mine = {n.replace("layers.0", f"layers.{layer}"): a for n, a in random_weights(alone).items()}
            weights = {n.replace(f"layers.{layer}", "layers.0"): arrays.get(n, a) for n, a in mine.items()}
            q = q + size(q, norm) * run(alone, without_affine(weights), q).output / alpha
    assert_near(normalised(q, norm), state, FLOAT64)


def without_affine(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The weights with every norm's gain at 1 and bias at 0."""
    return {
        name: array if "norm" not in name else np.full_like(array, 1.0 if name.endswith("weight") else 0.0)
        for name, array in arrays.items()
    }


def size(q: Array, norm: str) -> Array:
    centred = q - q.mean(-1, keepdims=True) if norm == "layernorm" else q
    return np.asarray(np.sqrt((centred**2).mean(-1, keepdims=True)))


def normalised(q: Array, norm: str) -> Array:
    return np.asarray((q - q.mean(-1, keepdims=True) if norm == "layernorm" else q) / size(q, norm))


def test_a_factor_on_the_skip_moves_into_the_branch_and_epsilon() -> None:
    """norm(alpha x + f(x)) with eps is norm(x + f(x) / alpha) with eps / alpha^2, and not with eps."""
    spec = small("norm(3 * x + f(x))", eps=0.09)
    arrays, x = random_weights(spec), random_inputs(spec)
    folded = small("norm(x + f(x) / 3)", eps=0.01)
    expected = run(spec, arrays, x).output
    assert_near(run(folded, arrays, x).output, expected, SAME_PROGRAM)
    assert np.abs(run(replace(folded, eps=0.09), arrays, x).output - expected).max() > 1e-3


@pytest.mark.parametrize("name", ["rezero", "layerscale"])
def test_a_gain_at_zero_leaves_the_stream_alone(name: str) -> None:
    spec = small(name, final="x")
    arrays = {name: 0 * a if name.endswith("gain") else a for name, a in random_weights(spec).items()}
    x = random_inputs(spec)
    np.testing.assert_array_equal(run(spec, arrays, x).output, x)


@pytest.mark.parametrize("formula", ["x + gain(0) * f(norm(x))", "x + gain(1e-5, 'channel') * f(norm(x))"])
def test_a_gain_folds_into_the_matrix_that_writes(formula: str) -> None:
    """W_out <- diag(g) W_out, and the same for its bias."""
    spec = small(formula)
    arrays = random_weights(spec)
    folded = dict(arrays)
    for name in plan(spec).parameters:
        if name.rsplit(".", 2)[-2] in ("o", "down"):
            prefix = name[: name.index(".f.")]
            gain = arrays[f"{prefix}.gain"]
            folded[name] = (gain * arrays[name].T).T if arrays[name].ndim == 2 else gain * arrays[name]
    plain = small("x + f(norm(x))")
    x = random_inputs(spec)
    weights = {name: folded[name] for name in plan(plain).parameters}
    assert_near(run(plain, weights, x).output, run(spec, arrays, x).output, SAME_PROGRAM)


def test_layernorm_scaling_folds_into_the_norms() -> None:
    """1/sqrt(l) multiplies gain and bias of the norm that it follows."""
    spec = small("lns", layers=3)
    arrays, x = random_weights(spec), random_inputs(spec)
    folded = {
        name: array / np.sqrt(int(name.split(".")[1]) + 1) if ".norm_in." in name else array
        for name, array in arrays.items()
    }
    assert_near(run(small("pre", layers=3), folded, x).output, run(spec, arrays, x).output, SAME_PROGRAM)


@pytest.mark.parametrize("factor", [2.0, 0.125])
def test_a_norm_on_the_branch_undoes_the_scale_of_what_writes_to_it(factor: float) -> None:
    """Powers of two, so that scaling rounds nothing; eps = 0."""
    spec = small("peri", norm="rmsnorm", eps=0.0)
    arrays, x = random_weights(spec), random_inputs(spec)
    writers = {n: factor * a for n, a in arrays.items() if n.rsplit(".", 2)[-2] in ("o", "down")}
    assert_near(run(spec, {**arrays, **writers}, x).output, run(spec, arrays, x).output, SAME_PROGRAM)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_post_ln_is_the_normalised_residual_with_every_norm_one_place_later(norm: str) -> None:
    """The embedding's norm becomes the first one, and each norm that closes a sublayer opens the next."""
    post = small("post", norm=norm, embed="norm(x)", layers=2)
    other = small("normalised-residual", norm=norm, layers=2)
    arrays, x, dy = random_weights(post), random_inputs(post), random_inputs(post, seed=4)
    places = ["embed.norm", *(f"{step.prefix}.norm_sum" for layer in plan(post).layers for step in layer)]
    moved = [*(f"{step.prefix}.norm_in" for layer in plan(other).layers for step in layer), "final.norm"]
    new_of = dict(zip(places, moved, strict=True))
    renamed = {name: new_of.get(name.rsplit(".", 1)[0], "") for name in arrays}
    weights = {f"{to}.{n.rsplit('.', 1)[1]}" if (to := renamed[n]) else n: a for n, a in arrays.items()}

    first, second = run(post, arrays, x), run(other, weights, x)

    assert_near(second.output, first.output, SAME_PROGRAM)
    (dx, gradients), (other_dx, other_gradients) = first.pullback(dy), second.pullback(dy)
    assert_near(other_dx, dx, SAME_PROGRAM)
    back = {f"{to}.{n.rsplit('.', 1)[1]}" if (to := renamed[n]) else n: n for n in arrays}
    assert_gradients_near({back[n]: g for n, g in other_gradients.items()}, gradients, SAME_PROGRAM)


def test_pre_ln_with_a_centred_stream_is_pre_rmsnorm() -> None:
    """Where all that writes to the stream has no mean, LayerNorm is RMSNorm (Jiang et al., 2023)."""
    layer, rms = (small("pre", norm=norm) for norm in ("layernorm", "rmsnorm"))
    arrays = random_weights(layer)
    for name, array in arrays.items():
        if name.rsplit(".", 2)[-2] in ("o", "down"):
            arrays[name] = array - array.mean(axis=0)
        if "norm" in name and name.endswith("bias"):
            arrays[name] = 0 * array
    x = random_inputs(layer)
    x = x - x.mean(-1, keepdims=True)
    weights = {name: arrays[name] for name in plan(rms).parameters}
    assert_near(run(rms, weights, x).output, run(layer, arrays, x).output, SAME_PROGRAM)


def test_a_stream_that_cancels_need_not_exist() -> None:
    spec = small(Placement(name="p", formula="y + x + f(norm(x)) - y", final="norm(x)"))
    arrays, x = random_weights(spec), random_inputs(spec)
    np.testing.assert_array_equal(run(spec, arrays, x).output, run(small("pre"), arrays, x).output)


@pytest.mark.negative
@pytest.mark.parametrize("name", [name for name in PLACEMENTS if name not in ("pre", "gpt2")])
def test_no_other_placement_computes_what_pre_ln_computes(name: str) -> None:
    """With random gains and biases; t-fixup and gpt2 differ from others in their initial weights alone."""
    spec = small(PLACEMENTS[name], layers=4)
    arrays, x = random_weights(spec), random_inputs(spec)
    source = None if spec.encoder is None else random_inputs(spec.encoder, seed=2)
    pre = small("pre", layers=4)
    weights = {n: arrays.get(n, a) for n, a in random_weights(pre).items()}
    assert np.abs(run(spec, arrays, x, source=source).output - run(pre, weights, x).output).max() > 1e-3
