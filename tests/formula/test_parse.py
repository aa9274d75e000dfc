"""What is read, what is refused, where the caret stands, and that hostile text does no harm."""

import pickle
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from normula.formula import Formula, FormulaError
from normula.formula.parse import MAX_BRACKETS, MAX_LENGTH, MAX_STATEMENTS, parse, parse_number
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Number, Tree
from normula.formula.words import CALLABLE
from tests.cases import BLOCKS
from tests.formula.strategies import formulas

X = Name("x")
QUARTER = Number(Fraction(1, 4))


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("x + f(norm(x))", {"x": Binary("+", X, Call("f", Call("norm", X)))}),
        ("x = x - f(x)", {"x": Binary("-", X, Call("f", X))}),
        ("n = norm(x)\nn + f(n)", {"n": Call("norm", X), "x": Binary("+", Name("n"), Call("f", Name("n")))}),
        ("norm(\n  x +\n\tf(x)\n)", {"x": Call("norm", Binary("+", X, Call("f", X)))}),
        ("attn(x, qk=rmsnorm, out=norm)", {"x": Call("attn", X, (("out", "norm"), ("qk", "rmsnorm")))}),
        ("gain(0.25, 'channel') * f(x)", {"x": Binary("*", Gain(QUARTER, True), Call("f", X))}),
        ("gain * f(x) / 25e-2", {"x": Binary("/", Binary("*", Gain(None), Call("f", X)), QUARTER)}),
        ("-x + f(+x)", {"x": Binary("+", Negative(X), Call("f", X))}),
        (";; x = f(x) ;", {"x": Call("f", X)}),
    ],
)
def test_a_text_becomes_its_tree(text: str, statements: dict[str, Expr]) -> None:
    assert parse(text) == Tree(tuple(Assign(name, value) for name, value in statements.items()))


# --- what is refused: the text with the culprit between brackets of its own, and what the message says

WRONG = (
    # a word
    ("x + f(«nrom»(x))", "did you mean 'norm'?"),
    ("x + «atn»(x)", "did you mean 'attn'?"),
    ("x + «batchnorm»(x)", "did you mean 'norm'?"),
    ("x + «zzz»(x)", "the words are f, attn"),
    ("x + f(«norm»)", "must be called on a value, such as norm(x)"),
    ("x + «K» * f(x)", "neither a lower-case name nor a depth symbol"),
    ("branch = f(x); x + norm(«brnach»)", "did you mean 'branch'?"),
    ("x + attn(x, «mid»=norm)", "attn has no inner site 'mid'; it has qk, qkv, out"),
    ("x + attn(x, «qkk»=norm)", "did you mean 'qk'?"),
    ("x + norm(x, «qk»=norm)", "it has gain"),
    ("x + attn(x, «qk»=f)", "an inner site holds a norm"),
    ("x + attn(x, «qk»=rmsnrom)", "did you mean 'rmsnorm'?"),
    ("x + «attn»(x, qk=norm, qkv=norm)", "qkv covers qk"),
    ("«norm» = f(x); x", "is a word of the notation and cannot be assigned"),
    ("«L» = 2; x + f(x)", "is a word of the notation and cannot be assigned"),
    ("«Big» = f(x); Big", "is lower case"),
    # brackets and operators
    ("x + f«(»norm(x)", "never closed"),
    ("x + f(x)«)»", "closes none"),
    ("x + f(x) «@» x", "not in the notation"),
    ("x + «[»f(x)]", "not in the notation"),
    ("x «^» 2", "powers are written **"),
    ("x «%» 2", "the operators are + - * / and **"),
    ("«x + f(x) if x else x»", "only names, numbers"),
    ("x + («x > f(x)»)", "only names, numbers"),
    ("(x) «//» 2", "the operators are + - * / and **"),
    ("«x += f(x)»", "write the sum out"),
    ("«x»: int = f(x)", "a statement is NAME = expression"),
    ("«x, y» = f(x)", "one name stands left of '='"),
    ("«x = y» = f(x)", "one name stands left of '='"),
    ("«import os»", "a statement is NAME = expression"),
    ("«norm(x)»; x + f(x)", "only the last statement may be bare"),
    ("x + «x.real»", "only names, numbers"),
    ("x + «f(x)(x)»", "only names, numbers"),
    ("x + f(«*»x)", "a star does not stand before an argument"),
    ("x + «f»()", "takes one value"),
    ("x + «f»(x, x)", "takes one value"),
    ("x + f(x, «**»y)", "a star does not stand before an argument"),
    # numbers
    ("x + «2j» * f(x)", "not a number of the notation"),
    ("x + «0x10» * f(x)", "not a number of the notation"),
    ("x + «True» * f(x)", "not a number of the notation"),
    ("x + «'norm'»", "not a number of the notation"),
    ("x + «1e99» * f(x)", "power of ten up to 30"),
    ("x + «" + "7" * 80 + "» * f(x)", "digits"),
    ("x + «f(x) / 0»", "division by zero"),
    ("x + «(1 - 1)**-1» * f(x)", "division by zero"),
    ("x + «(-2)»**0.5 * f(x)", "root of a negative number"),
    ("x + «gain(0)»**0.5 * f(x)", "root of a gain"),
    ("x + «L**100» * f(x)", "an exponent is at most 64"),
    ("x + 2**«64**64» * f(x)", "too large or too small to be meant"),
    ("x + 2**«L**gain(1)» * f(x)", "a gain can stand neither in an exponent"),
    ("x + gain(0, «'token'») * f(x)", "can only be 'channel'"),
    ("x + «gain»() * f(x)", "gain(start, 'channel')"),
    ("x + gain(«x») * f(x)", "a gain starts at a number"),
    # meaning
    ("«»", "this text is empty"),
    ("«»   ;  ", "this text is empty"),
    ("«x * f(x)»", "two vectors cannot be multiplied"),
    ("x / «f(x)»", "nothing can be divided by a vector"),
    ("«x + 2»", "a number and a vector cannot be added"),
    ("«x»**2", "only numbers, depth symbols and gains have powers"),
    ("norm(«2»)", "takes a vector such as x, not a number"),
    ("x + sqrt(«x»)", "takes a number, not a vector"),
    ("x = «2»", "the new x is a number"),
    ("n = «norm(x)»", "never says what x becomes"),
    ("y = y + f(x); z = «norm(y)»", "never says what x becomes"),
    ("n = «norm»(x); x + f(x)", "named here and never used"),
    ("c = «2»; x + f(x)", "named here and never used"),
    ("n = «norm(x)»; x + f(x) + n - n", "never reaches the new x"),
    ("norm(«x - x»)", "zero everywhere"),
    ("x + f(x) + «f»(x)", "f stands for one sublayer"),
    ("x + f(x) + «attn»(x)", "not both"),
    # not in the alphabet
    ("x + f(x) «−» x", "plain ASCII"),
    ("x + f(«х»)", "plain ASCII"),
    ("x «\0»", "plain ASCII"),
    ("x + f(x) «#» the branch", "not in the notation"),
)


def unmarked(marked: str) -> str:
    return marked.replace("«", "").replace("»", "")


@pytest.mark.negative
@pytest.mark.parametrize(("marked", "message"), WRONG)
def test_an_error_points_at_the_culprit_and_says_what_to_do(marked: str, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        Formula(unmarked(marked))
    error = caught.value
    assert message in error.reason
    assert error.column == marked.index("«")


@pytest.mark.parametrize(
    "marked", ["norm(x +\n\t«nrom(x))", "n\t= norm(x);\r\n x + f(«nrom(n))", "x + f(\n«\x1b[31mx)"]
)
def test_the_caret_stands_under_the_culprit_whatever_the_white_space(marked: str) -> None:
    with pytest.raises(FormulaError) as caught:
        Formula(unmarked(marked))
    _, line, caret = str(caught.value).split("\n")
    assert line.isprintable()
    assert caret.index("^") == 2 + marked.index("«")


def test_a_long_text_is_cut_around_the_culprit() -> None:
    with pytest.raises(FormulaError) as caught:
        Formula("x + " * 40 + "nrom(x)" + " + x" * 40)
    _, line, caret = str(caught.value).split("\n")
    assert len(line) < 120
    assert line[caret.index("^") :].startswith("nrom(x)")


def test_an_error_survives_a_journey_between_processes() -> None:
    with pytest.raises(FormulaError) as caught:
        Formula("x + nrom(x)")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (str(error), error.column, error.reason) == (str(caught.value), 4, caught.value.reason)


@pytest.mark.parametrize("value", [None, 3, b"x + f(x)", ["x"], 1j])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a formula is a text such as"):
        Formula(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + f(x)" + " + x" * MAX_LENGTH, "at most 2000 characters"),
        ("x + " + "(" * (MAX_BRACKETS + 1) + "f(x)" + ")" * (MAX_BRACKETS + 1), "brackets may be open"),
        ("-" * 1900 + "x + f(x)", "nested"),
        ("x + f(x)" + " + x" * 200, "nested"),
        ("2**" * 300 + "2 * x + f(x)", "nested"),
        ("; ".join(["x = x + 1 * x"] * (MAX_STATEMENTS + 1)), "at most 64 statements"),
        ("; ".join(["x = norm(x)"] * 40 + ["x = x + f(x)"]), "with its values written out"),
        ("c = (L + 1)**60; x + c**60 * f(x)", "at most 64 terms"),
        ("x + (L + l + s + S)**60 * f(x)", "at most 64 terms"),
        ("c = L + l + s + S; d = c*c*c; e = d*d*d; g = e*e*e; x + g*g*g * f(x)", "at most 64 terms"),
        ("x + 10**64**9 * f(x)", "an exponent is at most 64"),
        ("x + sqrt(1000000007) * f(x)", "a number under a root"),
        ("x + (" + "+".join(f"norm({i}*x)" for i in range(1, 70)) + ") + f(x)", "at most 64 terms"),
    ],
    ids=lambda value: value[:24],
)
def test_hostile_text_is_bounded(text: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        Formula(text)


ALPHABET = st.sampled_from([*CALLABLE, *"xynabLlsS0129", *"+-*/=;,(). \n", "**", "'channel'", "qk=norm", "1e9", " = "])


@pytest.mark.timeout(120)
@settings(max_examples=300)
@given(st.text(max_size=60) | st.lists(ALPHABET, max_size=40).map("".join))
@example("x if x else x; lambda: x")
@example("f'{x}'")
@example("x := f(x)")
@example("(yield x)")
@example("x = *x")
@example("1_0.0_1e1_0 * f(x)")
@example("x + f(x) ** 0 ** -1")
@example("0 ** 0 * f(x)")
def test_random_text_is_read_or_refused(text: str) -> None:
    assert_read_or_refused(text)


def assert_read_or_refused(text: str) -> None:
    try:
        formula = Formula(text)
    except FormulaError:
        return
    assert Formula(str(formula)) == formula


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A formula with up to three pieces taken out, doubled or put in its place."""
    text = draw(st.sampled_from(BLOCKS) | formulas(built=False))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.integers(start, min(len(text), start + 8)))
        text = text[:start] + draw(ALPHABET | st.just("") | st.just(2 * text[start:stop])) + text[stop:]
    return text


@pytest.mark.timeout(120)
@settings(max_examples=300)
@given(damaged())
def test_a_damaged_formula_is_read_or_refused(text: str) -> None:
    assert_read_or_refused(text)


@pytest.mark.parametrize("text", ["(8*L)**(-1/4)", "1/sqrt(2*L)", "L/4", "0.81*(Le**4*Ld)**(1/16)", "2"])
def test_a_number_is_made_of_numbers_and_depth_symbols(text: str) -> None:
    parse_number(text)


@pytest.mark.negative
@pytest.mark.parametrize("text", ["x", "gain(0)", "a*L", "L = 2", "2; 3", "norm(2)", "", "k", "norm(x)"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        parse_number(text)
