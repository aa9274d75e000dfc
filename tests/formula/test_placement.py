"""What surrounds a formula: streams, ranges, the paper's initial weights; and what is refused."""

import json
import pickle

import pytest

from normula.formula import Formula, FormulaError, InitialWeights, Placement, Range, surrounded
from tests.cases import PLACEMENTS

STEP = "x + f(norm(x))"


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_placement_prints_compares_hashes_and_travels(name: str) -> None:
    placement = PLACEMENTS[name]
    names = {cls.__name__: cls for cls in (Formula, InitialWeights, Placement, Range)}
    for again in (
        Placement.from_dict(json.loads(json.dumps(placement.to_dict()))),
        eval(repr(placement), names),
        pickle.loads(pickle.dumps(placement)),
    ):
        assert again == placement
        assert hash(again) == hash(placement)
        assert again.name == placement.name


def test_placements_are_equal_by_what_they_compute_not_by_name() -> None:
    mine = Placement(name="mine", formula="f(norm(x)) + x", final="norm(x)")
    assert mine == Placement(name="yours", formula=STEP, final="norm(x)")
    assert mine != Placement(name="mine", formula=STEP)
    assert mine != Placement(name="mine", formula=STEP, final="norm(x)", embed="norm(x)")
    assert mine != Placement(name="mine", formula=STEP, final="norm(x)", initial=InitialWeights(rule="torch"))


def test_the_first_range_that_holds_a_layer_gives_its_formula() -> None:
    """Mix-LN: the first quarter of the layers is Post-LN."""
    post = Formula("norm(x + f(x))")
    mix = Placement(name="mix", formula=STEP, ranges=(Range(until="L/4", formula=post),))
    assert [mix.formula_at(layer, 8) == post for layer in range(1, 9)] == [True] * 2 + [False] * 6
    assert [mix.formula_at(layer, 3) == post for layer in range(1, 4)] == [False] * 3
    assert mix.formulas == (post, Formula(STEP))


@pytest.mark.parametrize(
    ("until", "layers", "last"),
    [("L/4", 48, 12), ("L/4", 7, 1), ("L/3", 9, 3), ("0.1*L", 30, 3), ("2", 10, 2), ("sqrt(L)", 16, 4)],
)
def test_a_range_ends_at_the_whole_part_of_its_number(until: str, layers: int, last: int) -> None:
    holds = [Range(until=until, formula=STEP).holds(layer, layers) for layer in range(1, layers + 1)]
    assert holds == [layer <= last for layer in range(1, layers + 1)]


@pytest.mark.parametrize(
    ("text", "final"),
    [
        (STEP, "norm(x)"),
        ("norm(x + f(x))", "x"),
        ("x + f(x)", "x"),
        ("x = norm(x + attn(x)); x = norm(x + mlp(x))", "x"),
        ("norm(x + f(x)) / sqrt(l)", "norm(x)"),
        ("x + rmsnorm(f(x))", "norm(x)"),
    ],
)
def test_a_bare_formula_is_closed_by_a_norm_where_it_does_not_end_in_one(text: str, final: str) -> None:
    assert surrounded(Formula(text)).final == Formula(final)


def test_the_factor_on_initial_weights() -> None:
    deepnorm = InitialWeights(rule="xavier", factor="(8*L)**(-1/4)", on=("v", "o"))
    assert deepnorm.factor_at({"L": 2}) == pytest.approx(0.5, rel=1e-15)
    assert InitialWeights(rule="normal").factor_at({"L": 2}) == 1


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"formula": "norm(x)"}, "has a sublayer"),
        ({"formula": "b = f(x); d = d + b; x = x + b"}, "stream 'd' whose start is not declared"),
        ({"formula": "b = f(x); dd = dd + b; x = x + b", "streams": {"ddd": "x"}}, "it would do nothing"),
        ({"formula": STEP, "streams": {"d": "x"}}, "no formula reads the stream 'd'"),
        ({"formula": f"{STEP} + y", "streams": (("y", "x"), ("y", "norm(x)"))}, "not 'y'"),
        ({"formula": STEP, "streams": {"x": "norm(x)"}}, "not 'x'"),
        ({"formula": STEP, "streams": {"norm": "x"}}, "not 'norm'"),
        ({"formula": STEP, "streams": {"Big": "x"}}, "not 'Big'"),
        ({"formula": f"{STEP} + y", "streams": {"y": "z"}}, "reads z, which is not a stream there"),
        ({"formula": f"{STEP} + y", "streams": {"y": "mlp(x)"}}, "outside the layers"),
        ({"formula": STEP, "embed": "attn(x)"}, "outside the layers"),
        ({"formula": STEP, "final": "norm(d)"}, "reads d, which is not a stream there"),
        ({"formula": STEP, "embed": "x + y"}, "reads y, which is not a stream there"),
        ({"formula": "x + nrom(f(x))"}, "did you mean 'norm'"),
        ({"formula": STEP, "final": "nrm(x)"}, "did you mean 'norm'"),
        ({"formula": STEP, "ranges": (Range(until="L/2", formula="norm(x)"),)}, "has a sublayer"),
    ],
)
def test_a_placement_that_cannot_be_built_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Placement(name="wrong", **fields)  # type: ignore[arg-type]


@pytest.mark.negative
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InitialWeights(rule="xavier", factor="2"), "go together"),
        (lambda: InitialWeights(rule="xavier", on=("o",)), "go together"),
        (lambda: InitialWeights(rule="xavier", factor="2", on=("w",)), "they are q, k, v, o, up, down"),
        (lambda: InitialWeights(rule="xavier", factor="gain(0)", on=("o",)), "a number made of"),
        (lambda: InitialWeights(rule="xavier", factor="x", on=("o",)), "a number made of"),
        (lambda: Range(until="half", formula=STEP), "a number made of"),
        (lambda: Range(until="l", formula=STEP).holds(1, 2), "'l' has no value here"),
    ],
)
def test_numbers_of_a_placement_are_checked(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_formula_error_is_a_value_error() -> None:
    assert issubclass(FormulaError, ValueError)
