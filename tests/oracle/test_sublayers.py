"""The sublayers against differences, torch, and what causality and mask promise."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch.nn import functional

from normula.oracle.activations import ACTIVATION_FUNCTIONS
from normula.oracle.attention import attention, visibility
from normula.oracle.differences import check_pullback
from normula.oracle.mlp import mlp
from normula.oracle.norms import Array
from normula.oracle.steps import linear
from normula.spec.kinds import ACTIVATIONS, NORM_KINDS

pytestmark = pytest.mark.oracle

B, T, D, F, HEADS = 2, 5, 12, 20, 3
EPS = 1e-5
DIFFERENCES = 1e-7  # see test_norms.py
FLOAT64 = dict(rtol=1e-11, atol=1e-12)  # as in test_norms.py, with ten times as many operations in a row

PADDING = np.array([[True, True, True, True, False], [True, False, True, True, True]])
INNERS: list[dict[str, str]] = [
    {},
    {"q": "layernorm", "k": "rmsnorm"},
    {"q": "l2norm", "k": "l2norm", "v": "dyt", "heads": "layernorm"},
    {"v": "rmsnorm", "heads": "derf"},
]


def random_weights(
    shapes: Mapping[str, tuple[int, int]], widths: Mapping[str, int], inner: Mapping[str, str], bias: bool
):
    random = np.random.default_rng(20)
    weights: dict[str, Array] = {}
    for name, (out, inputs) in shapes.items():
        weights[f"{name}.weight"] = random.standard_normal((out, inputs)) / math.sqrt(inputs)
        if bias:
            weights[f"{name}.bias"] = 0.3 * random.standard_normal(out)
    for site, kind in inner.items():
        for p in NORM_KINDS[kind].parameters:
            weights[f"norm_{site}.{p.name}"] = np.asarray(p.start + 0.3 * random.standard_normal(p.shape(widths[site])))
    return weights


def attention_weights(inner: Mapping[str, str] = {}, bias: bool = True) -> dict[str, Array]:
    return random_weights(dict.fromkeys("qkvo", (D, D)), dict.fromkeys(("q", "k", "v", "heads"), D), inner, bias)


def mlp_weights(inner: Mapping[str, str] = {}, bias: bool = True) -> dict[str, Array]:
    return random_weights({"up": (F, D), "down": (D, F)}, {"mid": F}, inner, bias)


def stream(seed: int = 21) -> Array:
    return 0.2 + np.random.default_rng(seed).standard_normal((B, T, D))


def error_against_differences(sublayer, weights: Mapping[str, Array], **options) -> float:  # type: ignore[no-untyped-def]
    def function(x: Array, *values: Array):  # type: ignore[no-untyped-def]
        y, pull = sublayer(x, dict(zip(weights, values, strict=True)), **options)

        def pullback(dy: Array) -> tuple[Array, ...]:
            dx, gradients = pull(dy)
            assert gradients.keys() == weights.keys()
            return dx, *(gradients[name] for name in weights)

        return y, pullback

    return check_pullback(function, [stream(), *weights.values()], seed=22)


def torch_norm(kind: str, x: torch.Tensor, p: Mapping[str, torch.Tensor]) -> torch.Tensor:
    match kind:
        case "layernorm":
            return functional.layer_norm(x, x.shape[-1:], p["weight"], p["bias"], EPS)
        case "rmsnorm":
            return functional.rms_norm(x, x.shape[-1:], p["weight"], EPS)
        case "l2norm":
            return x / (x.square().sum(-1, keepdim=True) + EPS).sqrt()
        case "dyt":
            return p["weight"] * torch.tanh(p["alpha"] * x) + p["bias"]
        case "derf":
            return p["weight"] * torch.erf(p["alpha"] * x + p["shift"]) + p["bias"]
        case _:
            return x


def torch_site(w: Mapping[str, torch.Tensor], inner: Mapping[str, str], site: str, x: torch.Tensor) -> torch.Tensor:
    prefix = f"norm_{site}."
    return torch_norm(
        inner.get(site, "none"), x, {n.removeprefix(prefix): a for n, a in w.items() if n.startswith(prefix)}
    )


def torch_attention(x, w, *, causal: bool, mask, inner: Mapping[str, str]) -> torch.Tensor:  # type: ignore[no-untyped-def]
    def head(name: str) -> torch.Tensor:
        projected = functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))
        return torch_site(w, inner, name, projected).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    seen = torch.ones(T, T, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    seen = seen if mask is None else seen & torch.tensor(mask)[:, None, None, :]
    mixed = functional.scaled_dot_product_attention(head("q"), head("k"), head("v"), attn_mask=seen)
    joined = torch_site(w, inner, "heads", mixed.transpose(1, 2).flatten(-2))
    return functional.linear(joined, w["o.weight"], w.get("o.bias"))


def assert_same_as_torch(result, expected: torch.Tensor, tx: torch.Tensor, tw: Mapping[str, torch.Tensor]) -> None:  # type: ignore[no-untyped-def]
    y, pullback = result
    dy = np.random.default_rng(23).standard_normal(y.shape)
    expected.backward(torch.tensor(dy))
    dx, gradients = pullback(dy)
    np.testing.assert_allclose(y, expected.detach().numpy(), **FLOAT64)
    np.testing.assert_allclose(dx, tx.grad.numpy(), **FLOAT64)
    assert gradients.keys() == tw.keys()
    for name, array in tw.items():
        np.testing.assert_allclose(gradients[name], array.grad.numpy(), **FLOAT64, err_msg=name)


def as_leaves(weights: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}


# --- linear and the activations


@pytest.mark.parametrize("bias", [True, False])
def test_linear_agrees_with_differences(bias: bool) -> None:
    arrays = [stream(), mlp_weights()["up.weight"], *([mlp_weights()["up.bias"]] if bias else [])]
    assert check_pullback(lambda x, w, b=None: linear(x, w, b), arrays, seed=24) < DIFFERENCES


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_agrees_with_differences_and_torch(name: str) -> None:
    x = 3 * stream()
    assert check_pullback(ACTIVATION_FUNCTIONS[name], [x], seed=25) < DIFFERENCES

    tx = torch.tensor(x, requires_grad=True)
    expected = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda a: functional.gelu(a, approximate="tanh"),
        "silu": functional.silu,
    }[name](tx)
    y, pull = ACTIVATION_FUNCTIONS[name](x)
    expected.sum().backward()
    np.testing.assert_allclose(y, expected.detach().numpy(), **FLOAT64)
    np.testing.assert_allclose(pull(np.ones_like(x))[0], tx.grad.numpy(), **FLOAT64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_finite_far_out(name: str) -> None:
    x = np.array([-800.0, -40.0, 0.0, 40.0, 800.0])
    y, pull = ACTIVATION_FUNCTIONS[name](x)
    np.testing.assert_allclose(y, [0, 0, 0, 40, 800], rtol=0, atol=1e-15)  # silu(-40) = -40 exp(-40) = -1.7e-16
    np.testing.assert_allclose(pull(np.ones(5))[0][[0, 1, 3, 4]], [0, 0, 1, 1], rtol=0, atol=1e-15)


def test_the_two_gelus_are_two_functions() -> None:
    """They differ by up to 5e-4, so one may not stand in for the other where 1e-10 is promised."""
    x = np.linspace(-4, 4, 401)
    gap = np.abs(ACTIVATION_FUNCTIONS["gelu"](x)[0] - ACTIVATION_FUNCTIONS["gelu_tanh"](x)[0]).max()
    assert 1e-4 < gap < 1e-3


# --- attention


@pytest.mark.parametrize("inner", INNERS, ids=str)
def test_attention_agrees_with_differences(inner: dict[str, str]) -> None:
    options = dict(heads=HEADS, visible=visibility(T, causal=True, mask=PADDING), inner=inner, eps=EPS)
    assert error_against_differences(attention, attention_weights(inner), **options) < DIFFERENCES


@pytest.mark.parametrize("inner", INNERS, ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_attention_agrees_with_torch(inner: dict[str, str], causal: bool, padded: bool, bias: bool) -> None:
    x, weights, mask = stream(), attention_weights(inner, bias), PADDING if padded else None
    tx, tw = torch.tensor(x, requires_grad=True), as_leaves(weights)
    expected = torch_attention(tx, tw, causal=causal, mask=mask, inner=inner)
    seen = visibility(T, causal=causal, mask=mask)
    result = attention(x, weights, heads=HEADS, visible=seen, inner=inner, eps=EPS)
    assert_same_as_torch(result, expected, tx, tw)


@pytest.mark.parametrize("inner", INNERS, ids=str)
@pytest.mark.parametrize("token", range(T))
def test_a_causal_token_changes_nothing_before_it(inner: dict[str, str], token: int) -> None:
    x, weights = stream(), attention_weights(inner)
    other = x.copy()
    other[:, token] += stream(26)[:, token]
    seen = visibility(T, causal=True)
    a, b = (attention(z, weights, heads=HEADS, visible=seen, inner=inner)[0] for z in (x, other))
    np.testing.assert_array_equal(a[:, :token], b[:, :token])
    assert (np.abs(a - b)[:, token:].max(axis=-1) > 1e-6).all()  # and everything from it on


def test_without_the_mask_a_token_changes_what_is_before_it() -> None:
    x, weights = stream(), attention_weights()
    other = x.copy()
    other[:, -1] += 1
    a, b = (attention(z, weights, heads=HEADS)[0] for z in (x, other))
    assert (np.abs(a - b).max(axis=-1) > 1e-6).all()


@pytest.mark.parametrize("causal", [True, False])
def test_a_padded_key_changes_nothing_and_gets_no_gradient(causal: bool) -> None:
    x, weights = stream(), attention_weights()
    other = np.where(PADDING[..., None], x, 100.0)
    seen = visibility(T, causal=causal, mask=PADDING)
    a, b = (attention(z, weights, heads=HEADS, visible=seen) for z in (x, other))
    np.testing.assert_array_equal(a[0][PADDING], b[0][PADDING])

    dy = np.where(PADDING[..., None], stream(27), 0)
    np.testing.assert_array_equal(a[1](dy)[0][~PADDING], 0)


def test_a_token_that_sees_nothing_gets_zeros_and_finite_gradients() -> None:
    """Mask on the left under a causal mask: the first tokens have no key at all."""
    mask = np.array([[False, False, True, True, True], [False] * T])
    x, weights = stream(), attention_weights()
    seen = visibility(T, causal=True, mask=mask)
    y, pull = attention(x, weights, heads=HEADS, visible=seen)
    blind = np.array([[True, True, False, False, False], [True] * T])
    np.testing.assert_array_equal(y[blind], np.broadcast_to(weights["o.bias"], y[blind].shape))

    dx, gradients = pull(np.ones_like(y))
    assert all(np.isfinite(array).all() for array in (dx, *gradients.values()))
    np.testing.assert_array_equal(dx[1], 0)
    assert error_against_differences(attention, weights, heads=HEADS, visible=seen) < DIFFERENCES


def test_no_scores_are_too_large() -> None:
    weights = attention_weights()
    y, pull = attention(1e4 * stream(), weights, heads=HEADS)
    assert np.isfinite(y).all()
    assert np.isfinite(pull(np.ones_like(y))[0]).all()


def test_key_biases_have_no_gradient_unless_the_keys_are_normed() -> None:
    """q.(k + b) shifts every score of a query by q.b, which the softmax does not see."""
    dy = stream(28)
    plain = attention(stream(), attention_weights(), heads=HEADS)[1](dy)[1]["k.bias"]
    normed = attention(stream(), attention_weights({"k": "rmsnorm"}), heads=HEADS, inner={"k": "rmsnorm"})[1](dy)[1]
    np.testing.assert_allclose(plain, 0, rtol=0, atol=1e-13)
    assert np.abs(normed["k.bias"]).max() > 1e-3


# --- mlp


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", NORM_KINDS)
def test_the_mlp_agrees_with_torch(activation: str, kind: str) -> None:
    inner = {"mid": kind}
    x, weights = stream(), mlp_weights(inner)
    tx, tw = torch.tensor(x, requires_grad=True), as_leaves(weights)
    hidden = functional.linear(tx, tw["up.weight"], tw["up.bias"])
    active = (
        functional.gelu(hidden, approximate="tanh")
        if activation == "gelu_tanh"
        else getattr(functional, activation)(hidden)
    )
    expected = functional.linear(torch_site(tw, inner, "mid", active), tw["down.weight"], tw["down.bias"])
    assert_same_as_torch(mlp(x, weights, activation=activation, inner=inner, eps=EPS), expected, tx, tw)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inner", [{}, {"mid": "layernorm"}], ids=str)
def test_the_mlp_agrees_with_differences(inner: dict[str, str], bias: bool) -> None:
    weights = mlp_weights(inner, bias)
    assert error_against_differences(mlp, weights, activation="gelu", inner=inner, eps=EPS) < DIFFERENCES


# --- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: attention(stream(), w, heads=5), "multiple"),
        (lambda w: attention(stream(), w, heads=3, inner={"mid": "rmsnorm"}), "mid"),
        (lambda w: attention(stream(), w, heads=3, inner={"q": "rmsnorm"}), "norm_q.weight"),
        (lambda w: attention(stream(), w | {"norm_q.weight": np.ones(D)}, heads=3), "norm_q.weight"),
        (lambda w: mlp(stream(), w, activation="relu"), "up.weight"),
    ],
)
def test_a_weight_without_effect_and_a_missing_one_are_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call(attention_weights())
