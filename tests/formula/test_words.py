"""A formula in English and in LaTeX."""

import re

import pytest
from hypothesis import given

from normula.formula import Formula, FormulaError
from normula.formula.words import CALLABLE
from tests.cases import BLOCKS, PLACEMENTS
from tests.formula.strategies import formulas

WORDS = {word for word in CALLABLE if len(word) > 1}

ENGLISH = {
    "post": "The new stream is the norm of (the stream plus the sublayer of the stream).",
    "pre": "The new stream is the stream plus the sublayer of the norm of the stream.",
    "peri": "The new stream is the stream plus the norm of the sublayer of the norm of the stream.",
    "res-post": "The new stream is the stream plus the norm of the sublayer of the stream.",
    "olmo2": "The new stream is the stream plus the norm of the sublayer (with the norm on queries and keys) of the "
    "stream.",
    "pre-and-post": "The new stream is the norm of (the stream plus the sublayer of the norm of the stream).",
    "normalised-residual": "The value n is the norm of the stream. The new stream is n plus the sublayer of n.",
    "deepnorm": "The new stream is the norm of ((2*L)**(1/4) times the stream plus the sublayer of the stream).",
    "rezero": "The new stream is the stream plus a learned factor (from 0) times the sublayer of the stream.",
    "layerscale": "The new stream is the stream plus a learned factor for each feature (from 1e-5) times the sublayer "
    "of the norm of the stream.",
    "lns": "The new stream is the stream plus the sublayer of the norm of the stream divided by sqrt(l).",
    "parallel": "The value n is the norm of the stream. The new stream is the stream plus attention of n plus the MLP "
    "of n.",
    "parallel-two-norms": "The new stream is the stream plus attention of the norm of the stream plus the MLP of the "
    "norm of the stream.",
    "none": "The new stream is the stream plus the sublayer of the stream.",
    "residual streams": "The value b is the sublayer of the stream. The value d is d plus b. The new stream is the "
    "norm of (the stream plus b).",
}


@pytest.mark.parametrize("name", ENGLISH)
def test_a_placement_said_aloud(name: str) -> None:
    assert PLACEMENTS[name].formula.words == ENGLISH[name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x - f(x)", "the stream minus the sublayer of the stream"),
        ("norm(x - (y - z)) + f(x)", "the norm of (the stream minus y plus z) plus the sublayer of the stream"),
        ("norm(f(x), gain=0)", "the norm (its gain from 0) of the sublayer of the stream"),
        ("x + gain * moe(x)", "the stream plus a learned factor times the mixture of experts of the stream"),
        ("x + (1 - gain(0)) * f(x)", "the stream plus (1 - gain(0)) times the sublayer of the stream"),
        (
            "x + 2 * gain(0) * f(x)",
            "the stream plus 2 times a learned factor (from 0) times the sublayer of the stream",
        ),
        (
            "x - silu(gain(0.3)) * stop(x) + f(x)",
            "the stream minus silu of a learned factor (from 0.3) times the stream without its gradient plus "
            "the sublayer of the stream",
        ),
        (
            "x + attn(x, qk=norm, out=rmsnorm)",
            "the stream plus attention (with RMSNorm before the output projection and the norm on queries and keys) "
            "of the stream",
        ),
    ],
)
def test_the_rest_of_the_notation_said_aloud(text: str, words: str) -> None:
    assert Formula(text).words == f"The new stream is {words}."


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("x + f(norm(x))", r"x + f\left(\mathrm{norm}\left(x\right)\right)"),
        ("x = x + mlp(x)", r"x \leftarrow x + \mathrm{mlp}\left(x\right)"),
        ("x + f(x) / sqrt(2*L)", r"x + \frac{f\left(x\right)}{\sqrt{2\,L}}"),
        ("norm((2*L)**(1/4) * x + f(x))", r"\mathrm{norm}\left(\left(2\,L\right)^{1/4}\,x + f\left(x\right)\right)"),
        ("x + l**(-1/3) * f(x)", r"x + \ell^{-1/3}\,f\left(x\right)"),
        ("x + gain(2.1e-5, 'channel') * f(x)", r"x + \boldsymbol{\gamma}_{2.1 \cdot 10^{-5}}\,f\left(x\right)"),
        ("x + 1e-5 * f(x)", r"x + 10^{-5}\,f\left(x\right)"),
        ("x + (2/L)**l * f(x)", r"x + \left(\frac{2}{L}\right)^{\ell}\,f\left(x\right)"),
        ("x + (1e-5)**l * f(x)", r"x + \left(10^{-5}\right)^{\ell}\,f\left(x\right)"),
        ("f(x) + y12", r"y_{12} + f\left(x\right)"),
        ("x + f(x) + Ld/Le * my_stream", r"x + \frac{L_d}{L_e}\,\mathrm{my\_stream} + f\left(x\right)"),
        ("n = norm(x); n + f(n)", None),
    ],
)
def test_a_formula_in_latex(text: str, latex: str | None) -> None:
    lines = r"n &\leftarrow \mathrm{norm}\left(x\right) \\" + "\n" + r"x &\leftarrow n + f\left(n\right)"
    expected = f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}" if latex is None else latex
    assert Formula(text).latex == expected


@pytest.mark.property
@given(formulas(built=False))
def test_words_and_latex_are_well_formed(text: str) -> None:
    try:
        formula = Formula(text)
    except FormulaError:
        return
    words, latex = formula.words, formula.latex
    assert words.endswith(".")
    assert words.count("(") == words.count(")")
    assert latex.count("{") == latex.count("}")
    assert latex.count(r"\left(") == latex.count(r"\right)")
    assert not re.search(r"\^\{[^{}]*\}\^", latex)  # a power of a power needs brackets
    for word in WORDS & set(re.findall(r"(?<![a-z{\\])[a-z0-9]+(?=\\left)", latex)):
        pytest.fail(f"{word} is set in italics, as a product of letters")


@pytest.mark.parametrize("text", BLOCKS)
def test_published_layers_can_be_said_and_set(text: str) -> None:
    formula = Formula(text)
    assert formula.words.count(". ") + 1 == len(formula.tree.statements)
    assert formula.latex.count("{") == formula.latex.count("}")
