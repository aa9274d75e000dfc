"""Formulas as data: round trips, the canonical form, equality, JSON, layers."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from normula.formula import Formula, FormulaError
from normula.formula.parse import parse
from normula.formula.text import names, unparse
from tests.cases import BLOCKS, PLACEMENTS
from tests.formula.rewrites import rewritten
from tests.formula.strategies import formulas, layers, steps

TEXTS = (*BLOCKS, *(str(placement.formula) for placement in PLACEMENTS.values()))

NO_MEANING = ("zero everywhere", "never reaches the new x", "too long")
"""What a random text may be refused for: a value that cancels, or that is too long once names are written out."""


def formula_of(text: str) -> Formula | None:
    """The formula of a random text; None where its values cancel."""
    try:
        return Formula(text)
    except FormulaError as error:
        refusal = error.reason
    assert any(reason in refusal for reason in NO_MEANING), refusal
    return None


# --- round trips


@pytest.mark.property
@given(formulas(built=False))
@example("x + f(x) / 2**30")  # a number whose decimal form is long
@example("x + 123456789 * 987654321 * 123456789 * f(x)")
@example("x + 1e-30 * 1e-30 * f(x)")
@example("(2*l - 1) * L * (x + f(norm(x)))")  # numbers with terms of several lengths
@example("f(x) / sqrt(L + l) / (1 + 1/L)")  # two sums below the line
@example("x + f(x) / (1 + L)**2")
@example("g = gain(0.3); x = (1 - g) * norm(f(norm(x))) + (1 - g) * y + g * x")  # one call, written once
@example("y = y + L * norm(x); g = gain; y = y + (2*l - 1) * (g * ssm(x) + (1 - g) * x); x = gain * (y + mlp(x))")
@example("x = x + f(x) * (gain(1) + gain(0.5)) + norm(x) * (gain(0.5) - gain(1))")
def test_the_canonical_text_reads_back_as_the_same_formula(text: str) -> None:
    if formula := formula_of(text):
        again = Formula(str(formula))
        assert again == formula
        assert str(again) == str(formula)
        assert again.tree == formula.tree


@pytest.mark.property
@given(formulas(built=False))
def test_a_tree_is_printed_and_read_back_unchanged(text: str) -> None:
    tree = parse(text)
    assert parse(unparse(tree)) == tree


@pytest.mark.parametrize("text", TEXTS)
def test_formulas_of_published_models_read_back(text: str) -> None:
    formula = Formula(text)
    assert Formula(str(formula)).tree == formula.tree
    assert eval(repr(formula)) == formula
    assert Formula.from_dict(json.loads(json.dumps(formula.to_dict()))) == formula
    assert pickle.loads(pickle.dumps(formula)) == formula
    assert copy.deepcopy(formula) == formula


# --- equality


@pytest.mark.property
@given(formulas(built=False).flatmap(lambda text: st.tuples(st.just(text), rewritten(text))))
@example(("x + f(x) / (L - l)", "x - f(x) / (l - L)"))
@example(("x + f(x) / (L*sqrt(L + l) + sqrt(L + l))", "x + f(x) / sqrt(L + l) / (L + 1)"))
@example(("x + stop(2 * (gain(1) + 1) * x) + f(x)", "x + 2 * stop((gain(1) + 1) * x) + f(x)"))
@example(("x + stop(L * gain(1) * x) + f(x)", "x + L * stop(gain(1) * x) + f(x)"))
@example(("x + stop(gain(1) * stop(x)) + f(x)", "x + stop(gain(1) * x) + f(x)"))
@example(("x + stop(x - x) + f(x)", "x + f(x)"))
def test_algebra_does_not_change_a_formula(texts: tuple[str, str]) -> None:
    first = formula_of(texts[0])
    if first is not None:
        second = Formula(texts[1])
        assert second == first
        assert hash(second) == hash(first)
        assert str(second) == str(first)
        assert second.sites == first.sites


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("f(norm(x)) + x", "x + f(norm(x))"),
        ("n = norm(x); x = x + f(n)", "x + f(norm(x))"),
        ("x - -f(x)", "x + f(x)"),
        ("h = x + f(x); norm(h)", "norm(x + f(x))"),
        ("2 * (x + f(x)) / 2", "x + f(x)"),
        ("x + f(norm(x)) * l**-0.5", "x + f(norm(x)) / sqrt(l)"),
        ("norm(x*2**0.25*L**0.25 + f(x))", "norm((2*L)**(1/4) * x + f(x))"),
        ("x = x + mlp(norm(x)) + attn(norm(x))", "x = x + attn(norm(x)) + mlp(norm(x))"),
        ("a1 = attn(norm(x)); x = a1 + x; y1 = norm(x); mlp(y1) + x", "x = x + attn(norm(x)); x = x + mlp(norm(x))"),
        ("zz = norm(x); f(zz) + zz", "n = norm(x); n + f(n)"),
        ("x + gain(0) * f(norm(x)) - gain(0.5) * x", "(1 - gain(0.5)) * x + gain(0) * f(norm(x))"),
        ("norm(x + f(x), gain=1)", "norm(x + f(x))"),
    ],
)
def test_the_canonical_form(text: str, canonical: str) -> None:
    assert str(Formula(text)) == canonical


def test_calls_that_look_alike_are_told_apart_by_what_reads_them() -> None:
    """Which of two norms is written first decides in which order the MLPs that read them come."""
    orders = ("attn(m) + attn(n) + mlp(m) + mlp(n)", "attn(n) + mlp(m) + attn(m) + mlp(n)", "mlp(n) + mlp(m) + attn(n)")
    first, second, third = (Formula(f"m = norm(x); n = norm(x); x = x + {order}") for order in orders)
    assert first == second
    assert first != third


@st.composite
def lookalikes(draw: st.DrawFn) -> tuple[str, str]:
    """Norms of the same value, read by several sublayers each: two ways to write the same graph."""
    norms = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    argument = st.lists(st.sampled_from(norms), min_size=1, max_size=2, unique=True)
    gain = st.sampled_from(("", "", "gain(0) * ", "g0 * ", "g1 * "))
    terms = draw(st.lists(st.tuples(gain, st.sampled_from(("attn", "mlp")), argument), min_size=2, max_size=5))
    named = [f"{n} = norm(x)" for n in norms if any(n in read for _, _, read in terms)]
    named += [f"{g} = gain(0)" for g in ("g0", "g1") if any(factor.startswith(g) for factor, _, _ in terms)]

    def text() -> str:
        written = [f"{g}{word}({' + '.join(draw(st.permutations(read)))})" for g, word, read in terms]
        return "; ".join([*draw(st.permutations(named)), "x = x + " + " + ".join(draw(st.permutations(written)))])

    return text(), text()


@pytest.mark.property
@given(lookalikes())
def test_the_order_of_writing_does_not_matter(texts: tuple[str, str]) -> None:
    assert Formula(texts[0]) == Formula(texts[1])


def test_every_process_finds_the_same_canonical_form() -> None:
    """No order of a set shows: Python's own `hash` of a text differs from one process to the next."""
    texts = [*TEXTS, "m = norm(x); n = norm(x); x = x + attn(m) + attn(n) + mlp(m) + mlp(n)"]
    program = (
        "import json, sys; from normula.formula import Formula; "
        "print(json.dumps([str(Formula(t)) for t in json.load(sys.stdin)]))"
    )
    expected = [str(Formula(text)) for text in texts]
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(texts),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(run.stdout) == expected


def test_a_formula_is_not_its_text() -> None:
    assert Formula("x + f(x)") != "x + f(x)"
    assert len({Formula("x + f(x)"), Formula("f(x) + x"), Formula("norm(x + f(x))")}) == 2


# --- what a formula says of itself


def test_its_parts() -> None:
    formula = Formula("b = f(norm(y), qk=norm); y = y + b; x = rmsnorm(x + b / sqrt(l)) + gain(0) * d")
    assert formula.is_step
    assert formula.sublayers == ("f",)
    assert formula.norms == ("norm", "rmsnorm")
    assert formula.streams == ("x", "y", "d")
    assert formula.symbols == {"l"}
    assert len(formula.gains) == 1


@pytest.mark.property
@given(steps(built=False))
def test_a_step_is_a_step_and_its_layer_is_none(text: str) -> None:
    formula = formula_of(text)
    assume(formula is not None)
    # a step that forgets x forgets the sublayer before it
    assume(any("x" in names(statement.value) for statement in formula.tree.statements))
    assume(len(formula.gains) < 3)  # with more of them, the numbers of two sublayers may have too many terms
    layer = formula.layer(("mlp", "attn"))
    assert formula.is_step
    assert not layer.is_step
    assert sorted(layer.sublayers) == ["attn", "mlp"]


@pytest.mark.property
@given(layers(built=False))
def test_a_layer_is_its_own_layer(text: str) -> None:
    if formula := formula_of(text):
        assert not formula.is_step
        assert formula.layer() is formula


@pytest.mark.parametrize(
    ("step", "sublayers", "layer"),
    [
        ("x + f(norm(x))", ("attn", "mlp"), "x = x + attn(norm(x)); x = x + mlp(norm(x))"),
        ("norm(x + f(x))", ("mlp",), "x = norm(x + mlp(x))"),
        ("x + f(norm(x))", ("attn", "cross", "mlp"), None),
        ("n = norm(x); n + f(n)", ("attn", "mlp"), "n = norm(x); x = n + attn(n); m = norm(x); x = m + mlp(m)"),
        ("x + norm(f(x, qk=norm))", ("attn", "mlp"), "x = x + norm(attn(x, qk=norm)); x = x + norm(mlp(x))"),
        ("x + s * f(x)", ("attn", "mlp"), "x = x + (2*l - 1) * attn(x); x = x + 2*l * mlp(x)"),
        ("x + f(norm(x)) / sqrt(l)", ("ssm",), "x = x + ssm(norm(x)) / sqrt(l)"),
        ("b = f(x); d = d + b; norm(x + b)", ("mlp",), "b = mlp(x); d = d + b; x = norm(x + b)"),
    ],
)
def test_a_step_written_out_for_each_sublayer(step: str, sublayers: tuple[str, ...], layer: str | None) -> None:
    written = "; ".join(f"x = x + {word}(norm(x))" for word in sublayers) if layer is None else layer
    assert Formula(step).layer(sublayers) == Formula(written)


@pytest.mark.negative
@pytest.mark.parametrize("sublayers", [("attn", "f"), ("norm",), ("",)])
def test_a_layer_is_made_of_named_sublayers(sublayers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not a named sublayer"):
        Formula("x + f(x)").layer(sublayers)
