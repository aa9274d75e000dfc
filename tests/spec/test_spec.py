"""What a spec refuses, warns of and writes down."""

import json
import pickle
import warnings
from typing import Any

import pytest

from normula.formula import Formula, FormulaError, InitialWeights, Placement, Range
from normula.spec import NormulaWarning, Spec
from tests.cases import PLACEMENTS, small

STRANGE = Placement(name="strange", formula="x + f(x)", initial=InitialWeights(rule="orthogonal"))


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        # a placement
        ({"placement": "prre"}, "no placement is called 'prre'; the names are post, pre.*did you mean 'pre'"),
        ({"placement": 3}, "a name such as 'pre' or a formula's text, not 3"),
        ({"placement": "norm(x)"}, "has a sublayer"),
        ({"placement": "x + f(x) + y"}, "stream 'y' whose start is not declared"),
        ({"final": "x + norm(d)"}, "reads d, which is not a stream there"),
        ({"embed": "x + y"}, "reads y, which is not a stream there"),
        ({"final": "mlp(x)"}, "outside the layers"),
        # sizes
        ({"layers": 0}, "layers is a whole number of at least 1, not 0"),
        ({"layers": 2.0}, "layers is a whole number of at least 1, not 2.0"),
        ({"layers": True}, "not True"),
        ({"layers": "12"}, "not '12'"),
        ({"width": -8}, "width is a whole number of at least 1, not -8"),
        ({"width": None}, "width is a whole number of at least 1, not None"),
        ({"width": 10, "heads": 4}, "width must be divisible by heads, and 10 is not by 4; .* can be 1, 2, 5, 10"),
        ({"width": 4, "heads": 8}, "heads can be 1, 2, 4"),
        ({"heads": 0}, "heads is a whole number of at least 1"),
        ({"hidden": 0}, "hidden is a whole number of at least 1"),
        ({"vocab": 0}, "vocab is a whole number of at least 1"),
        ({"classes": 0}, "classes is a whole number of at least 1"),
        ({"vocab": 9, "context": 0}, "context is a whole number of at least 1"),
        # numbers
        ({"eps": -1e-5}, "eps is a number from 0 up to 1, not -1e-05"),
        ({"eps": float("nan")}, "eps is a number from 0 up to 1, not nan"),
        ({"eps": "1e-5"}, "eps is a number from 0 up to 1, not '1e-5'"),
        ({"dropout": 1.0}, "dropout is a share from 0 up to 1, not 1.0"),
        ({"dropout": -0.1}, "dropout is a share from 0 up to 1"),
        ({"seed": -1}, "seed is a whole number of at least 0, not -1"),
        ({"seed": 1.5}, "seed is a whole number of at least 0, not 1.5"),
        # words
        ({"norm": "rmsnrm"}, "norm is one of layernorm.* not 'rmsnrm'; did you mean 'rmsnorm'"),
        ({"norm": ["layernorm"]}, "norm is one of"),
        ({"activation": "glu"}, "activation is one of relu, .*; did you mean 'gelu'"),
        ({"init": "xaver"}, "init is one of xavier, .*; did you mean 'xavier'"),
        ({"sublayers": ()}, "a layer has at least one sublayer"),
        ({"sublayers": ("atn", "mlp")}, "not 'atn'; did you mean 'attn'"),
        ({"sublayers": ("f",)}, "a sublayer is one of attn"),
        ({"causal": "yes"}, "causal is True or False, not 'yes'"),
        ({"bias": None}, "bias is True or False, not None"),
        # what contradicts
        ({"placement": "x + f(x)", "init": "paper"}, "whose paper states a rule, and x \\+ f\\(x\\) has none"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads, and 3 does not divide 4; it can be 1, 2, 4"),
        ({"sublayers": ("mlp",), "kv_heads": 2}, "kv_heads is a setting of attention, and no layer has any"),
        ({"sublayers": ("mlp",), "positions": "rotary"}, "rotary positions are a part of self-attention"),
        ({"positions": "learned"}, "give a vocab or features, or use rotary positions"),
        ({"features": 0}, "features is a whole number of at least 1, not 0"),
        ({"features": 4, "vocab": 9}, "ids of a vocab or values of features; give one of the two"),
        ({"features": 4, "tied": True}, "give a vocab and no classes"),
        ({"positions": "rotary", "width": 12, "heads": 4}, "the head width 3 is odd"),
        ({"sublayers": ("attn",), "gated": True}, "gated is a setting of the MLP, and no layer has one"),
        ({"experts": 4}, "experts and a sublayer moe go together"),
        ({"sublayers": ("moe",)}, "experts and a sublayer moe go together"),
        ({"sublayers": ("moe",), "experts": 2, "experts_used": 3}, "from 1 to the 2 experts, not 3"),
        ({"tied": True}, "give a vocab and no classes"),
        ({"sublayers": ("cross",)}, "an encoder and a sublayer cross go together"),
        ({"encoder": Spec()}, "an encoder and a sublayer cross go together"),
        ({"sublayers": ("cross",), "encoder": Spec(classes=2)}, "the Spec of a stack without classes"),
        ({"placement": STRANGE, "init": "paper"}, "the rule of strange is one of xavier, .* not 'orthogonal'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec(**fields)


@pytest.mark.negative
def test_a_formula_that_cannot_be_read_is_refused_with_its_caret() -> None:
    with pytest.raises(FormulaError, match="did you mean 'norm'") as caught:
        Spec(placement="x + f(nrom(x))")
    assert caught.value.column == 6


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"width": 1, "heads": 1}, "1 feature "),
        ({"width": 2, "heads": 2}, "2 features "),
        ({"width": 2, "heads": 1, "placement": "none", "final": "norm(x)"}, "2 features "),
        ({"width": 2, "heads": 1, "placement": "none", "embed": "rmsnorm(x)"}, "2 features "),
    ],
)
def test_a_norm_over_one_or_two_features_is_legal_with_a_warning(fields: dict[str, Any], counts: str) -> None:
    with pytest.warns(NormulaWarning, match=f"a norm over {counts}carries almost nothing") as caught:
        Spec(**fields)
    assert [warning.filename for warning in caught] == [__file__], "it does not point at who made the spec"


@pytest.mark.negative
@pytest.mark.parametrize(
    "fields",
    [
        {"width": 3, "heads": 1},
        {"width": 2, "heads": 1, "placement": "none"},
        {"width": 2, "heads": 1, "norm": "none"},
        {"width": 2, "heads": 1, "placement": "x + f(dyt(x))", "norm": "dyt"},
    ],
    ids=str,
)
def test_a_wider_norm_or_none_gives_no_warning(fields: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Spec(**fields)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_spec_prints_compares_hashes_and_travels(name: str) -> None:
    assert_travels(small(PLACEMENTS[name], final="norm(x)", vocab=11, init="torch", seed=3))


def test_a_spec_with_all_that_it_may_have_travels() -> None:
    assert_travels(
        small(
            "x = x + attn(norm(x), qk=norm); x = x + cross(norm(x)); x = x + moe(norm(x))",
            heads=4,
            kv_heads=2,
            scale=1.0,
            positions="rotary",
            rotary_base=500.0,
            qk_norm="head",
            gated=True,
            experts=3,
            experts_used=1,
            tied=True,
            vocab=7,
            causal=True,
            bias=False,
            dropout=0.1,
            encoder=small("post", vocab=9),
        )
    )


def test_a_spec_on_values_travels_and_knows_positions() -> None:
    spec = small("pre", features=4, classes=3)
    assert_travels(spec)
    assert (spec.embeds, spec.positions) == (True, "learned")
    assert (small("pre").embeds, small("pre").positions) == (False, "none")
    older = {name: value for name, value in small("pre").to_dict().items() if name != "features"}
    assert Spec.from_dict(older) == small("pre")


def assert_travels(spec: Spec) -> None:
    names = {cls.__name__: cls for cls in (Formula, InitialWeights, Placement, Range, Spec)}
    for again in (
        Spec.from_dict(json.loads(json.dumps(spec.to_dict()))),
        eval(repr(spec), names),
        pickle.loads(pickle.dumps(spec)),
    ):
        assert again == spec
        assert hash(again) == hash(spec)


def test_specs_are_equal_however_they_are_said() -> None:
    said = Spec(placement="Pre-LN", hidden=256, sublayers=["attn", "mlp"], embed="1 * x")  # type: ignore[arg-type]
    assert said == Spec(placement="pre", embed=Formula("x"))
    assert said != Spec(placement="pre", embed="x", eps=1e-6)


def test_a_spec_has_the_placements_surroundings_unless_it_has_its_own() -> None:
    assert Spec(placement="pre").final_formula == Formula("norm(x)")
    assert Spec(placement="pre", final="x").final_formula == Formula("x")
    assert Spec(placement="pre", final="x").placed.final == Formula("x")
    assert Spec(placement="post", embed="norm(x)").placed.embed == Formula("norm(x)")


@pytest.mark.negative
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"schema": 99}, "schema 1 is read here; this one has schema 99"),
        ({"schema": 1, "widht": 8}, "no field 'widht'; did you mean 'width'"),
        ({"layers": 0}, "layers is a whole number"),
    ],
)
def test_json_of_another_shape_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.from_dict(data)
