"""The norms against differences, closed forms, exact arithmetic and torch."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from normula.oracle.differences import check_pullback
from normula.oracle.norms import NORMS, Array, derf, erf, layernorm, normalise, rmsnorm
from normula.spec.kinds import NORM_KINDS

pytestmark = pytest.mark.oracle

# Central differences in float64 with h = 6e-6 err by h^2 times third derivatives and 2^-53 / h: 1e-10.
DIFFERENCES = 1e-7
# Two float64 programs that sum a few hundred products in another order differ by some tens of 2^-53.
FLOAT64 = dict(rtol=1e-12, atol=1e-13)
EPS = 1e-5


def random_arguments(kind: str, seed: int, shape: tuple[int, ...] = (2, 3, 8)) -> tuple[Array, dict[str, Array]]:
    random = np.random.default_rng(seed)
    x = 0.7 + 1.5 * random.standard_normal(shape)
    parameters = {
        p.name: np.asarray(p.start + 0.3 * random.standard_normal(p.shape(shape[-1])))
        for p in NORM_KINDS[kind].parameters
    }
    return x, parameters


def test_every_kind_has_a_function() -> None:
    assert list(NORMS) == list(NORM_KINDS)


@pytest.mark.parametrize("kind", NORM_KINDS)
@pytest.mark.parametrize("shape", [(2, 3, 8), (5,), (1, 1)], ids=str)
def test_the_pullback_agrees_with_differences(kind: str, shape: tuple[int, ...]) -> None:
    x, parameters = random_arguments(kind, 1, shape)

    def function(x: Array, *values: Array):  # type: ignore[no-untyped-def]
        y, pull = normalise(kind, x, dict(zip(parameters, values, strict=True)), eps=EPS)
        return y, lambda dy: ((dx_named := pull(dy))[0], *(dx_named[1][name] for name in parameters))

    assert check_pullback(function, [x, *parameters.values()], seed=2) < DIFFERENCES


@pytest.mark.parametrize("kind", NORM_KINDS)
def test_value_and_gradient_agree_with_torch(kind: str) -> None:
    x, parameters = random_arguments(kind, 3)
    dy = np.random.default_rng(4).standard_normal(x.shape)
    tx = torch.tensor(x, requires_grad=True)
    tp = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    width = (x.shape[-1],)
    expected = {
        "layernorm": lambda: torch.nn.functional.layer_norm(tx, width, tp["weight"], tp["bias"], EPS),
        "rmsnorm": lambda: torch.nn.functional.rms_norm(tx, width, tp["weight"], EPS),
        "l2norm": lambda: tx / (tx.square().sum(-1, keepdim=True) + EPS).sqrt(),
        "dyt": lambda: tp["weight"] * torch.tanh(tp["alpha"] * tx) + tp["bias"],
        "derf": lambda: tp["weight"] * torch.erf(tp["alpha"] * tx + tp["shift"]) + tp["bias"],
        "none": lambda: tx.clone(),
    }[kind]()
    expected.backward(torch.tensor(dy))

    y, pullback = normalise(kind, x, parameters, eps=EPS)
    dx, gradients = pullback(dy)

    np.testing.assert_allclose(y, expected.detach().numpy(), **FLOAT64)
    np.testing.assert_allclose(dx, tx.grad.numpy(), **FLOAT64)
    for name in parameters:
        np.testing.assert_allclose(gradients[name], tp[name].grad.numpy(), **FLOAT64)
        assert gradients[name].shape == parameters[name].shape


def test_layernorm_has_the_jacobian_of_the_closed_form() -> None:
    """J = (sqrt(d) / ||y||) (I - y y^T / ||y||^2) (I - 1 1^T / d) with y = x - mean: Xiong et al., 2020.

    There is no gain in it, and no eps.
    """
    d = 6
    x = np.random.default_rng(5).standard_normal(d) + 3
    _, pullback = layernorm(x, np.ones(d), np.zeros(d), 0.0)
    rows = np.array([pullback(row)[0] for row in np.eye(d)])

    y = x - x.mean()
    length = np.linalg.norm(y)
    expected = math.sqrt(d) / length * (np.eye(d) - np.outer(y, y) / length**2) @ (np.eye(d) - np.ones((d, d)) / d)

    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-14)  # entries of order 1, a dozen operations each


def test_post_and_pre_differ_on_one_three() -> None:
    """With f(z) = 2z: norm(x + f(x)) forgets the scale of the stream, x + f(norm(x)) keeps it."""
    x, one, zero = np.array([1.0, 3.0]), np.ones(2), np.zeros(2)
    # eps = 1e-6 beside a variance of 1 takes 5e-7 off a normalised value; f doubles it.
    np.testing.assert_allclose(layernorm(x + 2 * x, one, zero, 1e-6)[0], [-1, 1], rtol=0, atol=2e-6)
    np.testing.assert_allclose(x + 2 * layernorm(x, one, zero, 1e-6)[0], [-1, 5], rtol=0, atol=2e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, -7.0, 1e6])
def test_a_constant_row_gives_the_bias_and_a_finite_gradient(level: float) -> None:
    _, parameters = random_arguments("layernorm", 6)
    x = np.full((2, 8), level)
    dy = np.random.default_rng(7).standard_normal(x.shape)

    y, pullback = layernorm(x, parameters["weight"], parameters["bias"], EPS)
    dx, dweight, dbias = pullback(dy)

    np.testing.assert_array_equal(y, np.broadcast_to(parameters["bias"], x.shape))  # eight equal numbers: an exact mean
    g = dy * parameters["weight"]
    np.testing.assert_allclose(dx, (g - g.mean(-1, keepdims=True)) / math.sqrt(EPS), **FLOAT64)
    np.testing.assert_array_equal(dweight, 0)
    np.testing.assert_allclose(dbias, dy.sum(0), **FLOAT64)


@pytest.mark.parametrize("kind", ["rmsnorm", "l2norm"])
def test_a_row_of_zeros_gives_zeros_and_a_finite_gradient(kind: str) -> None:
    _, parameters = random_arguments(kind, 8)
    y, pullback = normalise(kind, np.zeros((2, 8)), parameters, eps=EPS)
    dx, _ = pullback(np.ones((2, 8)))
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_allclose(dx, np.broadcast_to(parameters.get("weight", 1) / math.sqrt(EPS), dx.shape), **FLOAT64)


def test_the_sum_of_layernorms_output_has_no_gradient() -> None:
    """Before the gain the output sums to zero whatever x is; with a gain, the sum weighted by 1 / gain does."""
    x, parameters = random_arguments("layernorm", 9)
    weight = np.abs(parameters["weight"]) + 0.1
    _, pullback = layernorm(x, weight, parameters["bias"], EPS)
    dx, _, _ = pullback(np.broadcast_to(1 / weight, x.shape))
    np.testing.assert_allclose(dx, 0, rtol=0, atol=1e-14)

    _, pullback = layernorm(x, np.ones(8), np.zeros(8), EPS)
    np.testing.assert_allclose(pullback(np.ones_like(x))[0], 0, rtol=0, atol=1e-14)


def test_the_sum_of_rmsnorms_output_has_a_gradient() -> None:
    x, parameters = random_arguments("rmsnorm", 10)
    dx, _ = rmsnorm(x, parameters["weight"], EPS)[1](np.ones_like(x))
    assert np.abs(dx).max() > 0.1


@pytest.mark.parametrize("kind", NORM_KINDS)
def test_a_kind_centres_as_its_description_says(kind: str) -> None:
    """Adding a constant to every feature changes nothing exactly where the mean is subtracted."""
    x, parameters = random_arguments(kind, 11)
    same = np.allclose(*(normalise(kind, z, parameters, eps=EPS)[0] for z in (x, x + 1)), rtol=0, atol=1e-12)
    assert same == NORM_KINDS[kind].centres


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm", "l2norm"])
def test_eps_is_under_the_root_beside_the_statistic(kind: str) -> None:
    x = np.array([3.0, -3.0])  # mean 0, variance and mean square 9, sum of squares 18
    statistic = 18 if kind == "l2norm" else 9
    _, parameters = random_arguments(kind, 12, (2,))
    y, _ = normalise(kind, x, parameters, eps=7.0)
    expected = parameters.get("weight", 1) * x / math.sqrt(statistic + 7) + parameters.get("bias", 0)
    np.testing.assert_allclose(y, expected, rtol=1e-15)


def test_large_means_cost_no_digits() -> None:
    """Rows of N(2000, 1) against rational arithmetic; the same rows in one pass show what two passes save."""
    rows = 2000 + np.random.default_rng(13).standard_normal((50, 4))
    eps = Fraction(EPS)

    def exact(row: Array) -> list[float]:
        values = [Fraction(value) for value in row.tolist()]
        mean = sum(values) / 4
        variance = sum((value - mean) ** 2 for value in values) / 4 + eps
        # The root of a fraction to 50 digits: shift it up, take the whole root, shift it back.
        root = Fraction(math.isqrt(variance.numerator * 10**100 // variance.denominator), 10**50)
        return [float((value - mean) / root) for value in values]

    expected = np.array([exact(row) for row in rows])
    y, _ = layernorm(rows, np.ones(4), np.zeros(4), EPS)
    # The mean is rounded to 2000 * 2^-53 = 2e-13, three such roundings while it is summed; the spread is about 1.
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-12)

    one_pass = (rows**2).mean(-1, keepdims=True) - rows.mean(-1, keepdims=True) ** 2
    lost = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(one_pass + EPS)
    assert np.abs(lost - expected).max() > 1e-10


def test_erf_agrees_with_its_integral_and_derf_saturates() -> None:
    # erf(1/2), erf(1), erf(2): Abramowitz and Stegun, table 7.1
    np.testing.assert_allclose(
        erf(np.array([0.5, 1, 2])), [0.5204998778, 0.8427007929, 0.9953222650], atol=5e-11, rtol=0
    )
    y, pullback = derf(np.array([-1e3, 1e3]), np.array(0.5), np.array(0.1), np.array([2.0, 3.0]), np.array([1.0, 1.0]))
    np.testing.assert_array_equal(y, [-1, 4])
    np.testing.assert_array_equal(pullback(np.ones(2))[0], 0)


def test_a_norm_sees_one_token_at_a_time() -> None:
    """Changing one token changes no other token's output."""
    for kind in NORM_KINDS:
        x, parameters = random_arguments(kind, 14)
        other = x.copy()
        other[0, 1] += np.arange(8)
        changed = normalise(kind, x, parameters, eps=EPS)[0] != normalise(kind, other, parameters, eps=EPS)[0]
        assert changed[0, 1].any()
        changed[0, 1] = False
        assert not changed.any()
