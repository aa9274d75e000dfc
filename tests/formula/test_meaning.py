"""Two formulas are equal only if the oracle agrees on random inputs and weights, and differ on some input if not."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from normula.formula import Formula, FormulaError, Placement
from normula.oracle import run
from normula.oracle.norms import Array
from normula.spec import Spec
from tests.cases import random_inputs, random_weights, small
from tests.formula.rewrites import mutated, rewritten
from tests.formula.strategies import formulas
from tests.near import SAME_PROGRAM, distance

pytestmark = pytest.mark.property


class Outcome(NamedTuple):
    """What a stack computes from an input, and the gradients of a random projection of it."""

    output: Array
    inputs: Array
    weights: Array


def spec_of(text: str, layers: int = 2) -> Spec:
    """A small stack of a formula; a second stream starts as something that x is not."""
    formula = Formula(text)
    streams = {name: "dyt(x)" for name in formula.streams if name != "x"}
    placed = Placement(name="random", formula=formula, streams=streams)
    return small(placed, layers=layers, width=4, hidden=6, eps=0.1)


def outcome(spec: Spec, inputs: Array, scale: float = 0.3) -> Outcome:
    """Weights are drawn by name: where the sites of two formulas coincide, the weights do."""
    found = run(spec, {name: scale * array for name, array in random_weights(spec).items()}, inputs)
    dx, gradients = found.pullback(np.random.default_rng(3).standard_normal(found.output.shape))
    return Outcome(found.output, dx, np.concatenate([np.zeros(1), *(g.ravel() for g in gradients.values())]))


def rounding(spec: Spec, inputs: Array) -> list[float]:
    """How far a change of the input by 1e-11 moves each result: attention on attention without norms is steep."""
    moved = inputs * (1 + 1e-11 * np.random.default_rng(4).standard_normal(inputs.shape))
    return [distance(a, b) for a, b in zip(outcome(spec, moved), outcome(spec, inputs), strict=True)]


def assert_same_outcome(one: Spec, other: Spec) -> None:
    inputs = random_inputs(one, batch=1, tokens=3)
    results = outcome(one, inputs)
    assume(all(np.isfinite(array).all() for array in results))
    for a, b, moved in zip(outcome(other, inputs), results, rounding(one, inputs), strict=True):
        assert distance(a, b) <= max(SAME_PROGRAM, moved)


def differ_on_some_input(first: str, second: str) -> bool:
    """Several sizes of inputs and weights, because a saturated tanh hides what is inside; depths, as 2/L may be 1."""
    for scale, layers in ((0.3, 2), (1.0, 3), (0.05, 3)):
        one, other = spec_of(first, layers), spec_of(second, layers)
        inputs = scale * random_inputs(one, batch=1, tokens=3)
        a, b = outcome(one, inputs, scale), outcome(other, inputs, scale)
        if not all(np.isfinite(array).all() for array in (*a, *b)):
            continue
        pairs = [(a.output, b.output), (a.inputs, b.inputs)]
        pairs += [(a.weights, b.weights)] if a.weights.shape == b.weights.shape else []
        if max(distance(*pair) for pair in pairs) > 1e-9:
            return True
    return False


def formula_of(text: str) -> Formula:
    """The formula, where the text has a meaning: a random change may leave a value unused or zero."""
    try:
        formula = Formula(text)
        assume(formula.sublayers)
        return formula
    except FormulaError:
        assume(False)
        raise


@given(formulas().flatmap(lambda text: st.tuples(st.just(text), rewritten(text))))
def test_formulas_that_are_equal_by_algebra_compute_the_same(texts: tuple[str, str]) -> None:
    first, second = (formula_of(text) for text in texts)
    assert first == second
    assert_same_outcome(spec_of(texts[0]), spec_of(texts[1]))


@given(formulas())
def test_the_canonical_text_computes_what_was_written(text: str) -> None:
    canonical = str(formula_of(text))
    assert_same_outcome(spec_of(text), spec_of(canonical))


@given(formulas().flatmap(lambda text: st.tuples(st.just(text), mutated(text))))
def test_formulas_are_equal_exactly_if_they_compute_the_same(texts: tuple[str, str]) -> None:
    # stop(mlp(stop(x))) = stop(mlp(x)) is true and not folded in
    assume(all(text.count("stop") < 2 for text in texts))
    first, second = (formula_of(text) for text in texts)
    if first == second:
        assert_same_outcome(spec_of(texts[0]), spec_of(texts[1]))
    else:
        assert differ_on_some_input(*texts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + f(norm(x))", "norm(x) + f(norm(x))"),  # Pre-LN and a norm of its own on the skip
        ("n = norm(x); n + f(n)", "norm(x) + f(norm(x))"),  # one norm used twice, and two norms
        ("n = norm(x); x = x + attn(n) + mlp(n)", "x = x + attn(norm(x)) + mlp(norm(x))"),
        ("x = x + attn(norm(x)); x + mlp(norm(x))", "n = norm(x); x = x + attn(n); x + mlp(n)"),
        ("x = x + attn(norm(x)); x + mlp(norm(x))", "x = x + mlp(norm(x)); x + attn(norm(x))"),
        ("norm((2*L)**(1/4) * x + f(x))", "norm(x + (2*L)**(1/4) * f(x))"),  # the factor on the branch
        ("norm((2*L)**(1/4) * x + f(x))", "norm(x + f(x) / (2*L)**(1/4))"),  # equal but for epsilon
        ("x + gain(0) * f(x)", "x + gain(0, 'channel') * f(x)"),
        ("x + gain(0) * f(x)", "gain(0) * (x + f(x))"),
        ("g = gain(0); x = x + g * attn(x) + g * mlp(x)", "x = x + gain(0) * attn(x) + gain(0) * mlp(x)"),
        ("x + f(norm(x) / sqrt(l))", "x + f(norm(x)) / sqrt(l)"),
        ("x + norm(f(x))", "norm(x + f(x))"),
        ("x + stop(f(x))", "x + f(x)"),  # they differ in the gradient alone
    ],
)
def test_formulas_that_look_alike_differ(one: str, other: str) -> None:
    assert Formula(one) != Formula(other)
    assert differ_on_some_input(one, other)
