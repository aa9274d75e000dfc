"""The derivative of the skip path: as it is printed, and against differences."""

import math
from typing import Any

import numpy as np
import pytest

from normula.formula import Formula
from normula.oracle.norms import Array, dyt, l2norm, layernorm, rmsnorm
from tests.cases import BLOCKS, PLACEMENTS
from tests.near import DIFFERENCES, assert_near

D, EPS = 5, 0.1
SYMBOLS = {"l": 2.0, "L": 3.0, "s": 3.0, "S": 6.0}

DERIVATIVES = {
    "post": "J[norm](x + f(x))",
    "pre": "1",
    "pre-no-final": "1",
    "peri": "1",
    "res-post": "1",
    "olmo2": "1",
    "pre-and-post": "J[norm](x + f(norm(x)))",
    "normalised-residual": "J[norm](x)",
    "deepnorm": "(2*L)**(1/4)*J[norm]((2*L)**(1/4) * x + f(x))",
    "rezero": "1",
    "layerscale": "1",
    "lns": "1",
    "parallel": "1",
    "parallel-two-norms": "1",
    "none": "1",
    "residual streams": "dx/dx = J[norm](x + b); dd/dd = 1",
    "scaled without gradient": "1",
    "keel": "S*J[norm](S * x + f(norm(x)))",
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_derivative_of_a_known_placement(name: str) -> None:
    assert PLACEMENTS[name].formula.skip == DERIVATIVES[name]


@pytest.mark.parametrize(
    ("text", "derivative"),
    [
        ("f(x)", "0"),
        ("f(x) - x", "-1"),
        ("norm(f(x) - x)", "-J[norm](f(x) - x)"),
        ("stop(x) + f(x)", "0"),
        ("x + gain(0.5) * (f(norm(x)) - x)", "1 - gain(0.5)"),
        ("x + norm(f(x) + 2 * x)", "1 + 2*J[norm](2 * x + f(x))"),
        ("x + norm(norm(x)) + f(x)", "1 + J[norm](norm(x))*J[norm](x)"),
        # two norms of the same value have parameters of their own, and do not cancel
        ("x + norm(x) - norm(x) + f(x)", "1 - J[norm](x) + J[norm](x)"),
        # a factor for each feature does not commute with a Jacobian
        ("norm(gain(1, 'channel') * x + f(x))", "J[norm](gain(1, 'channel') * x + f(x))*gain(1, 'channel')"),
        ("y = y + f(x); x = x + norm(y)", "dy/dy = 1; dx/dy = J[norm](y); dx/dx = 1"),
        ("x = norm(x + attn(x)); x = x + mlp(norm(x))", "J[norm](x + attn(x))"),
    ],
)
def test_the_derivative_of_a_formula(text: str, derivative: str) -> None:
    assert Formula(text).skip == derivative


@pytest.mark.parametrize("text", BLOCKS)
def test_published_layers_have_a_derivative(text: str) -> None:
    assert Formula(text).skip


def test_a_derivative_without_bound_is_not_written_out() -> None:
    """Each norm beside a skip doubles the paths: 2**40 products."""
    doubling = "; ".join(["x = x + norm(x)"] * 40)
    assert Formula(f"{doubling}; x = x + f(x)").skip == "a sum of more than 64 products"


# --- against differences: the text of the derivative is a Python expression, and so is that of the step


class Linear:
    """A matrix in a product of numbers, of factors for each feature and of matrices."""

    __array_ufunc__ = None

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    def __mul__(self, other: object) -> "Linear":
        return Linear(self.matrix @ as_matrix(other))

    def __rmul__(self, other: object) -> "Linear":
        return Linear(as_matrix(other) @ self.matrix)

    def __add__(self, other: object) -> "Linear":
        return Linear(self.matrix + as_matrix(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> "Linear":
        return Linear(self.matrix - as_matrix(other))

    def __rsub__(self, other: object) -> "Linear":
        return Linear(as_matrix(other) - self.matrix)

    def __neg__(self) -> "Linear":
        return Linear(-self.matrix)


def as_matrix(value: object) -> Array:
    """Numbers as multiples of the identity, a factor for each feature as a diagonal."""
    if isinstance(value, Linear):
        return value.matrix
    return np.diag(value) if isinstance(value, np.ndarray) else float(value) * np.eye(D)  # type: ignore[arg-type]


class Jacobians:
    """`J[norm](v)`."""

    def __getitem__(self, norm):  # type: ignore[no-untyped-def]
        def jacobian(v: Array) -> Linear:
            return Linear(np.array([norm(v, pull=row) for row in np.eye(D)]))

        return jacobian


def words() -> dict[str, object]:
    random = np.random.default_rng(1)
    weight, bias, per_feature = random.uniform(0.5, 1.5, D), random.standard_normal(D), random.uniform(0.5, 1.5, D)

    def norm_of(function, *arguments):  # type: ignore[no-untyped-def]
        def norm(v: Array, pull: Array | None = None) -> Array:
            value, pullback = function(v, *arguments)
            return value if pull is None else pullback(pull)[0]

        return norm

    return {
        **SYMBOLS,
        "sqrt": math.sqrt,
        "norm": norm_of(layernorm, weight, bias, EPS),
        "rmsnorm": norm_of(rmsnorm, weight, EPS),
        "l2norm": norm_of(l2norm, EPS),
        "dyt": norm_of(dyt, np.array(0.7), weight, bias),
        "J": Jacobians(),
        "gain": lambda start, per=None: start * per_feature if per else 1.1 * start,
    }


@pytest.mark.parametrize(
    "text",
    [
        "x + f(norm(x))",
        "norm(x + f(x))",
        "norm((2*L)**(1/4) * x + f(x))",
        "n = norm(x); n + f(n)",
        "norm(x + f(norm(x)))",
        "x - gain(0.4) * x + gain(0.4) * f(x)",
        "l2norm(x + gain(0.05, 'channel') * (l2norm(f(x)) - x))",
        "0.5 * x + norm(rmsnorm(x) / sqrt(l) - 2 * f(x))",
        "x - dyt(x + f(x))",
        "n = norm(x); n - rmsnorm(2 * n + f(n))",
        "norm(3 * gain(1, 'channel') * rmsnorm(x) - x + f(x))",
        "f(x) - s * x / L",
    ],
)
def test_the_derivative_agrees_with_differences(text: str) -> None:
    formula = Formula(text)
    random = np.random.default_rng(2)
    x, branch = 0.4 + random.standard_normal(D), random.standard_normal(D)
    *before, last = str(formula).split("; ")
    program = compile("; ".join([*before, f"result = {last}"]), "formula", "exec")

    def names_after_step(x: Array) -> dict[str, Any]:
        names: dict[str, Any] = {**words(), "x": x, "f": lambda value: branch}
        exec(program, names)
        return names

    h = float(np.finfo(np.float64).eps) ** (1 / 3)
    columns = [
        (names_after_step(x + h * e)["result"] - names_after_step(x - h * e)["result"]) / (2 * h) for e in np.eye(D)
    ]
    printed = as_matrix(eval(formula.skip, names_after_step(x)))

    assert_near(printed, np.array(columns).T, DIFFERENCES)
